"""What accuracy costs: schemes by accuracy, virtual time, bytes and joules, and which of them no other one beats.

A point is a scheme (of a sweep: with its values of the grid), the mean over its seeds; lines reach from the least to
the largest. A scheme is on a front if no other one is at least as good in both and better in one (Pareto). Where runs
end as soon as they have an accuracy, costs are compared among those that got there on every seed.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from emul.record.report import palette
from emul.record.report.drawing import Figure, named, whole
from emul.record.report.page import Part
from emul.record.report.study import Member, Study

COSTS = {"virtual_s": "virtual seconds", "mb": "MB", "joules": "joules, idling left out"}
_SHAPES = ["circle", "square", "diamond", "triangle-up", "cross", "triangle-down"]


def measured(found: Study) -> pd.DataFrame:
    """One row a run: series, seed, accuracy, virtual_s, mb, joules (of computing, sending and receiving; NaN: no
    devices), reached (whether it has the accuracy at which runs stop; True where there is none)."""
    return pd.DataFrame([{"series": _series(m), "seed": m.seed, "accuracy": m.summary["accuracy"],
                          "virtual_s": m.summary["virtual_seconds"], "mb": m.summary["bytes_total"] / 1e6,
                          "joules": _joules(m.summary), "reached": _reached(m)} for m in found.members])


def _series(member: Member) -> str:
    return ", ".join([member.series, *(f"{name} = {value}" for name, value in member.values.items())])


def _joules(summary: dict[str, Any]) -> float:
    energy = summary.get("energy")
    return float("nan") if energy is None else float(energy["joules"] - energy["idle_j"])


def _reached(member: Member) -> bool:
    target = member.stop.get("accuracy")
    return target is None or (member.summary["accuracy"] or 0.0) >= float(target)


def summarised(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a series: `seeds`, `reached` (of them), and the mean, `_low` and `_high` of accuracy and each cost."""
    names = ["accuracy", *COSTS]
    grouped = runs.groupby("series", sort=False)
    parts = [grouped[names].mean(), grouped[names].min().add_suffix("_low"), grouped[names].max().add_suffix("_high")]
    return pd.concat([grouped["seed"].size().rename("seeds"), grouped["reached"].sum().astype(int), *parts],
                     axis=1).reset_index()


def on_front(values: np.ndarray) -> np.ndarray:
    """(n,) whether no other row of (n, k), less being better, is at most as large everywhere and smaller somewhere.

    >>> on_front(np.array([[1, 3], [2, 2], [2, 3], [3, 1]])).tolist()
    [True, True, False, True]
    """
    at_most = np.all(values[None] <= values[:, None], axis=2)       # [i, j]: j is nowhere worse than i
    better = np.any(values[None] < values[:, None], axis=2)
    return np.asarray(~np.any(at_most & better, axis=1))


def trade_offs(found: Study) -> Part | None:
    """The part of a report; None where fewer than two schemes have an accuracy."""
    table = summarised(measured(found)).dropna(subset=["accuracy"])
    if len(table) < 2:
        return None
    costs = [name for name in COSTS if table[name].notna().all()]
    table = table.assign(front=on_front(np.column_stack([-table["accuracy"], *(table[name] for name in costs)])))
    series = table["series"].tolist()
    drawn = [front_figure(table, name, "accuracy", series) for name in costs]
    equal = table[table["reached"] == table["seeds"]]
    target = _target(found)
    if target is not None and len(equal) >= 2:
        drawn += [front_figure(equal, x, y, series) for x, y in combinations(costs, 2)]
    return Part("tradeoffs", "What accuracy costs", drawn, text=_text(table, equal, target, len(costs)),
                tables=[("Means over the seeds, and whether no other scheme beats it in all of these at once",
                         _shown(table, costs))])


def _target(found: Study) -> float | None:
    """The accuracy at which all runs stop; None: not all do, or at different ones."""
    targets = {m.stop.get("accuracy") for m in found.members}
    target = targets.pop() if len(targets) == 1 else None
    return None if target is None else float(target)


def _text(table: pd.DataFrame, equal: pd.DataFrame, target: float | None, costs: int) -> str:
    text = ("A point is a scheme, the mean over its seeds, with lines from the least to the largest. Filled points, "
            "joined by the stepped line, are on the front: no other scheme is as good in both and better in one.")
    if costs == len(COSTS):
        text += " Joules are those of computing, sending and receiving, of all nodes; idling is left out."
    if target is not None:
        missing = table.loc[~table["series"].isin(equal["series"]), "series"].tolist()
        text += f" Runs end when they have an accuracy of {target:g}, so their costs are those of getting there."
        text += f" {', '.join(missing)} did not on every seed: costs alone cannot be compared." if missing else ""
    return text


def front_figure(table: pd.DataFrame, x: str, y: str, series: list[str]) -> Figure:
    """One value against another, each scheme a point; `y` may be the accuracy, of which more is better. series: all
    that have a colour, so that a scheme has the same one in every figure."""
    frame = table.assign(front=on_front(np.column_stack([table[x], -table[y] if y == "accuracy" else table[y]])))
    best = frame[frame["front"]].sort_values(x)
    across, up = _axis(alt.X, x, frame[x]), _axis(alt.Y, y, frame[y])
    colour, shape = _marks(series, frame["series"].tolist())
    told: Any = [alt.Tooltip("series:N", title="scheme"), "seeds:Q", "front:N",
                 *(alt.Tooltip(f"{name}:Q", title=_TITLES[name], format=",.4~g") for name in (x, y))]
    schemes = named("schemes").encode(color=colour, tooltip=told)
    line = schemes.mark_rule(strokeWidth=1, opacity=0.5)
    spans = (line.encode(x=_axis(alt.X, x, frame[x], "_low"), x2=f"{x}_high:Q", y=up)
             + line.encode(x=across, y=_axis(alt.Y, y, frame[y], "_low"), y2=f"{y}_high:Q"))
    points = schemes.mark_point(size=90, strokeWidth=2, opacity=1).encode(
        x=across, y=up, shape=shape, fill=alt.condition("datum.front", colour, alt.value("$card")))
    front = named("front").encode(x=across, y=up)
    step = front.mark_line(interpolate="step-after", color="$muted", strokeWidth=1.4, strokeDash=[5, 3])
    names = front.mark_text(align="left", dx=8, dy=-9, fontSize=11).encode(text="series:N")
    said = "; ".join(f"{row['series']}: {row[x]:.4g} {_unit(x)}, {row[y]:.4g} {_unit(y)}" for _, row in best.iterrows())
    columns = ["series", "seeds", *(f"{name}{end}" for name in (x, y) for end in ("", "_low", "_high")), "front"]
    return Figure(f"front-{x}-{y}".replace("_", "-"), f"{_unit(y).capitalize()} against {_unit(x)}",
                  "To the left is cheaper, " + ("above is better." if y == "accuracy" else "below is cheaper."),
                  f"Points of {len(frame)} schemes. On the front: {said}.",
                  whole(step + spans + points + names, height=300),
                  {"schemes": frame[columns], "front": best[["series", x, y]]}, frame[columns].sort_values(x),
                  least_width=340)


_TITLES = {"accuracy": "accuracy", **COSTS}


def _unit(name: str) -> str:
    return _TITLES[name].partition(",")[0]


def _axis(channel: Any, name: str, values: pd.Series[float], end: str = "") -> Any:
    """Of a value, logarithmic where costs differ much."""
    log = name != "accuracy" and values.min() > 0 and values.max() / values.min() > 8
    return channel(f"{name}{end}:Q", title=_TITLES[name], axis=alt.Axis(tickCount=6),
                   scale=alt.Scale(zero=False, padding=14, type="log" if log else "linear"))


def _marks(series: list[str], shown: list[str]) -> tuple[alt.Color, alt.Shape]:
    """Colours and shapes of all series; the legend has those shown."""
    legend = alt.Legend(columns=3, symbolOpacity=1, symbolStrokeWidth=0, values=shown)
    shapes = [_SHAPES[i // palette.SERIES % len(_SHAPES)] for i in range(len(series))]
    return (alt.Color("series:N", title=None, legend=legend,
                      scale=alt.Scale(domain=series, range=palette.series(len(series)))),
            alt.Shape("series:N", title=None, legend=legend, scale=alt.Scale(domain=series, range=shapes)))


def _shown(table: pd.DataFrame, costs: list[str]) -> pd.DataFrame:
    found = table[["series", "seeds", "reached", "accuracy", *costs, "front"]].round(
        {"accuracy": 4, "virtual_s": 2, "mb": 3, "joules": 1})
    return found.rename(columns={"series": "scheme", "front": "on the front"}).sort_values("virtual_s")
