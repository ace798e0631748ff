"""Files that are whole or not there, and names as names of files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote


@contextlib.contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; it takes the place of `path` if the block ends well, and goes if not."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def as_file_name(name: str) -> str:
    """A name, of a node for example, as the name of a file: readable where it can be, and no way out of a folder.

    >>> as_file_name("client1"), as_file_name("../a b")
    ('client1', '%2E.%2Fa%20b')
    """
    quoted = quote(name, safe="+,=@()")
    return "%2E" + quoted[1:] if quoted.startswith(".") else quoted


def from_file_name(text: str) -> str:
    """What `as_file_name` was given.

    >>> from_file_name("%2E.%2Fa%20b")
    '../a b'
    """
    return unquote(text)
