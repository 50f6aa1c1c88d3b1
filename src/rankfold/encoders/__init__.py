"""Encoders: modules that turn rows and texts into vectors."""
