"""Closed forms of training over slow links, and the runs, tables and figures of docs/studies/internet.md.

    python -m benchmarks.internet --runs runs/internet     trains and times what is missing, then makes the page anew
    python -m benchmarks.internet --runs runs/internet --only trouble --schemes async_10        of these runs alone
    python -m benchmarks.internet                          makes the page anew from docs/studies/data/internet.csv

The first half are functions that know nothing of emul: they reproduce the tables of the papers. The published cells
are those of Streaming DiLoCo (arXiv 2501.18512, Table 4), scaling laws of DiLoCo (arXiv 2503.09799, Table 6) and
INTELLECT-1 (arXiv 2412.01152, Table 2).
"""

from __future__ import annotations

import argparse
import json
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import document
from benchmarks.common import ROOT
from benchmarks.document import replaced
from benchmarks.finished import again, curve, markdown, swept
from emul.study.done import AGAIN

# --- closed forms -----------------------------------------------------------------------------------------------------

GRID = [10 ** (-1 + 4 * k / 49) for k in range(50)]     # Gbit/s, at which the papers' simulator looks
TARGETS = (0.5, 0.8, 0.9, 0.95, 0.99)                   # of the utilisation
BACKWARD = 2 / 3                                        # of a step, that its backward pass takes


def ring_s(n: int, nbytes: float, bps: float, latency_s: float) -> float:
    """Seconds of a ring all-reduce of n members: 2 (n - 1) messages one after the other."""
    return 2 * (n - 1) * (latency_s + 8 * nbytes / n / bps)


def utilisation(computing_s: float, waiting_s: float) -> float:
    """The share of time that is computing."""
    return computing_s / (computing_s + waiting_s)


@dataclass(frozen=True)
class Simulated:
    """A model of the papers' simulator: it has one free number, `ratio`."""

    layers: int                         # L
    step_s: float                       # t
    ratio: float                        # R = S / t, Gbit/s: the bits that a synchronisation sends over a step's time

    def exposed_s(self, leaving: Sequence[int], gbps: float, tau: int = 0, bits: int = 16) -> float:
        """Seconds for which the training waits for layers that leave in one backward pass, in its order.

        leaving: their places in the backward pass, ascending, 1 the first through. tau: steps that the training may go
        on. bits: of a number; the ratio is that of 16.
        """
        each_s = self.ratio * self.step_s / self.layers / gbps * bits / 16
        end_s = 0.0
        for place in leaving:           # one link, first in, first out
            end_s = max(end_s, self.step_s * (1 - BACKWARD + BACKWARD * place / self.layers)) + each_s
        return max(0.0, end_s - self.step_s * (1 + tau))

    def whole(self, gbps: float, steps: int = 1) -> float:
        """The utilisation where all layers leave in each `steps`-th backward pass: DiLoCo, or with 1 data parallel."""
        waiting_s = self.exposed_s(range(1, self.layers + 1), gbps)
        return utilisation(steps * self.step_s, waiting_s)

    def streaming(self, gbps: float, steps: int = 100, tau: int = 0, bits: int = 16) -> float:
        """The utilisation where strided fragments of 3 layers leave in turn, each once in `steps` steps."""
        fragments = self.layers // 3
        waiting_s = sum(self.exposed_s(sorted(self.layers - layer for layer in range(p, self.layers, fragments)),
                                       gbps, tau, bits) for p in range(fragments))
        return utilisation(steps * self.step_s, waiting_s)


METHODS: dict[str, Callable[[Simulated, float], float]] = {
    "Data-Parallel": lambda model, gbps: model.whole(gbps),
    "DiLoCo": lambda model, gbps: model.whole(gbps, 100),
    "Streaming": lambda model, gbps: model.streaming(gbps),
    "overlapped": lambda model, gbps: model.streaming(gbps, tau=1),
    "overlapped, 4 bits": lambda model, gbps: model.streaming(gbps, tau=1, bits=4),
    **{f"H = {steps}": partial(Simulated.whole, steps=steps) for steps in (10, 50, 100, 300)},
}

TABLE_4 = {         # arXiv 2501.18512
    ("1B", Simulated(24, 0.1, 134.35)): {
        "Data-Parallel": (86.8, 152.6, 184.2, 222.3, 569.0), "DiLoCo": (1.4, 6.2, 13.3, 23.3, 86.8),
        "Streaming": (1.4, 5.2, 9.1, 16.0, 28.1), "overlapped": (1.4, 4.3, 6.2, 9.1, 11.0),
        "overlapped, 4 bits": (0.4, 0.9, 1.7, 2.0, 3.0)},
    ("10B", Simulated(48, 0.8, 166.8)): {
        "Data-Parallel": (104.8, 222.3, 222.3, 268.3, 471.5), "DiLoCo": (1.7, 7.5, 16.0, 33.9, 104.8),
        "Streaming": (1.7, 5.2, 9.1, 13.3, 19.3), "overlapped": (1.7, 3.6, 5.2, 6.2, 7.5),
        "overlapped, 4 bits": (0.4, 0.9, 1.4, 1.4, 1.7)},
    ("100B", Simulated(108, 4.9, 267.0)): {
        "Data-Parallel": (184.2, 323.8, 390.7, 390.7, 471.5), "DiLoCo": (3.0, 11.0, 23.3, 49.4, 184.2),
        "Streaming": (2.4, 6.2, 9.1, 11.0, 19.3), "overlapped": (1.7, 3.6, 4.3, 5.2, 5.2),
        "overlapped, 4 bits": (0.5, 0.9, 1.1, 1.1, 1.4)},
}
TABLE_6 = {         # arXiv 2503.09799
    ("10B", Simulated(48, 0.8, 143.9)): {
        "Data-Parallel": (104.8, 184.2, 222.3, 222.3, 390.7), "H = 10": (16.0, 49.4, 86.8, 152.6, 222.3),
        "H = 50": (3.0, 11.0, 23.3, 41.0, 126.5), "H = 100": (1.4, 6.2, 13.3, 23.3, 86.8),
        "H = 300": (0.5, 2.0, 4.3, 9.1, 41.0)},
    ("405B", Simulated(126, 26.0, 192.7)): {
        "Data-Parallel": (126.5, 222.3, 268.3, 323.8, 323.8), "H = 10": (19.3, 72.0, 126.5, 184.2, 268.3),
        "H = 50": (3.6, 13.3, 28.1, 59.6, 184.2), "H = 100": (2.0, 7.5, 16.0, 33.9, 126.5),
        "H = 300": (0.7, 3.0, 6.2, 13.3, 59.6)},
    ("671B", Simulated(61, 20.0, 442.1)): {
        "Data-Parallel": (323.8, 569.0, 686.6, 686.6, float("inf")), "H = 10": (49.4, 152.6, 268.3, 390.7, 686.6),
        "H = 50": (7.5, 33.9, 72.0, 126.5, 390.7), "H = 100": (4.3, 16.0, 41.0, 72.0, 268.3),
        "H = 300": (1.7, 6.2, 13.3, 28.1, 126.5)},
}


def needed(model: Simulated, method: str, target: float) -> int:
    """The place in `GRID` of the least bandwidth that reaches a utilisation; len(GRID): none does."""
    return bisect_left(GRID, True, key=lambda gbps: METHODS[method](model, gbps) >= target)


def steps_off(published: Mapping[tuple[str, Simulated], Mapping[str, Sequence[float]]]) -> list[int]:
    """Of each published cell, by how many steps of the grid the closed form is above it."""
    found = []
    for (_, model), methods in published.items():
        for method, cells in methods.items():
            for target, cell in zip(TARGETS, cells, strict=True):
                here = min(range(len(GRID)), key=lambda k: abs(GRID[k] - min(cell, GRID[-1])))
                found.append(min(needed(model, method, target), len(GRID) - 1) - here)
    return found


def hours(model: Simulated, gbps: float, free_hours: float, method: str) -> float:
    """Hours of a training that takes `free_hours` over links without a limit."""
    return free_hours / METHODS[method](model, gbps)


# --- the study: runs --------------------------------------------------------------------------------------------------

HOME = ROOT / "docs" / "studies"
PAGE, DATA, FIGURES = HOME / "internet.md", HOME / "data" / "internet.csv", HOME / "figures"
FILE = ROOT / "scenarios" / "internet" / "study.yaml"
STEPS, CLIENTS, TARGET = 200, 4, 2.6                    # TARGET: nats a byte on the test windows
SEED, SEEDS = 7, (7, 8, 9)                              # of times and shares; of whatever trains a model
SIZES = {"1B": (1e9, 0.1), "10B": (10e9, 0.8)}          # parameters, seconds of a step: those of Streaming DiLoCo
UPLINKS = (50, 100, 200, 500, 1000, 2000, 5000, 10_000)         # Mbit/s, as many down
OTHER_TARGETS = (2.7, 2.5, 2.45)        # that the map of winners has, too
TIMED = 4                                               # rounds of a run that is timed
KINDS = ("train", "leave", "time", "trouble")           # what a row is of: its column `what`
COLUMNS = [*AGAIN, "what", "size", "mbps", "latency_ms", "slow", "rounds", "virtual_s", "train_s", "mb", "losses",
           "trouble", "kept_s", "mean_loss"]


@dataclass(frozen=True)
class Entry:
    """A scheme of the study. steps: of a round."""

    scheme: str                         # its entry
    steps: float
    every: int = 1                      # rounds between two evaluations

    @property
    def rounds(self) -> int:
        """Those of the whole training."""
        return round(STEPS / self.steps)


ENTRIES = {
    "ddp": Entry("name: ddp", 1, every=10),
    "local_sgd_10": Entry("name: local_sgd, steps: 10", 10),
    "local_sgd_50": Entry("name: local_sgd, steps: 50", 50),
    "diloco_10": Entry("name: diloco, steps: 10, rate: 0.3", 10),
    "diloco_50": Entry("name: diloco, steps: 50, rate: 0.3", 50),
    "streaming_10": Entry("name: streaming_diloco, steps: 10, fragments: 5", 10),
    "sparseloco_10": Entry("name: sparseloco, steps: 10, mean: senders", 10),
    "noloco_10": Entry("name: noloco, steps: 10, gamma: 0.7", 10),
    "async_10": Entry("name: async_diloco, steps: 10", 10 / CLIENTS, every=4),
}
# of figures: a colour an algorithm, a dash a number of steps in a round
COLOURS = {"ddp": "#4c78a8", "local_sgd": "#f58518", "diloco": "#b279a2", "streaming": "#e45756",
           "sparseloco": "#54a24b", "noloco": "#9d755d", "async": "#eeca3b"}
DASHES = {1: [1, 0], 10: [6, 2], 50: [2, 2], 250: [8, 2, 2, 2]}
PANELS = {                              # name -> (size, latency of a link in ms, is one uplink a tenth)
    "1B": ("1B", 2.5, False), "1B, 150 ms": ("1B", 37.5, False), "1B, one uplink a tenth": ("1B", 2.5, True),
    "10B": ("10B", 2.5, False), "10B, one uplink a tenth": ("10B", 2.5, True),
}


@dataclass(frozen=True)
class Trouble:
    """Trouble in the network of a timed run, beside its bandwidth."""

    nodes: str = ""                     # of the workers
    faults: str = ""
    slow: bool = False                  # one uplink has a tenth of the bandwidth
    labels: Sequence[str] = ()
    survives: bool = False              # its schemes are SURVIVORS
    day: bool = False                   # it lasts a virtual day, not as many rounds as ROUNDS has
    uplinks: Sequence[int] = UPLINKS


STEADY = ("ddp", "local_sgd_10", "local_sgd_50", "streaming_10", "sparseloco_10", "noloco_10", "async_10")
ROUNDS = {"ddp": 150, "local_sgd_10": 15, "local_sgd_50": 4, "streaming_10": 15, "sparseloco_10": 15, "noloco_10": 15,
          "async_10": 15 * CLIENTS}     # of a run without churn: 150 to 200 steps; of others TIMED
SURVIVORS = {                           # label -> its scheme, its steps, its largest part of S on a link at once
    "diloco_10": ("diloco", 10, 1 / 4), "diloco_50": ("diloco", 50, 1 / 4), "diloco_250": ("diloco", 250, 1 / 4),
    "sparseloco_50": ("sparseloco", 50, 3 / 136), "sparseloco_250": ("sparseloco", 250, 3 / 136),
    "noloco_50": ("noloco", 50, 2.0), "async_50": ("async_diloco", 50, 2.0),
}
SURVIVE_10 = {"sparseloco_10": ("sparseloco", 10, 3 / 136), "noloco_10": ("noloco", 10, 2.0),
              "async_10": ("async_diloco", 10, 2.0)}        # of trainings while workers leave, beside diloco_10
FEWER = (200, 1000, 5000, 10_000)       # uplinks with churn, whose runs take longer


def _churn(scale: str) -> Trouble:
    """Times up of a Weibull law of shape 0.5, whose mean is twice its scale; absences of 10 minutes on average."""
    return Trouble(faults=f'[{{churn: {{match: "client*", up: {{weibull: {{shape: 0.5, scale: {scale}}}}}, '
                          'down: {exponential: 10 min}}}]', labels=tuple(SURVIVORS), survives=True, day=True,
                   uplinks=FEWER)


TROUBLES = {
    "one uplink a tenth": Trouble(slow=True, labels=("async_10",)),         # the rows `time` have the others
    "steps vary, sigma 0.3": Trouble(nodes=", jitter: 0.3", labels=STEADY),
    "nobody leaves": Trouble(labels=tuple(SURVIVORS), survives=True, uplinks=FEWER),
    "churn, 4 h": _churn("2 h"), "churn, 1 h": _churn("30 min"),
}
TROUBLED = "10B"                        # the size of all of these
TRAINED = ("diloco_10", "sparseloco_10", "noloco_10", "async_10")       # while workers leave, and while they do not:
NOBODY, LEAVING = "trained, nobody leaves", "trained, churn, 1 h"


def _entry(label: str) -> str:
    return f"schemes=[{{{ENTRIES[label].scheme}, label: {label}}}]"


def training(label: str) -> list[str]:
    """The edits of the run that trains a scheme."""
    return [_entry(label), f"stop={{rounds: {ENTRIES[label].rounds}}}", f"evaluation={{every: {ENTRIES[label].every}}}"]


def timing(label: str, size: str, mbps: int, latency_ms: float, slow: bool) -> list[str]:
    """The edits of a run that times rounds of a declared model, for which a small one stands."""
    parameters, step_s = SIZES[size]
    slower = f', {{match: "client1->server", bandwidth: {mbps / 10:g} Mbit/s}}' if slow else ""
    rounds = TIMED * CLIENTS if label.startswith("async") else TIMED
    return [
        _entry(label), f"stop={{rounds: {rounds}}}", "training=skip",
        f'links=[{{match: "*", latency: {latency_ms * 1e3:g} us, bandwidth: {mbps} Mbit/s, switching: cut_through}}'
        f"{slower}]",
        f'nodes=[{{match: "client*", flops: {6 * parameters * 1e6 / step_s:g}}}]',
        f"task.declared={{parameters: {parameters:g}, tokens: 1000000}}",
        "task.model={transformer: {blocks: 5, width: 24, heads: 4}}"]


def leaving(label: str, leave: bool) -> list[str]:
    """The edits of a run that trains while workers leave, or while nobody does. The model that is trained is that of
    `training`; its messages and steps take what those of the declared model take at 1 Gbit/s."""
    edits = troubled(label, "churn, 1 h" if leave else "nobody leaves", 1000)
    return [edit for edit in edits if not edit.startswith(("stop=", "training=", "task.model="))] + training(label)[1:]


def surviving(label: str, mbps: int) -> str:
    """The entry of a scheme that goes on without those who leave. Its times follow from the time of the messages.

    timeout: one and a half times the time of what a link has to carry before the next message, and 10 s. grace: 1.2
    times that of the model that a peer takes over, and 10 s, since one that is not there by then has to begin again.
    """
    scheme, steps, part = (SURVIVORS | SURVIVE_10)[label]
    whole_s = 32 * SIZES[TROUBLED][0] / (mbps * 1e6)            # S over a link
    times = {"timeout": 10 + 1.5 * part * whole_s}
    if scheme == "async_diloco":                                # it trains between the two ways
        times["timeout"] += 1.5 * steps * SIZES[TROUBLED][1]
    how = ""
    if scheme in ("diloco", "sparseloco"):
        times["grace"] = 10 + 1.2 * (2 if scheme == "diloco" else 1) * whole_s
        how = ", survive: true" + ", pieces: 2" * (scheme == "diloco") + ", mean: senders" * (scheme == "sparseloco")
    said = "".join(f", {name}: {seconds:.0f} s" for name, seconds in times.items())
    return f"name: {scheme}, steps: {steps}{how}{said}"


def troubled(label: str, name: str, mbps: int) -> list[str]:
    """The edits of a run that times rounds in a network where something goes wrong."""
    trouble = TROUBLES[name]
    edits = timing("ddp", TROUBLED, mbps, 2.5, trouble.slow)
    entry = surviving(label, mbps) if trouble.survives else ENTRIES[label].scheme
    rounds = ROUNDS.get(label, TIMED * CLIENTS if label.startswith("async") else TIMED)
    edits[0] = f"schemes=[{{{entry}, label: {label}}}]"
    edits[1] = "stop={virtual_time: 24 h}" if trouble.day else f"stop={{rounds: {rounds}}}"
    edits = [edit.replace("}]", f"{trouble.nodes}}}]") if edit.startswith("nodes=") else edit for edit in edits]
    return edits + ([f"faults={trouble.faults}"] if trouble.faults else [])


def run(folder: Path, only: str, labels: Sequence[str] = (), troubles: Sequence[str] = ()) -> Iterator[pd.DataFrame]:
    """The rows, after each sweep. A run that there is is not made again. only: one of `KINDS`; "": all.
    labels: of these schemes; empty: of all. troubles: of `TROUBLES`, these alone; empty: all."""
    found: list[dict[str, Any]] = []
    def chosen(of: Iterable[str]) -> list[str]:
        return [label for label in of if not labels or label in labels]
    if only in ("train", ""):
        for label in chosen(ENTRIES):
            out, done = folder / f"train-{label}", folder / f"train-{label}.csv"
            swept(FILE, out, done, seeds=SEEDS, sets=training(label))
            found += rows("train", out, done, {})
            yield pd.DataFrame(found, columns=COLUMNS)
    if only in ("leave", ""):
        for label, (name, leave) in product(chosen(TRAINED), ((NOBODY, False), (LEAVING, True))):
            out, done = folder / f"leave-{label}-{leave}", folder / f"leave-{label}-{leave}.csv"
            swept(FILE, out, done, seeds=SEEDS, sets=leaving(label, leave))
            found += rows("leave", out, done, {"trouble": name})
            yield pd.DataFrame(found, columns=COLUMNS)
    for panel, (size, latency_ms, slow) in PANELS.items() if only in ("time", "") else ():
        for mbps in UPLINKS:
            for label in chosen(ENTRIES):
                if slow and label.startswith("async"):          # its losses would be others
                    continue
                name = f"time-{panel.replace(', ', '-').replace(' ', '_')}-{mbps}-{label}"
                out, done = folder / name, folder / f"{name}.csv"
                swept(FILE, out, done, seeds=[SEED], sets=timing(label, size, mbps, latency_ms, slow))
                found += rows("time", out, done, {"size": size, "mbps": mbps, "latency_ms": latency_ms, "slow": slow})
        yield pd.DataFrame(found, columns=COLUMNS)
    for trouble, what in TROUBLES.items() if only in ("trouble", "") else ():
        if troubles and trouble not in troubles:
            continue
        for mbps in what.uplinks:
            for label in chosen(what.labels):
                name = f"{_file_name(trouble)}-{mbps}-{label}"
                out, done = folder / name, folder / f"{name}.csv"
                swept(FILE, out, done, seeds=[SEED], sets=troubled(label, trouble, mbps))
                found += rows("trouble", out, done, {"size": TROUBLED, "mbps": mbps, "latency_ms": 2.5,
                                                     "slow": what.slow, "trouble": trouble})
        yield pd.DataFrame(found, columns=COLUMNS)


def _file_name(trouble: str) -> str:
    return "trouble_" + re.sub("[^a-z0-9]+", "_", trouble)


def merged(before: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """The rows before, those of the same key replaced, then new ones. All of text."""
    known = set(found["key"])
    return pd.concat([before[~before["key"].isin(known)], found]).sort_values(
        "what", key=lambda what: what.map(KINDS.index), kind="stable")


def rows(what: str, study: Path, done: Path, network: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a run of a sweep, `COLUMNS`."""
    known, results = again([done]), pd.read_csv(study / "results.csv")
    return [known[one["digest"]] | {"what": what, **network, **_row(one, study / one["directory"])}
            for one in results.to_dict("records")]


def _row(result: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    train_s = sum(of.get("train", 0.0) for of in summary["seconds_declared"].values())
    rounds = pd.read_parquet(folder / "rounds.parquet")
    losses = "" if "loss" not in rounds else curve(*zip(*rounds.dropna(subset=["loss"]).groupby("round")["loss"].mean(
        ).items(), strict=True))
    return {"rounds": result["rounds"], "virtual_s": result["virtual_s"], "train_s": train_s / CLIENTS,
            "mb": result["bytes"] / 1e6, "losses": losses, "kept_s": kept_s(folder, rounds) / CLIENTS,
            "mean_loss": loss_of_the_mean(folder) if result["scheme"].startswith("noloco") and losses else None}


def kept_s(folder: Path, rounds: pd.DataFrame) -> float:
    """Seconds of training, over all workers, in rounds that a worker has completed; of a server that steps along what
    comes, as many trainings as have come."""
    computed = pd.read_parquet(folder / "computations.parquet")
    trained = computed[(computed["label"] == "train") & computed["finished"]].assign(
        s=lambda of: (of["end_ns"] - of["start_ns"]) / 1e9)
    completed = rounds[rounds["completed"]]
    if set(completed["node"]) <= set(trained["node"]):
        ended = set(zip(completed["node"], completed["round"], strict=True))
        return float(sum(s for node, round_, s in zip(trained["node"], trained["round"], trained["s"], strict=True)
                         if (node, round_) in ended))
    return len(completed) * float(trained["s"].mean()) if len(trained) else 0.0


def loss_of_the_mean(folder: Path) -> float:
    """The loss of the mean of the models of all workers, at the end of a run."""
    from emul.engine.evaluating import evaluate

    mean = evaluate(folder).mean
    assert mean is not None
    return mean["loss"]


# --- the study: tables and figures ------------------------------------------------------------------------------------

def losses(row: Mapping[str, Any]) -> dict[int, float]:
    """Round -> loss, of a row."""
    return {int(round_): float(loss) for round_, loss in (one.split(":") for one in str(row["losses"]).split())}


def rounds_of(row: Mapping[str, Any], target: float = TARGET) -> float:
    """The first round of a row whose loss is the target or less; NaN: it does not get there."""
    return next((round_ for round_, loss in losses(row).items() if loss <= target), math.nan)


def rounds_to(found: pd.DataFrame, target: float = TARGET) -> dict[str, float]:
    """Scheme -> the rounds until its loss is the target, the mean over seeds; NaN: with one of them it does not get
    there."""
    trained = found[found["what"] == "train"]
    needed = pd.Series([rounds_of(row, target) for row in trained.to_dict("records")], index=trained["scheme"])
    return needed.groupby(level=0, sort=False).agg(lambda of: of.mean(skipna=False)).to_dict()


def times(found: pd.DataFrame, target: float = TARGET) -> pd.DataFrame:
    """A row a network and scheme: seconds of a round, seconds to the target, the share of time that is training."""
    needed_rounds = rounds_to(found, target)
    timed = found[found["what"] == "time"].copy()
    timed["round_s"] = timed["virtual_s"] / timed["rounds"]
    timed["share"] = timed["train_s"] / timed["virtual_s"]
    timed["to_target_s"] = timed["round_s"] * timed["scheme"].map(needed_rounds)
    timed["panel"] = [next(name for name, value in PANELS.items() if value == (size, latency, bool(slow)))
                      for size, latency, slow in zip(timed["size"], timed["latency_ms"], timed["slow"], strict=True)]
    return timed


def trained_table(found: pd.DataFrame) -> str:
    """Markdown: the loss of each scheme after a quarter, half and all of the steps, and when it got to the target."""
    lines = []
    for label, of in found[found["what"] == "train"].groupby("scheme", sort=False):
        own, entry = of.to_dict("records"), ENTRIES[str(label)]
        known = [losses(row) for row in own]
        at = [spread([one.get(max((r for r in one if r <= entry.rounds * part), default=0), math.nan) for one in known],
                     ".3f") for part in (0.25, 0.5, 1)]
        steps = [rounds_of(row) * entry.steps for row in own]
        lines.append([f"`{label}`", *at, spread(steps, ".0f"), f"{own[0]['mb'] / CLIENTS:,.1f}"])
    return markdown(["scheme", "50 steps", "100", "200", f"steps to {TARGET}", "MB on all links, a worker"], lines)


def spread(values: Sequence[float], form: str) -> str:
    """The mean of some seeds, and their least and largest if they differ; a dash: with one of them there is none."""
    if any(math.isnan(value) for value in values):
        missing = sum(math.isnan(value) for value in values)
        return "-" if missing == len(values) else f"- ({missing} of {len(values)} not)"
    least, largest, mean = (format(of, form) for of in (min(values), max(values), sum(values) / len(values)))
    return mean if least == largest else f"{mean} ({least} to {largest})"


def leaving_table(found: pd.DataFrame) -> str:
    """Markdown: a row a scheme, what it comes to while nobody leaves and while workers leave."""
    of_kind = found[found["what"] == "leave"]
    lines = []
    for label in (label for label in TRAINED if label in set(of_kind["scheme"])):
        cells = []
        for name in (NOBODY, LEAVING):
            own = of_kind[(of_kind["scheme"] == label) & (of_kind["trouble"] == name)].to_dict("records")
            cells += [spread([list(losses(row).values())[-1] for row in own], ".3f"),
                      spread([row["virtual_s"] / 3600 for row in own], ".2f"),
                      spread([row["kept_s"] / row["train_s"] for row in own], ".2f")]
        lines.append([f"`{label}`", *cells])
    return markdown(["scheme", "loss, nobody leaves", "hours", "trained that counts", "loss, churn", "hours",
                     "trained that counts"], lines)


def time_table(found: pd.DataFrame, panel: str, value: str = "to_target_s") -> str:
    """Markdown: a row an uplink, a column a scheme; the least in bold."""
    timed = times(found)
    chosen = timed[timed["panel"] == panel]
    labels = [label for label in ENTRIES if label in set(chosen["scheme"])]
    lines = []
    for mbps in UPLINKS:
        row = chosen[chosen["mbps"] == mbps].set_index("scheme")[value].reindex(labels)
        best = row.idxmin() if value == "to_target_s" and row.notna().any() else ""
        cells = ("-" if pd.isna(x) else _shown(x, value, label == best) for label, x in row.items())
        lines.append([f"{mbps:,}", *cells])
    return markdown(["Mbit/s", *(f"`{label}`" for label in labels)], lines)


def _shown(x: float, value: str, best: bool) -> str:
    text = f"{100 * x:.1f} %" if value == "share" else f"{x:,.0f}" if x >= 100 else f"{x:.3g}"
    return f"**{text}**" if best else text


def shares(found: pd.DataFrame) -> pd.DataFrame:
    """A row a trouble, uplink and scheme: the share of time that is training which counts."""
    timed = found[(found["what"] == "time") & (found["size"] == TROUBLED) & (found["latency_ms"] == 2.5)]
    slow = timed["slow"].astype(str) == "True"
    timed = timed.assign(trouble=slow.map({True: "one uplink a tenth", False: "none"}), kept_s=timed["train_s"])
    timed = timed[timed["scheme"].isin(STEADY)]
    both = pd.concat([timed, found[found["what"] == "trouble"]])
    return both.assign(share=both["kept_s"].astype(float) / both["virtual_s"].astype(float))


def trouble_table(found: pd.DataFrame, trouble: str) -> str:
    """Markdown: a row an uplink, a column a scheme; of rows that read the same in turn the first and the last."""
    chosen = shares(found)
    chosen = chosen[chosen["trouble"] == trouble]
    labels = [label for label in (*STEADY, *SURVIVORS) if label in set(chosen["scheme"])]
    lines: list[list[str]] = []
    for mbps in TROUBLES[trouble].uplinks:
        row = chosen[chosen["mbps"].astype(float) == mbps].set_index("scheme")["share"].reindex(labels)
        cells = ["-" if pd.isna(x) else _shown(x, "share", False) for x in row]
        if len(lines) > 1 and lines[-1][1:] == lines[-2][1:] == cells:
            lines.pop()
        lines.append([f"{mbps:,}", *cells])
    return markdown(["Mbit/s", *(f"`{label}`" for label in labels)], lines)


def mean_table(found: pd.DataFrame) -> str:
    """Markdown: of schemes whose workers have models that differ, the loss of each on average and of their mean."""
    trained = found[(found["what"] == "train") & found["mean_loss"].notna()]
    lines = [[f"`{label}`", spread([list(losses(row).values())[-1] for row in of.to_dict("records")], ".4f"),
              spread(of["mean_loss"].astype(float).tolist(), ".4f")]
             for label, of in trained.groupby("scheme", sort=False)]
    return markdown(["scheme", "loss of each, on average", "loss of the mean of the models"], lines)


def winners(found: pd.DataFrame) -> str:
    """Markdown: the scheme that gets to a loss first, a row a panel or another loss, a column an uplink. Of seeds that
    disagree each winner."""
    lines = []
    for panel, target in [*((panel, TARGET) for panel in PANELS), *(("1B", target) for target in OTHER_TARGETS)]:
        first: dict[int, dict[str, None]] = {mbps: {} for mbps in UPLINKS}
        for seed in found.loc[found["what"] == "train", "seed"].unique():
            timed = times(found[(found["what"] != "train") | (found["seed"] == seed)], target)
            for mbps, of in timed[timed["panel"] == panel].groupby("mbps"):
                one = of.set_index("scheme")["to_target_s"].dropna()
                first[int(mbps)] |= {f"`{one.idxmin()}`" if len(one) else "-": None}
        lines.append([panel, f"{target:g}", *(", ".join(names) or "-" for names in first.values())])
    return markdown(["model", "loss", *(f"{mbps:,} Mbit/s" for mbps in UPLINKS)], lines)


def published_table() -> str:
    """Markdown: how many cells of the papers' tables the closed forms hit."""
    lines = []
    for name, table in (("Streaming DiLoCo, Table 4", TABLE_4), ("scaling laws, Table 6", TABLE_6)):
        off = steps_off(table)
        lines.append([name, str(len(off)), str(off.count(0)), str(off.count(1)), str(off.count(-1)),
                      str(sum(abs(one) > 1 for one in off))])
    return markdown(["table", "cells", "exact", "one step above", "one step below", "further off"], lines)


def filled(page: str, found: pd.DataFrame | None) -> str:
    """The text of the page with its blocks made anew. found: the rows of all runs; None: they have not been made."""
    blocks = {"published": published_table()}
    if found is not None:
        blocks |= {"trained": trained_table(found), "winners": winners(found), "small": time_table(found, "1B"),
                   "large": time_table(found, "10B"), "slow": time_table(found, "1B, one uplink a tenth"),
                   "share": time_table(found, "10B", "share"), "mean": mean_table(found),
                   "leaving": leaving_table(found)}
        blocks |= {_file_name(name): trouble_table(found, name) for name in TROUBLES}
    for name, content in blocks.items():
        page = replaced(page, name, content)
    return page


def draw(found: pd.DataFrame, folder: Path) -> Path:
    """Virtual time to the target against the uplink, a line a scheme, a panel a setting, both axes logarithmic: SVG."""
    import altair as alt

    timed = times(found).dropna(subset=["to_target_s"])
    powers = alt.Axis(values=[10**k for k in range(1, 8)], format=",d")
    up = alt.Y("to_target_s:Q", title=f"virtual seconds to a loss of {TARGET}", axis=powers,
               scale=alt.Scale(type="log", nice=False, padding=12))
    file = folder / "internet-time.svg"
    titles = {name: name.replace("10B", "10^10 parameters").replace("1B", "10^9 parameters") for name in PANELS}
    _save(timed, up, titles, "panel", file)
    return file


def _save(frame: pd.DataFrame, up: Any, panels: Mapping[str, str], of: str, file: Path) -> None:
    """A panel for each name of the column `of`, against the bandwidth; panels: name -> title."""
    import altair as alt

    parts = frame["scheme"].str.extract(r"^(?P<algorithm>.*?)(?:_(?P<steps>\d+))?$")
    frame = frame.assign(algorithm=parts["algorithm"], steps=parts["steps"].fillna("1").astype(int))
    shown = {name: colour for name, colour in COLOURS.items() if name in set(frame["algorithm"])}
    lengths = {steps: dash for steps, dash in DASHES.items() if steps in set(frame["steps"])}
    across = alt.X("mbps:Q", title="bandwidth, Mbit/s", axis=alt.Axis(values=[50, 200, 1000, 5000], format=",d"),
                   scale=alt.Scale(type="log", nice=False, padding=12, domain=[50, 10_000]))
    colour = alt.Color("algorithm:N", title=None, sort=None, scale=alt.Scale(domain=[*shown], range=[*shown.values()]))
    dash = alt.StrokeDash("steps:O", title="steps a round", legend=alt.Legend(symbolType="stroke", symbolSize=600),
                          scale=alt.Scale(domain=[*lengths], range=[*lengths.values()]))
    bases = {title: alt.Chart(frame[frame[of] == name]).encode(x=across, y=up, color=colour)
             for name, title in panels.items()}
    drawn = [(base.mark_line().encode(strokeDash=dash) + base.mark_circle()).properties(
        width=260, height=200, title=title) for title, base in bases.items()]
    file.parent.mkdir(parents=True, exist_ok=True)
    alt.concat(*drawn, columns=2).configure_view(stroke=None).save(file)


def draw_troubles(found: pd.DataFrame, folder: Path) -> Path:
    """The share of time that is training which counts against the uplink, a line a scheme, a panel a trouble: SVG."""
    import altair as alt

    up = alt.Y("share:Q", title="share of time that trains", axis=alt.Axis(format=".0%"),
               scale=alt.Scale(domain=[0, 1]))
    shown = shares(found)[["mbps", "share", "scheme", "trouble"]].astype({"mbps": float})
    file = folder / "internet-troubles.svg"
    _save(shown, up, {"none": "no trouble", **{name: name for name in TROUBLES}}, "trouble", file)
    return file


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="folder of the sweeps")
    parser.add_argument("--only", choices=KINDS, default="", help="these runs alone")
    parser.add_argument("--schemes", nargs="*", default=(), help="labels: of these schemes alone")
    parser.add_argument("--troubles", nargs="*", choices=TROUBLES, default=[], help="with --only trouble: these alone")
    said = parser.parse_args(arguments)
    if said.runs is not None:
        for found in run(said.runs, said.only, said.schemes, said.troubles):
            text = pd.read_csv(StringIO(_csv(found)), dtype=str, keep_default_na=False)
            if said.only or said.schemes or said.troubles:
                text = merged(pd.read_csv(DATA, dtype=str, keep_default_na=False).reindex(
                    columns=COLUMNS, fill_value=""), text)
            DATA.write_text(_csv(text), encoding="utf-8")
    found = pd.read_csv(DATA) if DATA.exists() else None
    document.save(PAGE, filled(document.read(PAGE), found))
    if found is not None:
        print(f"written: {draw(found, FIGURES)}, {draw_troubles(found, FIGURES)}")


def _csv(found: pd.DataFrame) -> str:
    return found.to_csv(index=False, float_format="%.9g", lineterminator="\n")


if __name__ == "__main__":
    main()
