"""On the path of a worker of `test_workers.py`: its host's wall clock is wrong. Its monotonic clock is not."""

import os
import time

_off = float(os.environ["HOST_CLOCK_OFF"])
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + _off
time.time_ns = lambda: _time_ns() + int(_off * 1e9)
