"""The effect of the values of a sweep's grid: final metrics with intervals, and learning curves by value."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace

import altair as alt
import numpy as np
import pandas as pd

from emul.record import rundir
from emul.record.marks import in_words
from emul.report import data, palette
from emul.report.curves import FEWEST, interval, learning
from emul.report.drawing import Figure, around, coloured, columns, named, slug, whole
from emul.report.study import StudyMember, StudyRuns, kinds_of

METRICS = {"accuracy": "final accuracy", "virtual_s": "virtual seconds", "mb": "MB", "rounds_failed": "failed rounds"}
SCHEMES = 6             # of which curves are drawn, at most
LINES = palette.SERIES  # of a figure, at most
TICKS = 12              # of an axis, at most, that are the values themselves


def sweep_key(parameter: str, metric: str) -> str:
    """The key of the figure of a metric against a parameter.

    >>> sweep_key("links[1].outage.p", "mb")
    'sweep-links_1_outage_p-mb'
    """
    return f"sweep-{parameter}-{metric}".replace(".", "_").replace("[", "_").replace("]", "")


def titled(path: str, scenario: Mapping[str, object]) -> str:
    """A path of a grid in words: an entry of a list by what it matches, a scheme by its name.

    >>> titled("links[1].outage.p", {"links": [{"match": "*"}, {"match": "client*->server"}]})
    'outage.p of client*→server'
    >>> titled("schemes.secagg.threshold", {}), titled("task.solver.sgd.lr", {})
    ('threshold of secagg', 'task.solver.sgd.lr')
    """
    if found := re.fullmatch(r"schemes\.(\w+)\.(.+)", path):
        return f"{found[2]} of {found[1]}"
    if found := re.fullmatch(r"(\w+)(?:\[(\d+)\]|\.(\d+))\.(.+)", path):
        entries = scenario.get(found[1])
        at = int(found[2] or found[3])
        entry = entries[at] if isinstance(entries, list) and at < len(entries) else None
        name = next((entry[k] for k in ("match", "label", "name", "node") if k in entry), None) \
            if isinstance(entry, dict) else None
        if isinstance(name, str):
            return f"{found[4]} of {name.replace('->', '→')}"     # no line breaks in an arrow
    return path


def titles_of(found: StudyRuns) -> dict[str, str]:
    """Path of the grid -> its words; paths of one name keep the path."""
    paths = dict.fromkeys(k for m in found.members for k in m.values)
    if not paths:
        return {}
    scenario = rundir.read_scenario(found.members[0].path / rundir.SCENARIO)[1]
    said = {path: titled(path, scenario) for path in paths}
    return {path: words if list(said.values()).count(words) == 1 else path for path, words in said.items()}


def varied_of(members: list[StudyMember]) -> list[str]:
    """The paths that have two values at least."""
    return [name for name in dict.fromkeys(k for m in members for k in m.values)
            if len({_text(m.values[name]) for m in members if name in m.values}) > 1]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def label_of(values: Mapping[str, object], names: list[str], titles: Mapping[str, str]) -> str:
    return ", ".join(f"{titles[name].partition(' of ')[0]} = {_text(values[name])}" for name in names if name in values)


# --- metrics against a parameter ------------------------------------------------------------------------------------

def sweep_figures(found: StudyRuns) -> list[Figure]:
    """A figure for every parameter of the grid that has two values at least, and every metric."""
    titles, varied, kinds = titles_of(found), varied_of(found.members), kinds_of(found)
    words = METRICS | ({"accuracy": f"final {kinds[0]} accuracy".replace("  ", " ")} if len(kinds) == 1 else {})
    drawn = []
    for name in varied:
        members = [m for m in found.members if name in m.values]
        others = [v for v in varied if v != name]
        table = pd.DataFrame([{
            "scheme": m.series, "others": label_of(m.values, others, titles), "value": m.values[name],
            "accuracy": m.summary["accuracy"], "virtual_s": m.summary["virtual_seconds"],
            "mb": m.summary["bytes_total"] / 1e6, "rounds_failed": m.summary["rounds_failed"]} for m in members])
        numbers = table["value"].map(lambda v: isinstance(v, (int, float)) and not isinstance(v, bool)).all()
        table["value"] = table["value"].astype(float) if numbers else table["value"].map(_text)
        apart = table[["scheme", "others"]].drop_duplicates()
        over = [titles[o] for o in others] if len(apart) > LINES else []
        table["series"] = table["scheme"] if over else [
            f"{row.scheme}, {row.others}" if row.others else row.scheme for row in table.itertuples()]
        drawn += [_against(table, name, metric, title, titles[name], over) for metric, title in words.items()
                  if table[metric].notna().any()]
    return drawn


def _against(table: pd.DataFrame, parameter: str, metric: str, title: str, words: str, over: list[str]) -> Figure:
    """A metric against the values of one parameter, a line a series; its points are means over seeds and `over`."""
    frame = table.dropna(subset=[metric])
    found = frame.groupby(["series", "value"], as_index=False, sort=False)[metric].agg(
        ["mean", "min", "max", "std", "size"])
    found = found.rename(columns={"min": "low", "max": "high", "size": "runs"}).sort_values("value", kind="stable")
    half = np.full(len(found), np.nan) if over else interval(found["std"].to_numpy(float), found["runs"].to_numpy())
    found = found.assign(t_low=found["mean"] - half, t_high=found["mean"] + half).drop(columns="std")
    series = list(dict.fromkeys(frame["series"]))
    x = _values_axis(frame["value"], words)
    y = alt.Y("mean:Q", title=title, scale=around(frame[metric]))
    legend = alt.Legend(columns=columns(series), labelLimit=300)
    colour = coloured("series", series, palette.series(len(series)), legend=legend)
    base = named("results").encode(x=x, color=colour, tooltip=[
        "series:N", alt.Tooltip("value:N", title=words), *(alt.Tooltip(f"{c}:Q", format=",.4f") for c in (
            "mean", "low", "high", "t_low", "t_high")), "runs:Q"])
    chart = (base.mark_line(strokeWidth=2).encode(y=y)
             + base.mark_rule(strokeWidth=1.2, opacity=0.7).encode(y=alt.Y("low:Q", title=title), y2="high:Q")
             + base.mark_rule(strokeWidth=4, opacity=0.45).encode(y=alt.Y("t_low:Q", title=title), y2="t_high:Q")
             + base.mark_point(filled=True, size=60, opacity=1).encode(y=y))
    best = found.loc[found["mean"].idxmax()]
    return Figure(sweep_key(parameter, metric), f"{title[0].upper()}{title[1:]} against {words}",
                  f"Points: mean over seeds{''.join(f' and the values of {o}' for o in over)}. Thin upright lines: "
                  f"from the least to the largest. {_INTERVALS if found['t_low'].notna().any() else _NONE}",
                  f"{title} by {words}; largest mean {best['mean']:.4g} at {best['value']} ({best['series']}).",
                  whole(chart, height=230), {"results": found}, found, elastic=True)


def _values_axis(values: pd.Series, words: str) -> alt.X:
    """An axis with a tick at each of the grid's values, unless they are many."""
    if not pd.api.types.is_numeric_dtype(values):
        return alt.X("value:N", title=words, axis=alt.Axis(labelAngle=0))
    ticks = sorted(set(values.tolist()))
    return alt.X("value:Q", title=words, scale=alt.Scale(zero=False, padding=12),
                 # all digits of the values: by itself Vega rounds 0.34 to 0.3 where most ticks have one digit
                 axis=alt.Axis(values=ticks, format=".12~g") if len(ticks) <= TICKS else alt.Axis())


_INTERVALS = "Thick: the 95 % interval of the mean by Student's t."
_NONE = f"No interval: it takes {FEWEST} seeds of one combination of values."


# --- learning curves by value ---------------------------------------------------------------------------------------

def curves_by_value(found: StudyRuns) -> tuple[list[Figure], str]:
    """Accuracy against time and rounds of every scheme, a line a combination of values; and what is left out."""
    titles = titles_of(found)
    schemes = list(dict.fromkeys(m.series for m in found.members))
    drawn: list[Figure] = []
    text = []
    for scheme in schemes[:SCHEMES]:
        members = [m for m in found.members if m.series == scheme]
        figures, left = _of_scheme(scheme, members, titles)
        drawn += figures
        if left:
            text.append(f"{left} of {scheme}'s combinations of values are left out, evenly chosen.")
    if len(schemes) > SCHEMES:
        text.append(f"{len(schemes) - SCHEMES} more schemes are left out.")
    return drawn, " ".join(text)


def _of_scheme(scheme: str, members: list[StudyMember], titles: Mapping[str, str]) -> tuple[list[Figure], int]:
    varied = varied_of(members)
    labels = [label_of(m.values, varied, titles) or scheme for m in members]
    combinations = list(dict.fromkeys(labels))
    chosen = {combinations[i] for i in np.unique(np.linspace(0, len(combinations) - 1, min(
        LINES, len(combinations))).round().astype(int))}
    seen = [data.observed(m.path).assign(series=label, seed=m.seed) for m, label in zip(members, labels, strict=True)
            if label in chosen]
    of = in_words(members[0].summary.get("accuracy_of"))
    figures = [replace(f, key=f"{slug(scheme)}-{f.key}", title=f"{scheme}: {f.title[0].lower()}{f.title[1:]}")
               for f in learning(pd.concat(seen, ignore_index=True), of=of)
               if f.key in ("accuracy-time", "accuracy-round")]
    return figures, len(combinations) - len(chosen)
