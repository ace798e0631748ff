"""A network that moves, as a report needs it: contacts by the numbers of vertices, and places of vertices over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from emul.record.journal import RecordError
from emul.record.side_tables import CONTACT_COLUMNS, CONTACTS, GLOBE, PLANE, POSITIONS
from emul.record.tables import read_table
from emul.report.data import RunData


def contacts_of(run: RunData) -> pd.DataFrame | None:
    """u, v (vertices), from_ns, to_ns (at most the end of the run) of the contacts, in the order of time; None: no link
    has any. Raises RecordError."""
    file = run.path / CONTACTS
    if not file.exists():
        return None
    table = read_table(file, CONTACT_COLUMNS).to_pandas()
    until = table["end_ns"].astype("Float64").fillna(float(run.end_ns)).clip(upper=run.end_ns)
    found = pd.DataFrame({
        "u": _numbers(run, table["source"], CONTACTS), "v": _numbers(run, table["destination"], CONTACTS),
        "from_ns": table["begin_ns"].astype("int64"), "to_ns": until.astype("int64")})
    return found[found["to_ns"] > found["from_ns"]].sort_values(["from_ns", "u", "v"], ignore_index=True)


@dataclass(frozen=True)
class Whereabouts:
    """The places of vertices over time: `rows` has vertex, t_ns, x, y; x to the right, y upwards. globe: degrees of
    longitude and latitude, in place of metres."""

    rows: pd.DataFrame
    globe: bool


def places_of(run: RunData) -> Whereabouts | None:
    """The places of `positions.parquet`, by vertex and time; None: the run left none. Raises RecordError."""
    file = run.path / POSITIONS
    if not file.exists():
        return None
    table = read_table(file, ["t_s", "vertex"], [*GLOBE, *PLANE]).to_pandas()
    globe = set(GLOBE) <= set(table)
    if not set(GLOBE if globe else PLANE) <= set(table):
        raise RecordError(f"{file}: expected the columns t_s, vertex, and {', '.join(PLANE)} or {', '.join(GLOBE)}")
    x, y = (table["lon"], table["lat"]) if globe else (table["x"], table["y"])
    found = pd.DataFrame({
        "vertex": _numbers(run, table["vertex"], POSITIONS), "t_ns": (table["t_s"] * 1e9).round().astype("int64"),
        "x": x.astype(float), "y": y.astype(float)})
    return Whereabouts(found.sort_values(["vertex", "t_ns"], kind="stable", ignore_index=True), globe)


def _numbers(run: RunData, names: pd.Series, file: str) -> np.ndarray:
    """Names of vertices as numbers. Raises RecordError: one that the run has not."""
    number = pd.Series({name: v for v, name in enumerate(run.vertices)}, dtype="int64")
    found = names.map(number)
    if found.isna().any():
        raise RecordError(f"{run.path / file}: the run has no vertex {names[found.isna()].iloc[0]}")
    return found.to_numpy(np.int64)
