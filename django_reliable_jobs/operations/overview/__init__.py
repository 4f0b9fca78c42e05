"""The figures of the overview."""
