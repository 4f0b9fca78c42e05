"""Without a repository (in an unpacked source distribution) there is no earlier code to run. A clone has to have its history."""

from __future__ import annotations

from testproject.postgres import PROJECT_ROOT

collect_ignore = [] if (PROJECT_ROOT / ".git").exists() else ["test_previous_code.py"]
