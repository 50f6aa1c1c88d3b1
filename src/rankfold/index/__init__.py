"""Where the best candidates are found: ``exact`` is the reference for whatever is faster."""
