r"""The costs of a round of secure aggregation, by scheme, clients n and model size l: measured, next to formulas.

    python -m benchmarks.secagg_table --clients 10 30 100 --sizes 1000 10000 100000 --out FILE.csv
    python -m benchmarks.secagg_table --read docs/reproductions/data/secagg_costs.csv \
        --into docs/schemes/secure_aggregation.md

A cell is one run of two rounds in this process, without losses and without training (PEFL's clients train for one step:
it gives up a round of updates that are all 0), with all parameters of the scheme at their defaults; shares of masks go
through the server. Of the second round: one-way trips on its critical path (every link takes so long that nothing else
counts); bytes that a client sends and receives (the mean) and that all send; CPU seconds of computations of a client
(the mean) and of the server. PEFL's seconds are those that it declares. Formulas: bytes are those of the arrays; times
are the operations that grow with n or l, times what one takes on this machine, which is measured first. A cell that is
in the file already is not run again; where a run fails, or would take too much memory (`--room`), the formulas stand
alone.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import document
from benchmarks.common import read_rows, write_rows
from benchmarks.document import replaced
from benchmarks.finished import markdown, plain
from benchmarks.secure_costs import Sizes
from emul import engine
from emul.primitives.crypto import shamir
from emul.primitives.crypto.keys import agree, channel_key, key_pair, seal
from emul.primitives.crypto.prg import prg_add
from emul.primitives.field import P31, matmul, uniform
from emul.primitives.he.paillier import Packing
from emul.primitives.he.paillier import seconds as paillier_seconds
from emul.record.columns import columns
from emul.record.journal import MemoryJournal
from emul.record.tables import Derived, derive
from emul.registry import schemes
from emul.scenario import loads
from emul.schemes import ccesa, fastsecagg, lightsecagg, pefl, safelearning, secagg, secagg_plus, swiftagg_plus
from emul.workers.twin import Twin

LATENCY_S = 100_000                 # beyond what PEFL declares
TEXT = """
emul: 1
name: secagg-costs
seed: 1
topology: {{generator: star_mesh, clients: {n}, servers: {servers}}}
links: [{{match: "*", latency: {latency} s}}]
task: {{data: {{set: digits}}, partition: iid, model: parameters_{d}, solver: {{sgd: {solver}}}}}
compute: {{mode: measured}}
schemes: [{{name: {scheme}{more}}}]
stop: {{rounds: 2}}
evaluation: {{every: 1000}}
"""
SOLVER, MORE = {"pefl": "{lr: 0.1, steps: 1, batch: 64}"}, {"pefl": ", reject: 0, real_up_to: 0"}
LEARNING = {"train"}                    # computations that are no aggregation
MEASURED = ("trips", "client_bytes", "all_bytes", "client_s", "server_s")
FORMULAS = ("client_bytes_formula", "all_bytes_formula", "client_s_formula", "server_s_formula")
KEYS = ("scheme", "n", "l")
TEXTS = ("scheme",)
COLUMNS = (*KEYS, *MEASURED, *FORMULAS)

MODELS = Sizes()
for _d in (1_000, 10_000, 100_000, 1_000_000):
    MODELS.add(_d)

Work = Mapping[str, float]              # operation -> how many
Expected = tuple[float, float, Work, Work]          # bytes of a client, of all; work of a client, of the server


# --- formulas ---------------------------------------------------------------------------------------------------------

def fedavg_costs(n: int, d: int) -> Expected:
    """A model down, an update up."""
    return 8.0 * d, 8.0 * d * n, {}, {"add": n * d}


def pairwise_costs(n: int, d: int, a: float, t: int) -> Expected:
    """a: neighbours of a client. Messages as in `emul.protocols.pairwise.messages`, shares through the server."""
    up = 64 + 84 * a + 4 * d + 36 * (a + 1)
    down = 4 * d + 68 * (a + 1) + 84 * a + 4 * (a + 1)
    client = {"mask": (a + 1) * d, "agree": 2 * a + 2, "box": 2 * a, "gf": 32 * (a + 1) * t}
    return up + down, n * (up + down), client, {"mask": n * d, "add": n * d, "gf": 16 * n * t}


def split_costs(n: int, d: int) -> Expected:
    """SAFELearning: two vectors, groups of n / floor(n / g), about two partners drawn and two that drew."""
    p = safelearning.Params()
    group, t = n / max(1, n // p.group), safelearning.rules(p).t
    a = min(n - 1.0, group - 1 + 2 * p.partners)
    up = 6 * d + 112 + 148 * a + 72 * (a + 1)
    down = 4 * d + 32 + 104 * (a + 1) + 148 * a + 8 * (a + 1) + 20 * n
    client = {"mask": (group + a + 1) * d, "agree": a + group - 1 + a + 3, "box": 2 * a, "gf": 64 * (a + 1) * t}
    return up + down, n * (up + down), client, {"mask": 2 * n * d, "add": 2 * n * d, "gf": 32 * n * t}


def coded_mask_costs(n: int, d: int, segments: int, need: int) -> Expected:
    """LightSecAgg and FastSecAgg: n shares of w = ceil(d / segments) each, sealed, there and back."""
    w = -(-d // segments)
    up = 32 + (n - 1) * (20 + 4 * w) + 4 * d + 4 * w
    down = 4 * d + 36 * (n - 1) + (n - 1) * (20 + 4 * w) + 4 * n
    client = {"draw": d + (need - segments) * w, "mac": n * need * w, "agree": n, "box": 2 * n,
              "sealed": 8 * n * w, "add": n * w + d}
    return up + down, n * (up + down), client, {"add": n * d, "mac": need * segments * w}


def coded_input_costs(n: int, d: int, segments: int, need: int, seats: int) -> Expected:
    """SwiftAgg+ where nu divides n: shares to the seats of a group, sums along chains."""
    w, groups = -(-d // segments), n // seats
    share = n * (seats - 1) * (4 * w + 16)
    chain = (groups - 1) * seats * (4 * w + 16)
    total = 4 * seats * w
    model = n * (4 * d + 32 + 36 * (n - 1))
    client = {"draw": (need - segments) * w, "mac": seats * need * w, "agree": seats, "box": 2 * seats,
              "sealed": 8 * seats * w, "add": (seats + 1) * w}
    return (2 * share + 2 * chain + total + model) / n, share + chain + total + model, client, {
        "mac": need * segments * w}


def pefl_costs(n: int, d: int) -> Expected:
    """(7 m + 3) C ciphertexts; seconds of SP and CP together."""
    p = pefl.Params()
    C = Packing.of(p.bits, pefl.SLOT).count(d)
    every = (7 * n + 3) * C * (p.bits // 4) + 8 * n
    client = {"encrypt": C, "decrypt": C}
    return 2.0 * C * (p.bits // 4), every, client, {"decrypt": (4 * n + 1) * C, "encrypt": (n + 2) * C,
                                                   "scale": 2 * n * C, "add_ciphertexts": (3 * n + 5) * C}


def expected(scheme: str, n: int, d: int) -> Expected:
    """The formulas of a scheme at its defaults."""
    if scheme in ("lightsecagg", "fastsecagg"):
        module: Any = {"lightsecagg": lightsecagg, "fastsecagg": fastsecagg}[scheme]
        code = module.rules(module.Params(), n).code
        return coded_mask_costs(n, d, code.segments, code.need)
    if scheme == "swiftagg_plus":
        code = swiftagg_plus.code_of(swiftagg_plus.Params(), n)
        return coded_input_costs(n, d, code.segments, code.need, code.n)
    if scheme == "secagg_plus":
        k, t = secagg_plus.density(secagg_plus.Params(), n)
        return pairwise_costs(n, d, min(k, n - 1), t)
    if scheme == "ccesa":
        chosen = ccesa.density(ccesa.Params(), n)
        return pairwise_costs(n, d, chosen.p * (n - 1), chosen.t)
    if scheme == "secagg":
        return pairwise_costs(n, d, n - 1, secagg.threshold(secagg.Params(), n))
    return {"fedavg": fedavg_costs, "safelearning": split_costs, "pefl": pefl_costs}[scheme](n, d)


SCHEMES = ("fedavg", "secagg", "secagg_plus", "ccesa", "safelearning", "lightsecagg", "fastsecagg", "swiftagg_plus",
           "pefl")


# --- what an operation takes ------------------------------------------------------------------------------------------

def speeds() -> dict[str, float]:
    """{operation: CPU seconds} on this machine; those of Paillier's cryptosystem are the declared ones.

    mask: of one number, expanded and added; draw: of a number of the field; mac: of a product and sum of the field;
    gf: of GF(2^16); add: of two numbers; sealed: of a byte of a box.
    """
    seed, out, d = bytes(32), np.zeros(1 << 20, np.uint32), 1 << 20
    pair = key_pair(bytes(range(32)))
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, P31, (100, 70)), rng.integers(0, P31, (70, 20_000))
    key, long = channel_key(bytes(32)), bytes(1 << 20)
    declared = paillier_seconds(pefl.Params().bits)
    return {
        "mask": _each(lambda: prg_add(out, seed), 20) / d, "draw": _each(lambda: uniform(seed, d, P31), 10) / d,
        "add": _each(lambda: np.add(out, out, out=out), 20) / d,
        "agree": _each(lambda: agree(pair.secret, pair.public), 300),
        "box": _each(lambda: seal(channel_key(bytes(32)), 1, 2, 0, 1, seed + seed), 300),
        "gf": _each(lambda: shamir.share([seed, seed], 67, range(100), rng), 20) / (32 * 67 * 100),
        "mac": _each(lambda: matmul(a, b, P31), 5) / (100 * 70 * 20_000),
        "sealed": _each(lambda: seal(key, 1, 2, 0, 1, long), 20) / len(long),
        "encrypt": declared.encrypt, "decrypt": declared.decrypt, "scale": declared.scale,
        "add_ciphertexts": declared.add}


def _each(work: Callable[[], object], count: int) -> float:
    work()
    begin = time.process_time()
    for _ in range(count):
        work()
    return (time.process_time() - begin) / count


def seconds(work: Work, cost: Mapping[str, float]) -> float:
    """Of so many operations."""
    return sum(count * cost[name] for name, count in work.items())


# --- a run ------------------------------------------------------------------------------------------------------------

def by_formulas(scheme: str, n: int, d: int, cost: Mapping[str, float]) -> dict[str, Any]:
    """The row of a run that was not made: 0 for what would be measured. cost: of each operation, seconds."""
    of_client, of_all, client, server = expected(scheme, n, d)
    formulas = (of_client, of_all, seconds(client, cost), seconds(server, cost))
    return {"scheme": scheme, "n": n, "l": d, **dict.fromkeys(MEASURED, 0.0),
            **dict(zip(FORMULAS, formulas, strict=True))}


def cell(scheme: str, n: int, d: int, row: dict[str, Any]) -> dict[str, Any]:
    """The row of one run, with what its formulas say. Where its round failed: `row`, of formulas alone."""
    more = ", route: server" if hasattr(schemes.find(scheme).params(), "route") else MORE.get(scheme, "")
    text = TEXT.format(n=n, d=d, scheme=scheme, more=more, latency=LATENCY_S, servers=3 if scheme == "pefl" else 1,
                       solver=SOLVER.get(scheme, "{lr: 0.1, epochs: 0}"))
    scenario = loads(text, "costs", plugins=[__name__])
    wiring = engine.wire(scenario, *scenario.schemes[0], 1, [__name__])
    journal = MemoryJournal(engine.header(wiring))
    engine.execute(wiring, Twin(), journal)
    found = derive(columns(journal.rows), journal.header)
    last = found.rounds[-1]
    if not last["completed"]:
        print(f"{scheme}, n = {n}, l = {d}: {last['why']}", file=sys.stderr)
        return row
    return row | measured(found, list(wiring.plan.roles)) | {
        "trips": round((last["left_ns"] - last["entered_ns"]) / 1e9 / LATENCY_S)}


def measured(run: Derived, roles: Sequence[str]) -> dict[str, float]:
    """Bytes and CPU seconds of the second round."""
    is_client = np.array(roles, dtype=object) == "client"
    sent, work = run.messages, run.computations
    now = (sent.round == 2) & (sent.hops > 0)
    size = sent.payload_bytes[now]
    touching = is_client[sent.source[now]].astype(int) + is_client[sent.target[now]].astype(int)
    doing = (work.round == 2) & ~np.isin([work.labels[i] for i in work.label], list(LEARNING))
    spent = work.cost_ns[doing] / 1e9
    by_client = is_client[work.node[doing]]
    return {"client_bytes": float((size * touching).sum() / is_client.sum()), "all_bytes": float(size.sum()),
            "client_s": float(spent[by_client].sum() / is_client.sum()), "server_s": float(spent[~by_client].sum())}


# --- the file and the tables ------------------------------------------------------------------------------------------

def write(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """All rows, by scheme, n and l."""
    write_rows(file, COLUMNS, sorted(rows, key=lambda row: (SCHEMES.index(row["scheme"]), row["n"], row["l"])), TEXTS)


def run(names: Sequence[str], clients: Sequence[int], sizes: Sequence[int], file: Path,
        room: float = math.inf) -> list[dict[str, Any]]:
    """Run what the file has not, cell by cell, each written as soon as it is there. room: bytes of all messages of a
    round; where the formula has more, it stands alone."""
    rows, cost = read_rows(file, TEXTS), speeds()
    done = {tuple(row[key] for key in KEYS) for row in rows}
    for scheme, n, d in ((scheme, n, d) for d in sizes for n in clients for scheme in names):
        if (scheme, n, d) not in done:
            found = by_formulas(scheme, n, d, cost)
            rows.append(found if found["all_bytes_formula"] > room else cell(scheme, n, d, found))
            write(file, rows)
    return read_rows(file, TEXTS)


KINDS = {                               # block of the page -> column and unit of its table
    "client_kb": ("client_bytes", 1e3), "all_mb": ("all_bytes", 1e6), "client_cpu": ("client_s", 1e-3),
    "server_cpu": ("server_s", 1e-3)}


def trips(rows: Sequence[Mapping[str, Any]]) -> str:
    """One-way trips of a round, one after the other."""
    found = (f"`{scheme}` {_span({row['trips'] for row in rows if row['scheme'] == scheme and row['trips']})}"
             for scheme in dict.fromkeys(row["scheme"] for row in rows))
    return f"One-way trips of a round, one after the other: {', '.join(found)}."


def table(rows: Sequence[Mapping[str, Any]], key: str, unit: float) -> str:
    """A row a scheme and n, a column an l, "measured / formula"."""
    sizes = sorted({row["l"] for row in rows})
    lines = []
    for scheme, n in dict.fromkeys((row["scheme"], row["n"]) for row in rows):
        there = {row["l"]: f"{plain(row[key] / unit) if row['trips'] else '-'} / {plain(row[f'{key}_formula'] / unit)}"
                 for row in rows if (row["scheme"], row["n"]) == (scheme, n)}
        lines.append([f"`{scheme}`", f"{n:.0f}", *(there.get(d, "") for d in sizes)])
    return markdown(["scheme", "n", *(f"l = {d:,.0f}" for d in sizes)], lines)


def written(page: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The page with the trips and all tables in their places. Raises DocumentError."""
    page = replaced(page, "trips", trips(rows))
    for name, (key, unit) in KINDS.items():
        page = replaced(page, name, table(rows, key, unit))
    return page


def _span(values: set[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.0f}" if low == high else f"{low:.0f} to {high:.0f}"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--schemes", nargs="+", choices=SCHEMES, default=list(SCHEMES), metavar="NAME")
    parser.add_argument("--clients", nargs="+", type=int, default=[10, 30, 100])
    parser.add_argument("--sizes", nargs="+", type=int, default=[1_000, 10_000, 100_000],
                        help=f"l, of {', '.join(name.partition('_')[2] for name in MODELS)}")
    parser.add_argument("--out", type=Path, default=Path("runs/secagg_costs.csv"))
    parser.add_argument("--room", type=float, default=math.inf, metavar="BYTES",
                        help="formulas alone for cells whose messages of a round have more")
    parser.add_argument("--read", type=Path, help="only make the tables of this file")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="write the tables there")
    said = parser.parse_args()
    rows = read_rows(said.read, TEXTS) if said.read else run(
        said.schemes, said.clients, said.sizes, said.out, said.room)
    if said.into is not None:
        document.save(said.into, written(document.read(said.into), rows))


if __name__ == "__main__":
    main()
