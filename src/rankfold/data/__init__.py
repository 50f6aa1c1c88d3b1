"""Data: read files, build data sets, keep them in folders."""
