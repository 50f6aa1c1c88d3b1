"""Quadratic objectives, which the solvers minimise, and their values."""
