from tests.support.admin.fixtures import (
    root,
    staff,
)

__all__ = [
    "root",
    "staff",
]
