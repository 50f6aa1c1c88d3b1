"""The memory that is left to this process."""

import re
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def free_memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = _CGROUP) -> int:
    """Bytes that this process may still use; 0 if the system does not say."""
    try:
        match = re.search(r"MemAvailable:\s+(\d+) kB", meminfo.read_text())
        free = 1024 * int(match[1]) if match else 0
    except OSError:
        return 0
    try:
        limit, used = ((cgroup / f"memory.{name}").read_text() for name in ("max", "current"))
        cache = re.search(r"^inactive_file (\d+)", (cgroup / "memory.stat").read_text(), re.M)
        free = min(free, int(limit) - int(used) + int(cache[1] if cache else 0))
    except (OSError, ValueError):  # no such cgroup, or no limit
        pass
    return max(0, free)
