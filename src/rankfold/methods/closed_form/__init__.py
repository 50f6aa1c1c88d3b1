"""Methods with a closed-form solution."""
