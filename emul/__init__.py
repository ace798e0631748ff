"""emul: a network emulator for federated learning.

Schemes really run in worker processes; a SimPy event calendar decides, in virtual time, when each message arrives or
that it is lost; every byte is counted.

    emul.load_run(path)       the tables of a run directory, as pandas frames: see `emul.record.tables`
    emul.load_study(path)     the tables of a sweep or a comparison: see `emul.study.load`
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {"load_run": "emul.record.tables", "load_study": "emul.study.load"}


def __getattr__(name: str) -> Any:
    """The functions above, imported when first asked for: `emul run` needs neither, and no layer may come with them."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
