"""The runs, tables and figures of docs/studies/stragglers.md and bytes.md, from the directories of their sweeps.

    for name in home mobile silo codecs; do
        emul sweep scenarios/stragglers/$name.yaml --out runs/$name --done runs/$name.csv
        python -m benchmarks.stragglers runs/$name --done runs/$name.csv
    done

Each call puts the runs of a sweep into docs/studies/data/stragglers.csv in place of those of the same network, and
makes tables and figures of both pages anew; without a directory it does the latter alone.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import document
from benchmarks.common import ROOT
from benchmarks.document import replaced
from benchmarks.finished import again
from emul.record.rundir import read_json
from emul.study import stats
from emul.study.done import AGAIN

HOME = ROOT / "docs" / "studies"
DATA, FIGURES = HOME / "data" / "stragglers.csv", HOME / "figures"
NETWORKS, CODECS = ("home", "mobile", "silo"), "codecs"
TARGET, BASE = 0.94, "fedavg"
WIDTH, HEIGHT = 400, 300                 # of a panel, in pixels
COLUMNS = [*AGAIN, "network", "accuracy", "rounds", "rounds_failed", "virtual_s", "mb", "joules",
           "idle_joules", "trainings", "wasted", "oracle_waits"]


# --- runs -------------------------------------------------------------------------------------------------------------

def runs(study: Path, done: Path) -> pd.DataFrame:
    """One row a run of a sweep, `COLUMNS`. done: its table, which says what makes a run again. joules: of the clients,
    computing, sending and receiving; idle_joules: theirs besides. trainings: how many were begun; wasted: the share of
    the clients' computing that came to nothing."""
    found, known = pd.read_csv(study / "results.csv"), again([done])
    name = read_json(study / "study.json")["scenario"]
    return pd.DataFrame([known[one["digest"]] | _row(name, one, study / one["directory"])
                         for one in found.to_dict("records")], columns=COLUMNS)


def _row(network: str, result: dict[str, Any], run: Path) -> dict[str, Any]:
    from emul.report import data, stragglers

    energy = pd.read_parquet(run / "energy.parquet")
    of_clients = energy[energy["role"] == "client"]
    opened = data.open_run(run)
    return {"network": network, "accuracy": result["accuracy"],
            "rounds": result["rounds"], "rounds_failed": result["rounds_failed"], "virtual_s": result["virtual_s"],
            "mb": result["bytes"] / 1e6, "joules": of_clients[["compute_j", "send_j", "receive_j"]].sum().sum(),
            "idle_joules": of_clients["idle_j"].sum(),
            "trainings": sum(opened.computations.labels[label] == "train" for label in opened.computations.label),
            "wasted": stragglers.wasted(stragglers.work(opened)), "oracle_waits": result["oracle_waits"]}


def kept(file: Path, found: pd.DataFrame) -> pd.DataFrame:
    """All runs of a file with these in place of those of their network; the file is written anew."""
    before = pd.read_csv(file) if file.is_file() else found.iloc[:0]
    others = before[~before["network"].isin(found["network"])]
    together = pd.concat([others, found], ignore_index=True) if len(others) else found
    file.parent.mkdir(parents=True, exist_ok=True)
    together.to_csv(file, index=False, float_format="%.6g", lineterminator="\n")
    return pd.read_csv(file)


# --- tables -----------------------------------------------------------------------------------------------------------

def table(found: pd.DataFrame, network: str) -> str:
    """Markdown: a row a scheme, fastest first; intervals are the bootstrap's over the seeds that reached the target."""
    rows = found[found["network"] == network]
    lines = [_head("scheme", "reached", "virtual time, s", "MB", "kJ of clients", "in vain", "time, of FedAvg's",
                   "MB, of FedAvg's")]
    for scheme in order(rows):
        mine = rows[rows["scheme"] == scheme]
        there = mine[mine["accuracy"] >= TARGET]
        mark = "*" if mine["oracle_waits"].sum() else ""
        lines.append(" | ".join([
            f"| `{scheme}`{mark}", f"{len(there)} of {len(mine)}", _interval(there["virtual_s"], 1),
            _interval(there["mb"], 1), _interval(there["joules"], 1e3), f"{mine['wasted'].mean():.0%}",
            _against(rows, scheme, "virtual_s"), _against(rows, scheme, "mb")]) + " |")
    return "\n".join(lines) if len(rows) else "*No runs yet.*"


def _head(*names: str) -> str:
    return f"| {' | '.join(names)} |\n{'|---' * len(names)}|"


def order(rows: pd.DataFrame) -> list[str]:
    """Schemes by virtual time, those that reached the target on most seeds first."""
    there = rows.assign(reached=rows["accuracy"] >= TARGET)
    by = there.groupby("scheme", sort=False).agg(reached=("reached", "sum"), s=("virtual_s", "mean"))
    return [str(name) for name in by.sort_values(["reached", "s"], ascending=[False, True]).index]


def _interval(values: pd.Series[float], unit: float) -> str:
    if values.empty:
        return "-"
    found = stats.interval([value / unit for value in values])
    if found.low is None or found.high is None:
        return _plain(found.mean)
    return f"{_plain(found.mean)} [{_plain(found.low)}, {_plain(found.high)}]"


def _plain(value: float | None) -> str:
    """Three digits, or all that stand before the point."""
    assert value is not None
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ratios(rows: pd.DataFrame, scheme: str, value: str, base: str = BASE) -> list[float]:
    """Of the seeds on which both reached the target: the scheme's value over that of `base`."""
    wide = rows[rows["accuracy"] >= TARGET].pivot(index="seed", columns="scheme", values=value)
    if not {scheme, base} <= set(wide.columns):
        return []
    return [float(ratio) for ratio in (wide[scheme] / wide[base]).dropna()]


def _against(rows: pd.DataFrame, scheme: str, value: str, base: str = BASE) -> str:
    """The geometric mean of the ratios with its t interval, taken of the logarithms; bold where 1 lies outside."""
    found = ratios(rows, scheme, value, base)
    if scheme == base or not found:
        return "1" if scheme == base else "-"
    middle = math.exp(float(np.mean(np.log(found))))
    if len(found) < 3 or len(set(found)) == 1:
        return f"{middle:.2f}"
    known = stats.student(np.log(found))
    text = f"{middle:.2f} [{math.exp(known.low):.2f}, {math.exp(known.high):.2f}]"
    return text if known.low <= 0 <= known.high else f"**{text}**"


def bytes_table(found: pd.DataFrame) -> str:
    """Markdown: a row a codec, by MB to the target, with what it makes of time and joules."""
    rows = found[found["network"] == CODECS]
    lines = [_head("entry", "reached", "rounds", "MB", "kJ of clients", "MB, of FedAvg's", "time, of FedAvg's",
                   "kJ, of FedAvg's")]
    means = rows.groupby("scheme")["mb"].mean().sort_values()
    for scheme in means.index:
        mine = rows[rows["scheme"] == scheme]
        there = mine[mine["accuracy"] >= TARGET]
        lines.append(" | ".join([
            f"| `{scheme}`", f"{len(there)} of {len(mine)}", _interval(there["rounds"], 1), _interval(there["mb"], 1),
            _interval(there["joules"], 1e3), *(_against(rows, str(scheme), value)
                                               for value in ("mb", "virtual_s", "joules"))]) + " |")
    return "\n".join(lines) if len(rows) else "*No runs yet.*"


TRANSFORMS = {"qsgd": "fedavg", "8_bits_both_ways": "fedavg", "top_k": "fedavg", "fedbuff_top_k": "fedbuff"}


def transforms(found: pd.DataFrame) -> str:
    """Markdown: by network and transform, rounds, MB, time and joules over those of the same scheme without it."""
    lines = [_head("network", "transform", "of", "rounds", "MB", "time", "kJ of clients")]
    for network in NETWORKS:
        rows = found[found["network"] == network]
        lines += [f"| {network} | `{one}` | `{base}` | " + " | ".join(
            _against(rows, one, value, base) for value in ("rounds", "mb", "virtual_s", "joules")) + " |"
            for one, base in TRANSFORMS.items()]
    return "\n".join(lines)


def fronts(found: pd.DataFrame) -> str:
    """Markdown: by network the schemes that no other one beats in time, MB and joules at once, of those that reached
    the target on every seed."""
    from emul.report.tradeoffs import on_front

    lines = ["| network | no other scheme is better in time, MB and joules |", "|---|---|"]
    for network in NETWORKS:
        means = complete(found[found["network"] == network])
        best = means[on_front(means.to_numpy())].sort_values("virtual_s") if len(means) else means
        lines.append(f"| {network} | {', '.join(f'`{name}`' for name in best.index) or '-'} |")
    return "\n".join(lines)


def complete(rows: pd.DataFrame) -> pd.DataFrame:
    """Scheme -> mean virtual_s, mb, joules, of those that reached the target on every seed."""
    grouped = rows.groupby("scheme")
    there = grouped["accuracy"].min() >= TARGET
    return grouped[["virtual_s", "mb", "joules"]].mean()[there]


# --- figures ----------------------------------------------------------------------------------------------------------

def draw(found: pd.DataFrame, folder: Path) -> list[Path]:
    """MB and kJ against virtual time, a figure a network, the front marked; as SVG."""
    import altair as alt

    drawn = []
    for network in (*NETWORKS, CODECS):
        means = complete(found[found["network"] == network]).reset_index()
        if means.empty:
            continue
        means["kJ"] = means["joules"] / 1e3
        panels = [_panel(means, y, title) for y, title in (("mb", "MB"), ("kJ", "kJ of clients"))]
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"stragglers-{network}.svg"
        alt.hconcat(*panels).configure_view(stroke=None).save(file)
        drawn.append(file)
    return drawn


def _panel(means: pd.DataFrame, y: str, title: str) -> Any:
    import altair as alt

    from emul.report.tradeoffs import on_front

    frame = means.assign(front=on_front(means[["virtual_s", y]].to_numpy()))
    across = alt.X("virtual_s:Q", title="virtual seconds to the accuracy",
                   scale=alt.Scale(type="log", nice=False, padding=24), axis=alt.Axis(labelSeparation=6))
    up = alt.Y(f"{y}:Q", title=title, scale=alt.Scale(type="log", nice=False, padding=16))
    base = alt.Chart(frame).encode(x=across, y=up)
    line = alt.Chart(frame[frame["front"]]).mark_line(
        interpolate="step-after", color="#566173", strokeDash=[5, 3], strokeWidth=1).encode(x=across, y=up)
    points = base.mark_point(filled=True, size=70, opacity=1).encode(
        color=alt.condition("datum.front", alt.value("#0b6bb8"), alt.value("#b9c3cf")))
    labels = [alt.Chart(one).mark_text(align=align, dx=dx, dy=dy, fontSize=9).encode(x=across, y=up, text="scheme:N")
              for (align, dx, dy), one in _labels(frame, y).groupby(["align", "dx", "dy"])]
    return alt.layer(line, points, *labels).properties(width=WIDTH, height=HEIGHT)


def _labels(frame: pd.DataFrame, y: str) -> pd.DataFrame:
    """The names of the points, each at the first place beside its point that is free; points alike have one."""
    found = frame.groupby(["virtual_s", y], as_index=False)["scheme"].agg(", ".join)
    pixels = np.log(found[["virtual_s", y]].to_numpy())
    pixels = (pixels - pixels.min(0)) / np.maximum(np.ptp(pixels, 0), 1e-9)
    pixels = pixels * [WIDTH - 48, 32 - HEIGHT] + [24, HEIGHT - 16]             # as the scales have it, y downwards
    taken = [(a - 5, b - 5, a + 5, b + 5) for a, b in pixels]
    places = []
    for name, (a, b) in zip(found["scheme"], pixels, strict=True):
        ways = [(align, dx, dy) for dy in (-6, 8, -14, 16, -22, 24) for align, dx in (("left", 6), ("right", -6))]
        boxes = {way: _box(a, b, 5 * len(name), *way) for way in ways}
        free = [way for way, box in boxes.items() if box[0] > -30 and box[2] < WIDTH + 30
                and not any(_meet(box, other) for other in taken)]
        places.append(next(iter(free), ways[0]))
        taken.append(boxes[places[-1]])
    return found.assign(**dict(zip(("align", "dx", "dy"), zip(*places, strict=True), strict=True)))


def _box(a: float, b: float, long: int, align: str, dx: int, dy: int) -> tuple[float, float, float, float]:
    left = a + dx - (long if align == "right" else 0)
    return left, b + dy - 5, left + long, b + dy + 5


def _meet(one: Sequence[float], other: Sequence[float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


# --- pages ------------------------------------------------------------------------------------------------------------

def filled(page: str, found: pd.DataFrame) -> str:
    """The text of a page with its blocks made anew."""
    blocks = {**{network: table(found, network) for network in NETWORKS}, "fronts": fronts(found),
              "transforms": transforms(found), CODECS: bytes_table(found)}
    for name, content in blocks.items():
        if f"<!-- {name} -->" in page:
            page = replaced(page, name, content)
    return page


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, nargs="*", help="directories of sweeps")
    parser.add_argument("--done", type=Path, nargs="*", default=[], help="their tables, in the same order")
    said = parser.parse_args(arguments)
    for study, done in zip(said.study, said.done, strict=True):
        kept(DATA, runs(study, done))
    found = pd.read_csv(DATA)
    for page in sorted(HOME.glob("*.md")):
        document.save(page, filled(document.read(page), found))
    for file in draw(found, FIGURES):
        print(f"written: {file}")


if __name__ == "__main__":
    main()
