"""The request of a call, in the form that the layers below take: edits as text, schemes as entries, plug-ins anew."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
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


# ---- plug-ins ----

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
