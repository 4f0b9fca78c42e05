"""A thread class of ours must not use a name that `threading.Thread` keeps for itself, in any Python that we support.

In 3.13 `Thread._handle` became an instance attribute and hid a method of that name; in 3.11 `Thread._stop` is a method that
`join()` calls.
"""

from __future__ import annotations

import ast
import threading
from pathlib import Path

import pytest

import django_reliable_jobs

PACKAGE = Path(django_reliable_jobs.__file__).parent
#: Those of 3.11 to 3.14 that this Python may not have.
TAKEN = {"_handle", "_stop", "_is_stopped", "_tstate_lock", "_set_tstate_lock", "_reset_internal_locks", "_after_fork"}
TAKEN |= {"_wait_for_tstate_lock", "_context", "_os_name", "_native_id", "_invoke_excepthook"}
TAKEN |= {name for name in {*dir(threading.Thread), *vars(threading.Thread())} if not name.startswith("__")}
#: What a subclass is meant to have.
MEANT = {"run", "name", "daemon"}

THREADS = [
    pytest.param(node, id=f"{path.relative_to(PACKAGE)}:{node.name}")
    for path in sorted(PACKAGE.rglob("*.py"))
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Thread") for base in node.bases)
]


def test_the_package_has_threads_to_look_at() -> None:
    assert len(THREADS) >= 5


@pytest.mark.parametrize("thread", THREADS)
def test_a_thread_class_takes_no_name_of_threading(thread: ast.ClassDef) -> None:
    methods = {node.name for node in thread.body if isinstance(node, ast.FunctionDef)}
    attributes = {
        node.attr
        for node in ast.walk(thread)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    assert (methods | attributes) & TAKEN <= MEANT
