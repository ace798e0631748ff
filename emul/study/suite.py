"""`emul suite`: schemes over the networks of the suite, seed by seed: a sweep over networks with one page.

A suite is a folder of scenarios, a network each, whose names begin with its version: `suite2-lan`. The scenarios also
have the entries of the schemes that come along. A task is a scenario in the folder `tasks`. Its section `task` takes
the place of that of the networks, its prices that of their `compute`, and its `stop.accuracy` is the target.
`tasks/NAME.units.csv` has the unit of each network, in seconds: what a round of the median client takes with this task.
Timeouts and the length of a run are multiples of it.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from emul import scenario
from emul.base.errors import Problem, ScenarioError
from emul.base.files import read_text, shipped, write_atomically
from emul.base.units import format_duration
from emul.learning import names
from emul.registry import schemes as registry
from emul.scenario import Edit, label_of
from emul.scenario.params import scenario_keys
from emul.scenario.wording import nearest, shown
from emul.study import suite_tables, suite_text, tables
from emul.study.cells import Cell, cells
from emul.study.directory import STUDY, Failure, StudyError, finished, opened, read_study, write_study, write_table
from emul.study.done import Done
from emul.study.runs import StudyOutcome, Where, complete, summary_of
from emul.study.suite_tables import RefusedScheme, SuiteResults
from emul.study.sweep import Shard, collect

KIND = "suite"
DEADLINE, LENGTH = 4, 60            # units of a network: timeouts that an entry leaves out, and the length of a run
EVERY = "every"                     # in place of a name: all schemes that there are
TASK = "digits"
SEEDS = (0, 1, 2)
_VERSIONED = re.compile(r"suite(\d+)-(.+)")
_DIGEST_BYTES = 8

SuiteEntry = dict[str, Any]              # of `schemes`, as a scenario writes it: name, label, parameters


@dataclass(frozen=True)
class Suite:
    """The networks of a folder, by name, the file that the others extend first. Raises StudyError for other folders."""

    version: int
    networks: dict[str, Path]
    folder: Path

    @classmethod
    def of(cls, folder: Path | None = None) -> Suite:
        """That of a folder; by default the one that comes along."""
        folder = shipped("scenarios") / "suite" if folder is None else folder
        found: dict[str, tuple[bool, Path]] = {}
        versions = set()
        for file in sorted(folder.glob("*.yaml")):
            text = _text(file)
            said = re.search(r"^name: *(\S+)$", text, re.MULTILINE)
            versioned = _VERSIONED.fullmatch(said[1]) if said else None
            if versioned is None:
                raise StudyError(f"{file}: is no network of a suite: expected a name such as suite1-{file.stem}")
            versions.add(int(versioned[1]))
            found[versioned[2]] = (re.search(r"^extends:", text, re.MULTILINE) is not None, file)
        if len(versions) != 1:
            raise StudyError(f"{folder}: " + (f"holds networks of suites {', '.join(map(str, sorted(versions)))}: they "
                                              "cannot be mixed" if versions else "holds no network of a suite"))
        ordered = sorted(found, key=lambda name: (found[name][0], name))
        return cls(versions.pop(), {name: found[name][1] for name in ordered}, folder)

    def tasks(self) -> dict[str, Path]:
        """The tasks that come along, by name."""
        return {file.stem: file for file in sorted((self.folder / "tasks").glob("*.yaml"))}

    def units(self, task: str) -> dict[str, float]:
        """Network -> its unit with a task that comes along, in seconds; none for another task."""
        file = self.folder / "tasks" / f"{task}.units.csv"
        if not file.is_file():
            return {}
        with file.open(newline="", encoding="utf-8") as lines:
            return {row["network"]: float(row["unit_s"]) for row in csv.DictReader(lines)}

    def moved(self) -> dict[str, tuple[str, str]]:
        """Name -> (network, edit): each assumed number of a network that has them in `assumed.csv`, halved and doubled.

        Names are such as `lossy:latency:half`. Values stand there as JSON.
        """
        file = self.folder / "assumed.csv"
        if not file.is_file():
            return {}
        with file.open(newline="", encoding="utf-8") as lines:
            return {f"{row['network']}:{row['number']}:{way}": (row["network"], f"{row['path']}={row[way]}")
                    for row in csv.DictReader(lines) for way in ("half", "double")}

    def chosen(self, wanted: Sequence[str]) -> dict[str, Path]:
        """These of the networks, in this order; all, if none is said. Raises ScenarioError."""
        require_known("--networks", "network", wanted, self.networks)
        return {name: self.networks[name] for name in wanted} if wanted else self.networks


@dataclass(frozen=True)
class SuiteOutcome:
    """A suite that was run: the study, and what its page says. `badge`: one line for a paper, with the digest."""

    study: StudyOutcome
    results: SuiteResults
    badge: str


def suite(where: Where, *, schemes: Sequence[str | Mapping[str, Any]] = (), more: Sequence[SuiteEntry] = (),
          networks: Sequence[str] = (), task: str = TASK, seeds: Sequence[int] | None = None,
          baseline: str | None = None, target: float | None = None, sets: Sequence[Edit] = (),
          out: Path | None = None, done: Path | None = None, shard: Shard | None = None,
          collected: Sequence[Path] = (), folder: Path | None = None) -> SuiteOutcome:
    """Run schemes over networks into `out` (default: `runs/suite-<task>`), and write the tables of the page.

    schemes: labels of entries that come along, names of schemes (`every`: all), scenario files (their entries), or
    entries; by default all that come along. more: entries that are run as well, as the schemes of plug-ins are. task:
    one that comes along, or a scenario file. target: by default that of the task. baseline: a label, by default that of
    the first scheme. done, shard, collected: as of `emul.study.sweep.sweep`. folder: of the suite, by default the one
    that comes along. Raises ScenarioError and StudyError before anything runs.
    """
    found = Suite.of(folder)
    chosen = found.chosen(networks)
    learnt = task_of(found, task)
    wanted = entries(found, schemes, more, where.plugins)
    labels = list(wanted)
    if baseline is not None:
        require_known("--baseline", "scheme of this suite", [baseline], labels)
    seeds = SEEDS if seeds is None else tuple(seeds)
    target = learnt.target if target is None else target
    out = out or Path("runs") / (f"suite-{learnt.name}" + ("" if shard is None else f"-{shard.number}of{shard.of}"))
    asked: dict[str, object] = {"suite": found.version, "task": learnt.name}
    for study_directory in (out, *collected):
        _unmixed(study_directory, asked)
    table = None if done is None else Done(done, tuple(where.plugins))
    if done is not None:
        _unmixed_rows(done, found.version)
    plan, refused = _planned(chosen, found.units(learnt.name) or found.units(TASK), wanted, seeds,
                             [*learnt.edits, *sets], where.plugins)
    for label in map(_label, more):
        reasons = [one.reason for one in refused if one.scheme == label]
        if len(reasons) == len(chosen):                 # a mistake in what was asked for, and no trait of a network
            raise ScenarioError("command line", [Problem(label, "", f"runs on none of these networks: {reasons[0]}")])
    if shard is not None:
        plan = shard.part(plan)

    def save(runs: list[Cell], failed: list[Failure], said: Mapping[str, object] | None = None) -> None:
        frame = tables.results(out, runs)
        frame.insert(0, "network", [cell.network for cell in runs])
        write_table(out, "results", frame)
        write_study(out, KIND, f"suite {found.version}", {}, seeds, runs, failed, {**asked, **(said or {})})

    with opened(out, f"suite {found.version}"):
        missing = 0
        if collected:
            collect(out, plan, collected)
            there = [cell for cell in plan if finished(out, cell)]
            missing, plan = len(plan) - len(there), there
        study = complete(out, plan, where, save, table)
        lossless = [label for label, by_network in wanted.items() if any(       # nothing is lost under ideal links
            registry.find(entry["name"], where.plugins).ideal_links for entry in by_network.values())]
        results = suite_tables.measured(out, study, list(chosen), labels, seeds, target, baseline or labels[0], refused,
                                        lossless)
        badge = _badge(asked, results, study, sets)
        for table_name, frame in results.frames().items():
            write_table(out, table_name, frame)
        with write_atomically(out / "suite.tex") as temporary:
            temporary.write_text(suite_text.latex(results, badge), encoding="utf-8")
        save(study.runs, study.failed, {
            "target": target, "networks": list(chosen), "schemes": labels, "baseline": results.baseline,
            "refused": [vars(one) for one in refused], "badge": badge, "answer": suite_text.answer(results)})
    if missing:
        left = f"{missing} cells are in none of these studies; without --collect the command runs them"
        study = replace(study, warnings=[*study.warnings, left])
    return SuiteOutcome(study, results, badge)


# --- what is run ------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class SuiteTask:
    """A task for the networks of a suite. edits: what gives them the task and its prices, none where they have both."""

    name: str
    edits: list[Edit]
    target: float | None


def task_of(suite: Suite, said: str) -> SuiteTask:
    """The task of this name, or of a scenario file. Raises ScenarioError."""
    if said.endswith((".yaml", ".yml")):
        file = Path(said)
    else:
        require_known("--task", "task", [said], suite.tasks(), "; or give a scenario file")
        file = suite.tasks()[said]
    found = scenario.load(file, check=False)
    base = scenario.load(next(iter(suite.networks.values())), check=False)
    document, before = found.document(), base.document()
    keys = ["task", "evaluation", *([] if free(found) else ["compute"])]
    edits: list[Edit] = [f"{key}={json.dumps(_within(document[key], suite.folder), ensure_ascii=False)}" for key in keys
                         if document[key] != before[key]]
    return SuiteTask(file.stem, edits, found.stop.accuracy)


def _within(section: object, folder: Path) -> object:
    """A section with names of files below a folder as that folder's networks say them, so that rows hold elsewhere."""
    if isinstance(section, dict):
        return {key: _within(value, folder) for key, value in section.items()}
    if isinstance(section, str) and (path := Path(section)).is_absolute() and path.is_relative_to(folder.resolve()):
        return path.relative_to(folder.resolve()).as_posix()
    return section


def free(one: scenario.Scenario) -> str:
    """The reason why computations of a scenario may cost nothing; "": each has a price, or ends its run."""
    if one.compute.mode == "zero" and one.compute.trace is None:
        return "compute.mode: zero: computations cost nothing"
    if one.compute.default_ns == 0:
        return "compute.default: zero: computations without a price cost nothing"
    return ""


def entries(suite: Suite, wanted: Sequence[str | Mapping[str, Any]], more: Sequence[SuiteEntry] = (),
            plugins: Sequence[str] = ()) -> dict[str, dict[str, SuiteEntry]]:
    """label -> {network: its entry}, "" for networks that do not say it. Raises UnknownScheme, ScenarioError."""
    own = {name: {_label(entry): entry for entry in _entries_of(file)} for name, file in suite.networks.items()}
    along: dict[str, dict[str, SuiteEntry]] = {}
    for network, found in own.items():
        for label, entry in found.items():
            along.setdefault(label, {"": entry})[network] = entry
    every: list[str | Mapping[str, Any]] = []
    for one in wanted:
        every += registry.known(plugins) if one == EVERY else [one]
    chosen: dict[str, dict[str, SuiteEntry]] = {}
    for one in every:
        if not isinstance(one, str):
            given = [dict(one)]
        elif one.endswith((".yaml", ".yml")):
            given = _entries_of(Path(one))
        elif same := {label: found for label, found in along.items() if one in (label, found[""]["name"])}:
            chosen |= {one: same[one]} if one in same else same
            continue
        else:
            given = [{"name": one}]
        chosen |= {_label(entry): {"": entry} for entry in given}
    offered = [module.rpartition(".")[2] for module in plugins if hasattr(names.imported(module), "SCHEME")]
    chosen = chosen or dict(along)
    for entry in [*more, *({"name": name} for name in offered)]:
        chosen.setdefault(_label(entry), {"": entry})
    for found in chosen.values():
        registry.find(found[""]["name"], plugins)
    return chosen


def _entries_of(file: Path) -> list[SuiteEntry]:
    return [{"name": name, **entry} for name, entry in scenario.load(file, check=False).schemes]


def _label(entry: SuiteEntry) -> str:
    return label_of(entry["name"], {key: value for key, value in entry.items() if key != "name"})


def _planned(networks: Mapping[str, Path], units: Mapping[str, float], wanted: Mapping[str, Mapping[str, SuiteEntry]],
             seeds: Sequence[int], edits: Sequence[Edit], plugins: Sequence[str],
             ) -> tuple[list[Cell], list[RefusedScheme]]:
    """The cells, and which scheme cannot run on which network, and why. Raises the first reason if none can run.

    networks: name -> file. units: name -> seconds. wanted: as `entries` gives them."""
    if any(isinstance(edit, str) and edit.partition("=")[0].strip() == "schemes" for edit in edits):
        raise ScenarioError("command line", [Problem("schemes", "", "the suite sets them: use --schemes")])
    plan: list[Cell] = []
    refused: list[RefusedScheme] = []
    first: ScenarioError | None = None
    for network, file in networks.items():
        unit = units.get(network)
        patience = patience_of(file) if unit is None else seconds(DEADLINE * unit)
        length = [] if unit is None else [f"stop={{rounds: 10000, virtual_time: {seconds(LENGTH * unit)}}}"]
        for label, found in wanted.items():
            entry = found.get(network) or patient(found[""], patience, plugins)
            try:
                mine = cells(file, {}, seeds, (), [f"schemes={json.dumps([entry], ensure_ascii=False)}", *length,
                                                   *edits], plugins)
            except ScenarioError as e:
                first = first or e
                refused.append(RefusedScheme(network, label, reason(e)))
                continue
            if costless := free(mine[0].scenario):
                raise ScenarioError("command line", [Problem("compute", "", f"{costless}; a suite prices each")])
            plan += [replace(cell, network=network, scheme=label) for cell in mine]
    if first is not None and not plan:
        raise first
    return plan, refused


def seconds(value: float) -> str:
    """A duration as a scenario has it, to the microsecond."""
    return format_duration(round(value * 1e6) * 1000)


def patience_of(file: Path) -> str:
    """The deadline of the network's first scheme, for timeouts that an entry does not give."""
    return str(_entries_of(file)[0].get("deadline", "none"))


def patient(entry: SuiteEntry, patience: str, plugins: Sequence[str]) -> SuiteEntry:
    """The entry with this value for each timeout of the scheme that it does not give.

    A parameter that has no default has the value of the scheme's example.
    """
    found = registry.find(entry["name"], plugins)
    keys = scenario_keys(found.params)
    given = {key: patience for key, field in keys.items() if field.name in found.timeouts} | entry
    needed = [key for key, field in keys.items()
              if key not in given and field.default is MISSING and field.default_factory is MISSING]
    if needed and found.example:
        example = dict(scenario.loads(found.example, found.name, check=False).schemes).get(found.name, {})
        given |= {key: example[key] for key in needed if key in example}
    return given


def reason(error: ScenarioError) -> str:
    """
    >>> reason(ScenarioError("lan.yaml", [Problem("--set schemes[0]", 'edge at "edge"', "there is no such node")]))
    'edge at "edge": there is no such node'
    """
    said = [": ".join(filter(None, [p.place.removeprefix("--set schemes[0]").lstrip("."), p.found, p.expected]))
            for p in error.problems]
    return "; ".join(dict.fromkeys(said))


def require_known(option: str, what: str, wanted: Sequence[str], known: Any, more: str = "") -> None:
    """Raises ScenarioError for what nobody knows, with the nearest."""
    problems = [Problem(option, shown(one), f"unknown {what}{nearest(one, known)}{more}")
                for one in wanted if one not in known]
    if problems:
        raise ScenarioError("command line", problems)


# --- versions, digest -------------------------------------------------------------------------------------------------

def _unmixed(path: Path, asked: Mapping[str, object]) -> None:
    """Raises StudyError for the directory of something else than this suite with this task."""
    if not (path / STUDY).is_file():
        return
    said = read_study(path)
    if said.get("kind") != KIND:
        raise StudyError(f"{path}: holds a {said.get('kind')}, no suite; choose another --out")
    for key, value in asked.items():
        if said.get(key) != value:
            raise StudyError(f"{path}: holds {key} {said.get(key)}, this is {key} {value}: they cannot be mixed; "
                             "choose another --out")


def _text(file: Path) -> str:
    try:
        return read_text(file)
    except OSError as e:
        raise StudyError(f"{file}: {e.strerror}") from None


def _unmixed_rows(table: Path, version: int) -> None:
    """Raises StudyError for a table with rows of a suite of another version."""
    if not table.is_file():
        return
    other = re.search(rf"^.*,suite(?!{version}-)(\d+)-", _text(table), re.MULTILINE)
    if other is not None:
        raise StudyError(f"{table}: holds rows of suite {other[1]}, this is suite {version}: they cannot be mixed")


def _badge(asked: Mapping[str, object], results: SuiteResults, study: StudyOutcome, sets: Sequence[Edit]) -> str:
    """`emul suite 1: digits, 12 networks, 3 schemes, seeds 0, 1, 2, 108 runs, digest 0123456789abcdef`.

    The digest is that of the digests of all runs, with their networks, schemes and seeds.
    """
    lines = sorted(f"{cell.network} {cell.scheme} {cell.seed} {summary_of(study.path, cell)['digest']}\n"
                   for cell in study.runs)
    digest = blake2b(f"{json.dumps(asked, sort_keys=True)}\n{''.join(lines)}".encode(), digest_size=_DIGEST_BYTES)
    said = [f"emul suite {asked['suite']}: {asked['task']}", f"{len(results.networks)} networks",
            f"{len(results.schemes)} schemes", f"seeds {', '.join(map(str, results.seeds))}", f"{len(study.runs)} runs"]
    changed = "; ".join(str(edit) for edit in sets)
    return ", ".join([*said, *([f"changed: {changed}"] if changed else []), f"digest {digest.hexdigest()}"])
