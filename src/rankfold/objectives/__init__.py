"""Quadratic objectives: what the solvers minimise, and its value."""
