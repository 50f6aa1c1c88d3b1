"""Methods that rank labels for texts."""
