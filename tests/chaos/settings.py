"""What the fleet's processes and the producers run with: the tests' settings and the workload."""

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.chaos.workload"]
