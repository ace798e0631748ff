"""The tables and the figure of docs/reproductions/ppfpl.md, from the rows of its finished cells.

    emul sweep scenarios/paper/ppfpl_mnist.yaml --done docs/reproductions/data/ppfpl_done.csv
    emul run scenarios/paper/ppfpl_cost.yaml --out RUNS
    python -m benchmarks.ppfpl --costs RUNS/*

Rewrites what stands between the marks of that page, and draws its figure anew. A cell that has not been run is a dash;
with one seed there is one value, with several their mean, and each in brackets. Seconds are taken from the run
directories that are given, and kept as CSV; without any from that CSV.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import document
from benchmarks.common import ROOT
from benchmarks.document import replaced
from benchmarks.ebs_cfl import keep, read
from benchmarks.finished import NOTHING, Row, Setting, markdown, of, plain, run, setting_of
from benchmarks.impact import attacked

HOME = ROOT / "docs" / "reproductions"
PAGE, FIGURE = HOME / "ppfpl.md", HOME / "figures" / "ppfpl-curves.png"
TABLE, COSTS = HOME / "data" / "ppfpl_done.csv", HOME / "data" / "ppfpl_costs.csv"

AVG, STD, SHARE = "task.partition.class_space.avg", "task.partition.class_space.std", "attacks[0].nodes.fraction"
LAMBDA, CLIENTS, HE = "schemes.ppfpl.lambda", "topology.clients", "schemes.ppfpl.he"
EPOCHS, STEPS = "task.solver.sgd.epochs", "task.solver.sgd.steps"
NUMBERS = (20, 30, 40)                  # of clients
FIRST: dict[str, Setting] = {           # the columns of Table 1
    "MNIST, avg 3": ("ppfpl-mnist", {AVG: 3}), "avg 4": ("ppfpl-mnist", {AVG: 4}), "avg 5": ("ppfpl-mnist", {AVG: 5}),
    "avg 7": ("ppfpl-mnist", {AVG: 7}), "std 1, avg 3": ("ppfpl-mnist", {AVG: 3, STD: 1}),
    "30 %, avg 3": ("ppfpl-mnist-30", {}), "labels, avg 3": ("ppfpl-mnist-label", {}),
    "Fashion, avg 3": ("ppfpl-fashion", {}), "CIFAR-10, avg 3": ("ppfpl-cifar10", {"task.model": "cinic_cnn"})}
ATTACKS, BATCHES, PASSES = "attacks", "5 batches", "5 epochs"
BOTH = ("MNIST, avg 3", "avg 5", "avg 7", "Fashion, avg 3")      # with E read as epochs, too
PRINTED = {                             # in the order of FIRST; of labels the paper prints no numbers
    "krum": (95.67, 94.28, 94.88, 96.20, 95.96, 95.67, None, 85.02, 57.90),
    "foolsgold": (96.19, 94.82, 96.73, 95.75, 96.69, 96.02, None, 82.49, 56.90),
    "pbfl": (97.36, 96.17, 96.26, 95.41, 97.78, 95.47, None, 87.42, 39.46),
    "shieldfl": (97.25, 94.88, 95.69, 95.76, 96.91, 97.08, None, 76.47, 57.84),
    "ppfpl": (97.74, 97.49, 97.43, 96.56, 97.87, 97.52, None, 90.48, 83.44)}
FOUR = ("krum", "foolsgold", "pbfl", "shieldfl")
SCHEMES = ["local", "ppfpl", "X", "fedavg", "krum", "foolsgold", "pbfl", "shieldfl", "pefl"]
SHARES = (0.2, 0.4)
SECOND = {"mean": (96.10, 94.54), "chi_0": (97.20, 96.75), "chi_0.2": (97.55, 96.51), "chi_0.5": (97.03, 96.48),
          "chi_0.9": (None, None), "X": (94.35, 93.14)}
CHI = {"mean": "none, plain mean", "chi_0": "0", "chi_0.5": "0.5", "chi_0.9": "0.9",
       "linear_mean": "before the last ReLU: none, plain mean", "linear_0": "before the last ReLU: 0",
       "linear_0.5": "before the last ReLU: 0.5"}
THIRD = {"ppfpl": (0.62, 0.40), "pbfl": (1.72, 1.35), "shieldfl": (1.42, 1.19)}     # encrypt, decrypt, s


# --- cells of tables --------------------------------------------------------------------------------------------------

def accuracy(cells: Sequence[Row], printed: float | None = None, name: str = "best_five") -> str:
    """Mean over the seeds (each seed) [what the paper prints], in %."""
    values = [100 * float(row[name]) for row in cells if row[name]]
    text = "-" if not values else f"{mean(values):.2f}"
    if len(values) > 1:
        text += f" ({', '.join(f'{value:.2f}' for value in values)})"
    return text if printed is None else f"{text} [{printed:.2f}]"


def told(cells: Sequence[Row], name: str) -> float | None:
    """Mean over the seeds of what nodes have told, itself a mean over the rounds; None: they did not."""
    values = [found[name] for row in cells if name in (found := json.loads(row["means"]))]
    return mean(values) if values else None


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


# --- tables -----------------------------------------------------------------------------------------------------------

def trained(rows: Sequence[Row]) -> str:
    """Table 1: best five rounds of the clients' models after local training."""
    def line(scheme: str) -> list[str]:
        printed: Sequence[float | None] = PRINTED.get(scheme, (None,) * len(FIRST))
        return [f"`{scheme}`", *(accuracy(of(rows, where, scheme), value)
                                 for where, value in zip(FIRST.values(), printed, strict=True))]

    return markdown(["scheme", *FIRST], (line(scheme) for scheme in ("local", "fedavg", *PRINTED)))


def received(rows: Sequence[Row]) -> str:
    """The same of what the clients had received."""
    return markdown(["scheme", *FIRST], (
        [f"`{scheme}`", *(accuracy(of(rows, where, scheme), name="best_five_received") for where in FIRST.values())]
        for scheme in ("fedavg", *PRINTED) if scheme != "ppfpl"))


def counted(rows: Sequence[Row]) -> str:
    """The judged and kept parts of a round, and of attackers; the cosines."""
    head = ["setting", "scheme", "judged", "kept", "of attackers", "kept", "their weight, %", "cosines: least",
            "tenth", "median", "largest"]
    forms = {"judged": ".1f", "kept": ".1f", "attackers_judged": ".1f", "attackers_kept": ".1f"}
    cosines = ("cosine_least", "cosine_p10", "cosine_median", "cosine_largest")
    lines = []
    for title, where in FIRST.items():
        for scheme in PRINTED:
            cells = of(rows, where, scheme)
            weight = told(cells, "attackers_weight")
            if cells:
                lines.append([title, f"`{scheme}`", *(_number(told(cells, name), form) for name, form in forms.items()),
                              _number(None if weight is None else 100 * weight, ".1f"),
                              *(_number(told(cells, name), ".3f") for name in cosines)])
    return markdown(head, lines)


def epochs(rows: Sequence[Row]) -> str:
    """Table 1 with both readings of E: five batches a round, as Algorithm 3 has it, and five epochs."""
    read_as = [(FIRST[title], _as_epochs(FIRST[title])) for title in BOTH]
    lines = []
    for scheme in ("local", "fedavg", *PRINTED):
        printed = dict(zip(FIRST, PRINTED.get(scheme, (None,) * len(FIRST)), strict=True))
        cells = [[of(rows, where, scheme) for where in both] for both in read_as]
        if any(own for _, own in cells):
            lines.append([f"`{scheme}`", *(text for title, (few, many) in zip(BOTH, cells, strict=True)
                                           for text in (accuracy(few), accuracy(many, printed[title])))])
    return markdown(["scheme", *(f"{title}, {reading}" for title in BOTH for reading in (BATCHES, PASSES))], lines)


def _as_epochs(setting: Setting) -> Setting:
    return f"{setting[0]}-epochs", setting[1]


def leads(rows: Sequence[Row]) -> str:
    """By how many points PPFPL is above the best of the four others, and above FedAvg without attackers (section
    7.2.2), each seed beside the same one."""
    settings = [*((title, BATCHES, where) for title, where in FIRST.items()),
                *((title, PASSES, _as_epochs(FIRST[title])) for title in BOTH),
                ("digits", "2 epochs", ("ppfpl-digits", {}))]
    lines = []
    for title, reading, (scenario, values) in settings:
        own, *others = (_by_seed(of(rows, (scenario, values), scheme)) for scheme in ("ppfpl", *FOUR))
        best = {seed: max(other[seed] for other in others) for seed in own if all(seed in other for other in others)}
        clean = _by_seed(of(rows, (scenario, {**values, ATTACKS: []}), "fedavg"))
        if best or clean:
            lines.append([title, reading, _above(own, best), _above(own, clean)])
    return markdown(["setting", "E", "above the best of the four", "above FedAvg without attackers"], lines)


def _by_seed(cells: Sequence[Row]) -> dict[str, float]:
    return {row["seed"]: 100 * float(row["best_five"]) for row in cells}


def _above(own: Mapping[str, float], others: Mapping[str, float]) -> str:
    """The sign of `own` less `others` over the seeds that both have, and the points: mean (each seed)."""
    apart = [own[seed] - others[seed] for seed in sorted(own.keys() & others.keys())]
    if not apart:
        return "-"
    said = "yes" if min(apart) > 0 else "no" if max(apart) <= 0 else "seeds differ"
    return f"{said}: {mean(apart):z.2f}" + (f" ({', '.join(f'{one:z.2f}' for one in apart)})" if apart[1:] else "")


def thresholds(rows: Sequence[Row]) -> str:
    """Table 2: accuracy, and how many prototypes were rejected in a round."""
    head = ["", *(f"{100 * share:.0f} %" for share in SHARES),
            *(f"{100 * share:.0f} %: rejected, honest / of attackers" for share in SHARES)]
    lines = []
    for label, printed in SECOND.items():
        cells = [of(rows, ("ppfpl-mnist-chi", {SHARE: share}), label) for share in SHARES]
        lines.append([f"`{label}`", *map(accuracy, cells, printed), *map(_rejected, cells)])
    return markdown(head, lines)


def _rejected(cells: Sequence[Row]) -> str:
    names = ("judged", "kept", "attackers_judged", "attackers_kept")
    judged, kept, bad, bad_kept = (told(cells, name) for name in names)
    if judged is None or kept is None:
        return "-"
    bad, bad_kept = bad or 0.0, bad_kept or 0.0
    return (f"{judged - kept - bad + bad_kept:z.2f} of {judged - bad:.1f} / {bad - bad_kept:z.2f} of {bad:.1f}")


def digits(rows: Sequence[Row]) -> str:
    """The setting on digits: trained, received, what of attackers counted, bytes."""
    lines = []
    for scheme in SCHEMES:
        cells = of(rows, ("ppfpl-digits", {}), scheme)
        if cells:
            share = told(cells, "attackers_weight")
            sent = mean(float(row["bytes"]) / int(row["rounds"]) / 1e6 for row in cells)
            kept = [told(cells, name) for name in ("attackers_kept", "attackers_judged")]
            lines.append([f"`{scheme}`", accuracy(cells), accuracy(cells, name="best_five_received").replace("-", ""),
                          " of ".join(_number(value, ".1f") for value in kept if value is not None),
                          _number(None if share is None else 100 * share, ".1f"), f"{sent:.3g}"])
    return markdown(["scheme", "trained", "received", "attackers kept", "their weight, %", "MB a round"], lines)


def digits_attacks(rows: Sequence[Row]) -> str:
    """The same without attackers, with poisoned features and with wrong labels."""
    def where(kind: str) -> list[Row]:
        found = [row for row in rows if row["scenario"] == "ppfpl-digits"]
        if kind == "features":
            return [row for row in found if not setting_of(row)[1]]
        found = [row for row in found if list(setting_of(row)[1]) == ["attacks"]]
        return [row for row in found if bool(attacked(row)) == (kind == "labels")]

    def line(scheme: str) -> list[str]:
        cells = [[row for row in where(kind) if row["scheme"] == scheme] for kind in kinds]
        return [f"`{scheme}`", *(accuracy(own) for own in cells),
                *(accuracy(own, name="best_five_received").replace("-", "") for own in cells)]

    kinds = ("none", "features", "labels")
    return markdown(["scheme", *kinds, *(f"received: {kind}" for kind in kinds)],
                     (line(scheme) for scheme in ("local", "ppfpl", "X", "fedavg", "krum")))


def digits_lambda(rows: Sequence[Row]) -> str:
    """Fig. 7 on digits: lambda, and the share of clients that learn from noise."""
    shares = (0.2, 0.4, 0.6, 0.8)
    alone = [["`local`", *(accuracy(of(rows, ("ppfpl-digits", {SHARE: share}), "local")) for share in shares)]]
    return _lambda(rows, "ppfpl-digits", shares, alone)


def mnist_lambda(rows: Sequence[Row]) -> str:
    """Fig. 7 on MNIST."""
    scenario = "ppfpl-mnist-lambda"
    there = any(row["scenario"] == scenario for row in rows)
    return _lambda(rows, scenario, (0.2, 0.4, 0.6, 0.8), []) if there else NOTHING


def _lambda(rows: Sequence[Row], scenario: str, shares: Sequence[float], alone: Sequence[Sequence[str]]) -> str:
    lines = [[f"lambda {value:g}", *(accuracy(of(rows, (scenario, {LAMBDA: value, SHARE: share}), "ppfpl"))
                                     for share in shares)] for value in (0.01, 0.1, 1)]
    return markdown(["", *(f"{100 * share:.0f} %" for share in shares)], [*lines, *alone])


def digits_clients(rows: Sequence[Row]) -> str:
    """Fig. 9 on digits: the number of clients, of fewer shots, for digits have too few samples."""
    return _varied(rows, [f"{n} clients" for n in NUMBERS], {n: ("ppfpl-digits", {CLIENTS: n}) for n in NUMBERS})


def mnist_clients(rows: Sequence[Row]) -> str:
    """Fig. 9 on MNIST, std 2 and, as printed, std 1."""
    lines = []
    for title, more in (("`ppfpl`", {}), ("`ppfpl`, std 1", {STD: 1})):
        cells = [of(rows, ("ppfpl-mnist-clients", {CLIENTS: n, **more}), "ppfpl") for n in NUMBERS]
        if any(cells):
            lines.append([title, *map(accuracy, cells)])
    return markdown(["scheme", *(f"{n} clients" for n in NUMBERS)], lines)


def digits_epochs(rows: Sequence[Row]) -> str:
    """Fig. 10 on digits: E, local epochs of a round. The scenario has 2."""
    numbers = (1, 2, 5, 10, 20)
    where: dict[int, Setting] = {n: ("ppfpl-digits", {} if n == 2 else {EPOCHS: n}) for n in numbers}
    return _varied(rows, [f"E = {n}" for n in numbers], where)


def mnist_steps(rows: Sequence[Row]) -> str:
    """Fig. 10 on MNIST: E, read as batches of a round."""
    numbers = (1, 5, 10, 15, 20)
    return _varied(rows, [f"E = {n}" for n in numbers], {n: ("ppfpl-mnist-steps", {STEPS: n}) for n in numbers})


def _varied(rows: Sequence[Row], titles: Sequence[str], where: Mapping[int, Setting]) -> str:
    """A line for `local` and for `ppfpl`, where one number varies; a scheme that has no cell is left out."""
    lines = [(scheme, [of(rows, setting, scheme) for setting in where.values()]) for scheme in ("local", "ppfpl")]
    shown = [[f"`{scheme}`", *map(accuracy, cells)] for scheme, cells in lines if any(cells)]
    return markdown(["scheme", *titles], shown) if shown else NOTHING


def digits_he(rows: Sequence[Row]) -> str:
    """The same cells with plain numbers and under real CKKS: accuracies and decisions."""
    real = of(rows, ("ppfpl-digits", {HE: "ckks"}), "ppfpl")
    seeds = {row["seed"] for row in real}
    plain = [row for row in of(rows, ("ppfpl-digits", {}), "ppfpl") if row["seed"] in seeds]
    lines = []
    for kind, cells in (("plain", plain), ("ckks", real)):
        if cells:
            last = ", ".join(f"{100 * float(row['accuracy']):.2f}" for row in cells)
            sent = mean(float(row["bytes"]) / int(row["rounds"]) / 1e6 for row in cells)
            lines.append([f"`he: {kind}`", accuracy(cells), last, _rejected(cells), f"{sent:.3g}",
                          ", ".join(f"{float(row['real_s']):.0f}" for row in cells)])
    return markdown(["", "best five rounds, %", "last round, %", "rejected in a round, honest / of attackers",
                     "MB a round", "s a run"], lines)


def digits_chi(rows: Sequence[Row]) -> str:
    """The threshold where it rejects: by the attack, and by the layer of the prototypes."""
    def where(attack: Mapping[str, Any]) -> Setting:
        return "ppfpl-digits-chi", {"attacks": [{"nodes": {"fraction": 0.2}, **attack}]}

    kinds: Mapping[str, Mapping[str, Any]] = {
        "noise as inputs": {"data": "feature_noise"}, "`negate`": {"prototypes": {"name": "negate"}},
        "`random`": {"prototypes": {"name": "random"}}}
    lines = []
    for title, attack in kinds.items():
        for label, what in CHI.items():
            cells = of(rows, where(attack), label)
            if cells:
                lines.append([title, what, accuracy(cells), _rejected(cells),
                              *(_number(told(cells, name), ".2f") for name in ("cosine_least", "cosine_median"))])
    head = ["attackers", "threshold", "trained, %", "rejected in a round, honest / of attackers", "cosines: least",
            "median"]
    return markdown(head, lines) if lines else NOTHING


def spent(rows: Sequence[Row]) -> str:
    """Table 3: seconds a client and round, of all servers, and bytes that a client sends."""
    head = ["scheme", "encrypt, s [printed]", "decrypt, s [printed]", "done or declared", "servers, s a round",
            "sent by a client, kB a round"]
    lines = []
    for scheme, printed in THIRD.items():
        own = [row for row in rows if row["scheme"] == scheme]
        both = [float(row["seconds"]) / int(row["calls"]) for label in ("encrypt", "decrypt") for row in own
                if (row["role"], row["label"]) == ("client", label)]
        servers = sum(float(row["seconds"]) / int(row["rounds"]) for row in own
                      if row["role"] != "client" and row["label"] not in ONCE)
        declared = next(row["declared"] for row in own if row["label"] == "encrypt")
        lines.append([f"`{scheme}`", *(f"{plain(value)} [{claim:.2f}]"
                                       for value, claim in zip(both, printed, strict=True)),
                      "declared" if declared == "True" else "done", plain(servers),
                      f"{float(own[0]['client_bytes']) / 1e3:,.0f}"])
    return markdown(head, lines)


ONCE = ("keygen", "load_keys", "train", "reference")    # not of a round's cryptography
BLOCKS: dict[str, Callable[[Sequence[Row]], str]] = {
    "cells": run, "trained": trained, "received": received, "counted": counted,
    "thresholds": thresholds, "digits": digits, "digits_attacks": digits_attacks, "digits_lambda": digits_lambda,
    "digits_clients": digits_clients, "epochs": epochs, "leads": leads, "digits_he": digits_he,
    "digits_chi": digits_chi, "digits_epochs": digits_epochs, "mnist_lambda": mnist_lambda,
    "mnist_clients": mnist_clients, "mnist_steps": mnist_steps}


def filled(text: str, rows: Sequence[Row], costs: Sequence[Row]) -> str:
    """The page with all its tables made anew."""
    for name, table in BLOCKS.items():
        text = replaced(text, name, table(rows))
    return replaced(text, "costs", spent(costs))


def measured(directory: Path) -> list[dict[str, Any]]:
    """Of a run: calls and seconds of each computation of each role, and what a client sends in a round."""
    import pandas as pd

    summary = json.loads((directory / "summary.json").read_text(encoding="utf-8"))
    computed = pd.read_parquet(directory / "computations.parquet")
    sent = pd.read_parquet(directory / "messages.parquet", columns=["source_name", "payload_bytes"])
    by = sent[sent["source_name"].astype(str).str.startswith("client")]
    each = by["payload_bytes"].sum() / by["source_name"].astype(str).nunique() / summary["rounds"]
    found = computed.groupby(["role", "label"], observed=True)
    return [{"scheme": summary["label"], "role": role, "label": label, "rounds": summary["rounds"], "calls": len(rows),
             "seconds": f"{rows['cost_ns'].sum() / 1e9:.6g}", "declared": bool(rows["declared"].any()),
             "client_bytes": f"{each:.0f}"} for (role, label), rows in found]


# --- figure -----------------------------------------------------------------------------------------------------------

def curves(rows: Sequence[Row]) -> Any:
    """Accuracy by round, mean over the seeds: a panel for each column of Table 1 that has cells."""
    import altair as alt
    import pandas as pd

    points = [{"setting": title, "scheme": scheme, "seed": row["seed"], "round": int(at), "accuracy": float(value)}
              for title, where in FIRST.items() for scheme in reversed(SCHEMES) for row in of(rows, where, scheme)
              for at, _, value in (point.partition(":") for point in row["curve"].split())]
    return alt.Chart(pd.DataFrame(points)).mark_line(clip=True).encode(
        x=alt.X("round:Q", title="round"),
        y=alt.Y("mean(accuracy):Q", title="mean accuracy of benign clients", scale=alt.Scale(domain=[0.5, 1])),
        color=alt.Color("scheme:N", title=None, sort=SCHEMES, legend=alt.Legend(orient="bottom")),
        strokeDash=alt.condition("datum.scheme == 'local'", alt.value([5, 4]), alt.value([1, 0])),      # lies on ppfpl
    ).properties(width=250, height=190).facet(
        facet=alt.Facet("setting:N", title=None, sort=list(FIRST)), columns=3).resolve_scale(x="independent")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("table", type=Path, nargs="?", default=TABLE, help="written by emul sweep --done")
    parser.add_argument("--costs", type=Path, nargs="+", default=[], metavar="RUN", help="of ppfpl_cost.yaml")
    given = parser.parse_args()
    if given.costs:
        keep(COSTS, [row for directory in given.costs for row in measured(directory)])
    rows = read(given.table)
    document.save(PAGE, filled(document.read(PAGE), rows, read(COSTS)))
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    curves(rows).save(FIGURE, scale_factor=1.5)


if __name__ == "__main__":
    main()
