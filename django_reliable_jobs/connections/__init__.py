"""Database connections of the package's own: made, bounded, cancelled and cut."""
