"""The tables and figures of docs/reproductions/fedrfq.md and seccogc.md, from the rows of their finished cells.

    python -m benchmarks.reproductions

Rewrites what stands between the marks of both pages and draws their figures anew. The rows with columns of their own
come from run directories, the others from `emul sweep --done`:

    emul sweep scenarios/paper/fedrfq_mnist.yaml --done RUNS/fedrfq.csv
    python -m benchmarks.reproductions --rows fedrfq RUNS/fedrfq-mnist-sweep ... --done RUNS/fedrfq.csv

The table of `--done` says what makes each run again.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import altair as alt
import pandas as pd
from ruamel.yaml import YAML

from benchmarks import document
from benchmarks.common import ROOT
from benchmarks.document import replaced
from benchmarks.ebs_cfl import read
from benchmarks.finished import NOTHING, Row, again, curve, markdown, of, setting_of
from emul.schemes.fair_seccogc import secure_keys
from emul.schemes.fair_seccogc.group import Design, key_generator

HOME = ROOT / "docs" / "reproductions"
DATA, FIGURES = HOME / "data", HOME / "figures"
ORDER = ["fl_ideal", "fl_lossy", "fair_seccogc", "dnc_private", "fl_private"]
NETWORKS, GAMMAS, KEYS = ("symmetric", "asymmetric"), (0.1, 0.2), (0.05, 0.1)
OF_LINKS = {        # quantity of `analysis` -> its name
    "outage_probability": "P_O", "successes": "successes", "complete_arrived_per_round": "complete sums a round",
    "shared_per_round": "updates shared a round", "uplinks_per_round": "sums sent a round"}
OF_OBSERVERS = {"outsider": "an outsider", "peer": "a peer", "partial_sum": "a partial sum", "server": "the server",
                "mean": "the mean alone"}
# Of Table I, std 2: accuracy by avg 3, 4, 5; U, thousands of numbers; R
FEDRFQ: dict[str, tuple[tuple[float, ...], str, str]] = {
    "local": ((94.05, 93.35, 92.92), "0", "0"), "fesem": ((95.26, 97.06, 96.31), "430", "150"),
    "fedprox": ((96.26, 96.40, 95.65), "430", "110"), "fedper": ((95.57, 96.44, 95.55), "106", "100"),
    "fedavg": ((91.40, 94.32, 93.22), "430", "150"),
    "fedrep": ((94.96, 95.18, 94.94), "110", "100"), "fedproto": ((97.13, 96.80, 96.70), "4", "100"),
    "fedrfq": ((98.41, 97.67, 97.40), "1.92", "100")}
WIDER = {"local": 93.44, "fesem": 96.40, "fedprox": 96.65, "fedper": 96.57, "fedavg": 94.57, "fedrep": 95.01,
         "fedproto": 96.71, "fedrfq": 97.90}        # Table I, std 3, avg 3
CIFAR10 = {"local": 68.15, "fedproto": 81.75, "fedrfq": 83.82}     # Table III, std 2, avg 3
POOLS = ("soft", "avg", "max", "adaptive_avg", "adaptive_max", "none")
FAULTS = "faults"
LOOKED_AT = (1, 2, 5, 10, 20, 50, 100)  # rounds
FEW = "fedrfq-mnist-few"


# --- SecCoGC --------------------------------------------------------------------------------------------------------

def _points(row: Row) -> dict[int, float]:
    return {int(at): float(value) for at, _, value in (point.partition(":") for point in row["curve"].split())}


def _cells(rows: Iterable[Row], scheme: str, network: str, gamma: float, key: float | None, batch: str = "128",
           ) -> dict[str, dict[int, float]]:
    """{seed: its curve}."""
    return {row["seed"]: _points(row) for row in rows
            if (row["scheme"], row["scenario"], row["gamma"], row["lambda"], row["batch"]) == (
                scheme, f"seccogc-mnist-{network}", str(gamma), "" if key is None else str(key), batch)}


def at_round_100(rows: Sequence[Row]) -> str:
    """Figure 3 at its end: the mean of the seeds, and each of them."""
    def shown(scheme: str, network: str, gamma: float, key: float, batch: str = "128") -> str:
        own = _cells(rows, scheme, network, gamma, key if scheme in WITH_KEYS else None, batch)
        values = [own[seed][100] for seed in sorted(own)]
        return f"{mean(values):.3f} ({', '.join(f'{v:.3f}' for v in values)})" if values else "not run"

    lines = [[network, str(gamma), str(key), *(shown(scheme, network, gamma, key) for scheme in ORDER)]
             for network in NETWORKS for gamma in GAMMAS for key in KEYS]
    lines.append(["symmetric, batch 1024", "0.1", "0.1", *(shown(scheme, "symmetric", 0.1, 0.1, "1024")
                                                          for scheme in ORDER)])
    return markdown(["network", "Gamma", "lambda", *(f"`{scheme}`" for scheme in ORDER)], lines)


WITH_KEYS = ("fair_seccogc", "dnc_private", "fl_private")


def differences(rows: Sequence[Row]) -> str:
    """The numbers of the claims about Figure 3: the least and the most of all cells and seeds."""
    def apart(one: str, other: str, key: float | None = None) -> Iterator[dict[int, float]]:
        """By round, `one` above `other`, of each cell and seed."""
        for network in NETWORKS:
            for gamma in GAMMAS:
                for each in KEYS if key is None else (key,):
                    above, below = (_cells(rows, name, network, gamma, each if name in WITH_KEYS else None)
                                    for name in (one, other))
                    for seed in sorted(above.keys() & below.keys()):
                        yield {at: above[seed][at] - below[seed][at] for at in above[seed]}

    behind = list(apart("fl_ideal", "fair_seccogc"))
    lines = [("1", "`fl_ideal` above `fair_seccogc` at round 100", [d[100] for d in behind]),
             ("1", "the same after round 20, mean over the curve", [_late(d) for d in behind]),
             ("1", "the same after round 20, largest", [max(v for at, v in d.items() if at > 20) for d in behind])]
    small, large = ({place: own for place, own in _by_place(rows, key).items()} for key in KEYS)
    lines += [("2", "`fair_seccogc` with lambda 0.05 and 0.1, largest difference",
               [max(abs(small[place][at] - large[place][at]) for at in small[place]) for place in small]),
              ("3", "`dnc_private` above `fl_private`, lambda 0.05", [d[100] for d in apart(
                  "dnc_private", "fl_private", 0.05)]),
              ("4", "`fl_private` above `dnc_private`, lambda 0.1", [d[100] for d in apart(
                  "fl_private", "dnc_private", 0.1)])]
    wandering = [own for network in NETWORKS for gamma in GAMMAS
                 for own in _cells(rows, "fl_private", network, gamma, 0.1).values()]
    lines += [("4", "`fl_private`, lambda 0.1, largest fall within 5 rounds",
               [max(own[one] - own[other] for one, other in pairwise(sorted(own))) for own in wandering]),
              ("4", "the same, least and best accuracy from round 20 on", [
                  v for own in wandering for at, v in own.items() if at >= 20])]
    private = [d for name in ("dnc_private", "fl_private") for d in apart("fair_seccogc", name)]
    lines += [("5", "`fair_seccogc` above a private baseline at round 100", [d[100] for d in private]),
              ("5", "the same, largest over the curve", [max(d.values()) for d in private])]
    for network in NETWORKS:
        for gamma in GAMMAS:
            ideal, lossy = (_cells(rows, name, network, gamma, None) for name in ("fl_ideal", "fl_lossy"))
            lines.append(("6", f"`fl_ideal` above `fl_lossy`, mean over the curve, {network}, Gamma {gamma}", [
                mean(ideal[seed][at] - lossy[seed][at] for at in ideal[seed]) for seed in sorted(ideal)]))
    lossy_by = list(apart("fl_ideal", "fl_lossy", 0.1))
    lines += [("6", "the same, largest of a round", [max(d.values()) for d in lossy_by]),
              ("6", "the same at round 100", [d[100] for d in lossy_by])]
    return markdown(["claim", "number", "least", "most"], (
        [claim, what, f"{min(values):z.4f}", f"{max(values):z.4f}"] for claim, what, values in lines))


def _late(by_round: Mapping[int, float]) -> float:
    return mean(value for at, value in by_round.items() if at > 20)


def _by_place(rows: Sequence[Row], key: float) -> dict[tuple[str, float, str], dict[int, float]]:
    return {(network, gamma, seed): own for network in NETWORKS for gamma in GAMMAS
            for seed, own in _cells(rows, "fair_seccogc", network, gamma, key).items()}


def reliability(analysed: Sequence[Row]) -> str:
    """Theory beside measurement, of runs without training: all schemes of a seed and network meet the same links."""
    lines = []
    for network in NETWORKS:
        own = [row for row in analysed if row["scenario"] == f"seccogc-digits-{network}"]
        for seed in sorted({row["seed"] for row in own}, key=int):
            found = {row["quantity"]: row for row in own if row["seed"] == seed}
            lines.append([network, seed, *(f"{float(found[name]['theory']):.4g} / {float(found[name]['measured']):.4g}"
                                           for name in OF_LINKS)])
    return markdown(["network", "seed", *OF_LINKS.values()], lines)


def leakage(analysed: Sequence[Row]) -> str:
    """The knowledge of each observer of a round: bits a coordinate (LMIP), epsilon (LDP), by scheme; of each seed where
    these differ."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in analysed:
        if row["scenario"] == "seccogc-digits-keys":
            found.setdefault((row["scheme"], row["quantity"]), []).append(
                row["theory"] if row["theory"].isalpha() else f"{float(row['theory']):.4g}")
    names = list(dict.fromkeys(scheme for scheme, _ in found))
    return markdown(["observer", *(f"`{name}`: {kind}" for name in names for kind in ("bits", "epsilon"))], (
        [what, *(", ".join(dict.fromkeys(found.get((name, quantity), "-"))) for name in names for quantity in (
            f"lmip_{who}_bits", f"ldp_{who}_epsilon"))] for who, what in OF_OBSERVERS.items()))


def fairness(rows: Sequence[Row]) -> str:
    """The power of each client's key over lambda^2, of both constructions, for the seeds of the runs."""
    lines = []
    designs = {"fair_seccogc": Design(7, "cyclic_mds", 20, 1.0, "dealer", "fair_cyclic", None),
               "seccogc": Design(7, "cyclic_mds", 20, 1.0, "dealer", "random", None)}
    for name, design in designs.items():
        for seed in sorted({int(row["seed"]) for row in rows if row["scenario"] == "seccogc-digits-keys"}):
            A = key_generator(design, 10, seed)
            power = secure_keys.covariance(A).diagonal()
            lines.append([f"`{name}`", str(seed), *(f"{value:.2f}" for value in power)])
    return markdown(["scheme", "seed", *(f"client {k}" for k in range(1, 11))], lines)


def keys_beside(rows: Sequence[Row]) -> str:
    """Accuracy of the two constructions of keys on digits, the rest the same."""
    lines = []
    for name in dict.fromkeys(row["scheme"] for row in rows if row["scenario"] == "seccogc-digits-keys"):
        own = of(rows, ("seccogc-digits-keys", {}), name)
        lines.append([f"`{name}`", _each(own, "accuracy", 1, 3), _each(own, "best_accuracy", 1, 3)])
    return markdown(["scheme", "accuracy at round 100", "best accuracy"], lines)


def _each(rows: Sequence[Row], column: str, times: float = 100, digits: int = 2) -> str:
    """Mean over the seeds (each seed)."""
    values = [times * float(row[column]) for row in rows]
    text = f"{mean(values):.{digits}f}" if values else "-"
    return f"{text} ({', '.join(f'{value:.{digits}f}' for value in values)})" if len(values) > 1 else text


def diverging(rows: Sequence[Row]) -> str:
    """With ten times the step, Gamma 0.1, lambda 0.1: accuracy by round beside that of the printed step, each seed."""
    printed = read(DATA / "seccogc_mnist_runs.csv")
    lines = []
    for scheme in ("fl_ideal", "fl_lossy", "fl_private"):
        own = _cells(printed, scheme, "symmetric", 0.1, 0.1 if scheme == "fl_private" else None)
        longer = {row["seed"]: _points(row) for row in rows
                  if row["scheme"] == scheme and "task.solver.sgd.lr=0.02" in row["sets"]}
        for step, curves in (("0.002", own), ("0.02", longer)):
            lines += [[f"`{scheme}`", step, seed, *(f"{curve[at]:.3f}" for at in (5, 10, 15, 20))]
                      for seed, curve in sorted(curves.items())]
    return markdown(["scheme", "step", "seed", *(f"round {at}" for at in (5, 10, 15, 20))], lines)


# --- FedRFQ -----------------------------------------------------------------------------------------------------------

def _runs(rows: Iterable[Row], scenario: str, **wanted: str) -> list[Row]:
    found = [row for row in rows if row["scenario"] == scenario and all(row[k] == v for k, v in wanted.items())]
    return sorted(found, key=lambda row: int(row["seed"]))


def accuracy_on_mnist(rows: Sequence[Row]) -> str:
    """Table I: best five rounds, mean (each seed) +- the deviation over the clients [printed]. std 2, and 3 as far as
    it was run."""
    done = read(DATA / "fedrfq_done.csv")
    wider = {f"task.partition.class_space.{name}": 3 for name in ("std", "avg")}

    def shown(scheme: str, avg: int, printed: float) -> str:
        own = _runs(rows, "fedrfq-mnist", scheme=scheme, avg=str(avg)) or of(
            done, ("fedrfq-mnist", {"task.partition.class_space.avg": avg}), scheme)
        return _beside(own, printed)

    return markdown(["scheme", "avg 3", "avg 4", "avg 5", "avg 3, std 3"], (
        [f"`{scheme}`", *(shown(scheme, avg, value) for avg, value in zip((3, 4, 5), printed, strict=True)),
         _beside(of(done, ("fedrfq-mnist", wider), scheme), WIDER[scheme])]
        for scheme, (printed, *_) in FEDRFQ.items()))


def cifar10(rows: Sequence[Row]) -> str:
    """Table III, std 2, avg 3, with another net."""
    return markdown(["scheme", "accuracy, %"], (
        [f"`{scheme}`", _beside(own, printed)] for scheme, printed in CIFAR10.items()
        if (own := of(rows, ("fedrfq-cifar10", {"task.partition.class_space.avg": 3}), scheme))))


def few_samples(rows: Sequence[Row]) -> str:
    """The column avg 3 of Table I with so few samples that training alone has about its printed accuracy, and the
    points that each scheme is above it."""
    alone = {row["seed"]: float(row["best_five"]) for row in of(rows, (FEW, {}), "local")}
    lines = []
    for scheme, (printed, *_) in FEDRFQ.items():
        own = of(rows, (FEW, {}), scheme)
        if own:
            apart = ", ".join(f"{100 * (float(row['best_five']) - alone[row['seed']]):z.2f}" for row in own)
            lines.append([f"`{scheme}`", _beside(own, printed[0]), apart])
    return markdown(["scheme", "accuracy, %", "above `local`, points (each seed)"], lines) if lines else NOTHING


def _beside(rows: Sequence[Row], printed: float) -> str:
    """Best five rounds, mean (each seed) +- the deviation over the clients [printed], in %."""
    if not rows:
        return f"- [{printed:.2f}]"
    spread = mean(100 * float(row.get("std") or row["clients_std"]) for row in rows)
    return f"{_each(rows, 'best_five')} +- {spread:.1f} [{printed:.2f}]"


def traffic_and_rounds(rows: Sequence[Row]) -> str:
    """Columns U and R of Table I, avg 3, and the bytes on the links."""
    lines = []
    for scheme, (*_, uploaded, converged) in FEDRFQ.items():
        own = _runs(rows, "fedrfq-mnist", scheme=scheme, avg="3") or _plain_averaging()
        kB = (mean(float(row[name]) for row in own) for name in ("up_kB", "down_kB", "servers_kB"))
        lines.append([f"`{scheme}`", f"{mean(float(row['uploaded']) for row in own) / 1e3:.3g} ({uploaded})",
                      *(f"{value:.4g}" for value in kB), f"{', '.join(row['converged'] for row in own)} ({converged})"])
    return markdown(["scheme", "parameters (1e3)", "bytes of the clients a round, kB", "to the clients, kB",
                     "among servers, kB", "rounds"], lines)


def _plain_averaging() -> list[dict[str, str]]:
    """FedAvg's rows of avg 3 with these columns: as many messages of one size go up as down, one for each client."""
    found = []
    for row in of(read(DATA / "fedrfq_done.csv"), ("fedrfq-mnist", {"task.partition.class_space.avg": 3}), "fedavg"):
        one_way, near = float(row["bytes"]) / int(row["rounds"]) / 2e3, float(row["best_five"]) - 0.01
        found.append({"uploaded": str(json.loads(row["means"])["payload_bytes"] / 2 / 4), "up_kB": str(one_way),
                      "down_kB": str(one_way), "servers_kB": "0",
                      "converged": str(next(at for at, accuracy in _points(row).items() if accuracy >= near))})
    return found


def poisoned(rows: Sequence[Row]) -> str:
    """Figure 9, avg 3: accuracy of the others, and whom the filter found."""
    lines = []
    for scheme, psi in (("fedproto", ""), ("fedrfq", "0.0"), ("fedrfq", "1.0"), ("fedrfq", "2.0")):
        own = _runs(rows, "fedrfq-mnist-poisoned", scheme=scheme, psi=psi)
        hits, places = (sum(float(row[name]) * len(_points(row)) for row in own if row[name]) for name in (
            "hits", "places"))
        lines.append([f"`{scheme}`{f', psi {float(psi):.0f}' if psi else ''}", _each(own, "best_five"),
                      f"{hits:.0f} of {places:.0f}" if places else "-"])
    return markdown(["", "best five, % (each seed)", "places of the filter that a poisoned client got"], lines)


def pooling(rows: Sequence[Row]) -> str:
    """Figure 8, avg 3."""
    own = {pool: _runs(rows, "fedrfq-mnist-pooling", pool=pool) for pool in POOLS}

    def line(title: str, column: str, form: str, times: float = 1) -> list[str]:
        return [title, *(format(times * mean(float(row[column]) for row in own[pool]), form) for pool in POOLS)]

    each = ["each seed", *(", ".join(f"{100 * float(row['best_five']):.2f}" for row in own[pool]) for pool in POOLS)]
    return markdown(["", *POOLS], [
        line("best five, %", "best_five", ".2f", 100), each,
        line("silhouette in the last round", "silhouette", ".2f"),
        line("failure rate in the last round", "failure_rate", ".3f"),
        line("by the clients, kB a round", "up_kB", ".1f"), line("to the clients, kB a round", "down_kB", ".1f")])


def fashion_mnist(rows: Sequence[Row]) -> str:
    lines = []
    for scheme in FEDRFQ:
        own = _runs(rows, "fedrfq-fashion", scheme=scheme)
        if not own:
            continue
        lines.append([f"`{scheme}`", _each(own, "best_five"), f"{mean(100 * float(row['std']) for row in own):.1f}",
                      ", ".join(row["converged"] for row in own)])
    return markdown(["scheme", "best five, %", "std over the clients", "rounds to converge"], lines)


def weights(rows: Sequence[Row]) -> str:
    """Figure 10: the weight of the distance under each reading of it, avg 3, by round."""
    names = list(dict.fromkeys(row["scheme"] for row in rows if row["scenario"] == "fedrfq-mnist-lambda"))
    lines = []
    for name in names:
        points = {row["seed"]: _points(row) for values in ({}, {"stop.rounds": 100})        # the longer one of a seed
                  for row in of(rows, ("fedrfq-mnist-lambda", values), name)}
        lines.append([f"`{name}`", *(", ".join(f"{100 * points[seed][at]:.1f}" if at in points[seed] else "-"
                                               for seed in sorted(points)) for at in LOOKED_AT)])
    return markdown(["scheme", *(f"round {at}" for at in LOOKED_AT)], lines)


def faulty_servers(rows: Sequence[Row]) -> str:
    """Ten rounds with one faulty server of four, the leader, beside ten without."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        scenario, values = setting_of(row)
        if scenario == "fedrfq-digits" and list(values) == [FAULTS]:
            found.setdefault(values[FAULTS][0]["behave"] if values[FAULTS] else "none", {})[row["seed"]] = row
    sound = found["none"]
    lines = []
    for behaviour, own in found.items():
        seeds = sorted(own)
        same = "-" if behaviour == "none" else ", ".join(
            "yes" if own[seed]["curve"] == sound[seed]["curve"] else "no" for seed in seeds)
        more = ((int(own[seed]["bytes"]) - int(sound[seed]["bytes"])) / 1e3 / int(own[seed]["rounds"])
                for seed in seeds)
        lines.append([f"`{behaviour}`" if behaviour != "none" else behaviour,
                      ", ".join(f"{float(own[seed]['virtual_s']):.3f}" for seed in seeds),
                      ", ".join(f"{value:z.1f}" for value in more), same,
                      ", ".join(f"{float(own[seed]['accuracy']):.3f}" for seed in seeds)])
    return markdown(["behaviour", "virtual time of 10 rounds, s (seeds 0, 1)", "more bytes, kB a round (0, 1)",
                     "same accuracies in all rounds (0, 1)", "accuracy after 10 rounds (0, 1)"], lines)


# --- pages ------------------------------------------------------------------------------------------------------------

BLOCKS: dict[str, dict[str, tuple[str, Callable[[Sequence[Row]], str]]]] = {      # page -> block -> (rows, its table)
    "fedrfq": {"accuracy_on_mnist": ("fedrfq_runs", accuracy_on_mnist),
               "traffic_and_rounds": ("fedrfq_runs", traffic_and_rounds), "poisoned": ("fedrfq_runs", poisoned),
               "pooling": ("fedrfq_runs", pooling), "fashion_mnist": ("fedrfq_runs", fashion_mnist),
               "few_samples": ("fedrfq_done", few_samples), "cifar10": ("fedrfq_done", cifar10),
               "weights": ("fedrfq_done", weights), "faulty_servers": ("fedrfq_done", faulty_servers)},
    "seccogc": {"at_round_100": ("seccogc_mnist_runs", at_round_100),
                "differences": ("seccogc_mnist_runs", differences),
                "reliability": ("seccogc_analysis", reliability), "leakage": ("seccogc_analysis", leakage),
                "fairness": ("seccogc_done", fairness), "keys_beside": ("seccogc_done", keys_beside),
                "diverging": ("seccogc_done", diverging)}}


def filled(page: str, text: str) -> str:
    """The text of a page with all its tables made anew."""
    for name, (rows, table) in BLOCKS[page].items():
        text = replaced(text, name, table(read(DATA / f"{rows}.csv")))
    return text


def figures(folder: Path) -> None:
    """The curves of both pages."""
    rows = read(DATA / "seccogc_mnist_runs.csv")
    for scenario in sorted({row["scenario"] for row in rows}):
        own = [row for row in rows if row["scenario"] == scenario and row["batch"] == "128"]
        _figure(pd.DataFrame(_drawn(own, "lambda", "gamma"))).save(folder / f"{scenario}-128.png", scale_factor=2)
    grid = _runs(read(DATA / "fedrfq_runs.csv"), "fedrfq-mnist")
    _figure_fedrfq(pd.DataFrame(_drawn(grid, "avg"))).save(folder / "fedrfq-mnist.png", scale_factor=2)


def _drawn(rows: Sequence[Row], *columns: str) -> list[dict[str, Any]]:
    return [{"scheme": row["scheme"], "seed": row["seed"], **{name: float(row[name]) if row[name] else None
                                                             for name in columns}, "round": at, "accuracy": value}
            for row in rows for at, value in _points(row).items()]


def _figure(curves: pd.DataFrame) -> alt.Chart:
    """Test accuracy by round, mean of the seeds and each of them: a panel for every Gamma and lambda."""
    with_key = curves[curves["lambda"].notna()]
    without = curves[curves["lambda"].isna()].drop(columns="lambda")
    without = without.merge(with_key[["lambda"]].drop_duplicates(), "cross")
    both = pd.concat([with_key, without]).rename(columns={"lambda": "key"})
    colour = alt.Color("scheme:N", sort=ORDER, title=None, legend=alt.Legend(orient="bottom", symbolOpacity=1))
    accuracy = alt.Y("accuracy:Q", title="test accuracy", scale=alt.Scale(domain=[0, 1]))
    base = alt.Chart(both).encode(x=alt.X("round:Q", title="round"), y=accuracy, color=colour)
    layers = base.mark_line(opacity=0.25, strokeWidth=1).encode(detail="seed:N") + base.mark_line().encode(
        y="mean(accuracy):Q")
    return layers.properties(width=260, height=190).facet(
        column=alt.Column("key:N", title="lambda"), row=alt.Row("gamma:N", title="Gamma"))


def _figure_fedrfq(curves: pd.DataFrame) -> alt.Chart:
    """Mean accuracy of the clients by round, mean of the seeds: a panel for every mean number of classes."""
    return alt.Chart(curves).mark_line(clip=True).encode(
        x=alt.X("round:Q", title="round"),
        y=alt.Y("mean(accuracy):Q", title="mean accuracy of the clients", scale=alt.Scale(domain=[0.92, 1])),
        color=alt.Color("scheme:N", title=None, legend=alt.Legend(orient="bottom")),
    ).properties(width=260, height=190).facet(column=alt.Column("avg:N", title="classes a client, on average"))


# --- rows of run directories ------------------------------------------------------------------------------------------

def runs(studies: list[Path]) -> Iterator[tuple[dict[str, Any], dict[str, Any], pd.DataFrame, Path]]:
    """(what was set, summary, rounds, directory) of every complete run of these studies."""
    for study in studies:
        for summary in sorted(study.glob("cells/*/summary.json")):
            directory = summary.parent
            scenario = YAML(typ="safe").load(directory / "scenario.resolved.yaml")
            (solver,) = scenario["task"]["solver"].values()
            said = {"scenario": scenario["name"], "seed": scenario["seed"], "batch": solver.get("batch"),
                    **_partition(scenario["task"]["partition"]), **scenario["schemes"][0]}
            yield said, json.loads(summary.read_text()), pd.read_parquet(directory / "rounds.parquet"), directory


def _partition(said: Any) -> dict[str, Any]:
    if "dirichlet" in said:
        return {"gamma": said["dirichlet"]}
    return {"avg": said["class_space"]["avg"]}


def seccogc(studies: list[Path], done: Mapping[str, Mapping[str, str]]) -> None:
    """Make seccogc_mnist_runs.csv."""
    rows = []
    for said, summary, table, _ in runs(studies):
        seen = table[table["accuracy"].notna()].groupby("round", as_index=False)["accuracy"].mean()
        rows.append({**done[summary["digest"]], **{name: said[name] for name in ("scenario", "batch", "gamma")},
                     "lambda": said.get("lambda"), "accuracy": round(seen["accuracy"].iloc[-1], 4),
                     "best_accuracy": round(seen["accuracy"].max(), 4),
                     "curve": curve(seen["round"], seen["accuracy"])})
    order = ["scenario", "batch", "gamma", "scheme", "lambda", "seed"]
    pd.DataFrame(rows).sort_values(order).to_csv(DATA / "seccogc_mnist_runs.csv", index=False)


def analysed(studies: list[Path], done: Mapping[str, Mapping[str, str]]) -> None:
    """Make seccogc_analysis.csv: what `analysis` of each run has, theory beside measurement."""
    names = [*OF_LINKS, *(f"{kind}_{who}_{unit}" for who in OF_OBSERVERS for kind, unit in (
        ("lmip", "bits"), ("ldp", "epsilon")))]
    lines: list[list[Any]] = [
        [said["scenario"], summary["label"], said["seed"], summary["digest"], name,
         *(summary["analysis"][name].get(kind, "") for kind in ("theory", "measured"))]
        for said, summary, *_ in runs(studies) for name in names if name in summary["analysis"]]
    lines.sort(key=lambda line: line[:3])
    with (DATA / "seccogc_analysis.csv").open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["scenario", "scheme", "seed", "digest", "quantity", "theory", "measured"])
        writer.writerows(lines)


def fedrfq(studies: list[Path], done: Mapping[str, Mapping[str, str]]) -> None:
    """Make fedrfq_runs.csv."""
    rows = []
    for said, summary, table, directory in runs(studies):
        own = summary["accuracy_of_clients"]
        last = table[table["round"] == table["round"].max()].iloc[0]
        seen = table[table["accuracy"].notna()].groupby("round", as_index=False)["accuracy"].mean()   # of all deciders
        rows.append({**done[summary["digest"]],
                     **{name: said[name] for name in ("scenario", "avg", "seed")}, "scheme": said["name"],
                     "pool": said.get("pool"), "psi": said.get("psi"), "best_five": own["best_five"],
                     "std": own["std"], "converged": own["rounds_to_converge"],
                     "uploaded": table["uploaded"].mean() if "uploaded" in table else 0.0, **_bytes(directory),
                     "silhouette": last.get("silhouette"), "failure_rate": last.get("failure_rate"),
                     **_hits(table, summary["poisoned"], said.get("psi")),
                     "curve": curve(seen["round"], seen["accuracy"])})
    found = pd.DataFrame(rows).sort_values(["scenario", "avg", "scheme", "pool", "psi", "seed"])
    found.round(5).to_csv(DATA / "fedrfq_runs.csv", index=False)


def _bytes(directory: Path) -> dict[str, float]:
    """kB on the links a round: by the clients, to them, and among servers."""
    sent = pd.read_parquet(directory / "messages.parquet", columns=["source_name", "target_name", "wire_bytes"])
    names = sent[["source_name", "target_name"]].astype(str)
    by, to = (names[column].str.startswith("client") for column in names)
    rounds = pd.read_parquet(directory / "rounds.parquet", columns=["round"])["round"].max()
    return {f"{what}_kB": sent["wire_bytes"][chosen].sum() / 1e3 / rounds
            for what, chosen in (("up", by), ("down", ~by & to), ("servers", ~by & ~to))}


def _hits(table: pd.DataFrame, poisoned: list[str], psi: int | None) -> dict[str, float]:
    """The numbers of poisoned clients among those the filter left out, and of those it had to leave out, by rounds."""
    if not poisoned or not psi or "excluded" not in table:
        return {"hits": float("nan"), "places": float("nan")}
    left_out = table.drop_duplicates("round")["excluded"].str.split()
    return {"hits": float(left_out.map(lambda names: len(set(names) & set(poisoned))).mean()),
            "places": float(left_out.map(len).mean())}


MAKERS = {"seccogc": seccogc, "seccogc_analysis": analysed, "fedrfq": fedrfq}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", choices=MAKERS, help="make this table of rows first, from these studies")
    parser.add_argument("studies", nargs="*", type=Path)
    parser.add_argument("--done", nargs="+", type=Path, default=[], help="tables of these sweeps")
    given = parser.parse_args()
    if given.rows:
        MAKERS[given.rows](given.studies, again(given.done))
    for page in BLOCKS:
        document.save(HOME / f"{page}.md", filled(page, document.read(HOME / f"{page}.md")))
    figures(FIGURES)


if __name__ == "__main__":
    main()
