"""What runs jobs: the supervisor, the engine with its exchange loop, slots, heartbeat, listener, maintenance.

`docs/design/worker.md` draws the threads and says which of them decides what.
"""
