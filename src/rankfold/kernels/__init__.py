"""Faster spellings of a reference function; a test says that the two are equal."""
