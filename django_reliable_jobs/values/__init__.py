"""Values: no database, no Django models."""
