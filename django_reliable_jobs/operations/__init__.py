"""What people ask of the whole: figures of the queues, the workers and the schedules. Reads only."""
