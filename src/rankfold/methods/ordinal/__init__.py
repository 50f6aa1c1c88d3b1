"""Methods for rows with an ordered grade: one file per family of recipes."""
