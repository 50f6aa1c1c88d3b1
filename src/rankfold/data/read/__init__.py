"""Readers, one file per format. They import nothing from ``build``."""
