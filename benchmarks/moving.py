"""The runs and tables of docs/studies/moving.md.

    python -m benchmarks.moving --runs runs/moving     runs what is missing, then makes the page anew
    python -m benchmarks.moving                        makes the page anew from docs/studies/data/moving.csv
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import document
from benchmarks.common import ROOT
from benchmarks.document import replaced
from benchmarks.finished import markdown, swept
from emul.study.done import AGAIN

HOME = ROOT / "docs" / "studies"
PAGE, DATA = HOME / "moving.md", HOME / "data" / "moving.csv"
SCENARIO = ROOT / "scenarios" / "moving" / "walker66.yaml"
TARGET, SEEDS, DAYS, MOST = 0.85, 2, 5, 20
PLANES, EACH, STATIONS = (1, 5, 10), (1, 5, 10), (1, 13)
GRID_DAYS, GRID_ROUNDS = 10, 3
COLUMNS = [*AGAIN, "part", "sky", "planes", "each", "stations", "accuracy", "rounds", "virtual_h", "mb"]
SKY = "topology.constellation"
CLIENT = "rule: attribute, attribute: kind, value: satellite, access: {latency: 1 ms}"
# every satellite talks to stations
EVERYBODY = f"{SKY}.gateways=null", f"topology.roles={{server: [Weilheim], client: {{{CLIENT}}}}}"
SIXTY = f"{SKY}.gateways=null", f"topology.roles={{server: [Weilheim], client: {{{CLIENT}, count: 60}}}}"


@dataclass(frozen=True)
class Part:
    """One sweep: the edits of the scenario, the values of its grid, and its seeds."""

    sky: str
    sets: tuple[str, ...]
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    seeds: int = 1


def _trained(sky: str, *sets: str) -> Part:
    """Sixty clients that train until the target."""
    return Part(sky, (*sets, f"{SKY}.for={24 * DAYS} h",
                      f"stop={{accuracy: {TARGET}, rounds: {MOST}, virtual_time: {24 * DAYS} h}}"), seeds=SEEDS)


def _counted(sky: str, isl: str, each: Sequence[int]) -> Part:
    """FedAvg without training, over planes, satellites and stations."""
    return Part(sky, (
        *EVERYBODY, f"{SKY}.isl={isl}", f"{SKY}.phasing=0", f"{SKY}.for={24 * GRID_DAYS} h", "contacts.step=1 min",
        "training=skip", "task.partition={bootstrap: 15}", "schemes=[{name: fedavg, label: waits}]",
        f"stop={{rounds: {GRID_ROUNDS}, virtual_time: {24 * GRID_DAYS} h}}"),
        {f"{SKY}.planes": PLANES, f"{SKY}.each": each, f"{SKY}.stations": [f"stations{n}.csv" for n in STATIONS]})


SCHEMES = ("{name: fedavg, label: waits}", "{name: fedavg, label: deadline, deadline: 3 h}",
           "{name: fedbuff, buffer: 20, timeout: 24 h}")
ON_BOARD = ("{name: hierarchical, edge_rounds: 2}", "{name: gossip, graph: ring}")
PARTS = {
    "schemes-alone": _trained("alone", *SIXTY, f"{SKY}.isl=none", f"schemes=[{', '.join(SCHEMES)}]"),
    "schemes-ring": _trained("ring", *SIXTY, f"{SKY}.isl=ring", f"schemes=[{', '.join(SCHEMES)}]"),
    "schemes-gateways": _trained("gateways", f"schemes=[{', '.join((*SCHEMES, *ON_BOARD))}]"),
    "grid-alone": _counted("alone", "none", EACH),
    "grid-ring": _counted("ring", "ring", EACH[-1:]),       # fewer in a plane do not see each other
}


def run(folder: Path) -> Iterator[pd.DataFrame]:
    """The rows of all sweeps, after each one. A run that there is is not made again."""
    found: dict[str, pd.DataFrame] = {}
    for name, part in PARTS.items():
        out, done = folder / name, folder / f"{name}.csv"
        swept(SCENARIO, out, done, grid={path: list(values) for path, values in part.grid.items()},
              seeds=list(range(part.seeds)), sets=list(part.sets))
        found[name] = rows(name, out, done)
        yield pd.concat(found.values(), ignore_index=True)


def rows(name: str, study: Path, done: Path) -> pd.DataFrame:
    """One row a run of a sweep, `COLUMNS`."""
    with done.open(newline="", encoding="utf-8") as lines:      # a deadline that nobody missed leaves the digest alike
        known = {(row["digest"], row["scheme"]): {key: row[key] for key in AGAIN} for row in csv.DictReader(lines)}
    return pd.DataFrame([known[one["digest"], one["scheme"]] | _row(name, one) for one in pd.read_csv(
        study / "results.csv").to_dict("records")], columns=COLUMNS)


def _row(name: str, result: dict[str, Any]) -> dict[str, Any]:
    stations = str(result.get(f"{SKY}.stations", "stations10.csv"))
    return {"part": name.partition("-")[0], "sky": PARTS[name].sky, "planes": result.get(f"{SKY}.planes", 6),
            "each": result.get(f"{SKY}.each", 11), "stations":
                int(stations.removeprefix("stations").removesuffix(".csv")),
            "accuracy": result["accuracy"], "rounds": result["rounds"], "virtual_h": result["virtual_s"] / 3600,
            "mb": result["bytes"] / 1e6}


# --- tables -----------------------------------------------------------------------------------------------------------

def schemes(found: pd.DataFrame) -> str:
    """Markdown: a row for each scheme of each sky: hours, MB and rounds to the target, mean [least, largest]."""
    mine, lines = found[found["part"] == "schemes"], []
    for sky in dict.fromkeys(mine["sky"]):
        for label in dict.fromkeys(mine[mine["sky"] == sky]["scheme"]):
            here = mine[(mine["sky"] == sky) & (mine["scheme"] == label)]
            there = here[here["accuracy"] >= TARGET]
            reached = "" if len(there) == len(here) else f"{len(there)} of {len(here)}"
            lines.append([sky, f"`{label}`", *(_cell(there[value]) for value in ("virtual_h", "rounds", "mb")),
                          reached or "all", f"{here['accuracy'].mean():.3f}"])
    return markdown(["sky", "scheme", "hours", "rounds", "MB", f"seeds that got to {TARGET}", "last accuracy"], lines)


def _cell(values: pd.Series) -> str:
    if values.empty:
        return "-"
    spread = "" if values.min() == values.max() else f" [{values.min():.3g}, {values.max():.3g}]"
    return f"{values.mean():.3g}{spread}"


def rounds(found: pd.DataFrame) -> str:
    """Markdown: hours of a round of FedAvg by planes, satellites in a plane, and stations; both skies."""
    mine = found[found["part"] == "grid"]
    lines = []
    for each in EACH:
        for planes in PLANES:
            cells = [_a_round(mine[(mine["sky"] == sky) & (mine["planes"] == planes) & (mine["each"] == each)
                                   & (mine["stations"] == n)]) for n in STATIONS for sky in ("alone", "ring")]
            lines.append([str(planes), str(each), *(f"{x:.3g}" if x else "-" for x in cells),
                          *(f"{a / b:.3g}" if a and b else "-" for a, b in zip(cells[::2], cells[1::2], strict=True))])
    head = [f"{sky}, {n}" for n in STATIONS for sky in ("alone", "ring")] + [f"alone / ring, {n}" for n in STATIONS]
    return markdown(["planes", "each", *head], lines)


def _a_round(rows: pd.DataFrame) -> float | None:
    return None if rows.empty or not rows["rounds"].iloc[0] else float(rows["virtual_h"].iloc[0] /
        rows["rounds"].iloc[0])


def counted(found: pd.DataFrame) -> str:
    """A sentence: the number of the runs, of all that are asked for."""
    asked = SEEDS * (2 * len(SCHEMES) + len(SCHEMES) + len(ON_BOARD)) + len(PLANES) * len(STATIONS) * (len(EACH) + 1)
    return f"{len(found)} of {asked} runs have been made."


def filled(page: str, found: pd.DataFrame) -> str:
    """The text of the page with its blocks made anew."""
    for name, content in {"runs": counted(found), "schemes": schemes(found), "rounds": rounds(found)}.items():
        page = replaced(page, name, content)
    return page


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="folder of the sweeps")
    said = parser.parse_args(arguments)
    if said.runs is not None:
        for found in run(said.runs):
            found.to_csv(DATA, index=False, float_format="%.9g", lineterminator="\n")
    document.save(PAGE, filled(document.read(PAGE), pd.read_csv(DATA)))
    print(f"written: {PAGE}")


if __name__ == "__main__":
    main()
