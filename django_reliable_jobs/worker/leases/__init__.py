"""What the worker holds: claimed, extended, handed in."""
