"""`emul suite --league`: schemes of one kind of accuracy, tuned by one protocol, scored on seeds that tuned nothing.

A league is a file `leagues/NAME.toml` of the suite's folder. Each of its entries has a space: parameters of the scheme,
paths of the scenario, and `waiting`, all timeouts of the scheme in units of the network. Point 0 is the defaults, the
others are a quasi-random sequence. `emul.study.league_runs` runs a league, `emul.study.standings` says what came of it.

Martin Roberts, The Unreasonable Effectiveness of Quasirandom Sequences, 2018 (the sequence R_d).
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from emul.base.plain import PlainDict
from emul.registry import schemes as registry
from emul.scenario.params import scenario_keys
from emul.study.cells import Cell, cells
from emul.study.directory import StudyError
from emul.study.suite import Suite, free, seconds, task_of

TUNING, SCORING = "tuning", "scoring"
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
    """A scheme in a league. parameters: as a scenario has them. every: rounds between two evaluations."""

    label: str
    parameters: PlainDict
    space: dict[str, Range]
    points: int
    every: int = 1

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

    common: what decides the meaning of all its rows, as JSON. contrast: the label of the baseline with another setting,
    which pages show beside it; "": none.
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

    @classmethod
    def of(cls, name: str, task: str | None = None, folder: Path | None = None) -> League:
        """That of the suite. task: in place of its own. Raises StudyError for a league that there is not."""
        suite = Suite.of(folder)
        file = suite.folder / "leagues" / f"{name}.toml"
        if not file.is_file():
            known = sorted(one.stem for one in file.parent.glob("*.toml"))
            raise StudyError(f"--league {name}: no such league; there are {', '.join(known) or 'none'}")
        said = tomllib.loads(file.read_text(encoding="utf-8"))
        task = task or said["task"]
        units = suite.units(task)
        lacking = [network for network in (*said["networks"], *said.get("extended", ())) if network not in units]
        if lacking:
            raise StudyError(f"task {task}: has no unit for {', '.join(lacking)}: leagues run on tasks of the suite")
        space = {key: Range(**one) for key, one in said["space"].items()}
        entries = []
        for one in said["entries"]:
            parameters = dict(one)
            own = {key: Range(**each) for key, each in parameters.pop("space", {}).items()}
            points, every = parameters.pop("points", said["tuning"]["points"]), parameters.pop("every", 1)
            entries.append(LeagueEntry(one.get("label", one["name"]), parameters, space | own, points, every))
        # what a row does not depend on: a scheme or a network that is added leaves the rows of the others as they are
        rules = {key: value for key, value in said.items() if key not in ("task", "entries", "extended", "contrast")}
        common = json.dumps([suite.version, task, {name: units[name] for name in said["networks"]}, rules],
                            sort_keys=True)
        return cls(name, suite, task, said["accuracy_of"], tuple(said["networks"]), tuple(said.get("extended", ())),
                   said["baseline"], said["target"], said["units"], tuple(said["seeds"]),
                   tuple(said["tuning"]["seeds"]), said["tuning"]["first"], tuple(said.get("sets", ())),
                   tuple(entries), common, said.get("contrast", ""))

    def meanings(self) -> dict[tuple[str, str], str]:
        """(label, network) -> a hash of all that decides the meaning of rows of this scheme on this network."""
        units = self.suite.units(self.task)
        return {(entry.label, network): hashed([
            self.common, entry.parameters, {key: vars(one) for key, one in entry.space.items()}, entry.points,
            entry.every, units.get(network)])
            for entry in self.entries for network in (*self.networks, *self.extended)}

    @property
    def definition(self) -> str:
        """A hash of the rules, of all schemes with their spaces, and of the units of all networks."""
        return hashed([self.common, *self.meanings().values()])

    def cells(self, entry: LeagueEntry, point: int, network: str, part: str) -> list[Cell]:
        """One cell a seed. Raises ScenarioError, and StudyError for one whose computations cost nothing."""
        unit = self.suite.units(self.task)[network]
        length = self.units * unit * (0.5 if part == TUNING else 1)
        values = entry.values(point, self.first)
        found = registry.find(entry.parameters["name"])
        waits = {key: seconds(values[WAITING] * unit) for key, field in scenario_keys(found.params).items()
                 if field.name in found.timeouts}
        own = {key: value for key, value in values.items() if key != WAITING and "." not in key}
        scheme = {**waits, **entry.parameters, **own}
        edits = [*task_of(self.suite, self.task).edits, *self.sets,
                 f"schemes=[{json.dumps(scheme)}]", f"stop={{rounds: 100000, virtual_time: {seconds(length)}}}",
                 f"evaluation={{every: {entry.every}}}",
                 *(f"{key}={value:g}" for key, value in values.items() if "." in key)]
        seeds = self.tuning_seeds if part == TUNING else self.seeds
        made = cells(self.suite.networks[network], {}, seeds, (), edits)
        if reason := free(made[0].scenario):
            raise StudyError(f"{entry.label} on {network}: {reason}")
        return [replace(cell, network=network, scheme=entry.label) for cell in made]


def hashed(said: object) -> str:
    """A short hash of plain values."""
    return blake2b(json.dumps(said, sort_keys=True).encode(), digest_size=6).hexdigest()
