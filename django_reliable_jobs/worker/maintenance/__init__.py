"""What any worker does for all: reap, expire, prune, fire schedules."""
