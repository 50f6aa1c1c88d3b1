"""Collectives, heartbeat and connection of the processes of a run; one process by default."""
