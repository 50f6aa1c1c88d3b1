"""Encoders: modules that turn rows into vectors whose inner products are scores."""
