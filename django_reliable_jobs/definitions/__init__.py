"""What code declares: jobs, schedules, and the registry of both. Data, no verbs."""
