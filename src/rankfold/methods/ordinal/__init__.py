"""Methods for rows with an ordered grade."""
