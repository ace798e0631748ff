r"""Virtual time and bytes of secure aggregation against n, loss and d on three networks: runs, and figures of them.

    python -m benchmarks.secagg_networks --out FILE.csv --figures FOLDER
    python -m benchmarks.secagg_networks --read docs/reproductions/data/secagg_networks.csv --figures docs/images \
        --into docs/schemes/coded_sums.md

The scenarios are those of `scenarios/secure_aggregation`: a data centre, homes, phones; 20 clients and 10,000
parameters where nothing else is said. Computations take no time. A cell is one run in this process: one round, six
where copies are lost; its time is the mean over its rounds, those that were given up included. A cell that is in the
file already is not run again. Its row says what makes it again (`emul verify`).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import vl_convert

from benchmarks import document
from benchmarks.common import ROOT, read_rows, write_rows
from benchmarks.document import replaced
from benchmarks.finished import markdown
from emul.base.errors import RunError
from emul.report import palette
from emul.study.cells import cells as cells_of
from emul.study.done import AGAIN, again, numbers
from emul.study.job import CELLS, CellJob, PoolOnDemand, run_cell

FOLDER, PLUGIN = ROOT / "scenarios" / "secure_aggregation", "wide"
NETWORKS = {"centre": "data centre", "home": "homes", "mobile": "phones"}
SCHEMES = ("fedavg", "secagg", "secagg_plus", "ccesa", "safelearning", "lightsecagg", "fastsecagg", "swiftagg_plus")
USUAL: dict[str, float] = {"n": 20, "d": 10_000, "loss": 0}
GRID: dict[str, tuple[float, ...]] = {"n": (10, 20, 40, 80), "d": (1_000, 10_000, 100_000), "loss": (0, .01, .02, .05)}
MODELS = {1_000: "d3", 10_000: "d4", 100_000: "d5"}
TITLES = {"n": "clients n", "d": "parameters d", "loss": "loss of a copy on a link"}
KEYS, VALUES = ("network", "scheme", "n", "d", "loss"), ("time_s", "mb", "summed")
RUN = ("rounds", "rounds_failed", "virtual_s", "bytes")     # of the whole run, as the rows of a sweep have them
COLUMNS = (*AGAIN, *(key for key in KEYS if key != "scheme"), *VALUES, *RUN)
TEXTS = (*AGAIN, "network", *RUN)
LOSSY_ROUNDS = 6


# --- runs -------------------------------------------------------------------------------------------------------------

def cells() -> list[dict[str, Any]]:
    """Every point of the grid once, the cheap ones first."""
    found = []
    for network in NETWORKS:
        for scheme in SCHEMES:
            for what, values in GRID.items():
                for value in values:
                    cell = {"network": network, "scheme": scheme, **USUAL, what: value}
                    if cell not in found:
                        found.append(cell)
    return sorted(found, key=lambda cell: cell["n"] * cell["d"])


def played(cell: Mapping[str, Any], table: Path) -> dict[str, Any]:
    """The row of one run, for `table`: seconds and MB of a round, and the share of its rounds that gave a sum.

    A message that is sent counts once, however many links it takes.
    """
    rounds = LOSSY_ROUNDS if cell["loss"] else 1
    sets = [f"topology.clients={cell['n']:.0f}", f"task.model={MODELS[int(cell['d'])]}",
            f"links[1].outage.p={cell['loss']:g}", f"stop.rounds={rounds}", "evaluation.every=1000"]
    one, = cells_of(FOLDER / f"{cell['network']}.yaml", {}, None, [cell["scheme"]], sets, [PLUGIN])
    with tempfile.TemporaryDirectory() as folder, PoolOnDemand(0) as pool:
        task = CellJob(one.key, one.scenario.resolved(), folder, [PLUGIN], 0, store="none")
        event = run_cell(task, pool, lambda _: None)
        if event.error is not None:
            raise RunError(event.error)
        study, run = Path(folder), Path(folder) / CELLS / one.key
        found, sent = (pd.read_parquet(run / f"{name}.parquet") for name in ("rounds", "messages"))
        came = numbers(study, one)
        return {**again(table, study, one, [PLUGIN]), **cell,
                "time_s": float((found["left_ns"] - found["entered_ns"]).sum()) / 1e9 / rounds,
                "mb": float(sent["payload_bytes"][sent["hops"] > 0].sum()) / 1e6 / rounds,
                "summed": float(found["completed"].sum()) / rounds, **{name: came[name] for name in RUN}}


def run(file: Path) -> list[dict[str, Any]]:
    """Run what the file has not, each cell written as soon as it is there."""
    sys.path.insert(0, str(FOLDER))
    rows = read_rows(file, TEXTS)
    done = [{key: row[key] for key in KEYS} for row in rows]
    for cell in cells():
        if cell not in done:
            rows.append(played(cell, file))
            write(file, rows)
    return rows


def write(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """All rows, in the order of the networks and schemes."""
    places = [list(NETWORKS), list(SCHEMES)]
    ordered = sorted(rows, key=lambda row: (places[0].index(row["network"]), places[1].index(row["scheme"]), row["n"],
                                            row["d"], row["loss"]))
    write_rows(file, COLUMNS, ordered, TEXTS)


# --- tables -----------------------------------------------------------------------------------------------------------

def table(rows: Sequence[Mapping[str, Any]], what: str) -> str:
    """MB of a round at homes for each value of `what` (with losses the rounds of six that gave a sum), and the seconds
    of a round on each network for the least and the largest value."""
    found = {(row["scheme"], row["network"], row[what]): row for row in along(rows, what).to_dict("records")}
    values, ends = GRID[what], (GRID[what][0], GRID[what][-1])
    first, form = (("summed", "{:.0f} of 6") if what == "loss" else ("mb", "{:.3g}"))

    def cell(scheme: str, value: float) -> str:
        row = found[scheme, "home", value]
        return form.format(6 * row[first] if what == "loss" else row[first]) if value or what != "loss" else "all"

    head = [f"{'MB' if what != 'loss' else 'sums'}, {what} = {value:,g}" for value in values]
    head += [f"{name}, s, {what} = {value:,g}" for name in NETWORKS.values() for value in ends]
    return markdown(["scheme", *head], ([f"`{scheme}`", *(cell(scheme, value) for value in values), *(
        _seconds(found[scheme, network, value]["time_s"]) for network in NETWORKS for value in ends)]
        for scheme in SCHEMES))


def _seconds(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"


def written(page: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The page with a table for d, n and losses in its places. Raises DocumentError."""
    for what in GRID:
        page = replaced(page, f"by_{what}", table(rows, what))
    return page


# --- figures ----------------------------------------------------------------------------------------------------------

def along(rows: Sequence[Mapping[str, Any]], what: str) -> pd.DataFrame:
    """The rows in which only `what` is not as usual."""
    return pd.DataFrame([row for row in rows if all(row[key] == USUAL[key] for key in USUAL if key != what)])


def panel(frame: pd.DataFrame, what: str, y: str, title: str, *, log: bool = True) -> alt.Chart:
    """One line a scheme; both axes logarithmic, but for losses."""
    colours = [palette.LIGHT[token[1:]] for token in palette.series(len(SCHEMES))]
    x = alt.X(f"{what}:Q", title=TITLES[what], scale=alt.Scale(type="linear" if what == "loss" else "log"),
              axis=alt.Axis(values=list(GRID[what]), format="~%" if what == "loss" else "~s"))
    scale = alt.Scale(type="log") if log else alt.Scale(domain=[0, 1])
    ticks = alt.Axis(format="~g" if log else "~%", tickCount=5)
    known = alt.Scale(domain=list(SCHEMES), range=colours)
    return alt.Chart(frame, title=title, width=190, height=170).mark_line(point=alt.OverlayMarkDef(size=45)).encode(
        x, alt.Y(f"{y}:Q", title=None, scale=scale, axis=ticks),
        alt.Color("scheme:N", scale=known, title=None),
        alt.StrokeDash("scheme:N", scale=alt.Scale(domain=list(SCHEMES), range=dashes()), title=None),
        alt.Shape("scheme:N", scale=alt.Scale(domain=list(SCHEMES), range=SHAPES), title=None))


SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"]


def dashes() -> list[list[int]]:
    """Lines that lie on each other are told apart by them."""
    return [[1, 0], [6, 2], [2, 2], [8, 3, 2, 3], [1, 0], [6, 2], [2, 3], [1, 0]]


def figure(rows: Sequence[Mapping[str, Any]], what: str) -> alt.ConcatChart:
    """Seconds on each network, MB, and with losses the share of the rounds that gave a sum."""
    frame = along(rows, what)
    panels = [panel(frame[frame.network == network], what, "time_s", f"{name}: seconds a round")
              for network, name in NETWORKS.items()]
    panels.append(panel(frame[frame.network == "home"], what, "mb", "homes: MB a round"))
    if what == "loss":
        panels.append(panel(frame[frame.network == "home"], what, "summed", "homes: rounds with a sum", log=False))
    return alt.concat(*panels, columns=3 if what == "loss" else 2).resolve_scale(color="shared").configure(
        background=palette.LIGHT["page"], font="DejaVu Sans").configure_legend(symbolSize=90)


def draw(rows: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """secagg-n.svg, secagg-d.svg and secagg-loss.svg."""
    folder.mkdir(parents=True, exist_ok=True)
    for what in GRID:
        svg = vl_convert.vegalite_to_svg(figure(rows, what).to_dict())
        (folder / f"secagg-{what}.svg").write_text(svg, encoding="utf-8")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/secagg_networks.csv"))
    parser.add_argument("--read", type=Path, help="only draw what is in this file")
    parser.add_argument("--figures", type=Path, default=Path("runs/figures"))
    parser.add_argument("--into", type=Path, metavar="PAGE", help="write the tables there")
    said = parser.parse_args()
    rows = read_rows(said.read, TEXTS) if said.read else run(said.out)
    draw(rows, said.figures)
    if said.into is not None:
        document.save(said.into, written(document.read(said.into), rows))


if __name__ == "__main__":
    main()
