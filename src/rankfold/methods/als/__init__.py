"""Methods solved by alternating least squares."""
