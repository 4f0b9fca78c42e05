"""A running handler, and whoever stops it."""
