"""The samples that each node of a run held, by class: what a partition made of the data."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd

from emul.record.side_tables import SAMPLE_COLUMNS, SAMPLES
from emul.record.tables import read_table
from emul.report.data import RunData
from emul.report.drawing import Figure, named, whole

_NODES, _CLASSES = 40, 60       # rows and columns that the figure shows, at most
_ROW = 18                       # pixels a row


def samples(run: RunData) -> pd.DataFrame:
    """`samples.parquet` of the run: node, name, class, samples; empty where it has none. Raises RecordError."""
    file = run.path / SAMPLES
    if not file.is_file():
        return pd.DataFrame(columns=list(SAMPLE_COLUMNS))
    found: pd.DataFrame = read_table(file, SAMPLE_COLUMNS).to_pandas()
    return found


def samples_by_class(found: pd.DataFrame) -> Figure:
    """The matrix from nodes to classes; a bar a node where targets are no labels."""
    held = found.groupby(["node", "name"], sort=True)["samples"].sum().reset_index()
    shown = held.iloc[np.unique(np.linspace(0, len(held) - 1, min(len(held), _NODES)).round().astype(int))]
    frame = found[found["node"].isin(shown["node"])]
    labelled = found["class"].notna().all()
    classes = found.groupby("class")["samples"].sum().nlargest(_CLASSES).index.sort_values() if labelled else []
    label = {row.node: f"{row.name} ({row.samples:,})" for row in shown.itertuples(index=False)}
    y = alt.Y("holder:N", title=None, sort=list(label.values()), axis=alt.Axis(labelLimit=220))
    told = ["name:N", *(["class:O"] if labelled else []), alt.Tooltip("samples:Q", format=",")]
    if labelled:
        frame = frame[frame["class"].isin(classes)].astype({"class": int})
        chart = named("samples").mark_rect(stroke="$card", strokeWidth=1).encode(
            x=alt.X("class:O", title="class", axis=alt.Axis(labelAngle=0, labelOverlap=True)), y=y, tooltip=told,
            color=alt.Color("samples:Q", title="samples", scale=alt.Scale(
                domain=[0, int(frame["samples"].max())], range=["$line", "$s1"]),
                legend=alt.Legend(gradientLength=120, tickCount=2, format=",d")))
        table = found.pivot(index=["node", "name"], columns="class", values="samples").fillna(0).astype(int)
        table = table.rename(columns=lambda c: f"class {c}").reset_index().merge(held.rename(
            columns={"samples": "all"}), on=["node", "name"])
    else:
        chart = named("samples").mark_bar(color="$s1").encode(y=y, x=alt.X("samples:Q", title="samples"), tooltip=told)
        table = held
    cut = "" if len(shown) == len(held) else f" {len(shown)} of {len(held):,} nodes, evenly chosen."
    if labelled and len(classes) < found["class"].nunique():
        cut += f" The {_CLASSES} classes with the most samples, of {found['class'].nunique():,}."
    each = found.groupby("node")["class"].nunique()
    per_node = f" A node has {_range(each)} of {found['class'].nunique()} classes." if labelled else ""
    return Figure("samples", "Training samples of each node" + (", by class" if labelled else ""),
                  "As the scenario's partition gives them; a Flower app with data of its own has others. " + (
                   "A row is a node, with the number of its samples in brackets; a column is a class. The "
                   "stronger a colour, the more samples; no field: none." if labelled else "A bar is a node.") + cut,
                  f"{len(held):,} nodes hold {_range(held['samples'])} training samples.{per_node}",
                  whole(chart, height=_ROW * max(3, len(shown))),
                  {"samples": frame.assign(holder=frame["node"].map(label)).drop(columns=["node"])}, table,
                  least_width=320)


def _range(values: pd.Series) -> str:
    """The least and the largest value.

    >>> _range(pd.Series([150, 1200])), _range(pd.Series([3, 3]))
    ('150 to 1,200', '3')
    """
    least, most = int(values.min()), int(values.max())
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
