"""A database's address as a URL and as an entry of DATABASES."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode


def database_url(
    dbname: str, *, host: str, port: int | str = "", user: str = "postgres", password: str = "", **options: object
) -> str:
    """`host` may be a socket's folder, which goes into the query: in the host's place django-environ
    would not decode it."""
    login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    if host.startswith("/"):
        options = {"host": host, **({"port": port} if port else {}), **options}
        address = ""
    else:
        address = f"[{host}]" if ":" in host else host
        address += f":{port}" if port else ""
    query = f"?{urlencode(options, quote_via=quote, safe='/')}" if options else ""
    return f"postgresql://{login}@{address}/{quote(dbname, safe='')}{query}"


def django_database(url: str) -> dict[str, Any]:
    """An entry of DATABASES, with a socket's folder where Django and its users look for it."""
    import environ

    config: dict[str, Any] = environ.Env.db_url_config(url)
    options = config.setdefault("OPTIONS", {})
    for name in ("host", "port"):
        if name in options:
            config[name.upper()] = options.pop(name)
    return config


def url_of(config: Mapping[str, Any]) -> str:
    """The URL of an entry of DATABASES, for a process that is to use the same database."""
    options = {name: value for name, value in config.get("OPTIONS", {}).items() if isinstance(value, (str, int))}
    return database_url(
        config["NAME"],
        host=config["HOST"],
        port=config["PORT"],
        user=config["USER"],
        password=config["PASSWORD"],
        **options,
    )
