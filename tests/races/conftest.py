"""Sessions for the races. Every one of these tests commits, and runs on more than one connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.sessions import Session, impatient


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/races/" in str(item.path):
            item.add_marker(pytest.mark.django_db(transaction=True))


@pytest.fixture
def sessions(transactional_db: None) -> Iterator[Callable[[], Session]]:
    """Makes sessions that end with the test. A statement in one that waits for a lock too long is an error."""
    made: list[Session] = []

    def make() -> Session:
        session = Session()
        made.append(session)
        session.do(impatient)
        return session

    yield make
    for session in made:
        session.__exit__()
