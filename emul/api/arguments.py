"""Arguments of the functions that `import emul` offers, looked at before anything is read: a wrong one is named. And
the right ones in the form that the layers below take: edits as text, schemes as entries, plug-ins anew.

    require(workers=workers, out=out)       TypeError: workers = "two": expected a number of processes, ...
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import importlib.util
import json
import operator
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emul import scenario as scenarios
from emul.base.errors import Problem, ScenarioError
from emul.learning.names import add_folder_of
from emul.scenario import Given, Scenario
from emul.scenario.running import seeds_of as each_once
from emul.scenario.source import of_values
from emul.scenario.wording import scenario_error, shown
from emul.study.cells import check_grid


@dataclass(frozen=True)
class ArgumentKind:
    """The values that an argument may have. fits: whether its type is right; holds: whether a value of this type is."""

    expected: str
    fits: Callable[[Any], bool]
    holds: Callable[[Any], bool] = lambda value: True


def require(**given: object) -> None:
    """Raise TypeError or ValueError, naming each argument that is wrong, what was found and what is expected."""
    unfit = {name for name, value in given.items() if not _KINDS[name].fits(value)}
    wrong = [name for name, value in given.items() if name in unfit or not _KINDS[name].holds(value)]
    if wrong:
        said = "\n".join(f"{name} = {_shown(given[name])}: expected {_KINDS[name].expected}" for name in wrong)
        raise TypeError(said) if unfit else ValueError(said)


def plain(number: int | None) -> int | None:
    """Python's own whole number, of one that may be NumPy's; None: None."""
    return None if number is None else operator.index(number)


def _shown(value: Any) -> str:
    return repr(value) if value is None or isinstance(value, bool) else shown(value)


def _is_empty(value: object) -> bool:
    return isinstance(value, Collection) and len(value) == 0


def _is_path(value: object) -> bool:
    return isinstance(value, (str, os.PathLike))


def _is_whole(value: Any) -> bool:
    """A number without a fraction, NumPy's included; True and False are none."""
    try:
        operator.index(value)
    except TypeError:
        return False
    return not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    try:
        return not isinstance(value, (bool, str)) and float(value) == float(value)
    except (TypeError, ValueError):
        return False


def _are_names(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, Collection) and not isinstance(value, (bytes, Mapping))
                                      and all(isinstance(name, str) for name in value))


def _or_none(fits: Callable[[object], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


_PATH_OR_NONE = ArgumentKind("a path, or None", _or_none(_is_path))
_KINDS = {
    "scenario": ArgumentKind("a path, a mapping or a Scenario",
                             lambda value: _is_path(value) or isinstance(value, (Mapping, Scenario))),
    "schemes": ArgumentKind("labels or names of schemes, one at least; None: all", _or_none(_are_names),
                            lambda value: value is None or not _is_empty(value)),
    "scheme": ArgumentKind("the label or name of a scheme; None: all", _or_none(lambda value: isinstance(value, str))),
    "workers": ArgumentKind("a number of processes, 0 or more (0: none, everything in this process); None: one a core",
                            _or_none(_is_whole), lambda value: value is None or value >= 0),
    "networks": ArgumentKind("names of networks, one at least; None: all", _or_none(_are_names),
                             lambda value: value is None or not _is_empty(value)),
    "task": ArgumentKind("the name of a task, or a path", _is_path),
    "baseline": ArgumentKind("the label of a scheme; None: the first", _or_none(lambda value: isinstance(value, str))),
    "set": ArgumentKind('changes by path such as {"stop.rounds": 5}', lambda value: isinstance(value, Mapping)),
    "plugins": ArgumentKind("the name of a module, or a list of names", _or_none(_are_names)),
    "grid": ArgumentKind('lists of values by path such as {"links[1].outage.p": [0.1, 0.3]}; None: the scenario\'s',
                         _or_none(lambda value: isinstance(value, Mapping))),
    "jobs": ArgumentKind("1 or more", _is_whole, lambda value: value >= 1),
    "engine": ArgumentKind("local or ray", lambda value: isinstance(value, str),
                           lambda value: value in ("local", "ray")),
    "on": ArgumentKind('such as "ray:auto"; None: this machine', _or_none(lambda value: isinstance(value, str))),
    "target": ArgumentKind("a number from 0 to 1", _or_none(_is_number),
                           lambda value: value is None or 0 <= value <= 1),
    "size": ArgumentKind('a size such as "1 MB" or "64 KiB"', lambda value: isinstance(value, str)),
    "device": ArgumentKind('cpu, cuda or such as cuda:1', lambda value: isinstance(value, str)),
    "path": ArgumentKind("a path", _is_path),
    "out": _PATH_OR_NONE, "done": _PATH_OR_NONE, "store": _PATH_OR_NONE,
    "quiet": ArgumentKind("True or False", lambda value: isinstance(value, bool)),
    "keep_trainings": ArgumentKind("True or False", lambda value: isinstance(value, bool)),
}


Names = str | Sequence[str]


def loaded(given: Given, set: Mapping[str, object], seed: int | None, plugins: Names) -> Scenario:
    """The checked scenario. Raises ScenarioError."""
    own = listed(plugins)
    refresh(own)
    return scenarios.load(given, edits(set), seed, plugins=own)


def edits(set: Mapping[str, object]) -> list[str]:
    """`{"stop.rounds": 5}` as the command line says it. Raises ScenarioError for values that no file can hold.

    >>> edits({"stop.rounds": 5, "task.partition": {"dirichlet": 0.2}})
    ['stop.rounds=5', 'task.partition={"dirichlet": 0.2}']
    """
    source = of_values(set)
    if source.problems:
        raise scenario_error("set", source.problems)
    return [f"{path}={json.dumps(value, ensure_ascii=False)}" for path, value in source.tree.items()]


def listed(names: Names | None) -> list[str]:
    """One name, or several, as a list.

    >>> listed("fedavg"), listed(None)
    (['fedavg'], [])
    """
    return [names] if isinstance(names, str) else list(names or ())


def seeds_of(seeds: Sequence[int] | None) -> tuple[int, ...] | None:
    """Each once, in their order: a seed that counted twice would make differences look surer than they are. None: the
    scenario's. Raises ScenarioError.

    >>> seeds_of([3, 1, 3])
    (3, 1)
    """
    if seeds is None:
        return None
    said = of_values(seeds).tree
    try:
        return each_once(said)
    except ValueError as e:
        raise ScenarioError("seeds", [Problem("", shown(said), str(e))]) from None


def grid_of(grid: Mapping[str, Sequence[object]] | None) -> dict[str, list[Any]] | None:
    """Lists of plain values by path; None: the scenario's. Raises ScenarioError."""
    if grid is None:
        return None
    source = of_values(grid)
    for path, values in source.tree.items():
        if not isinstance(values, list) or not values:
            source.problem((path,), shown(values), "expected a list of values")
    if source.problems:
        raise scenario_error("grid", source.problems)
    found: dict[str, list[Any]] = source.tree
    check_grid(found, "grid")
    return found


def only(scenario: Scenario, schemes: Names | None) -> Scenario:
    """The scenario with these of its schemes alone, by label or name; None: all. Raises ScenarioError."""
    if schemes is None:
        return scenario
    file = scenarios.named(scenario)
    wanted = [entry for name in listed(schemes) for entry in scenarios.chosen(scenario.schemes, name, file, "schemes")]
    return dataclasses.replace(scenario, schemes=[entry for entry in scenario.schemes if entry in wanted])


# --- plug-ins --------------------------------------------------------------------------------------------------------

_imported: dict[str, bytes] = {}        # module -> digest of the file that it was imported from


def refresh(plugins: Sequence[str]) -> None:
    """Forget modules whose file was changed since they were imported: in a notebook one edits, and runs again.

    Workers import plug-ins anew for every run. Modules that a plug-in imports itself are not looked at.
    """
    importlib.invalidate_caches()
    for name in plugins:
        add_folder_of(name)
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        if file is not None and _imported.get(name) != _digest(file):
            cached = getattr(module, "__cached__", None)
            if cached is not None:
                with contextlib.suppress(OSError):          # its byte code, which is as old as a second of time
                    Path(cached).unlink()
            del sys.modules[name]
        spec = _found(name)
        if spec is not None:
            _imported[name] = _digest(spec)


def _found(name: str) -> str | None:
    """The file that a module would be imported from; None: there is none, which importing it will tell."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    return spec.origin if spec is not None and spec.has_location else None


def _digest(file: str) -> bytes:
    try:
        return hashlib.blake2b(Path(file).read_bytes()).digest()
    except OSError:
        return b""
