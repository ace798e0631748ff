"""Arguments of the functions that `import emul` offers, looked at before anything is read: a wrong one is named
(`_Arguments` has the types, by pydantic). And the right ones in the form that the layers below take: edits as text,
schemes as entries, plug-ins imported anew.

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
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, InstanceOf, ValidationError

from emul import scenario as scenarios
from emul.base.errors import Problem, ScenarioError
from emul.learning.names import add_folder_of
from emul.scenario import Given, Scenario
from emul.scenario.running import seeds_of as each_once
from emul.scenario.source import of_values
from emul.scenario.wording import scenario_error, shown
from emul.study.cells import check_grid

Names = str | Sequence[str]


def _plain(value: Any) -> Any:
    """Python's own value, of one that may be NumPy's; names in any collection as a list."""
    if isinstance(value, Collection) and not isinstance(value, (str, bytes, Mapping)):
        return list(value)
    return value.item() if isinstance(value, np.generic) else value


def _source(value: Any) -> Any:
    # not InstanceOf[Scenario], for which pydantic would build the validators of all that a scenario has
    if not isinstance(value, (str, os.PathLike, Mapping, Scenario)):
        raise ValueError
    return value


_Path = str | InstanceOf[os.PathLike[str]]
_Names = Annotated[str | list[str], BeforeValidator(_plain)]
_SomeNames = Annotated[str | Annotated[list[str], Field(min_length=1)], BeforeValidator(_plain)]
_UNFIT_VALUES = {"greater_than_equal", "less_than_equal", "too_short", "string_pattern_mismatch"}   # of the right type


class _Arguments(BaseModel, strict=True, defer_build=True):
    """The values that each argument may have; its description is what a user reads who gives another.

    pydantic's `validate_call` at each function would say less: that an input should be a valid integer, and not what
    the argument is for; of a path, a mapping or a scenario why it is neither; and never with a TypeError.
    """

    scenario: Annotated[Any, AfterValidator(_source)] = Field("", description="a path, a mapping or a Scenario")
    schemes: _SomeNames | None = Field(None, description="labels or names of schemes, one at least; None: all")
    scheme: str | None = Field(None, description="the label or name of a scheme; None: all")
    workers: Annotated[int, BeforeValidator(_plain), Field(ge=0)] | None = Field(None, description=(
        "a number of processes, 0 or more (0: none, everything in this process); None: one a core"))
    networks: _SomeNames | None = Field(None, description="names of networks, one at least; None: all")
    task: _Path = Field("", description="the name of a task, or a path")
    baseline: str | None = Field(None, description="the label of a scheme; None: the first")
    set: InstanceOf[Mapping[str, Any]] = Field({}, description='changes by path such as {"stop.rounds": 5}')
    plugins: _Names | None = Field(None, description="the name of a module, or a list of names")
    grid: InstanceOf[Mapping[str, Any]] | None = Field(None, description=(
        'lists of values by path such as {"links[1].outage.p": [0.1, 0.3]}; None: the scenario\'s'))
    jobs: Annotated[int, BeforeValidator(_plain), Field(ge=1)] = Field(1, description="1 or more")
    engine: str = Field("local", pattern="^(local|ray)$", description="local or ray")
    on: str | None = Field(None, description='such as "ray:auto"; None: this machine')
    target: Annotated[float, BeforeValidator(_plain), Field(ge=0, le=1)] | None = Field(None, description=(
        "a number from 0 to 1"))
    size: str = Field("", description='a size such as "1 MB" or "64 KiB"')
    device: str = Field("", description="cpu, cuda or such as cuda:1")
    path: _Path = Field("", description="a path")
    out: _Path | None = Field(None, description="a path, or None")
    done: _Path | None = Field(None, description="a path, or None")
    store: _Path | None = Field(None, description="a path, or None")
    quiet: bool = Field(False, description="True or False")
    keep_trainings: bool = Field(False, description="True or False")


def require(**given: object) -> None:
    """Raise TypeError or ValueError, naming each argument that is wrong, what was found and what is expected."""
    try:
        _Arguments(**given)                         # type: ignore[arg-type]
    except ValidationError as error:
        kinds: dict[str, set[str]] = {}             # argument -> what pydantic found, one for each type that it may be
        for one in error.errors():
            kinds.setdefault(str(one["loc"][0]), set()).add(one["type"])
        fields = _Arguments.model_fields
        said = "\n".join(f"{name} = {repr(value) if value is None or isinstance(value, bool) else shown(value)}: "
                         f"expected {fields[name].description}" for name, value in given.items() if name in kinds)
        raise (ValueError if all(found & _UNFIT_VALUES for found in kinds.values()) else TypeError)(said) from None


def plain(number: int | None) -> int | None:
    """Python's own whole number, of one that may be NumPy's; None: None."""
    return None if number is None else operator.index(number)


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
