"""The lock on each kind of database."""
