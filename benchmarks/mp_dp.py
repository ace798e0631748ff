"""The tables and the figure of docs/reproductions/mp_dp.md, from the rows of its finished cells.

    emul sweep scenarios/paper/mp_dp_digits.yaml --done docs/reproductions/data/mp_dp_done.csv
    python -m benchmarks.mp_dp_attacks --table docs/reproductions/data/mp_dp_attacks.csv
    python -m benchmarks.mp_dp

Rewrites what stands between the marks of that page, and draws its figure anew. A cell that has not been run is a dash;
of several seeds the mean and the standard deviation are shown, and how many there are. `benchmarks.mp_dp_costs` makes
the rows of seconds, `benchmarks.mp_dp_attacks` those of attacks on runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks import document
from benchmarks import mp_dp_attacks as privacy
from benchmarks.common import ROOT
from benchmarks.document import replaced
from benchmarks.ebs_cfl import read
from benchmarks.finished import Row, Setting, markdown, of, plain, run
from benchmarks.mp_dp_costs import TABLE as COSTS

HOME = ROOT / "docs" / "reproductions"
PAGE, FIGURE, TABLE = HOME / "mp_dp.md", HOME / "figures" / "mp-dp-eps.png", HOME / "data" / "mp_dp_done.csv"
ATTACKS = HOME / "data" / "mp_dp_attacks.csv"

SETTINGS: dict[str, Setting] = {
    "digits, 50 clients": ("mp-dp-digits", {}), "MNIST, 100 clients": ("mp-dp-mnist", {}),
    "CIFAR-10, 5 clients": ("mp-dp-cifar10", {"stop.rounds": 500, "task.solver.sgd.batch": 64})}
SCHEMES = {                             # of the first two tables: label -> what it is
    "fedavg": "no clipping", "pile": "the same under threshold Paillier", "clipped": "clipped, no noise",
    "mp_cdp": "noise of a trusted server", "mp_dp": "`sound`", "mp_dp_paper": "`paper`",
    "tp_smc": "all clients honest: noise as of `mp_cdp`",
    "tp_smc_alone": "noise of each client alone, t = 1", "local_noise": "the same without encryption",
    "hybrid_alpha": "as `tp_smc`, under functional encryption",
    "hybrid_alpha_alone": "as `tp_smc_alone`, under functional encryption",
    "naive_chi3": "noise as of `mp_cdp`, chi_3 scales, transitional layers",
    "naive_share": "noise as of `mp_cdp`, the published law of r", "mp_dp_naive": "as published"}
EPS = ("0.5", "1", "2", "3", "5", "8")
TARGET = 0.9
TABLE_I = {         # printed seconds, CIFAR-10: an epoch with 5 and with 100 clients, to 65 % with 5 and with 100
    "fedavg": (1.37, 1.47, 65.68, 71.31), "mp_dp": (2.19, 2.44, 121.8, 147.6), "tp_smc": (34.37, 76.8, 2201.4, 4932),
    "hybrid_alpha": (1350.6, 5112, 73_044, 336_096), "pile": (3636, 10_800, 145_440, 478_656)}
CLIENTS = (5, 100)      # of the first two printed columns
BATCHES = 10_000 / 64                   # of an epoch of a client with a fifth of CIFAR-10, in batches of the rows
CURVES = ("mp_cdp", "mp_dp", "mp_dp_paper", "tp_smc", "mp_dp_naive")


def spread(cells: Sequence[Row]) -> str:
    """Mean accuracy, standard deviation, number of seeds.

    >>> spread([{"accuracy": "0.9"}, {"accuracy": "0.8"}]), spread([{"accuracy": "0.9"}]), spread([])
    ('0.850 ± 0.071 (2)', '0.900 (1)', '-')
    """
    values = [float(row["accuracy"]) for row in cells]
    if not values:
        return "-"
    return f"{mean(values):.3f}{f' ± {stdev(values):.3f}' if len(values) > 1 else ''} ({len(values)})"


def accuracy(rows: Sequence[Row]) -> str:
    """The accuracy column of Table II."""
    return markdown(["scheme", "what it is", *SETTINGS], (
        [f"`{scheme}`", what, *(spread(of(rows, setting, scheme)) for setting in SETTINGS.values())]
        for scheme, what in SCHEMES.items()))


def by_eps(rows: Sequence[Row]) -> str:
    """Figure 3 in numbers."""
    return markdown(["scheme", *(f"eps {eps}" for eps in EPS)], (
        [f"`{scheme}`", *(spread(of(rows, ("mp-dp-digits-eps", {}), f"{scheme}_{eps}")) for eps in EPS)]
        for scheme in CURVES))


def a_round(costs: Sequence[Row]) -> str:
    """One batch of 64 each, with 5 and with 100 clients. Clients work beside each other: a round is one client and the
    server."""
    def cells(scheme: str, clients: int) -> list[str]:
        row = _of_costs(costs, scheme, clients)
        client, server = float(row["gradient_s"]) + float(row["client_s"]), float(row["server_s"])
        return [shown(client), shown(server), shown(client + server)]

    plain_s = float(_of_costs(costs, "fedavg", 5)["gradient_s"])
    head = ["scheme", "a gradient, times FedAvg's", "K = 5: client", "server", "round",
            "K = 100: client", "server", "round"]
    return markdown(head, (
        [_named(scheme), f"{float(_of_costs(costs, scheme, 5)['gradient_s']) / plain_s:.2f}", *cells(scheme, 5),
         *cells(scheme, 100)] for scheme in dict.fromkeys(row["scheme"] for row in costs)))


def an_epoch(costs: Sequence[Row]) -> str:
    """Table I in its unit: a client's 10,000 samples in batches of 64, then one sum of updates; 5 and 100 clients."""
    lines = []
    for row in costs:
        scheme, column = row["scheme"], CLIENTS.index(int(row["clients"]))
        if row["scheme"] in TABLE_I or scheme.startswith("mp_dp, "):
            took, printed = _seconds(row, BATCHES), TABLE_I[scheme.partition(",")[0]][column]
            ratio = took / _seconds(_of_costs(costs, "mp_dp", CLIENTS[column]), BATCHES)
            of_paper = printed / TABLE_I["mp_dp"][column]
            lines.append([_named(scheme), row["clients"], *map(plain, (took, printed, ratio, of_paper)),
                          f"{ratio / of_paper:.2g}"])
    return markdown(["scheme", "clients", "s an epoch", "printed", "times `mp_dp`", "printed", "ours over printed"],
                    lines)


def _named(scheme: str) -> str:
    """
    >>> _named("pile, packed")
    '`pile`, packed'
    """
    name, comma, how = scheme.partition(",")
    return f"`{name}`{comma}{how}"


def _of_costs(costs: Sequence[Row], scheme: str, clients: int) -> Row:
    return next(row for row in costs if (row["scheme"], int(row["clients"])) == (scheme, clients))


def _seconds(row: Row, batches: float) -> float:
    return batches * float(row["gradient_s"]) + float(row["client_s"]) + float(row["server_s"])


def shown(found: float) -> str:
    """
    >>> shown(0.1234), shown(75.2), shown(7200)
    ('0.12 s', '1.3 min', '2.0 h')
    """
    return f"{found:.2g} s" if found < 60 else f"{found / 60:.1f} min" if found < 3600 else f"{found / 3600:.1f} h"


def target(rows: Sequence[Row], costs: Sequence[Row]) -> str:
    """Time to a target, Table I: the rounds that digits take to it, times the seconds of a round of ResNet20."""
    lines, took = [], dict[str, float]()
    for scheme, (*_, printed, _) in TABLE_I.items():
        cells, seconds = of(rows, ("mp-dp-digits", {}), scheme), _seconds(_of_costs(costs, scheme, 5), 1)
        rounds = [_reached(row["curve"], TARGET) for row in cells]
        there = [round_ for round_ in rounds if round_ is not None]
        took[scheme] = mean(there) * seconds
        lines.append([f"`{scheme}`", f"{mean(there):.0f}", f"{len(there)} of {len(cells)}", plain(seconds),
                      plain(took[scheme]), scheme, plain(printed / TABLE_I["mp_dp"][2])])
    for line in lines:
        line[5] = plain(took[line[5]] / took["mp_dp"])
    head = ["scheme", f"rounds to {TARGET:g}, mean", "seeds that reach it", "s a round", "s", "times MP-DP", "printed"]
    return markdown(head, lines)


def losses(rows: Sequence[Row]) -> str:
    """Points of accuracy below FedAvg, which has no noise, by eps of a round: the abstract's claim."""
    best = mean(float(row["accuracy"]) for row in of(rows, ("mp-dp-digits", {}), "fedavg"))

    def below(label: str) -> str:
        own = of(rows, ("mp-dp-digits-eps", {}), label)
        return f"{100 * (best - mean(float(row['accuracy']) for row in own)):.1f}"

    return markdown(["scheme", *(f"eps {eps}" for eps in EPS)], (
        [f"`{scheme}`", *(below(f"{scheme}_{eps}") for eps in EPS)] for scheme in CURVES))


def _reached(curve: str, accuracy: float) -> int | None:
    """The first observed round with this accuracy.

    >>> _reached("10:0.5 20:0.9", 0.9), _reached("10:0.5", 0.9)
    (20, None)
    """
    points = (point.partition(":") for point in curve.split())
    return next((int(round_) for round_, _, value in points if float(value) >= accuracy), None)


BLOCKS: dict[str, Callable[[Sequence[Row]], str]] = {
    "cells": run, "accuracy": accuracy, "eps": by_eps, "losses": losses}


def filled(text: str, rows: Sequence[Row], attacks: Sequence[Row], costs: Sequence[Row]) -> str:
    """The page with all its tables made anew."""
    for name, table in BLOCKS.items():
        text = replaced(text, name, table(rows))
    text = replaced(text, "what_a_round_takes", a_round(costs))
    text = replaced(text, "an_epoch", an_epoch(costs))
    text = replaced(text, "target", target(rows, costs))
    text = replaced(text, "attacks_server", privacy.server(attacks))
    return replaced(text, "attacks_client", privacy.client(attacks))


def figure(rows: Sequence[Row]) -> Any:
    """Figure 3: accuracy against eps of a round, mean and standard deviation over the seeds, and FedAvg's."""
    import altair as alt
    import pandas as pd

    points = [{"scheme": scheme, "eps": float(eps), "accuracy": float(row["accuracy"])}
              for scheme in CURVES for eps in EPS for row in of(rows, ("mp-dp-digits-eps", {}), f"{scheme}_{eps}")]
    told = pd.DataFrame(points).groupby(["scheme", "eps"])["accuracy"].agg(["mean", "std"]).fillna(0).reset_index()
    told["low"], told["high"] = told["mean"] - told["std"], told["mean"] + told["std"]
    x = alt.X("eps:Q", title="eps of a round", scale=alt.Scale(domain=[0, 8.5]))
    colour = alt.Color("scheme:N", title=None, sort=list(CURVES))
    title, best = "test accuracy after 100 rounds", mean(
        float(row["accuracy"]) for row in of(rows, ("mp-dp-digits", {}), "fedavg"))
    lines = alt.Chart(told).mark_line(point=True).encode(
        x=x, y=alt.Y("mean:Q", title=title, scale=alt.Scale(domain=[0, 1])), color=colour)
    bars = alt.Chart(told).mark_rule().encode(x=x, y=alt.Y("low:Q", title=title), y2="high:Q", color=colour)
    rule = alt.Chart(pd.DataFrame({"fedavg": [best]})).mark_rule(strokeDash=[5, 4], color="grey").encode(y="fedavg:Q")
    return (rule + bars + lines).properties(width=420, height=260)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("table", type=Path, nargs="?", default=TABLE, help="written by emul sweep --done")
    rows = read(parser.parse_args().table)
    document.save(PAGE, filled(document.read(PAGE), rows, read(ATTACKS), read(COSTS)))
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    figure(rows).save(FIGURE, scale_factor=1.5)


if __name__ == "__main__":
    main()
