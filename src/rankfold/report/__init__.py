"""Charts, and the report of a comparison."""
