"""A fitted model in use: load, search, grade, update."""
