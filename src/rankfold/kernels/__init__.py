"""Fast versions of reference functions; a test compares each with its reference."""
