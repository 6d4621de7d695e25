"""Writes the address of a SQLite file as SQLAlchemy reads it, and reads the file from an address."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

_MISREAD = "?{}"
"""SQLAlchemy takes what follows `?` for options, and Optuna replaces what is in braces."""


def sqlite_url(file: Path) -> str:
    """Return the address of a file: `sqlite:////home/me/study.db`.

    A path that would be misread is written as a URI, in which its characters are quoted. The driver is stated there,
    because MLflow takes what follows `sqlite:///` for a path and creates its parent in the working directory.
    """
    path = file.absolute()
    return f"sqlite+pysqlite:///{path.as_uri()}?uri=true" if set(_MISREAD) & set(str(path)) else f"sqlite:///{path}"


def sqlite_file(address: str) -> str | None:
    """Return the path in an address; None for another database and for one in memory."""
    from sqlalchemy.engine import make_url  # imported here: an optional dependency

    file = make_url(address).database if address.startswith("sqlite") else None
    if file is None or file == ":memory:":
        return None
    return unquote(urlsplit(file).path) if file.startswith("file:") else file
