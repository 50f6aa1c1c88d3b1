"""Closed-form and second-order solvers: arrays in, arrays out; they know no method and no file."""
