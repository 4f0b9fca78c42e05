"""The house holds itself: who writes, how long a module may be, and that the picture names every folder."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import django_reliable_jobs

PACKAGE = Path(django_reliable_jobs.__file__).parent
ROOT = Path(__file__).parents[3]
PICTURE = ROOT / "docs" / "design" / "house.md"
LONGEST = 400

#: What writes when it is called on a manager, a queryset or an instance.
VERBS = {"save", "create", "update", "delete", "bulk_create", "bulk_update", "get_or_create", "update_or_create"}
VERBS |= {f"a{verb}" for verb in VERBS} | {"select_for_update"}
#: What makes a queryset: `update` on anything else is that of a dict or a set.
QUERIES = {"objects", "using", "filter", "exclude", "all", "order_by", "annotate", "_base_manager", "_default_manager"}
#: Rooms that write the project's own models, which their callers hand them.
THEIRS = {"fencing.py", "guards/claim_rows.py"}
STATEMENT = re.compile(
    r"\b(INSERT\s+INTO|UPDATE|DELETE\s+FROM|FOR\s+(NO\s+KEY\s+)?UPDATE)\b.*django_reliable_jobs_", re.S
)


def modules(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*.py") if "node_modules" not in path.parts)


def rooms() -> list[Path]:
    outside = [path for path in modules(PACKAGE) if path.relative_to(PACKAGE).parts[0] not in ("store", "migrations")]
    return [path for path in outside if path.relative_to(PACKAGE).as_posix() not in THEIRS]


def store_names(tree: ast.Module) -> set[str]:
    """What a module calls the rooms whose verbs it may use."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and re.match(
            r"django_reliable_jobs(\.store|\.control)?\b", node.module or ""
        ):
            found |= {alias.asname or alias.name for alias in node.names}
    return found - set(django_reliable_jobs_models())


def django_reliable_jobs_models() -> list[str]:
    from django_reliable_jobs import models

    return list(models.__all__)


def chain(node: ast.expr) -> Iterator[str]:
    """The names in `a.b(c).d`, from the right."""
    while True:
        if isinstance(node, ast.Attribute):
            yield node.attr
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        elif isinstance(node, ast.Subscript):
            node = node.value
        else:
            if isinstance(node, ast.Name):
                yield node.id
            return


def writes(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    allowed = store_names(tree)
    for node in ast.walk(tree):
        where = f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and STATEMENT.search(node.value):
            yield f"{where}: a statement"
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in VERBS:
            continue
        names = list(chain(node.func.value))
        if names and names[-1] in allowed:
            continue
        is_query = bool(QUERIES & set(names)) or any("queryset" in name or "rows" in name for name in names)
        if (
            node.func.attr not in ("update", "aupdate", "save", "delete")
            or is_query
            or (node.func.attr in ("save", "delete") and names[-1:] not in (["self"], ["super"]))
        ):
            yield f"{where}: .{node.func.attr}()"


def test_only_the_store_writes() -> None:
    assert [each for path in rooms() for each in writes(path)] == []


@pytest.mark.parametrize(
    "code",
    [
        "Job.objects.filter(pk=1).update(status='DONE')",
        "Job.objects.using(a).create()",
        "job.save()",
        "queryset.delete()",
        "Job.objects.select_for_update()",
        "cursor.execute('UPDATE django_reliable_jobs_job SET status = 1')",
    ],
)
def test_a_write_elsewhere_would_be_found(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "room.py"
    path.write_text(f"from django_reliable_jobs.models import Job\n{code}\n")
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    assert len(list(writes(path))) == 1


def test_no_module_is_too_long() -> None:
    counted = {
        path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines())
        for folder in ("django_reliable_jobs", "testproject", "benchmarks", "scripts", "tests")
        for path in modules(ROOT / folder)
    }
    assert {path: lines for path, lines in counted.items() if lines > LONGEST} == {}


def test_the_picture_names_every_folder() -> None:
    picture = PICTURE.read_text()
    folders = {
        path.parent.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix in (".py", ".sql", ".lua") and "__pycache__" not in path.parts
    }
    assert [each for each in sorted(folders - {"."}) if f"{each.rpartition('/')[2]}/" not in picture] == []
