"""The processes of a run: one by default, several under torchrun."""
