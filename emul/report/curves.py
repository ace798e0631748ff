"""Learning curves: what was observed against time, bytes and rounds, with the spread over seeds.

All of them are steps: between two observations a model is as good as it was at the last one.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from emul.base.extras import optional
from emul.report import palette
from emul.report.drawing import Figure, around, columns, named, round_axis, whole
from emul.report.study import Target

FEWEST = 3              # seeds, for an interval
LEVEL = 0.95
_POINTS = 400           # of a curve, at most
_MARKED = 60            # points of a curve, at most, that are drawn as points
_DASHES = [[1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [4, 4]]
_STEPS: Any = "step-after"
_AXES = {"virtual_s": ("time", "virtual seconds"), "mb": ("mb", "MB sent"), "round": ("round", "round")}


def learning(curves: pd.DataFrame, single: bool = False, target: Target | None = None, of: str = "") -> list[Figure]:
    """Accuracy against virtual time, bytes and rounds, and loss against time, as far as `curves` has them.

    of: what the accuracy is of, in words; "": the series say it themselves, or nobody knows.
    curves: series, seed, round, virtual_s, perhaps mb, and accuracy, loss where they were observed.
    """
    wanted = [("accuracy", x) for x in _AXES] + [("loss", "virtual_s")]
    return [_curve(curves, y, x, single, target if y == "accuracy" else None, of if y == "accuracy" else "")
            for y, x in wanted
            if x in curves and y in curves and curves[y].notna().any()]


def _curve(curves: pd.DataFrame, y: str, x: str, single: bool, target: Target | None, of: str) -> Figure:
    short, x_title = _AXES[x]
    wanted = ["series", "seed", *(c for c in dict.fromkeys([x, "round", "virtual_s", "mb"]) if c in curves), y]
    known = curves.dropna(subset=[y])[wanted].sort_values(["series", "seed", x], ignore_index=True)
    series = [name for name in dict.fromkeys(curves["series"]) if name in set(known["series"])]
    spread = spread_of(known, x, y)
    ends = [*known[y], *spread["from"], *spread["to"], *([] if target is None else target.accuracies)]
    scale = around(ends)
    if y == "accuracy" and len(spread):     # an interval by Student's t knows no bounds, an accuracy has two
        low, high = spread["from"].min() < 0, spread["to"].max() > 1
        if low or high:
            scale = alt.Scale(zero=False, clamp=True, domainMin=0 if low else alt.Undefined,
                              domainMax=1 if high else alt.Undefined)
    drawn = _Drawn(x, y, f"{of} {y}".lstrip(), series, scale, legend=not single and len(series) > 1,
                   last=int(known[x].max()) if x == "round" else 0)
    lines = pd.concat([_thinned(part) for _, part in known.groupby(["series", "seed"], sort=False, dropna=False)])
    frames = {"lines": lines}
    if len(spread):
        frames["spread"] = spread
        chart = drawn.spread()
    else:
        frames["points"] = lines if lines.groupby("series").size().max() <= _MARKED else lines.groupby("series").tail(1)
        chart = drawn.single()
    text = _TEXTS[x].format(y.capitalize())
    if len(spread):
        text += (" Thick line: the mean over the seeds, up to where every seed has values. Thin lines: single seeds. "
                 + _BANDS[int((spread[["from", "to"]].to_numpy() != spread[["low", "high"]].to_numpy()).any())])
    if target is not None:
        frames["target"] = pd.DataFrame({"target": target.accuracies})
        chart = drawn.across() + chart
        text += f" Dashed across: the target, {' and '.join(f'{value:.3g}' for value in target.accuracies)}"
        if len(reached := _reached(target, x, series)):
            frames["reached"] = reached
            chart += drawn.reached()
            text += "; a diamond marks the mean over the seeds that reached it"
        text += "."
    return Figure(f"{y}-{short}", f"{y.capitalize()} against {x_title}", text,
                  f"Line chart of {y} against {x_title}. {_ends(known, spread, y)}.", whole(chart, height=230), frames,
                  known, elastic=True)


_BANDS = ["Band: from the least to the largest seed, which is no interval of the mean.",
          f"Band: the {LEVEL:.0%} interval of the mean by Student's t; least to largest below {FEWEST} seeds."]
_TEXTS = {"virtual_s": "{} of the model after each round, when the last deciding node had left it.",
          "mb": "{} of the model after each round, against the bytes sent until then, on all links (1 MB = 10⁶ B).",
          "round": "{} of the model after each round."}


def _ends(known: pd.DataFrame, spread: pd.DataFrame, y: str) -> str:
    if len(spread):
        return "; ".join(f"{name}: mean {part['mean'].iloc[-1]:.3f} at the end of the common range"
                         for name, part in spread.groupby("series", sort=False))
    return "; ".join(f"{row['series']} ends at {row[y]:.3f}"
                     for _, row in known.groupby("series", sort=False).tail(1).iterrows())


def _reached(target: Target, x: str, series: list[str]) -> pd.DataFrame:
    """The positions of the diamonds; none on an axis of rounds."""
    found = target.reached[target.reached["series"].isin(series)]
    if x not in found:
        return found.iloc[:0]
    return found.dropna(subset=[x]).assign(x=lambda f: f[x])


class _Drawn:
    """The layers of one figure, which share axes and colours."""

    def __init__(self, x: str, y: str, title: str, series: list[str], scale: alt.Scale, legend: bool,
                 last: int):
        self._x, self._y, self._title, self._scale = x, y, title, scale
        self._axis = alt.X(f"{x}:Q", title=_AXES[x][1], axis=round_axis(0, last) if x == "round" else alt.Axis())
        shown = alt.Legend(columns=columns(series), labelLimit=300, symbolOpacity=1, symbolType="stroke",
                           symbolStrokeWidth=2.4) if legend else None
        self._colour = alt.Color("series:N", title=None, legend=shown, scale=alt.Scale(
            domain=series, range=palette.series(len(series))))
        self._dash = alt.StrokeDash("series:N", title=None, legend=shown, scale=alt.Scale(
            domain=series, range=[_DASHES[i % len(_DASHES)] for i in range(len(series))]))

    def _observed(self, data: str) -> alt.Chart:
        told: list[Any] = [alt.Tooltip("series:N", title="run"), "seed:N", alt.Tooltip("round:Q"),
                alt.Tooltip("virtual_s:Q", title="virtual s", format=".3f"),
                alt.Tooltip("mb:Q", title="MB", format=",.2f"), alt.Tooltip(f"{self._y}:Q", format=".4f")]
        return named(data).encode(x=self._axis, y=alt.Y(f"{self._y}:Q", title=self._title, scale=self._scale),
                                  color=self._colour, detail="seed:N", tooltip=told)

    def spread(self) -> Any:
        """Band and mean over the seeds, and each of them."""
        over = named("spread").encode(x=self._axis, color=self._colour)
        band = over.mark_area(opacity=0.18, interpolate=_STEPS).encode(
            y=alt.Y("from:Q", title=self._title), y2="to:Q")
        return (band + self._observed("lines").mark_line(strokeWidth=0.8, opacity=0.4, interpolate=_STEPS)
                + over.mark_line(strokeWidth=2.4, interpolate=_STEPS).encode(y="mean:Q", strokeDash=self._dash))

    def single(self) -> Any:
        """A line a run, with its observations as points."""
        line = self._observed("lines").mark_line(strokeWidth=2.2, interpolate=_STEPS).encode(strokeDash=self._dash)
        return line + self._observed("points").mark_point(filled=True, size=22, opacity=1)

    def across(self) -> Any:
        """The target as a dashed line."""
        return named("target").mark_rule(strokeDash=[5, 4], color="$muted").encode(y="target:Q")

    def reached(self) -> Any:
        """A diamond a series, where its seeds reached the target on the mean."""
        told = [alt.Tooltip("series:N", title="run"),
                alt.Tooltip("x:Q", title=f"mean {_AXES[self._x][1]}", format=",.4f"),
                alt.Tooltip("seeds:Q", title="seeds that reached it"), alt.Tooltip("of:Q", title="of")]
        return named("reached").mark_point(
            filled=True, size=110, opacity=1, shape="diamond", stroke="$page", strokeWidth=1).encode(
            x=alt.X("x:Q", title=_AXES[self._x][1]), y="target:Q", color=self._colour, tooltip=told)


def _thinned(part: pd.DataFrame) -> pd.DataFrame:
    if len(part) <= _POINTS:
        return part
    return part.iloc[np.unique(np.linspace(0, len(part) - 1, _POINTS).round().astype(int))]


def spread_of(known: pd.DataFrame, x: str, y: str, points: int = _POINTS) -> pd.DataFrame:
    """series, x, mean, low, high over seeds, where every seed has a value; only of series with several seeds. from, to:
    of the band, the interval of the mean, or the same as low and high where there is none.

    Between two observations a seed keeps the last one: a model is as good as when it was last made. A row stands
    wherever a seed has an observation; of more than `points` such places some, evenly chosen.
    """
    found = []
    for name, part in known.groupby("series", sort=False):
        seeds = [one for _, one in part.groupby("seed")]
        if len(seeds) < 2:
            continue
        begin, end = max(s[x].min() for s in seeds), min(s[x].max() for s in seeds)
        grid = np.unique(part[x].to_numpy(float))
        grid = grid[(grid >= begin) & (grid <= end)]
        if not len(grid):
            continue
        grid = grid[np.unique(np.linspace(0, len(grid) - 1, min(points, len(grid))).round().astype(int))]
        values = np.stack([s[y].to_numpy()[np.searchsorted(s[x].to_numpy(), grid, side="right") - 1] for s in seeds])
        mean, low, high = values.mean(0), values.min(0), values.max(0)
        half = _half(values)
        found.append(pd.DataFrame({"series": name, x: grid, "mean": mean, "low": low, "high": high,
                                   "from": low if half is None else mean - half,
                                   "to": high if half is None else mean + half}))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(
        columns=["series", x, "mean", "low", "high", "from", "to"])


def _half(values: np.ndarray) -> np.ndarray | None:
    """Half the width of the interval of each mean of (seeds, n) values; None: of too few, or without SciPy, which a
    report of runs does not need."""
    if len(values) < FEWEST or find_spec("scipy") is None:
        return None
    return interval(values.std(0, ddof=1), np.full(values.shape[1], len(values)))


def interval(sd: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Half the width of Student's interval of means of `n` values with these deviations; NaN below FEWEST values.

    >>> interval(np.array([1.0, 1.0]), np.array([2, 4])).round(4).tolist()
    [nan, 1.5912]
    """
    with optional("intervals of a grid need", "stats"):
        from scipy.stats import t

    return np.where(n >= FEWEST, t.ppf((1 + LEVEL) / 2, np.maximum(n - 1, 1)) * sd / np.sqrt(n), np.nan)
