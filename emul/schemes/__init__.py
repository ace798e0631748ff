"""The schemes: one file each, found by its name.

`find("fedavg")` is the module `emul.schemes.fedavg`; schemes of users come by entry points (group `emul.schemes`) or
by `--plugin package.module`. A module exports `Params`, its messages, its role coroutines and `ROLES`; optionally
`DECIDES`, `BEHAVIOURS`, `check(params, world)`, `analysis(params, links)`.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import entry_points
from types import ModuleType

from emul.base.errors import EmulError

ENTRY_POINTS = "emul.schemes"
_NEEDED = ("Params", "ROLES")


class UnknownScheme(EmulError):
    """No scheme has this name; `nearest` is the likeliest one meant, or None."""

    def __init__(self, name: str, known: Sequence[str]):
        close = difflib.get_close_matches(name, known, 1)
        self.nearest = close[0] if close else None
        hint = f'; did you mean "{self.nearest}"?' if self.nearest else f"; known: {', '.join(known)}"
        super().__init__(f'unknown scheme "{name}"{hint}')


class NotAScheme(EmulError):
    """A module lacks what a scheme exports, or cannot be imported."""


def known(plugins: Sequence[str] = ()) -> dict[str, str]:
    """Name -> module of every scheme: ours, those of entry points, those of plug-ins (named by their last part)."""
    found = {m.name: f"{__name__}.{m.name}" for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")}
    found |= _installed()
    found |= {module.rpartition(".")[2]: module for module in plugins}
    return dict(sorted(found.items()))


@cache
def _installed() -> dict[str, str]:
    """Of the packages installed; to look takes 10 ms."""
    return {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}


def find(name: str, plugins: Sequence[str] = ()) -> ModuleType:
    """The scheme's module. Raises UnknownScheme, or NotAScheme for a module that cannot be one."""
    if name in _lent:
        return _lent[name]
    modules = known(plugins)
    if name not in modules:
        raise UnknownScheme(name, list(modules))
    try:
        module = importlib.import_module(modules[name])
    except ImportError as e:
        raise NotAScheme(f'scheme "{name}" ({modules[name]}) cannot be imported: {e}') from e
    missing = [n for n in _NEEDED if not hasattr(module, n)]
    if missing:
        raise NotAScheme(f'scheme "{name}" ({modules[name]}) lacks {" and ".join(missing)}')
    return module


_lent: dict[str, ModuleType] = {}


@contextlib.contextmanager
def lend(name: str, module: ModuleType) -> Iterator[None]:
    """Inside the block `find(name)` is `module`, in this process alone: for roles that no file can be imported for."""
    before = _lent.get(name)
    _lent[name] = module
    try:
        yield
    finally:
        del _lent[name]
        if before is not None:
            _lent[name] = before


def deciders(module: ModuleType, roles: dict[str, list[int]]) -> list[int]:
    """The nodes whose rounds are the run's: DECIDES, by default the servers if there are any, else all."""
    chosen = getattr(module, "DECIDES", None)
    if chosen is None:
        chosen = ("server",) if roles.get("server") else tuple(roles)
    elif isinstance(chosen, str):
        chosen = (chosen,)
    return sorted(node for role in chosen for node in roles.get(role, []))
