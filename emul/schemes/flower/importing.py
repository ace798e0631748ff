"""The import of an app's modules: each as if it were the first thing that the app does.

A module draws from a stream of its own, at virtual time 0, whoever imports it and when: workers import them in another
order for another number of workers. And for it `datetime` is `emul.schemes.flower.clock.DATETIME`.
"""

from __future__ import annotations

import builtins
import datetime
import importlib.abc
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any, ClassVar

from emul.schemes.flower import clock
from emul.schemes.flower.current import Running, run_as
from emul.schemes.flower.randomness import Entropy, aside


class AppFinder(importlib.abc.MetaPathFinder):
    """Finds the modules of one app, until there is another one. owns: whether a module of this name is one of them."""

    _newest: ClassVar[AppFinder | None] = None

    def __init__(self, seed: int, owns: Callable[[str], bool]):
        self._seed, self._owns = seed, owns

    def install(self) -> None:
        """From now on modules are imported by this one."""
        if AppFinder._newest in sys.meta_path:
            sys.meta_path.remove(AppFinder._newest)
        AppFinder._newest = self
        sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None,
                  ) -> ModuleSpec | None:
        found = PathFinder.find_spec(fullname, path, target) if self._owns(fullname) else None
        if found is not None and type(found.loader) is SourceFileLoader:
            found.loader = _Loader(fullname, found.loader.path, self._seed)
        return found


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, seed: int):
        super().__init__(fullname, path)
        self._seed = seed

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": _import}
        entropy = Entropy(self._seed, "module", module.__name__)
        with aside(self._seed, "module", module.__name__), run_as(Running(0, clock.Clock(0, _do_nothing),
                                                                          entropy=entropy)):
            super().exec_module(module)


def _import(name: str, *how: Any, **more: Any) -> Any:
    """`import`, as modules of an app have it."""
    module = builtins.__import__(name, *how, **more)
    return clock.DATETIME if module is datetime else module


def _do_nothing(seconds: float) -> None:
    """`sleep` while a module is imported: it takes no time."""
