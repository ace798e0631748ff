"""The runs, tables and figure of docs/studies/split.md.

    python -m benchmarks.split --runs runs/split       runs what is missing, seed after seed, then makes the page anew
    python -m benchmarks.split                         makes the page anew from docs/studies/data/split.csv

Four networks are those of suite 1, at a hundredth of real rates, with eight clients. Vertical learning has two
parties, with the halves of the images.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import document
from benchmarks.common import ROOT
from benchmarks.document import replaced
from benchmarks.finished import again, markdown
from emul.study.done import AGAIN

HOME = ROOT / "docs" / "studies"
PAGE, DATA, FIGURES = HOME / "split.md", HOME / "data" / "split.csv", HOME / "figures"
STAR, TARGET, SEEDS = "star", 0.85, 3
LATENCIES = ("1 ms", "10 ms", "50 ms", "200 ms")
NETWORKS = {STAR: "scenarios/split/latency.yaml",
            **{name: f"scenarios/split/{name}.yaml" for name in ("lan", "silo", "edge", "home")}}
BY_ROLE = ("silo", "edge")              # networks whose clients are counted below their role
COLUMNS = [*AGAIN, "network", "latency_ms", "accuracy", "rounds", "virtual_s", "mb", "batch_s", "batch_bytes"]


# --- runs -------------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Kind:
    """Schemes that divide the data in one way."""

    clients: int
    partition: str
    model: str
    schemes: tuple[str, ...]

    def sets(self, network: str) -> list[str]:
        """The edits of a network's scenario."""
        place = "topology.roles.client.count" if network in BY_ROLE else "topology.clients"
        return [
            f"{place}={self.clients}",
            f"task={{data: {{set: digits}}, partition: {self.partition}, model: {self.model}, "
            "solver: {sgd: {lr: 0.2, epochs: 1, batch: 32}}}",
            "compute={mode: profile, file: ../split/study.profile.json}",
            f"schemes=[{', '.join(f'{{{scheme}, deadline: 1 h}}' for scheme in self.schemes)}]",
            f"stop={{accuracy: {TARGET}, rounds: 60}}"]


KINDS = {
    "samples": Kind(8, "{dirichlet: 1.0}", "digits_classic", (
        "name: fedavg", "name: splitfed, cut: 2", "name: splitfed, label: splitfed_micro, cut: 2, micro_batches: 2",
        "name: splitfed, label: splitfed_flight, cut: 2, in_flight: 4", "name: u_split, cut: 2, head: 8",
        "name: u_split, label: u_split_flight, cut: 2, head: 8, in_flight: 4")),
    "columns": Kind(2, "{columns: {groups: 2}}", "digits_mlp", (
        "name: vertical", "name: vertical, label: vertical_async, asynchronous: true")),
}


def run(folder: Path) -> Iterator[pd.DataFrame]:
    """The rows of all sweeps, after each one. A run that there is is not made again."""
    from emul.study.runs import placed
    from emul.study.sweep import sweep

    found: dict[Path, pd.DataFrame] = {}
    for seed in range(SEEDS):
        for network, file in NETWORKS.items():
            for name, kind in KINDS.items():
                out = folder / f"{network}-{name}"
                done = folder / f"{network}-{name}.csv"
                sweep(ROOT / file, placed("local", 1, 0, (), True), out=out, done=done,
                      grid={"links[0].latency": list(LATENCIES)} if network == STAR else {},
                      seeds=list(range(seed + 1)), sets=kind.sets(network))
                found[out] = rows(network, out, done)
                yield pd.concat(found.values(), ignore_index=True)


def rows(network: str, study: Path, done: Path) -> pd.DataFrame:
    """One row a run of a sweep, `COLUMNS`."""
    known, found = again([done]), pd.read_csv(study / "results.csv")
    return pd.DataFrame([known[one["digest"]] | _row(network, one, study / one["directory"])
                         for one in found.to_dict("records")], columns=COLUMNS)


def _row(network: str, result: dict[str, Any], run: Path) -> dict[str, Any]:
    latency = result.get("links[0].latency")
    return {"network": network, "latency_ms": None if latency is None else float(str(latency).removesuffix(" ms")),
            "accuracy": result["accuracy"], "rounds": result["rounds"], "virtual_s": result["virtual_s"],
            "mb": result["bytes"] / 1e6, **batch(pd.read_parquet(run / "messages.parquet"))}


def batch(messages: pd.DataFrame) -> dict[str, float]:
    """Seconds between the first two batches that client1 sends, and the bytes on its links between them; {} for a
    scheme without batches."""
    mine = messages[(messages["source_name"] == "client1") | (messages["target_name"] == "client1")]
    sent = mine[mine["type"].isin(("Activations", "Embeddings"))]["sent_ns"].sort_values().tolist()[:2]
    if len(sent) < 2:
        return {}
    between = mine[(mine["sent_ns"] >= sent[0]) & (mine["sent_ns"] < sent[1])]
    return {"batch_s": (sent[1] - sent[0]) / 1e9, "batch_bytes": float(between["wire_bytes"].sum())}


# --- tables -----------------------------------------------------------------------------------------------------------

RATE_BPS, BATCH = 20e6, 32              # of the star's links, and samples of a batch
STEPS = {                               # scheme -> (latencies that a batch waits for, computations of it)
    "splitfed": (2, ("client/forward", "server/top", "client/backward")),
    "u_split": (4, ("client/forward", "server/middle", "client/head", "server/middle back", "client/backward")),
    "vertical": (2, ("client/forward", "server/top", "client/backward")),
}


def closed_form(scheme: str, latency_ms: float, wire_bytes: float) -> float:
    """Seconds of a batch of one client that waits for nobody else: latencies, sizes over the rate, computations."""
    costs = json.loads((ROOT / "scenarios" / "split" / "study.profile.json").read_text(encoding="utf-8"))["costs"]
    waits, labels = STEPS[scheme]
    fixed, each = (sum(costs[f"{scheme}/{label}"][i] for label in labels) for i in range(2))
    return float(waits * latency_ms / 1e3 + wire_bytes * 8 / RATE_BPS + fixed + each * BATCH)


def batches(found: pd.DataFrame) -> str:
    """Markdown: a batch over the star, as measured in the runs of the first seed and by the closed form."""
    star = found[(found["network"] == STAR) & (found["seed"] == found["seed"].min())]
    lines = []
    for scheme in STEPS:
        for row in star[star["scheme"] == scheme].sort_values("latency_ms").to_dict("records"):
            formula = closed_form(scheme, row["latency_ms"], row["batch_bytes"])
            lines.append([f"`{scheme}`", f"{row['latency_ms']:g} ms", f"{row['batch_bytes']:,.0f}",
                          f"{row['batch_s'] * 1e3:.3f}", f"{formula * 1e3:.3f}",
                          f"{(row['batch_s'] - formula) * 1e3:.3f}"])
    return markdown(["scheme", "latency", "bytes", "measured, ms", "closed form, ms", "difference, ms"], lines)


def settings(found: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """(name, rows) of the star's latencies, then of the networks; those that have rows."""
    star = found[found["network"] == STAR]
    named = [(f"{ms:g} ms", star[star["latency_ms"] == ms]) for ms in sorted(star["latency_ms"].unique())]
    named += [(f"`{name}`", found[found["network"] == name]) for name in NETWORKS if name != STAR]
    return [(name, rows) for name, rows in named if len(rows)]


def table(found: pd.DataFrame, value: str) -> str:
    """Markdown: a row a setting, a column a scheme: the mean over the seeds that got to the target, with the least and
    the largest; and how many of the seeds got there, where not all did."""
    labels = list(dict.fromkeys(found["scheme"]))
    return markdown(["network", *(f"`{label}`" for label in labels)], (
        [name, *(_cell(rows[rows["scheme"] == label], value) for label in labels)] for name, rows in settings(found)))


def _cell(rows: pd.DataFrame, value: str) -> str:
    there = rows[rows["accuracy"] >= TARGET][value]
    if there.empty:
        return f"0 of {len(rows)}" if len(rows) else "-"
    shown = f"{there.mean():.3g}" if there.mean() < 100 else f"{there.mean():,.0f}"
    if there.min() < there.max():
        shown += " [" + ", ".join(f"{x:.3g}" if x < 100 else f"{x:,.0f}" for x in (there.min(), there.max())) + "]"
    return shown if len(there) == len(rows) else f"{shown}, {len(there)} of {len(rows)}"


def counted(found: pd.DataFrame) -> str:
    """A sentence: the number of the runs, of all that are asked for."""
    entries = sum(len(kind.schemes) for kind in KINDS.values())
    return f"{len(found)} of {SEEDS * entries * (len(LATENCIES) + len(NETWORKS) - 1)} runs have been made."


def filled(page: str, found: pd.DataFrame) -> str:
    """The text of the page with its blocks made anew."""
    for name, content in {"runs": counted(found), "batches": batches(found), "time": table(found, "virtual_s"),
                          "mb": table(found, "mb"), "rounds": table(found, "rounds")}.items():
        page = replaced(page, name, content)
    return page


def draw(found: pd.DataFrame, folder: Path) -> Path:
    """Virtual time to the target against the star's latency, a line a scheme, both axes logarithmic; as SVG."""
    import altair as alt

    star = found[(found["network"] == STAR) & (found["accuracy"] >= TARGET)]
    means = star.groupby(["scheme", "latency_ms"], as_index=False)["virtual_s"].mean()
    across = alt.X("latency_ms:Q", title="latency of a link, ms", scale=alt.Scale(type="log", domain=[0.9, 220]),
                   axis=alt.Axis(values=[1, 10, 50, 200]))
    up = alt.Y("virtual_s:Q", title=f"virtual seconds to {TARGET}", scale=alt.Scale(type="log", nice=False, padding=16))
    colour = alt.Color("scheme:N", title=None, sort=list(dict.fromkeys(
        means.sort_values("virtual_s", ascending=False)["scheme"])))
    upon = "indexof(['vertical_async', 'splitfed_micro'], datum.scheme) >= 0"           # one line on top of another
    lines = alt.Chart(means).mark_line(point=True).encode(
        x=across, y=up, color=colour, strokeDash=alt.condition(upon, alt.value([5, 5]), alt.value([1, 0])))
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "split-latency.svg"
    lines.properties(width=560, height=340).configure_view(stroke=None).save(file)
    return file


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="folder of the sweeps")
    said = parser.parse_args(arguments)
    if said.runs is not None:
        for found in run(said.runs):
            found.to_csv(DATA, index=False, float_format="%.9g", lineterminator="\n")
    found = pd.read_csv(DATA)
    document.save(PAGE, filled(document.read(PAGE), found))
    print(f"written: {draw(found, FIGURES)}")


if __name__ == "__main__":
    main()
