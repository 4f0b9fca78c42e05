"""A due schedule becomes runs with their jobs."""
