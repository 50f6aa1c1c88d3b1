"""Fitting step by step: checkpoints, and when to stop."""
