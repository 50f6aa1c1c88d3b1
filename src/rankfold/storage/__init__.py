"""A folder on disk: manifest, checksums, atomic replace, JSON text."""
