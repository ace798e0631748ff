"""The grid of arXiv 2511.14889 over walker66.yaml: planes, satellites, stations and eight schemes, without training.

    python -m benchmarks.moving_grid --runs runs/moving_grid [--shard 1/2]      runs what has no row
    python -m benchmarks.moving_grid                                            makes the blocks of the page anew

Rows are kept in docs/studies/data/moving_grid.csv as `emul sweep --done` writes them; one that is there is not made
again. The runs of one sky follow each other in one process, so that its contacts are computed once.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import document
from benchmarks.common import ROOT
from benchmarks.document import replaced
from benchmarks.finished import markdown

PAGE = ROOT / "docs" / "studies" / "moving.md"
DATA = ROOT / "docs" / "studies" / "data" / "moving_grid.csv"
SCENARIO = ROOT / "scenarios" / "moving" / "walker66.yaml"
PLANES, EACH, STATIONS = (1, 2, 5, 10), (1, 2, 5, 10), (1, 2, 3, 5, 10, 13)
SEEN = 9                        # so many satellites a plane at 550 km, and neighbours see each other
DAYS, ROUNDS = 7, 5
SKY = "topology.constellation"
CLIENT = "rule: attribute, attribute: kind, value: satellite, access: {latency: 1 ms}"
NO_RING = f"neighbours in a plane of fewer than {SEEN} do not see each other at 550 km"
WAITS, NINE = "waits", 9        # the scheme to which all are compared, and the paper's factor


@dataclass(frozen=True)
class Scheme:
    """Its links between satellites, and its entry. K: half of the satellites."""

    label: str
    isl: str
    entry: Callable[[int], str]
    paper: str                  # the nearest algorithm of the paper
    gap: str = "hold"           # of the contacts


SCHEMES = (
    Scheme(WAITS, "none", lambda K: "name: fedavg", "none: all satellites take part"),
    Scheme("half", "none", lambda K: f"name: fedavg, selection: {{uniform: {{count: {K}}}}}",
           "FedAvg as it is on the ground"),
    Scheme("first", "none", lambda K: f"name: fedavg, selection: {{contact: {{count: {K}}}}}", "FedAvg in space"),
    Scheme("back", "none", lambda K: f"name: fedavg, selection: {{contact: {{count: {K}, training: 5 min}}}}",
           "FedAvg with schedule"),
    Scheme("fedbuff", "none", lambda K: f"name: fedbuff, buffer: {K}, timeout: 48 h", "FedBuff in space"),
    Scheme("ring waits", "ring", lambda K: "name: fedavg", "none: all satellites take part"),
    Scheme("ring back", "ring", lambda K: f"name: fedavg, selection: {{contact: {{count: {K}, training: 5 min}}}}",
           "FedAvg with schedule and links in clusters"),
    Scheme("ring fedbuff", "ring", lambda K: f"name: fedbuff, buffer: {K}, timeout: 48 h", "none"))
# beyond the eight: those in a ring once more, where messages that wait for a contact are routed anew
ANEW = tuple(replace(one, label=one.label.replace("ring", "anew"), gap="again") for one in SCHEMES if one.isl == "ring")
ALL = (*SCHEMES, *ANEW)
Sky = tuple["Place", str, str]          # isl and gap


@dataclass(frozen=True, order=True)
class Place:
    """A configuration without its scheme."""

    planes: int
    each: int
    stations: int

    @property
    def satellites(self) -> int:
        """Their number."""
        return self.planes * self.each

    @property
    def buffer(self) -> int:
        """K."""
        return max(1, self.satellites // 2)


PLACES = [Place(*values) for values in product(PLANES, EACH, STATIONS)]


def there(place: Place, scheme: Scheme) -> str:
    """The reason why a configuration cannot be; "": it can."""
    return NO_RING if scheme.isl == "ring" and place.each < SEEN else ""


def under(sky: Sky) -> list[Scheme]:
    """The schemes of a sky; none where it cannot be."""
    place, isl, gap = sky
    return [one for one in ALL if (one.isl, one.gap) == (isl, gap) and not there(place, one)]


def sets(sky: Sky) -> list[str]:
    """The edits of the scenario for one sky and the schemes under it."""
    place, isl, gap = sky
    stations = "stations.csv" if place.stations == 10 else f"stations{place.stations}.csv"
    entries = ", ".join(f"{{label: {one.label}, {one.entry(place.buffer)}}}" for one in under(sky))
    return [f"{SKY}.gateways=null", f"topology.roles={{server: [Weilheim], client: {{{CLIENT}}}}}", f"{SKY}.isl={isl}",
            f"{SKY}.phasing=0", f"{SKY}.planes={place.planes}", f"{SKY}.each={place.each}",
            f"{SKY}.stations={stations}", f"{SKY}.for={24 * DAYS} h", "contacts.step=1 min", "training=skip",
            "task.partition={bootstrap: 15}",
            "compute.file=grid.profile.json", f"schemes=[{entries}]",
            f"stop={{rounds: {ROUNDS}, virtual_time: {24 * DAYS} h}}",
            *(() if gap == "hold" else (f"contacts.gap={gap}",))]


def skies(part: str) -> list[Sky]:
    """Those of a shard such as 1/2, small and large ones in turn, so that what there is soon shows the whole grid."""
    number, of = map(int, part.split("/"))
    found = [sky for sky in ((place, *kind) for place in PLACES for kind in dict.fromkeys(
        (one.isl, one.gap) for one in ALL)) if under(sky)]
    random.Random(0).shuffle(found)
    return found[number - 1::of]


def run(folder: Path, part: str) -> None:
    """Run what has no row. The directory of a sky is deleted once its rows are kept."""
    from emul.study.runs import placed
    from emul.study.sweep import sweep

    for sky in skies(part):
        place, isl, gap = sky
        out = folder / f"{place.planes}-{place.each}-{place.stations}-{isl}-{gap}"
        if any((place, one.label) not in known() for one in under(sky)):
            failed = sweep(SCENARIO, placed("local", 1, 0, (), True), out=out, done=DATA, seeds=[0],
                           sets=sets(sky)).failed
            for failure in failed:
                print(f"{out.name}: {failure.error.splitlines()[0]}", flush=True)
            shutil.rmtree(out, ignore_errors=True)
            print(f"{out.name}: {len(known())} rows", flush=True)


def known() -> dict[tuple[Place, str], dict[str, Any]]:
    """(configuration, scheme) -> its row."""
    found: dict[tuple[Place, str], dict[str, Any]] = {}
    if not DATA.is_file():
        return found
    with DATA.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            found[_place(json.loads(row["sets"])), row["scheme"]] = row
    return found


def _place(edits: Sequence[str]) -> Place:
    said = dict(edit.split("=", 1) for edit in edits)
    stations = re.fullmatch(r"stations(\d*)\.csv", said[f"{SKY}.stations"])
    assert stations is not None
    return Place(int(said[f"{SKY}.planes"]), int(said[f"{SKY}.each"]), int(stations[1] or 10))


# --- tables -----------------------------------------------------------------------------------------------------------

Hours = dict[tuple[Place, str], float]


def hours(rows: dict[tuple[Place, str], dict[str, Any]]) -> Hours:
    """Hours of a round; of a run that ended in its first round, the time that it lasted."""
    return {key: float(row["virtual_s"]) / 3600 / max(1, int(row["rounds"])) for key, row in rows.items()}


def counted(rows: dict[tuple[Place, str], dict[str, Any]]) -> str:
    """Sentences: the configurations, those that have been run, and how long that took."""
    absent = sum(bool(there(place, one)) for place in PLACES for one in SCHEMES)
    total = len(PLACES) * len(SCHEMES)
    beyond = {one.label for one in ANEW}
    have = sum(label not in beyond for _, label in rows)
    took = sum(float(row["real_s"]) for row in rows.values()) / 60
    return (f"{total} configurations: {total - absent} can be, of which {have} have been run. {absent} cannot: "
            f"{NO_RING}. {len(rows) - have} runs are beyond them. All took {took:.1f} minutes on one core, without the "
            "computation of contacts.")


def mapped() -> str:
    """Markdown: the eight schemes, their entries, and the paper's."""
    return markdown(["scheme", "sky", "entry, K half of the satellites", "nearest of the paper"],
                    [[f"`{one.label}`", {"none": "alone", "ring": "ring"}[one.isl], f"`{{{one.entry(0)}}}`".replace(
                        "count: 0", "count: K").replace("buffer: 0", "buffer: K"), one.paper] for one in SCHEMES])


def by_scheme(found: Hours) -> str:
    """Markdown: hours of a round and factor of `waits` over each scheme: median and range over the grid."""
    lines = []
    for one in ALL:
        mine = {place: value for (place, label), value in found.items() if label == one.label}
        factors = {place: found[place, WAITS] / value for place, value in mine.items() if (place, WAITS) in found}
        if not factors:
            continue
        most = max(factors, key=lambda place: (factors[place], place))
        lines.append([f"`{one.label}`", str(len(mine)), _spread(mine.values()), _spread(factors.values()),
                      _said(most), str(sum(value >= NINE for value in factors.values()))])
    return markdown(["scheme", "configurations", "hours of a round", f"`{WAITS}` / it", "largest where",
                     f"{NINE} or more"], lines)


def _spread(values: Any) -> str:
    values = list(values)
    return f"{median(values):.3g} [{min(values):.3g}, {max(values):.3g}]"


def _said(place: Place) -> str:
    return f"{place.planes} x {place.each}, {place.stations}"


def causes(found: Hours) -> str:
    """Markdown: factors that one change alone makes, over the configurations that have both: median and range."""
    pairs = [("fewer wait: K drawn in place of all", WAITS, "half"),
             ("first contact in place of drawn", "half", "first"),
             ("first back in place of first contact", "first", "back"),
             ("no rounds: FedBuff in place of drawn", "half", "fedbuff"),
             ("ring, all wait", WAITS, "ring waits"), ("ring, first back", "back", "ring back"),
             ("ring, FedBuff", "fedbuff", "ring fedbuff"),
             ("first back in a ring in place of all that wait in a ring", "ring waits", "ring back"),
             ("in a ring what waits is routed anew: all wait", "ring waits", "anew waits"),
             ("the same, first back", "ring back", "anew back"), ("the same, FedBuff", "ring fedbuff", "anew fedbuff"),
             ("schedule and ring in place of first contact", "first", "ring back"),
             ("the same, and what waits is routed anew", "first", "anew back")]
    lines = []
    for said, before, after in pairs:
        values = [found[sky, before] / value for (sky, label), value in sorted(found.items())
                  if label == after and (sky, before) in found]
        if values:
            lines.append([said, f"`{before}` / `{after}`", str(len(values)), _spread(values),
                          str(sum(value >= NINE for value in values))])
    for label in (WAITS, "back", "ring waits", "ring back"):
        values = [value / found[more, label] for (sky, name), value in sorted(found.items())
                  if name == label and sky.stations == STATIONS[0]
                  and (more := Place(sky.planes, sky.each, STATIONS[-1]), label) in found]
        if values:
            lines.append([f"{STATIONS[-1]} stations in place of 1", f"`{label}` / `{label}`", str(len(values)),
                          _spread(values), str(sum(value >= NINE for value in values))])
    return markdown(["change", "factor", "configurations", "median [least, largest]", f"{NINE} or more"], lines)


def best(found: Hours) -> str:
    """Markdown: by stations and the size of a plane the factor of `waits` over the best of the others."""
    lines = []
    for each in EACH:
        cells = []
        for n in STATIONS:
            values = []
            for planes in PLANES:
                place = Place(planes, each, n)
                others = [found[place, one.label] for one in SCHEMES if (place, one.label) in found]
                if (place, WAITS) in found:
                    values.append(found[place, WAITS] / min(others))
            cells.append(f"{median(values):.3g} to {max(values):.3g}" if values else "-")
        lines.append([str(each), *cells])
    return markdown(["satellites in a plane", *(f"{n} station{'s' * (n > 1)}" for n in STATIONS)], lines)


def filled(page: str, rows: dict[tuple[Place, str], dict[str, Any]]) -> str:
    """The text of the page with its blocks of the grid made anew."""
    found = hours(rows)
    for name, content in {"grid_counted": counted(rows), "grid_schemes": mapped(), "grid_hours": by_scheme(found),
                          "grid_causes": causes(found), "grid_best": best(found)}.items():
        page = replaced(page, name, content)
    return page


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="folder of the sweeps")
    parser.add_argument("--shard", default="1/1", help="part of the skies, such as 1/2")
    said = parser.parse_args(arguments)
    if said.runs is not None:
        run(said.runs, said.shard)
    else:
        document.save(PAGE, filled(document.read(PAGE), known()))
        print(f"written: {PAGE}")


if __name__ == "__main__":
    main()
