"""The cost of accuracy: schemes by accuracy, virtual time, bytes and joules, and which of them no other one beats.

A point is a scheme (of a sweep: with its values of the grid), the mean over its seeds; lines reach from the least to
the largest. A scheme is on a front if no other one is at least as good in both and better in one (Pareto). Where runs
end as soon as they have an accuracy, costs are compared among those that got there on every seed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from emul.base.units import duration_ns
from emul.record.marks import in_words
from emul.report import grid, labels, palette
from emul.report.drawing import Figure, columns, named, slug, whole
from emul.report.page import Part
from emul.report.study import StudyMember, StudyRuns

COSTS = {"virtual_s": "virtual seconds", "mb": "MB", "joules": "joules, idling left out"}
_SHAPES = ["circle", "square", "diamond", "triangle-up", "cross", "triangle-down"]


def measured(found: StudyRuns) -> pd.DataFrame:
    """One row a run: series, seed, kind (of accuracy), accuracy, virtual_s, mb, joules (of computing, sending and
    receiving; NaN: no devices), reached (whether it has the accuracy at which runs stop; True where there is none)."""
    titles, varied = grid.titles_of(found), grid.varied_of(found.members)
    rows = []
    for member in found.members:
        values, s, target = grid.label_of(member.values, varied, titles), member.summary, member.stop.get("accuracy")
        energy, accuracy = s.get("energy"), s["accuracy"]
        rows.append({
            "series": f"{member.series}, {values}" if values else member.series, "seed": member.seed,
            "kind": in_words(s.get("accuracy_of")), "accuracy": accuracy, "virtual_s": s["virtual_seconds"],
            "mb": s["bytes_total"] / 1e6,
            "joules": float("nan") if energy is None else float(energy["joules"] - energy["idle_j"]),
            "reached": target is None or (accuracy is not None and accuracy >= float(target))})
    return pd.DataFrame(rows)


def summarised(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a series: `kind`, `seeds`, `reached` (of them), and the mean, `_low`, `_high` of accuracy and each cost.
    """
    names = ["accuracy", *COSTS]
    grouped = runs.groupby("series", sort=False)
    parts = [grouped[names].mean(), grouped[names].min().add_suffix("_low"), grouped[names].max().add_suffix("_high")]
    counts = [grouped["kind"].first(), grouped["seed"].size().rename("seeds"), grouped["reached"].sum().astype(int)]
    return pd.concat([*counts, *parts], axis=1).reset_index()


def on_front(values: np.ndarray) -> np.ndarray:
    """(n,) whether no other row of (n, k), less being better, is at most as large everywhere and smaller somewhere.

    >>> on_front(np.array([[1, 3], [2, 2], [2, 3], [3, 1]])).tolist()
    [True, True, False, True]
    """
    at_most = np.all(values[None] <= values[:, None], axis=2)       # [i, j]: j is nowhere worse than i
    better = np.any(values[None] < values[:, None], axis=2)
    return np.asarray(~np.any(at_most & better, axis=1))


def trade_offs(found: StudyRuns) -> Part | None:
    """The part of a report; None where no two schemes have an accuracy of one kind."""
    runs, targets = measured(found), {m.stop.get("accuracy") for m in found.members}
    same = targets.pop() if len(targets) == 1 else None
    target = None if same is None else float(same)          # the accuracy at which all runs stop
    table = told = summarised(runs).dropna(subset=["accuracy"])
    if not told["kind"].duplicated().any():
        return None
    if target is not None:              # by how much the last round overshoots is no merit of a scheme
        table = summarised(runs.assign(accuracy=runs["accuracy"].astype(float).clip(upper=target))).loc[told.index]
    costs = [name for name in COSTS if table[name].notna().all() and table[name].any()]
    if "virtual_s" in costs and all(_ended_by_time(m) for m in found.members):
        costs.remove("virtual_s")       # it is what they were given, and no cost
    if not costs:
        return None
    series, kinds = table["series"].tolist(), list(dict.fromkeys(table["kind"]))
    table = pd.concat([mine.assign(front=on_front(np.column_stack([-mine["accuracy"], *(mine[c] for c in costs)])))
                       for _, mine in table.groupby("kind", sort=False)]).loc[table.index]
    equal, drawn = table[table["reached"] == table["seeds"]], list[Figure]()
    for kind, mine in table.groupby("kind", sort=False):
        there = equal[equal["kind"] == kind]
        figures = []
        if len(mine) >= 2 and (target is None or len(there) < len(mine)):
            figures = [front_figure(mine, name, "accuracy", series) for name in costs]
        if target is not None and len(there) >= 2:
            figures += [front_figure(there, x, y, series) for x, y in combinations(costs, 2)]
        drawn += figures if len(kinds) == 1 else [
            replace(f, key=f"{slug(str(kind))}-{f.key}", title=f"{f.title} ({kind} accuracy)") for f in figures]
    return Part("tradeoffs", "The costs of accuracy", drawn, text=_text(table, equal, target, "joules" in costs),
                tables=[("Means over the seeds; on the front: no other scheme beats it in all of these at once",
                         _shown(table.assign(accuracy=told["accuracy"]), costs, target is not None))])


def _ended_by_time(member: StudyMember) -> bool:
    """True if the virtual time of its scenario ended the run."""
    limit = member.stop.get("virtual_time")
    return limit is not None and member.summary["virtual_seconds"] >= duration_ns(limit) / 1e9


def _text(table: pd.DataFrame, equal: pd.DataFrame, target: float | None, joules: bool) -> str:
    text = ("A point is a scheme, the mean over its seeds, with lines from the least to the largest. Filled points, "
            "joined by the stepped line, are on the front: a scheme is on it if no other scheme is better in one "
            "measure and at least as good in the other.")
    if table["kind"].nunique() > 1:
        text += " Only schemes whose accuracies are of one kind are compared: two kinds are different measures."
    if joules:
        text += " Joules are those of computing, sending and receiving, of all nodes; idling is left out."
    if target is not None:
        missing = table.loc[~table["series"].isin(equal["series"]), "series"].tolist()
        text += (f" Runs end when they have an accuracy of {target:g}, so their costs are those of reaching it. "
                 "Accuracy above it counts as that.")
        text += (f" {', '.join(missing)} did not reach it on every seed, so costs alone cannot be compared."
                 if missing else "")
    return text


def front_figure(table: pd.DataFrame, x: str, y: str, series: list[str]) -> Figure:
    """One value against another, each scheme a point; `y` may be the accuracy, of which more is better. series: all
    that have a colour, so that a scheme has the same one in every figure."""
    frame = table.assign(front=on_front(np.column_stack([table[x], -table[y] if y == "accuracy" else table[y]])))
    wide, high = _Span.of(x, frame, 0.05), _Span.of(y, frame, 0.1)       # room for a name below the lowest
    frame = _apart(frame, wide, high)
    best = frame[frame["front"]].sort_values(x)
    across, up = wide.encoded(alt.X), high.encoded(alt.Y)
    colour, shape = scheme_marks(series, frame["series"].tolist())
    told: Any = [alt.Tooltip("series:N", title="scheme"), "seeds:Q", "front:N",
                 *(alt.Tooltip(f"{name}:Q", title=_TITLES[name], format=",.4~g") for name in (x, y))]
    schemes = named("schemes").encode(color=colour, tooltip=told)
    line = schemes.mark_rule(strokeWidth=1, opacity=0.5)
    spans = (line.encode(x=wide.encoded(alt.X, "_low"), x2=f"{x}_high:Q", y=up)
             + line.encode(x=across, y=high.encoded(alt.Y, "_low"), y2=f"{y}_high:Q"))
    points = schemes.mark_point(strokeWidth=2, opacity=1).encode(
        x=across, y=up, shape=shape, size=alt.Size("size:Q", scale=None, legend=None),
        fill=alt.condition("datum.front", colour, alt.value("$card")))
    front = named("front").encode(x=across, y=up)
    step = front.mark_line(interpolate="step-after", color="$muted", strokeWidth=1.4, strokeDash=[5, 3])
    names, unnamed = _names(frame, wide, high)
    beside = named("names").encode(x=across, y=up).transform_filter("datum.from <= width && width < datum.to")
    # a layer without a mark would have no extent, of which Vega warns
    leads = [beside.transform_filter("datum.led").mark_rule(
        color="$muted", strokeWidth=1, x2Offset=alt.expr("datum.dx < 0 ? datum.dx + 3 : datum.dx - 3"),
        y2Offset=alt.expr("datum.dy")).encode(x2=f"{x}:Q", y2=f"{y}:Q")] if names["led"].any() else []
    texts = [beside.mark_text(align=alt.expr("datum.dx < 0 ? 'right' : 'left'"), dx=alt.expr("datum.dx"),
                              dy=alt.expr("datum.dy"), fontSize=11, limit=labels.LIMIT).encode(text="label:N")]
    said = "; ".join(f"{row['series']}: {row[x]:.4g} {_unit(x)}, {row[y]:.4g} {_unit(y)}" for _, row in best.iterrows())
    wanted = ["series", "seeds", *(f"{name}{end}" for name in (x, y) for end in ("", "_low", "_high")), "front"]
    title = f"{_unit(y)} against {_unit(x)}"
    return Figure(f"front-{x}-{y}".replace("_", "-"), title[:1].upper() + title[1:],        # MB stays MB
                  "To the left is cheaper, " + ("above is better." if y == "accuracy" else "below is cheaper.")
                  + (" Rings around a point are schemes at the same place." if (frame["size"] > _SIZE).any() else "")
                  + (f" In a narrow figure there is no room for names beside all points; on the front are also "
                     f"{', '.join(unnamed)}." if unnamed else ""),
                  f"Points of {len(frame)} schemes. On the front: {said}.",
                  whole(alt.layer(step, spans, *leads, points, *texts), height=labels.HEIGHT),
                  {"schemes": frame[[*wanted, "size"]], "front": best[["series", "label", x, y]], "names": names},
                  frame[wanted].sort_values(x),
                  least_width=340)


def _apart(frame: pd.DataFrame, x: _Span, y: _Span) -> pd.DataFrame:
    """With `size` and `label` of the points: of those at one place each is a ring around the next, the largest first,
    and the first of them that is on the front has the names of all that are."""
    points = _points(frame, x, y)
    first = [int(np.flatnonzero(np.all(np.abs(points - place) < _CLOSE, axis=1))[0]) for place in points]
    behind = [first[i + 1:].count(mine) for i, mine in enumerate(first)]
    names: dict[int, list[str]] = {}
    for mine, name, front in zip(first, frame["series"], frame["front"], strict=True):
        if front:
            names.setdefault(mine, []).append(name)
    label = [", ".join(names.pop(mine)) if front and mine in names else ""
             for mine, front in zip(first, frame["front"], strict=True)]
    return frame.assign(size=[_SIZE * (1 + 0.7 * n) ** 2 for n in behind], label=label).sort_values(
        "size", ascending=False, kind="stable")


def _points(frame: pd.DataFrame, x: _Span, y: _Span) -> np.ndarray:
    """(n, 2) shares of the width and of the height, from the left and from below."""
    return np.column_stack([span.shares(frame[span.name].to_numpy(float)) for span in (x, y)])


def _names(frame: pd.DataFrame, x: _Span, y: _Span) -> tuple[pd.DataFrame, list[str]]:
    """The places of labels in plots of `from` to `to` px: `dx` and `dy` px from their points, `led`: a line leads
    there. Then the names for which there is no room in some plots."""
    # the stepped line leaves a point to the right and goes up (accuracy) or down (a cost): a name stands on the other
    # side of it, if it can, and runs towards the middle
    below = y.name == "accuracy"
    marks = [labels.NamedPoint((at, 1 - high), 0.6 * size**0.5 + 1, _short(label), at <= 0.5, below == (at <= 0.5))
             for (at, high), size, label in zip(_points(frame, x, y).tolist(), frame["size"], frame["label"],
                                                strict=True)]
    rows, unnamed = [], {label: None for label in frame["label"] if _short(label) != label}
    for sizes in labels.RANGES:
        for place, mark, row in zip(labels.placed(marks, sizes), marks, frame.to_dict("records"), strict=True):
            if place is not None:
                rows.append({"label": mark.name, x.name: row[x.name], y.name: row[y.name], "dx": place.dx,
                             "dy": place.dy, "led": place.led, "from": sizes.widths[0], "to": sizes.widths[1]})
            elif mark.name:
                unnamed[row["label"]] = None
    found = pd.DataFrame(rows, columns=["label", x.name, y.name, "dx", "dy", "led", "from", "to"])
    found.loc[found["from"] == labels.RANGES[0].widths[0], "from"] = 0.0            # for whatever there is besides
    found.loc[found["to"] == labels.RANGES[-1].widths[1], "to"] = 1e9
    return found, list(unnamed)


def _short(label: str) -> str:
    """A label that fits: where names are many, the first and how many more."""
    first, *more = label.split(", ")
    return label if len(label) <= _LETTERS or not more else f"{first} and {len(more)} more"


@dataclass(frozen=True)
class _Span:
    """The part of an axis that a figure shows, logarithmic where costs differ much."""

    name: str
    low: float
    high: float
    log: bool

    @classmethod
    def of(cls, name: str, frame: pd.DataFrame, more: float) -> _Span:
        """All that is drawn, and at each end a share `more` of that beside it."""
        means = frame[name]
        log = bool(name != "accuracy" and means.min() > 0 and means.max() / means.min() > 8)
        drawn = frame[[name, f"{name}_low", f"{name}_high"]].to_numpy(float).ravel()
        drawn = np.log(drawn[drawn > 0]) if log else drawn
        low, high = float(drawn.min()), float(drawn.max())
        beside = more * (high - low) or more * abs(high) or 1.0
        low, high = low - beside, high + beside
        return cls(name, math.exp(low), math.exp(high), True) if log else cls(name, low, high, False)

    def shares(self, values: np.ndarray) -> np.ndarray:
        """The places of values along the axis, 0 to 1."""
        low, high, at = (np.log(one) if self.log else np.asarray(one) for one in (self.low, self.high, values))
        return np.asarray((at - low) / (high - low))

    def encoded(self, channel: Any, end: str = "") -> Any:
        """The values on the axis, or with `end` those of their ends."""
        domain = [self.low, self.high]
        scale = (alt.Scale(type="log", domain=domain, nice=False) if self.log else
                 alt.Scale(domain=domain, nice=False, zero=False))
        return channel(f"{self.name}{end}:Q", title=_TITLES[self.name], scale=scale,
                       axis=alt.Axis(tickCount=6, labelBound=True))     # no number goes out at the right


_SIZE = 90              # of a point, in square pixels
_LETTERS = 24           # of a label at most, but for one name
_CLOSE = 0.02           # of an axis: points that are no farther apart hide one another
_TITLES = {"accuracy": "accuracy", **COSTS}


def _unit(name: str) -> str:
    return _TITLES[name].partition(",")[0]


def scheme_marks(series: list[str], shown: list[str]) -> tuple[alt.Color, alt.Shape]:
    """Colours and shapes of all series; the legend has those shown."""
    legend = alt.Legend(columns=columns(series), symbolOpacity=1, symbolStrokeWidth=0, values=shown)
    shapes = [_SHAPES[i // palette.SERIES % len(_SHAPES)] for i in range(len(series))]
    return (alt.Color("series:N", title=None, legend=legend,
                      scale=alt.Scale(domain=series, range=palette.series(len(series)))),
            alt.Shape("series:N", title=None, legend=legend, scale=alt.Scale(domain=series, range=shapes)))


def _shown(table: pd.DataFrame, costs: list[str], target: bool) -> pd.DataFrame:
    found = table[["series", "seeds", *(["reached"] if target else []), "accuracy", *costs, "front"]].round(
        {"accuracy": 4, "virtual_s": 2, "mb": 3, "joules": 1}).sort_values(costs[0])
    return found.rename(columns={"series": "scheme", **COSTS, "front": "on the front"})
