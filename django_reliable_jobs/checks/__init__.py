"""System checks, all under one tag."""
