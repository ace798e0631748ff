"""Files that are read up to a limit, files that are whole or not there, names as names of files, and folders that go
with their process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote

from emul.base.errors import NotRecorded

MOST_BYTES = 64 * 2**20         # of a file that a scenario names, unless its reader says otherwise


@contextlib.contextmanager
def regular(path: Path) -> Iterator[BinaryIO]:
    """A regular file, open to be read. Raises OSError, also for a file of another kind.

    A pipe without a writer is not waited for, and a device is not read: either would never end.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as e:         # a name with a null byte
        raise OSError(errno.EINVAL, str(e), str(path)) from None
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is no regular file", str(path))
        yield file


def read_limited(path: Path, most: int = MOST_BYTES) -> bytes:
    """The bytes of a regular file of at most `most` bytes. Raises OSError, also for a file of another kind or size."""
    with regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        raw = file.read(most + 1) if size <= most else b""
        if len(raw) > most or size > most:
            limit = f"{most >> 20} MiB" if most >> 20 else f"{most} bytes"
            raise OSError(errno.EFBIG, f"has more than {limit}", str(path))
    return raw


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """The text of a file as `read_limited`, in UTF-8 with or without a BOM. Raises OSError, also for other bytes."""
    raw = read_limited(path, most)
    try:
        text = raw.decode("utf-8-sig")
    except ValueError:
        text = "\0"
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff") or "\0" in text[:1000]:
        wide = raw[:2] in (b"\xff\xfe", b"\xfe\xff") or raw[:200].count(0) * 3 > len(raw[:200])
        raise OSError(errno.EILSEQ, "is UTF-16: save it as UTF-8" if wide else "is no UTF-8 text", str(path))
    return text


@contextlib.contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; it takes the place of `path` if the block ends well, and goes if not.

    An OSError of the block that is about this file names `path`.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EEXIST, "is no regular file", str(path))        # a device would be replaced by a file
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)       # else a link that somebody has laid there is written through
        yield temporary
        os.replace(temporary, path)
    except OSError as e:
        if e.filename not in (None, str(temporary)) or e.errno is None:
            raise                       # about another file
        raise OSError(e.errno, os.strerror(e.errno), str(path)) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def recorded(home: Path) -> Iterator[None]:
    """Inside the block an OSError is that the run directory `home` cannot be written: NotRecorded."""
    try:
        yield
    except OSError as e:
        raise NotRecorded(f"{e.filename or home}: {strerror(e)}") from None


def strerror(error: OSError) -> str:
    """The system's message, in the words of `errno` also where a library has wrapped it.

    >>> strerror(OSError(28, "[Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device"))
    'No space left on device'
    """
    return str(error) if error.errno is None else os.strerror(error.errno)


def as_file_name(name: str) -> str:
    """A name, of a node for example, as the name of a file: readable where it can be, and no way out of a folder.

    >>> as_file_name("client1"), as_file_name("../a b")
    ('client1', '%2E.%2Fa%20b')
    """
    quoted = quote(name, safe="+,=@()")
    return "%2E" + quoted[1:] if quoted.startswith(".") else quoted


def from_file_name(text: str) -> str:
    """The name that `as_file_name` was given.

    >>> from_file_name("%2E.%2Fa%20b")
    '../a b'
    """
    return unquote(text)


# --- folders that go with their process -------------------------------------------------------------------------------

_HELD = "emul.lock"                 # in such a folder, locked as long as its process lives
_locks: dict[Path, int] = {}        # descriptors of this process


def hold_folder(folder: Path) -> None:
    """This process needs a temporary folder while it lives; `remove_left_folders` of another one removes it then. A
    process that is killed with all of its group leaves its own behind."""
    if folder in _locks:
        return
    path = folder / f".{_HELD}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.rename(path, folder / _HELD)             # only now: a lock that nobody holds yet is no sign of an end
    _locks[folder] = descriptor


def remove_held_folder(folder: Path) -> None:
    """The folder is not needed any more."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder in _locks:
        os.close(_locks.pop(folder))


def remove_left_folders(parent: Path, prefixes: Sequence[str]) -> None:
    """Remove the folders of this user whose processes have ended. Only those of `hold_folder`, whose lock tells: the
    number of a process may be another one's by now, or of another container."""
    with contextlib.suppress(OSError):
        for folder in os.scandir(parent):
            if folder.name.startswith(tuple(prefixes)) and folder.is_dir(follow_symlinks=False) and (
                    folder.stat(follow_symlinks=False).st_uid == os.getuid()):
                with contextlib.suppress(OSError), open(Path(folder) / _HELD, "rb") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)


# --- files that a wheel carries beside the code: scenarios, topologies, the schema of scenarios -----------------------

_PACKAGE = Path(__file__).resolve().parents[1]
CARRIED = _PACKAGE / "shipped"          # the folder of a wheel that has them; see setup.py
SHIPPED = {"scenarios": "scenarios", "topologies": "topologies",
           "emul.schema.json": "emul.schema.json", "CITATION.cff": "CITATION.cff",
           "constraints.txt": "constraints.txt"}    # name -> where a checkout has it


def shipped(name: str) -> Path:
    """The file or folder of a name, of the wheel or of the checkout that this is. Raises FileNotFoundError."""
    carried = CARRIED / name
    found = carried if carried.exists() else _PACKAGE.parent / SHIPPED[name]
    if not found.exists():
        raise FileNotFoundError(f"{found}: this installation carries no {name}")
    return found
