"""The directory of a run: made once, never overwritten, marked until everything is written."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

JOURNAL = "journal"
SUMMARY = "summary.json"
SCENARIO = "scenario.resolved.yaml"
INCOMPLETE = "INCOMPLETE"

_MARK = "This run has not ended, or was killed. Its journal holds what it did until then.\n"


@dataclass(frozen=True)
class RunDirectory:
    """`runs/<name>-<scheme>-<n>` of one run."""

    path: Path

    @property
    def journal(self) -> Path:
        return self.path / JOURNAL

    @property
    def complete(self) -> bool:
        return not (self.path / INCOMPLETE).exists()

    def write(self, name: str, text: str) -> None:
        """Write a text file, whole or not at all."""
        with write_atomically(self.path / name) as path:
            path.write_text(text, encoding="utf-8")

    def finish(self) -> None:
        """Remove the mark: everything is written."""
        (self.path / INCOMPLETE).unlink(missing_ok=True)


def create(out: Path, name: str, scheme: str) -> RunDirectory:
    """Make the first `out/<name>-<scheme>-<n>`, n = 1, 2, ..., that does not exist, marked INCOMPLETE."""
    out.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"[^A-Za-z0-9._-]+", "_", f"{name}-{scheme}").lstrip(".") or "run"
    for n in itertools.count(1):
        path = out / f"{stem}-{n}"
        try:
            path.mkdir()
        except FileExistsError:             # an earlier run's, or of another process that was faster
            continue
        break
    (path / INCOMPLETE).write_text(_MARK, encoding="utf-8")
    return RunDirectory(path)


@contextlib.contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; it takes the place of `path` if the block ends well, and goes if not."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, whole or not at all. NaN and infinity, which JSON lacks, become null."""
    text = json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False)
    with write_atomically(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
