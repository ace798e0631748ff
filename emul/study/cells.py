"""The cells of a study: one scheme, one seed and one set of values each, named by what they resolve to.

A cell's key is a hash of its resolved scenario, in which the contents of files stand in place of their names, of the
version of emul and of the scheme's own file. So it is the same wherever the checkout lies.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from itertools import product
from pathlib import Path

from emul import __version__, scenario
from emul.base.errors import Problem, ScenarioError
from emul.base.plain import PlainDict
from emul.learning import names
from emul.record.rundir import JOURNAL
from emul.registry import schemes
from emul.scenario import Edit, Given, Scenario, chosen, label_of, named
from emul.scenario.schemes import LABEL
from emul.scenario.source import read
from emul.scenario.wording import place, shown
from emul.study import syntax

KEY_BYTES = 8       # of 10**6 cells, two have one key with probability 3e-8
_RESERVED = {"seed": "--seeds", "sweep": "the section itself", "name": "--out"}


@dataclass(frozen=True)
class Cell:
    """One run of a study. Cells of one key share it.

    scheme: the label of its entry. values: those of the grid that it depends on. given, sets: the
    file and the edits of the whole study; None: its scenario was in no file. network: of a suite, where it runs.
    """

    key: str
    scheme: str
    seed: int
    values: PlainDict
    scenario: Scenario
    given: Path | None = None
    sets: tuple[Edit, ...] = ()
    network: str = ""

    @property
    def text(self) -> str:
        """The name of the cell for people: `secagg seed 3 schemes.secagg.threshold=4`."""
        return " ".join([*([self.network] if self.network else []), self.scheme, f"seed {self.seed}",
                         *(f"{path}={shown(v)}" for path, v in self.values.items())])


def cells(given: Given, grid: Mapping[str, Sequence[object]], seeds: Sequence[int] | None = None,
          only: Sequence[str] = (), sets: Sequence[Edit] = (), plugins: Sequence[str] = ()) -> list[Cell]:
    """The cells of every combination of the grid's values, in the order values, seeds, schemes.

    A scheme that does not depend on a value of the grid has one cell for all values of it, which then lacks this
    path. seeds: None: the scenario's own. only: labels or names of schemes; empty: all. Raises ScenarioError for a
    combination that is no sound scenario, and for labels that no scheme has.
    """
    for known in (_fingerprint_of, _source_of):    # files may have changed since the last study of this process
        known.cache_clear()
    # a series goes by one label whatever the grid does to its parameters
    labels = [label_of(*entry) for entry in scenario.load(given, sets, check=False).schemes]
    found: dict[tuple[str, str], list[tuple[int, dict[str, object], Scenario]]] = {}
    for values in combinations(grid):
        edits = [*sets, *(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in values.items())]
        base = scenario.load(given, edits, None if seeds is None else seeds[0], plugins=plugins)
        entries = base.schemes
        if len(entries) == len(labels):             # else they go by their own
            entries = [(name, {**_unlabelled(raw), **({} if label == name else {LABEL: label})})
                       for (name, raw), label in zip(entries, labels, strict=True)]
        picked = [label_of(*entry) for one in only for entry in chosen(entries, one, named(given), "--schemes")]
        wanted = [entry for entry in entries if not only or label_of(*entry) in picked]
        for seed in seeds if seeds is not None else [base.seed]:
            for entry in wanted:
                one = replace(base, seed=seed, schemes=[entry])
                found.setdefault((label_of(*entry), key(one, plugins)), []).append((seed, values, one))
    file = Path(given) if isinstance(given, str | os.PathLike) else None
    made = []
    for (label, name), same in found.items():       # one cell of all combinations that resolve to it
        seed, values, one = same[0]
        shared = {path: value for path, value in values.items() if all(other[1][path] == value for other in same)}
        made.append(Cell(name, label, seed, shared, one, file, tuple(sets)))
    return made


def _unlabelled(entry: Mapping[str, object]) -> PlainDict:
    return {key: value for key, value in entry.items() if key != LABEL}


def combinations(grid: Mapping[str, Sequence[object]]) -> list[dict[str, object]]:
    """Every combination of values, the last path varying fastest; of an empty grid the empty one.

    >>> combinations({"a": [1, 2], "b": [3]})
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def parse_grid(texts: Sequence[str]) -> dict[str, list[object]]:
    """`["links[1].outage.p=0.1,0.3"]` as values by path; they are read as the entries of a YAML list.

    Raises ScenarioError.

    >>> parse_grid(["task.partition=iid,{dirichlet: 0.2}"])
    {'task.partition': ['iid', {'dirichlet': 0.2}]}
    """
    grid: dict[str, list[object]] = {}
    problems: list[Problem] = []
    for text in texts:
        name, equals, written = text.partition("=")
        name = name.strip()
        source = read(f"[{written}]")
        if not equals or not name or not written.strip():
            problems.append(Problem("--grid", shown(text),
                                    'expected path=value,value such as "links[1].outage.p=0.1,0.3"'))
        elif source.problems or not isinstance(source.tree, list):
            said = source.problems[0].expected if source.problems else "expected values with commas between them"
            problems.append(Problem(f"--grid {name}", shown(written), said))
        elif name in grid:
            problems.append(Problem(f"--grid {name}", shown(written), "was given before"))
        else:
            grid[name] = source.tree
    problems += _reserved(grid, "--grid ")
    if problems:
        raise ScenarioError("command line", problems)
    return grid


def check_grid(grid: Mapping[str, Sequence[object]], file: str) -> None:
    """Raises ScenarioError for what a sweep's own section may not vary."""
    problems = _reserved(grid, f"{place(('sweep', 'grid'))}.")
    if problems:
        raise ScenarioError(file, problems)


def _reserved(grid: Mapping[str, Sequence[object]], before: str) -> list[Problem]:
    return [Problem(before + name, "", f"cannot be varied here: use {_RESERVED[name]}")
            for name in grid if name in _RESERVED]


# --- keys -----------------------------------------------------------------------------------------------------------

def key(one: Scenario, plugins: Sequence[str] = ()) -> str:
    """The hash that names a cell, of a scenario with one scheme."""
    # By content and not by number, so the file system says whether a cell has been run, a grid can grow, and a sweep
    # and a comparison share cells. A database would be a second truth, to be mended after a crash
    # (`test_a_key_changes_with_what_changes_the_result_and_with_nothing_else`).
    files = [_fingerprint(file) for file in map(_task_file, plugins) if file]
    return _hash([__version__, _source_of(one.schemes[0][0], tuple(plugins)), _request(one), *files])


def asked(one: Scenario) -> str:
    """The hash of what was asked for alone: as `key`, without the version of emul and the files of code."""
    return _hash([_request(one)])


def code_of(one: Scenario, plugins: Sequence[str] = ()) -> str:
    """The hash of the code that the cell is run with (`emul.study.syntax`)."""
    files = (*_files_of(one.schemes[0][0], plugins), *map(_task_file, plugins))
    return syntax.code_of(sorted({Path(file) for file in files if file}))


def _files_of(scheme: str, plugins: Sequence[str]) -> list[str | None]:
    """The file of a scheme, and of that which it is a variant of."""
    found = schemes.find(scheme, plugins)
    own = getattr(sys.modules.get(found.module), "__file__", None)
    return [own, *(_files_of(found.of, plugins) if found.of else ())]


def _request(one: Scenario) -> object:
    """The resolved scenario without what changes no result."""
    document = one.document()
    del document["workers"]                     # when a worker counts as hanging changes no result
    document["schemes"] = [_unlabelled(entry) for entry in document["schemes"]]         # nor does what it is called
    return contents(document)


def _hash(parts: Sequence[object]) -> str:
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return blake2b(text.encode(), digest_size=KEY_BYTES).hexdigest()


@cache
def _source_of(scheme: str, plugins: tuple[str, ...]) -> str:
    """Digests of a scheme's file and of that which it is a variant of, which change more often than their version."""
    return "".join(_fingerprint(file) for file in _files_of(scheme, plugins) if file is not None)


def _task_file(plugin: str) -> str | None:
    """The file of a plug-in that offers something for learning tasks; None: it offers nothing."""
    if not any(names.offered(kind, plugin) for kind in names.KINDS):
        return None
    return names.imported(plugin).__file__


def contents(value: object) -> object:
    """A resolved document with a digest of what they hold in place of the names of files and directories."""
    if isinstance(value, dict):
        return {name: contents(below) for name, below in value.items()}
    if isinstance(value, list):
        return [contents(below) for below in value]
    if isinstance(value, str) and os.path.isabs(value) and os.path.exists(value):
        return {"contents": _fingerprint(value)}
    return value


def _fingerprint(name: str) -> str:
    """Of a file its bytes; of a run directory its journal; of another directory the names and sizes of its files."""
    path = Path(name)
    if (path / JOURNAL).is_file():
        path = path / JOURNAL
    there = path.stat()
    return _fingerprint_of(path, there.st_mtime_ns, there.st_size)


@cache
def _fingerprint_of(path: Path, mtime_ns: int, size: int) -> str:
    """Once for each content of a file: in one process, such as a notebook, a profile may be made anew."""
    digest = blake2b(digest_size=16)
    if path.is_file():
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    else:
        for folder, folders, files in os.walk(path):
            folders.sort()
            for file_name in sorted(files):
                there = Path(folder) / file_name
                digest.update(f"{there.relative_to(path).as_posix()}\0{there.stat().st_size}\n".encode())
    return digest.hexdigest()
