"""The rows of schedules, and what became of their fire times."""
