"""How many cores this process may use: those of its affinity, within its container's quota."""

import math
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def usable_cores(cgroup: Path = CGROUP) -> int:
    """At least 1. A quota of 1.5 cores counts as 2 threads."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return max(1, min(cores, _quota(cgroup)))


def _quota(cgroup: Path) -> int:
    """The quota of cgroup 2 (``cpu.max``) or 1, rounded up; a large number without one."""
    try:
        if (cgroup / "cpu.max").exists():
            quota, period = (cgroup / "cpu.max").read_text().split()
        else:
            files = (cgroup / "cpu" / f"cpu.cfs_{name}_us" for name in ("quota", "period"))
            quota, period = (file.read_text().strip() for file in files)
        return math.ceil(int(quota) / int(period)) if int(quota) > 0 else 10**6
    except (OSError, ValueError):  # no cgroup, or "max"
        return 10**6
