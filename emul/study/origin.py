"""The origin of a cell: revision of emul, processor, torch, day. Beside a run of a study, and in rows of tables."""

from __future__ import annotations

import contextlib
import datetime
import subprocess
from functools import cache
from pathlib import Path

from emul import __version__
from emul.base.machine import chip
from emul.record.rundir import read_json
from emul.record.summary import versions
from emul.study.syntax import ROOT

ORIGIN = "origin.json"
COLUMNS = {
    "revision": "commit of emul; with + if files of emul had been changed since; ~ before it: the commit that brought "
                "the row; without a checkout the version",
    "processor": "name of the processor, and a hash of its features",
    "torch": "version of torch",
    "made": "day, UTC",
}


def origin() -> dict[str, str]:
    """`COLUMNS` of a run of this process that ends now."""
    return {"revision": revision(), "processor": chip(), "torch": versions()["torch"], "made": today()}


def read_origin(run: Path) -> dict[str, str]:
    """`COLUMNS` of a run of a study; empty texts: it was run before they were kept."""
    file = run / ORIGIN
    said = read_json(file) if file.is_file() else {}
    return {name: str(said.get(name, "")) for name in COLUMNS}


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


@cache
def revision() -> str:
    """The commit of the checkout that emul is imported from, `5126f34d91`; with + if its files have been changed."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        _git("ls-files", "--error-unmatch", "__init__.py")      # emul may be installed inside of another checkout
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".")
        return _git("rev-parse", "--short=10", "HEAD") + ("+" if changed else "")
    return f"emul {__version__}"


def _git(*said: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *said], capture_output=True, text=True, check=True,
                          timeout=20).stdout.strip()
