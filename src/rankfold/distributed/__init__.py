"""Collectives, heartbeat and connection of the processes of a run; one process by default."""

import os


def is_distributed() -> bool:
    """Whether a launcher like torchrun started several processes. Does not import torch."""
    names = ("RANK", "MASTER_ADDR", "MASTER_PORT")
    return os.environ.get("WORLD_SIZE", "1") != "1" and all(name in os.environ for name in names)
