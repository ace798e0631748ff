"""Bytes by class of link, phase and direction, and what became of them: of one run, or scheme by scheme.

A phase of a protocol is a type of its messages. A class of links is where they begin and end: the roles of the nodes
there, or a relay.
"""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import numpy as np
import pandas as pd

from emul.report.data import KINDS, RunData, distinct, traffic
from emul.report.drawing import KIND_COLOURS, Figure, byte_unit, in_rows, named, ranked, row_axis, stacked
from emul.report.topology import RELAY

NAMES = {"first": "first", "retransmitted": "again", "wasted": "wasted", "lost": "lost"}
ROWS = 48               # of a figure, at most


def phases(run: RunData) -> pd.DataFrame:
    """MB in the order of the protocol: link class, phase, direction, first, again, wasted, lost, total.

    first, again and so on are the kinds of `data.traffic`; total is their sum. Phases come in the order in which their
    first message was sent, those outside rounds (or of an unscoped type) by names of their own.
    """
    found = traffic(run, by_round=True)
    vertex = dict.fromkeys(run.vertices, RELAY)
    vertex |= {run.vertices[v]: role for v, role in zip(run.header["vertices"], run.roles, strict=True)}
    found = found.assign(**{
        "link class": found["from"].map(vertex) + "→" + found["to"].map(vertex),
        "phase": np.where(found["scoped"], "", "outside rounds: ") + found["type"]})
    wide = found.pivot_table(index=["link class", "phase", "direction"], columns="kind", values="bytes", aggfunc="sum",
                             fill_value=0, sort=False)
    wide = (wide.reindex(columns=list(KINDS), fill_value=0) / 1e6).rename(columns=NAMES)
    wide = wide.assign(total=wide.sum(axis=1)).rename_axis(columns=None).reset_index()
    order = _first_sent(run)
    at = [order.get((phase, direction), len(order)) for phase, direction in zip(
        wide["phase"], wide["direction"], strict=True)]
    return wide.iloc[np.argsort(at, kind="stable")].reset_index(drop=True)


def _first_sent(run: RunData) -> dict[tuple[str, str], int]:
    """(phase, direction) -> its place in the order of the first messages."""
    m = run.messages
    keys, first, _ = distinct(m.kind, m.round > 0, m.source, m.target)
    found: dict[tuple[str, str], int] = {}
    for kind, scoped, source, target in np.stack(keys)[:, np.argsort(first)].T.tolist():
        phase = m.kinds[kind] if scoped else f"outside rounds: {m.kinds[kind]}"
        found.setdefault((phase, f"{run.roles[source]} → {run.roles[target]}"), len(found))
    return found


def side_by_side(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The tables of several runs below each other, with the scheme before them."""
    return pd.concat([table.assign(scheme=name) for name, table in tables.items()], ignore_index=True)[
        ["scheme", *next(iter(tables.values())).columns]]


def bytes_by_phase(found: pd.DataFrame) -> Figure:
    """Stacked bars, a row a phase and direction, below each other scheme by scheme; for all classes of links or one.

    found: as `phases` gives it, perhaps with `scheme`.
    """
    many = "scheme" in found
    what = found["phase"] + ", " + found["direction"]
    rows = (found["scheme"] + ": " + what) if many else what
    total = found.assign(row=rows).groupby("row", sort=False)["total"].sum()
    kept = set(total.nlargest(ROWS).index)
    order = [row for row in total.index if row in kept]
    unit, factor = byte_unit(float(total.max()) * 1e6)
    long = found.assign(row=rows)[rows.isin(kept)].drop(columns="total").melt(
        id_vars=["row", "link class", "phase", "direction", *(["scheme"] if many else [])], var_name="kind",
        value_name="mb")
    long = long[long["mb"] > 0].assign(size=lambda f: f["mb"] * 1e6 / factor,
                                       rank=lambda f: ranked(f["kind"], NAMES.values()))
    classes = list(dict.fromkeys(found["link class"]))
    chosen = alt.param(name="links", value="all", bind=alt.binding_select(options=["all", *classes], name="links "))
    chart = stacked(
        named("bytes").transform_filter("links == 'all' || datum['link class'] == links"),
        row_axis("row", order, 330), alt.X("sum(size):Q", title=f"{unit} on all such links"), "kind", NAMES.values(),
        KIND_COLOURS,
        [*(["scheme:N"] if many else []), "phase:N", "direction:N", "kind:N",
         alt.Tooltip("sum(size):Q", title=unit, format=",.4~f")]).add_params(chosen)
    cut = f" The {ROWS} of {len(total):,} phases with the most bytes." if len(total) > ROWS else ""
    return Figure("bytes-by-phase", "Bytes by phase, direction and class of links",
                  "A phase is a type of messages, in the order of the protocol. A direction leads from role to role, "
                  "end to end. A class of links is the pair of roles at both ends of a hop. First: sent once and of "
                  "use; again: by reliable links; wasted: late, to nobody, rejected or never read; lost: with all hops "
                  "of the copy."
                  + cut, f"Stacked bars of bytes by phase. Largest: {total.idxmax()} with {total.max():.4g} MB.",
                  in_rows(chart, len(order), px=20), {"bytes": long}, found, least_width=420)
