"""`emul suite --league`: schemes of one kind of accuracy, tuned by one protocol, scored on seeds that tuned nothing.

A league is a file `leagues/NAME.toml` of the suite's folder. Each of its entries has a space: parameters of the scheme,
paths of the scenario, and `waiting`, all timeouts of the scheme in units of the network. Point 0 is the defaults, the
others are a quasi-random sequence. `emul.study.league_runs` runs a league, `emul.study.standings` says what came of it.

Martin Roberts, The Unreasonable Effectiveness of Quasirandom Sequences, 2018 (the sequence R_d).
"""

from __future__ import annotations

import csv
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

from emul.base.plain import PlainDict
from emul.registry import schemes as registry
from emul.scenario.params import scenario_keys
from emul.study.cells import Cell, cells
from emul.study.directory import StudyError
from emul.study.suite import Suite, free, seconds, task_of

TUNING, SCORING, REPLICATE = "tuning", "scoring", "replicate"      # the parts of the runs
# Measures: the number that has to reach the target is the accuracy, exp(- loss), which is the geometric mean of the
# probability that the model gives the true class, or the number of rounds that gave their sum.
ACCURACY, LIKELIHOOD, SUMS = "accuracy", "likelihood", "sums"
UPLOAD = "UPLOAD"                   # in the edits of a condition: the message of a scheme that has a client's input
WAITING = "waiting"                 # the key of a space that is all timeouts of the scheme, in units of the network


@dataclass(frozen=True)
class Range:
    """The values of one dimension of a space, even in their logarithm; whole: integers."""

    low: float
    high: float
    default: float
    whole: bool = False

    def at(self, share: float) -> float:
        """The value at a share of the range, from 0 to 1."""
        value = self.low * (self.high / self.low) ** share
        return round(value) if self.whole else float(f"{value:.3g}")


@dataclass(frozen=True)
class LeagueEntry:
    """A scheme in a league. parameters: as a scenario has them. every: rounds between two evaluations. price: of the
    computations that the task's profile does not know, "": they end a run. upload: the type of the message that has a
    client's input, for conditions that name it. sets: edits of the network for this entry alone, such as more servers
    or the file of its prices: so an entry that is added changes nothing that the rows of others were made with. who:
    made it."""

    label: str
    parameters: PlainDict
    space: dict[str, Range]
    points: int
    every: int = 1
    price: str = ""
    upload: str = ""
    sets: tuple[str, ...] = ()
    who: str = "emul"

    def values(self, point: int, first: int) -> dict[str, float]:
        """The values of a point by key of the space: the defaults, or place first + point - 1 of the sequence R_d."""
        if point == 0:
            return {key: one.default for key, one in self.space.items()}
        ratio = 2.0
        for _ in range(60):         # the root above 1 of x^(d + 1) = x + 1
            ratio = (1 + ratio) ** (1 / (len(self.space) + 1))
        place = first + point - 1
        return {key: one.at((0.5 + place * ratio ** -(d + 1)) % 1) for d, (key, one) in enumerate(self.space.items())}


@dataclass(frozen=True)
class League:
    """The content of a league's file, for one task.

    networks, extended: names of the suite's networks, or NETWORK:CONDITION. conditions: edits of the network by that
    name. own_units: seconds by network, in place of those of the task. common: what decides the meaning of all its
    rows, as JSON. contrast: the label of the baseline with another setting, which pages show beside it; "": none.
    target_on: the network whose baseline sets the target of all; "": each has its own. rounds: all runs have so many,
    also in tuning, whatever time they take; 0: time ends them. epsilon: the total of the client that loses most, which
    each run has to spend; 0: none is asked. measure: ACCURACY, LIKELIHOOD or SUMS. replicate: seeds on
    which the scoring may be run again, to see whether its ranks hold. trained_on: the task in words, where `sets` have
    another one in its place; by default its name.
    """

    name: str
    suite: Suite
    task: str
    accuracy_of: str
    networks: tuple[str, ...]
    extended: tuple[str, ...]
    baseline: str
    target: float
    units: float
    seeds: tuple[int, ...]
    tuning_seeds: tuple[int, ...]
    first: int
    sets: tuple[str, ...]
    entries: tuple[LeagueEntry, ...]
    common: str = ""
    contrast: str = ""
    conditions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    own_units: dict[str, float] = field(default_factory=dict)
    target_on: str = ""
    rounds: int = 0
    epsilon: float = 0.0
    measure: str = ACCURACY
    replicate: tuple[int, ...] = ()
    trained_on: str = ""

    @classmethod
    def of(cls, name: str, task: str | None = None, folder: Path | None = None, more: Sequence[Path] = ()) -> League:
        """That of the suite. task: in place of its own. more: files with further entries, as the league's file has
        them. Raises StudyError for a league that there is not, and for a file that is no file of entries."""
        suite = Suite.of(folder)
        file = suite.folder / "leagues" / f"{name}.toml"
        if not file.is_file():
            known = sorted(one.stem for one in file.parent.glob("*.toml"))
            raise StudyError(f"--league {name}: no such league; there are {', '.join(known) or 'none'}")
        said = tomllib.loads(file.read_text(encoding="utf-8"))
        task = task or said["task"]
        conditions = {name: tuple(edits) for name, edits in said.get("conditions", {}).items()}
        units = _units(suite.units(task) | said.get("unit_s", {}), conditions)
        lacking = [network for network in (*said["networks"], *said.get("extended", ())) if network not in units]
        if lacking:
            raise StudyError(f"task {task}: has no unit for {', '.join(lacking)}: leagues run on tasks of the suite")
        space, entries = said["space"], []
        for one in [*said["entries"], *(one for path in more for one in entries_of(path))]:
            parameters = dict(one)
            if parameters.pop("task", task) != task:        # its prices are those of another task
                continue
            own = space | parameters.pop("space", {})       # `false` takes a key away, which the scheme has not
            points, every = parameters.pop("points", said["tuning"]["points"]), parameters.pop("every", 1)
            entries.append(LeagueEntry(
                one.get("label", one["name"]), parameters,
                {key: Range(**each) for key, each in own.items() if each}, points, every, parameters.pop("price", ""),
                parameters.pop("upload", ""), tuple(parameters.pop("sets", ())), parameters.pop("who", "emul")))
        # what a row does not depend on: a scheme or a network that is added leaves the rows of the others as they are
        free_to_change = ("task", "entries", "extended", "contrast", "replicate", "trained_on")
        rules = {key: value for key, value in said.items() if key not in free_to_change}
        common = json.dumps([suite.version, task, {name: units[name] for name in said["networks"]}, rules],
                            sort_keys=True)
        same: PlainDict = {key: said[key] for key in ("accuracy_of", "baseline", "target", "units", "contrast",
                                                      "target_on", "rounds", "epsilon", "measure") if key in said}
        same |= {key: tuple(said.get(key, ())) for key in ("networks", "extended", "seeds", "sets", "replicate")}
        return cls(name=name, suite=suite, task=task, tuning_seeds=tuple(said["tuning"]["seeds"]),
                   first=said["tuning"]["first"], entries=tuple(entries), common=common, conditions=conditions,
                   own_units=said.get("unit_s", {}), trained_on=said.get("trained_on", task), **same)

    def unit_s(self) -> dict[str, float]:
        """Network -> its unit in seconds, also of those with a condition and of those with an assumed number moved."""
        return _units(self.suite.units(self.task) | self.own_units, self.conditions)

    def seeds_of(self, part: str) -> tuple[int, ...]:
        """The seeds of a part of the runs."""
        return {TUNING: self.tuning_seeds, SCORING: self.seeds, REPLICATE: self.replicate}[part]

    def meanings(self) -> dict[tuple[str, str], str]:
        """(label, network) -> a hash of all that decides the meaning of rows of this scheme on this network."""
        units = self.unit_s()
        return {(entry.label, network): hashed([
            self.common, entry.parameters, {key: vars(one) for key, one in entry.space.items()}, entry.points,
            entry.every, units.get(network), *filter(None, [entry.price, entry.upload, entry.sets])])
            for entry in self.entries for network in (*self.networks, *self.extended, *self.suite.moved())}

    @property
    def definition(self) -> str:
        """A hash of the rules, of all schemes with their spaces, and of the units of all networks."""
        meanings = self.meanings()
        return hashed([self.common, *(meanings[entry.label, network] for entry in self.entries
                                      for network in (*self.networks, *self.extended))])

    def published(self) -> dict[str, int]:
        """Label -> the point that the published tuning chose, of the schemes that are as they were in it."""
        file = self.suite.folder / "leagues" / f"{self.name}.points.csv"
        if not file.is_file():
            return {}
        meanings = self.meanings()
        with file.open(newline="", encoding="utf-8") as lines:
            return {row["label"]: int(row["point"]) for row in csv.DictReader(lines) if row["task"] == self.task
                    and row["definition"] == meanings.get((row["label"], self.networks[0]))}

    def cells(self, entry: LeagueEntry, point: int, network: str, part: str, plugins: Sequence[str] = ()) -> list[Cell]:
        """One cell a seed. Raises ScenarioError, and StudyError for one whose computations cost nothing."""
        unit = self.unit_s()[network]
        length = self.units * unit * (0.5 if part == TUNING else 1)
        stop = f"rounds: {self.rounds}" if self.rounds else f"rounds: 100000, virtual_time: {seconds(length)}"
        values = entry.values(point, self.first)
        found = registry.find(entry.parameters["name"], plugins)
        waits = {key: seconds(values[WAITING] * unit) for key, field in scenario_keys(found.params).items()
                 if field.name in found.timeouts}
        own = {key: value for key, value in values.items() if key != WAITING and "." not in key}
        scheme = {**waits, **entry.parameters, **own}
        edits = [*task_of(self.suite, self.task).edits, *self.sets, *entry.sets,
                 f"schemes=[{json.dumps(scheme)}]", f"stop={{{stop}}}",
                 f"evaluation={{every: {entry.every}}}",
                 *([f"compute.default={json.dumps(entry.price)}"] if entry.price else []),
                 *(f"{key}={value:g}" for key, value in values.items() if "." in key)]
        of, edit = self.suite.moved().get(network, (network.partition(":")[0], ""))
        more = [edit] if edit else [one.replace(UPLOAD, entry.upload) for one in self.conditions.get(network, ())]
        made = cells(self.suite.networks[of], {}, self.seeds_of(part), (), [*edits, *more], plugins)
        if reason := free(made[0].scenario):
            raise StudyError(f"{entry.label} on {network}: {reason}")
        return [replace(cell, network=network, scheme=entry.label) for cell in made]


def _units(units: dict[str, float], conditions: Mapping[str, object]) -> dict[str, float]:
    return units | {name: units[of] for name in conditions if (of := name.partition(":")[0]) in units}


def entries_of(file: Path) -> list[PlainDict]:
    """The entries of a file of one's own, as a league's file has them. Raises StudyError."""
    try:
        said = tomllib.loads(file.read_text(encoding="utf-8"))
        entries = [{"name": one["name"], **one} for one in said["entries"]]
        spaces = [(one["name"], key, each) for one in entries for key, each in one.get("space", {}).items()]
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as error:
        raise StudyError(f"{file}: is no file of entries of a league: {type(error).__name__}: {error}") from None
    for name, key, each in spaces:
        given = each if isinstance(each, dict) else {}
        low, high, default = (number if isinstance(number := given.get(word), int | float) else math.nan
                              for word in ("low", "high", "default"))
        if each and not (0 < low <= high and not math.isnan(default)):
            raise StudyError(f"{file}: {name}: space: {key}: expected {{low = 0.1, high = 0.9, default = 0.5}}, "
                             "low above 0: values are even in their logarithm")
    return entries


def hashed(said: object) -> str:
    """A short hash of plain values."""
    return blake2b(json.dumps(said, sort_keys=True).encode(), digest_size=6).hexdigest()
