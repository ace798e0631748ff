"""Costs of secure aggregation in a round, by clients n, clusters m and model size l, next to a paper's formulas.

    python -m benchmarks.secure_costs --clients 10 20 50 --sizes 1000 10000 --out FILE.csv
    python -m benchmarks.secure_costs --read docs/reproductions/data/ebs_cfl_costs.csv --into PAGE.md

Table 2 of Li et al., AAAI-25 (EBS-CFL). Every cell is a run of two rounds in this process over a network without
losses, on a model of l parameters that trains for one step of one sample. Counted are the bytes on the links and the
CPU seconds of the second round, by role and without training; what the first round had more is `once`. Exponents come
from a least-squares fit of log cost = a + b log n + c log l + e log m over the cells of a scheme, those of the formulas
from the same fit over the same cells. A cell that is in the file already is not run again.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn, ones

from benchmarks import document
from benchmarks.common import read_rows, write_rows
from benchmarks.document import replaced
from benchmarks.finished import markdown
from emul import engine
from emul.base.errors import EmulError
from emul.record.columns import columns
from emul.record.journal import MemoryJournal
from emul.record.tables import Derived, derive
from emul.registry import schemes
from emul.scenario import loads
from emul.workers.twin import Twin

TEXT = """
emul: 1
name: secure-costs
seed: 1
topology: {{generator: star_mesh, clients: {n}, servers: {servers}}}
links: [{{match: "*", latency: 5 ms}}]
task:
  data: {{set: digits}}
  root: {{samples: {root}}}
  partition: iid
  model: parameters_{d}
  solver: {{sgd: {{lr: 0.1, steps: 1, batch: 1}}}}
compute: {{mode: measured}}
schemes: [{scheme}]
stop: {{rounds: 2}}
evaluation: {{every: 1000}}
"""
LEARNING = {"train", "start", "reference", "root", "choose"}        # computations that are no aggregation
ENTRIES: dict[str, str] = {             # a scheme's entry; its defaults where there is none
    "lightsecagg": "{{name: lightsecagg}}", "ebs_cfl": "{{name: ebs_cfl, clusters: {m}, t: 2, start_steps: 1}}",
    "ebs_cfl_pad": "{{name: ebs_cfl, label: ebs_cfl_pad, profile: pad, clusters: {m}, t: 2, start_steps: 1}}"}
SERVERS = {"pefl": 3}                   # nodes of that kind; 2 where nothing is said: the second is a dealer of keys
DEFAULT = ("fedavg", "secagg", "secagg_plus", "ccesa", "lightsecagg", "fastsecagg", "swiftagg_plus", "safelearning",
           "ebs_cfl", "ebs_cfl_pad")
CLUSTERED = ("ebs_cfl", "ebs_cfl_pad")
COSTS = ("server_bytes", "client_bytes", "server_s", "client_s", "dealer_bytes", "dealer_s")
KEYS = ("scheme", "n", "m", "l")
PAPER_SIZE = 199_210                    # numbers, 794 kB, of Figure 2
TEXTS = ("scheme",)
COLUMNS = (*KEYS, *COSTS, *(f"{cost}_once" for cost in COSTS))

S = 32.0                                # the formulas' security parameter, in elements
Formula = Callable[[float, float, float], float]                    # n, m, l -> cost


def root(x: float) -> float:
    """sqrt(x log x), degrees of the sparse graphs."""
    return math.sqrt(x * math.log(x))


# Table 2 as printed, with s their security parameter; EBS-CFL with m clusters
FORMULAS: Mapping[str, Mapping[str, tuple[str, Formula]]] = {
    "secagg": {
        "server_bytes": ("nl + s n^2", lambda n, m, d: n * d + S * n * n),
        "client_bytes": ("l + s n", lambda n, m, d: d + S * n),
        "server_s": ("n^2 l", lambda n, m, d: n * n * d),
        "client_s": ("nl + s n^2", lambda n, m, d: n * d + S * n * n)},
    "ccesa": {
        "server_bytes": ("nl + s n sqrt(n log n)", lambda n, m, d: n * d + S * n * root(n)),
        "client_bytes": ("l + s sqrt(n log n)", lambda n, m, d: d + S * root(n)),
        "server_s": ("n l log n", lambda n, m, d: n * d * math.log(n)),
        "client_s": ("l sqrt(n log n) + s n log n", lambda n, m, d: d * root(n) + S * n * math.log(n))},
    "fastsecagg": {
        "server_bytes": ("nl + n^2", lambda n, m, d: n * d + n * n),
        "client_bytes": ("l + n", lambda n, m, d: d + n),
        "server_s": ("l log n", lambda n, m, d: d * math.log(n)),
        "client_s": ("l log n", lambda n, m, d: d * math.log(n))},
    "ebs_cfl": {
        "server_bytes": ("nml + n", lambda n, m, d: n * m * d + n),
        "client_bytes": ("ml + m^2", lambda n, m, d: m * d + m * m),
        "server_s": ("m^2 (nml + nm^2 + n^2 + n l log n)",
                     lambda n, m, d: m * m * (n * m * d + n * m * m + n * n + n * d * math.log(n))),
        "client_s": ("m^2 l", lambda n, m, d: m * m * d)},
}


class Parameters(nn.Module):
    """A logistic model on 64 inputs with l parameters in all, most of which only scale what it says."""

    def __init__(self, d: int, outputs: int):
        super().__init__()
        self.last = nn.Linear(64, outputs)
        self.rest = nn.Parameter(ones(max(1, d - 65 * outputs)))

    def forward(self, x: Any) -> Any:
        return self.last(x.flatten(1)) * self.rest.mean()


class Sizes(dict[str, Any]):
    """`parameters_1000` and the like, of any size: a plug-in's MODELS."""

    def add(self, d: int) -> None:
        self[f"parameters_{d}"] = lambda shape, outputs: Parameters(d, outputs)


MODELS = Sizes()
for _d in (1_000, 3_000, 10_000, 30_000, 100_000, PAPER_SIZE):
    MODELS.add(_d)


def cell(scheme: str, n: int, m: int, d: int) -> dict[str, Any]:
    """The row of one run. Raises EmulError where the scheme does not take such a scenario."""
    written = ENTRIES.get(scheme, f"{{{{name: {scheme}}}}}").format(m=m)
    text = TEXT.format(n=n, d=d, root=20 * m, scheme=written, servers=SERVERS.get(scheme, 2))
    scenario = loads(text, "costs", plugins=[__name__])
    (name, raw), = scenario.schemes
    wiring = engine.wire(scenario, name, raw, 1, [__name__])
    journal = MemoryJournal(engine.header(wiring))
    engine.execute(wiring, Twin(), journal)
    roles = list(wiring.plan.roles)
    found = derive(columns(journal.rows), journal.header)
    first, second = (costs(found, roles, rounds) for rounds in ((0, 1), (2,)))
    once = {f"{cost}_once": max(0.0, first[cost] - second[cost]) for cost in COSTS}
    return {"scheme": scheme, "n": n, "m": m, "l": d, **second, **once}


def costs(run: Derived, roles: Sequence[str], rounds: Sequence[int]) -> dict[str, float]:
    """Bytes that cross the links of the server, of a client (the mean) and of all others, and their CPU seconds."""
    role, sent, work = np.array(roles, dtype=object), run.messages, run.computations
    now = np.isin(sent.round, rounds) & (sent.hops > 0)
    doing = np.isin(work.round, rounds) & ~np.isin([work.labels[i] for i in work.label], list(LEARNING))
    found = {}
    for name, members in (("server", role == "server"), ("client", role == "client"),
                          ("dealer", (role != "server") & (role != "client"))):
        share = max(1, members.sum()) if name == "client" else 1
        touching = members[sent.source[now]].astype(int) + members[sent.target[now]].astype(int)
        found[f"{name}_bytes"] = float((sent.wire_bytes[now] * touching).sum() / share)
        found[f"{name}_s"] = float(work.cost_ns[doing][members[work.node[doing]]].sum() / 1e9 / share)
    return {cost: found[cost] for cost in COSTS}


def fitted(rows: Sequence[Mapping[str, Any]], cost: Callable[[Mapping[str, Any]], float]) -> dict[str, float]:
    """Exponents of n, m and l, of those that vary among the rows and where there are enough of these."""
    rows = [row for row in rows if cost(row) > 0]
    free = [key for key in ("n", "m", "l") if len({row[key] for row in rows}) > 1]
    if len(rows) < len(free) + 1 or not free:
        return {}
    x = np.array([[1.0, *(math.log(row[key]) for key in free)] for row in rows])
    solution = np.linalg.lstsq(x, np.log([cost(row) for row in rows]), rcond=None)[0]
    return dict(zip(free, solution[1:].tolist(), strict=True))


# --- the file and the tables ------------------------------------------------------------------------------------------

def run(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Run what the file has not, cell by cell, each written as soon as it is there."""
    rows = read_rows(chosen.out, TEXTS)
    done = {tuple(row[key] for key in KEYS) for row in rows}
    known = set(schemes.known())
    for scheme in chosen.schemes:
        if scheme.removesuffix("_pad") not in known:
            continue
        for m in chosen.clusters if scheme in CLUSTERED else [1]:
            for n, d in ((n, d) for d in chosen.sizes for n in chosen.clients):
                if (scheme, n, m, d) in done:
                    continue
                try:
                    rows.append(cell(scheme, n, m, d))
                except EmulError as error:
                    print(f"{scheme}, n = {n}, m = {m}, l = {d}: {error}", file=sys.stderr)
                    continue
                write(chosen.out, rows)
    return rows


def write(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """All rows, in the order of their keys."""
    write_rows(file, COLUMNS, sorted(rows, key=lambda row: tuple(row[key] for key in KEYS)), TEXTS)


def tables(rows: Sequence[Mapping[str, Any]], shown: Callable[[Mapping[str, Any]], bool] = lambda row: True) -> str:
    """Markdown: every cell that is to be shown, then exponents fitted to all beside those of the formulas."""
    lines = ["| scheme | n | m | l | server MB | client MB | server s | client s | dealer MB | dealer s |",
             "|---" * 10 + "|"]
    for row in filter(shown, rows):
        lines.append(f"| `{row['scheme']}` | {row['n']:.0f} | {row['m']:.0f} | {row['l']:.0f} | "
                     + " | ".join(f"{row[cost] / (1e6 if cost.endswith('bytes') else 1):.3g}" for cost in COSTS) + " |")
    lines += ["", "| scheme | cost | measured | formula | of the formula |", "|---|---|---|---|---|"]
    for scheme in dict.fromkeys(str(row["scheme"]) for row in rows):
        own = [row for row in rows if row["scheme"] == scheme]
        for cost in COSTS[:4]:
            lines.append(f"| `{scheme}` | {cost} | {_said(fitted(own, lambda row, c=cost: row[c]))} | "  # type: ignore
                         + _formula(scheme, cost, own) + " |")
    return "\n".join(lines)


def of_page(row: Mapping[str, Any]) -> bool:
    """True if docs/reproductions/ebs_cfl.md shows the cell: all sizes for 20 clients, and one size for all clients."""
    return bool(row["n"] == 20 or (row["l"] == 10_000 and row["m"] == (2 if row["scheme"] in CLUSTERED else 1)))


def ratios(rows: Sequence[Mapping[str, Any]]) -> str:
    """Table 2 and Figure 4 as the paper claims them: the server's seconds beside FedAvg's by m, and a client's of the
    other schemes beside those of EBS-CFL with one cluster."""
    at = {tuple(row[key] for key in KEYS): row for row in rows}
    clients, sizes = sorted({row["n"] for row in rows}), sorted({row["l"] for row in rows})[:3]

    def line(title: str, over: tuple[str, float], under: tuple[str, float], cost: str, d: float) -> list[str]:
        values = [at[over[0], n, over[1], d][cost] / at[under[0], n, under[1], d][cost] for n in clients]
        return [title, f"{d:.0f}", *(f"{value:.3g}" for value in values), f"{min(values):.3g}", f"{max(values):.3g}"]

    lines = [line(f"server, `ebs_cfl`, m = {m}, over `fedavg`", ("ebs_cfl", m), ("fedavg", 1), "server_s", d)
             for m in (1, 2, 4) for d in sizes]
    lines += [line(f"client, `{scheme}` over `ebs_cfl`, m = 1", (scheme, 1), ("ebs_cfl", 1), "client_s", d)
              for scheme in ("secagg", "ccesa", "fastsecagg") for d in sizes]
    return markdown(["CPU seconds", "l", *(f"n = {n:.0f}" for n in clients), "least", "most"], lines)


def of_its_size(rows: Sequence[Mapping[str, Any]]) -> str:
    """Figure 2: a client's MB with the paper's model of 794 kB, by clients."""
    own = [row for row in rows if row["l"] == PAPER_SIZE]
    clients = sorted({row["n"] for row in own})
    found = {(row["scheme"], row["m"], row["n"]): row["client_bytes"] / 1e6 for row in own}
    return markdown(["scheme", "m", *(f"n = {n:.0f}" for n in clients)], (
        [f"`{scheme}`", f"{m:.0f}", *(f"{found[scheme, m, n]:.3g}" for n in clients)]
        for scheme, m in dict.fromkeys((row["scheme"], row["m"]) for row in own)))


def written(page: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The page with the tables in their places. Raises DocumentError."""
    page = replaced(page, "costs", tables([row for row in rows if row["l"] != PAPER_SIZE], of_page))
    return replaced(replaced(page, "ratios", ratios(rows)), "of_its_size", of_its_size(rows))


def _formula(scheme: str, cost: str, rows: Sequence[Mapping[str, Any]]) -> str:
    text, formula = FORMULAS.get(scheme, {}).get(cost, ("", None))
    if formula is None:
        return "- | -"
    return f"{text} | {_said(fitted(rows, lambda row: formula(row['n'], row['m'], row['l'])))}"


def _said(exponents: Mapping[str, float]) -> str:
    return " ".join(f"{key}^{value:z.2f}" for key, value in exponents.items()) or "-"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--schemes", nargs="+", default=list(DEFAULT),
                        help="[%(default)s]; those that are not known are left out")
    parser.add_argument("--clients", nargs="+", type=int, default=[10, 20, 50, 100, 200])
    parser.add_argument("--clusters", nargs="+", type=int, default=[1, 2, 4], help="m, of schemes with clusters")
    parser.add_argument("--sizes", nargs="+", type=int, default=[1_000, 10_000, 100_000],
                        help=f"l, of {', '.join(name.partition('_')[2] for name in MODELS)}")
    parser.add_argument("--out", type=Path, default=Path("runs/secure_costs.csv"))
    parser.add_argument("--read", type=Path, help="only print the tables of this file")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="write the tables there, in place of printing them")
    chosen = parser.parse_args()
    rows = read_rows(chosen.read, TEXTS) if chosen.read else run(chosen)
    if chosen.into is None:
        print(tables(rows))
    else:
        document.save(chosen.into, written(document.read(chosen.into), rows))


if __name__ == "__main__":
    main()
