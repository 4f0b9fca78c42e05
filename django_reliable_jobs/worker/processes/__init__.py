"""The processes of a worker: supervisor, worker, and the children for isolated jobs."""
