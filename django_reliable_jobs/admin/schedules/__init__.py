"""The pages of schedules and their runs."""
