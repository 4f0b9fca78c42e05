from tests.support.guards.fixtures import (
    _as_in_a_new_process,
    configure,
    database,
    no_helper_left,
    pgbouncer,
    store,
    test_database,
    troupe,
    valkey,
    valkey_server,
    way,
)

__all__ = [
    "_as_in_a_new_process",
    "configure",
    "database",
    "no_helper_left",
    "pgbouncer",
    "store",
    "test_database",
    "troupe",
    "valkey",
    "valkey_server",
    "way",
]
