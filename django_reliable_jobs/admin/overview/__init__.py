"""The overview: what is wrong, first."""
