"""The messages of a round as a sequence: a lifeline a role, a row a step, from top to bottom.

A step is what the nodes of one role do alike: the same computation, or messages of one type to the nodes of another
role. So a round of ten clients and one of ten thousand have the same figure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from emul.base.plain import PlainDict
from emul.record.progress import rounded_size
from emul.record.tables import IN_FLIGHT, LATE, LOST, REJECTED, TO_ENDED
from emul.report.data import RunData, busy_until
from emul.report.drawing import Figure, Shown, named, whole
from emul.report.spacetime import unit_of

STEPS = 40              # of a figure, at most
_ROW = 36               # pixels a step
_FATES = {"lost": LOST, "late": LATE, "rejected": REJECTED, "ended": TO_ENDED, "flight": IN_FLIGHT}
_SAID = {"ended": "to nodes that had ended", "flight": "in flight"}
_LEFT = "M1.6,-0.8L0,0L1.6,0.8Z"
_DRAWN = ["x", "x2", "y", "said", "wrong", "label", "source", "target", "count", "nodes", "from_s", "until_s"]
_LOOP = 0.16            # of the distance of two lifelines: how far messages inside a role go out


@dataclass(frozen=True)
class Sequence:
    """One round. lifelines: role -> its name. steps: as `steps_of` gives them, those that are drawn. text: in words."""

    number: int
    lifelines: dict[str, str]
    steps: pd.DataFrame
    text: str

    @property
    def height(self) -> int:
        """Of the chart, px."""
        return _ROW * max(2, len(self.steps))

    @property
    def tokens(self) -> PlainDict:
        """The values that fill its chart, see `palette.fill`."""
        n, k = max(len(self.steps), 1), len(self.lifelines)
        unit, factor = unit_of(float(self.steps["until_s"].max()) * 1e9 if len(self.steps) else 0.0)
        return {"names": list(self.lifelines.values()), "places": list(range(k)), "rows": list(range(len(self.steps))),
                "times": [f"{s * 1e9 / factor:.4g} {unit}" for s in self.steps["from_s"]],
                "ydomain": [n - 0.4, -0.7], "xdomain": [-0.15, max(k - 0.5, 0.8)]}

    def frames(self) -> dict[str, pd.DataFrame]:
        """The data that the chart names."""
        # plain rows: a page has hundreds of rounds of a few steps each, for which pandas takes many times as long
        place = {role: x for x, role in enumerate(self.lifelines)}
        arrows: list[PlainDict] = []
        loops: list[PlainDict] = []
        boxes: list[PlainDict] = []
        for y, step in enumerate(self.steps.to_dict("records")):
            x, x2 = place[step["source"]], place[step["target"]]
            wrong = ", ".join(f"{step[name]:,.0f} {_SAID.get(name, name)}" for name in _FATES if step[name] > 0)
            kind = boxes if step["what"] != "message" else loops if x == x2 else arrows
            kind.append({**step, "x": x, "x2": x2, "y": y, "said": _step_text(step), "wrong": wrong,
                         "middle": (x + x2) / 2, "head": "right" if x2 > x else "left"})
        return {"lifelines": pd.DataFrame({"x": range(len(place)), "y": -0.7, "y2": max(len(self.steps), 1) - 0.4}),
                "arrows": pd.DataFrame(arrows, columns=[*_DRAWN, "middle", "head"]),
                "loops": pd.DataFrame(loops, columns=_DRAWN), "boxes": pd.DataFrame(boxes, columns=_DRAWN)}


def _step_text(step: PlainDict) -> str:
    """The text at a step: how many, and how large or how long on the whole."""
    times = f" × {step['count']:,}" if step["count"] > 1 else ""
    if step["what"] == "message":
        size = rounded_size(round(step["bytes"]))
        return f"{step['label']}{times}, {size}" + (" each" if step["count"] > 1 else "")
    unit, factor = unit_of((step["until_s"] - step["from_s"]) * 1e9)
    took = (step["until_s"] - step["from_s"]) * 1e9 / factor
    return f"{step['label']}{times}" + (f", {took:.4g} {unit}" if took else "")


def sequences(run: RunData, numbers: Iterable[int]) -> list[Sequence]:
    """The sequences of these rounds; 0: what belongs to none."""
    wanted = list(numbers)
    steps = steps_of(run, wanted)
    by_round = dict(iter(steps.groupby("round", sort=False)))
    return [_sequence(run, number, by_round.get(number, steps.iloc[:0])) for number in wanted]


def _sequence(run: RunData, number: int, steps: pd.DataFrame) -> Sequence:
    steps = steps.drop(columns="round").reset_index(drop=True)
    here = set(steps["source"]) | set(steps["target"])
    lifelines = {role: f"{n:,} × {role}" if (n := run.roles.count(role)) > 1 else run.names[run.roles.index(role)]
                 for role in dict.fromkeys(run.roles) if role in here}
    sent = steps[steps["what"] == "message"]
    order = "; ".join(f"{row.label}, {row.source} to {row.target}" for row in sent.head(STEPS).itertuples())
    text = f"{f'Round {number}' if number else 'Outside rounds'}: {order or 'no message was sent'}."
    if len(steps) > STEPS:
        text += f" The first {STEPS} of {len(steps)} steps are drawn."
    return Sequence(number, lifelines, steps.head(STEPS), text)


def steps_of(run: RunData, numbers: Iterable[int]) -> pd.DataFrame:
    """The steps of these rounds, a row each, in the order in which they began.

    round, what (`message` or `computation`), label (type of the message, name of the computation), source, target
    (roles), from_s, until_s (virtual seconds after the first step of the round began), count (copies, computations),
    nodes (that sent or computed), bytes (of a copy as it was encoded, on the mean), and of the copies how many were
    lost, late, rejected, ended (came to a node that had), flight (under way at the end of the run).
    """
    wanted = np.array(sorted(numbers), np.int64)
    found = pd.concat([_computations(run, wanted), _messages(run, wanted)], ignore_index=True)     # computed, then sent
    found = found.sort_values(["round", "begin"], kind="stable", ignore_index=True)
    start = found.groupby("round")["begin"].transform("min")
    found.insert(5, "from_s", (found.pop("begin") - start) / 1e9)
    found.insert(6, "until_s", (found.pop("end") - start) / 1e9)
    return found.fillna({"bytes": 0, **dict.fromkeys(_FATES, 0)})


def _messages(run: RunData, numbers: np.ndarray) -> pd.DataFrame:
    m = run.messages
    mine = np.flatnonzero(np.isin(m.round, numbers) & (m.source != m.target))
    roles = np.array(run.roles, dtype=object)
    end = np.maximum(np.maximum(m.arrived_ns[mine], m.lost_ns[mine]), m.sent_ns[mine])
    frame = pd.DataFrame({
        "round": m.round[mine], "what": "message", "label": np.array(m.kinds or [""], dtype=object)[m.kind[mine]],
        "source": roles[m.source[mine]], "target": roles[m.target[mine]], "begin": m.sent_ns[mine], "end": end,
        "node": m.source[mine], "bytes": m.payload_bytes[mine].astype(float),
        **{name: (m.fate[mine] == fate).astype(np.int64) for name, fate in _FATES.items()}})
    return frame.groupby(["round", "what", "label", "source", "target"], sort=False, as_index=False).agg(
        begin=("begin", "min"), end=("end", "max"), count=("begin", "size"), nodes=("node", "nunique"),
        bytes=("bytes", "mean"), **{name: (name, "sum") for name in _FATES})


def _computations(run: RunData, numbers: np.ndarray) -> pd.DataFrame:
    c = run.computations
    mine = np.flatnonzero(np.isin(c.round, numbers))
    role = np.array(run.roles, dtype=object)[c.node[mine]]
    frame = pd.DataFrame({
        "round": c.round[mine], "what": "computation",
        "label": np.array(c.labels or [""], dtype=object)[c.label[mine]], "source": role, "target": role,
        "begin": c.start_ns[mine], "end": busy_until(run)[mine], "node": c.node[mine]})
    return frame.groupby(["round", "what", "label", "source", "target"], sort=False, as_index=False).agg(
        begin=("begin", "min"), end=("end", "max"), count=("begin", "size"), nodes=("node", "nunique"))


# --- the figure -----------------------------------------------------------------------------------------------------

def _x(field: str = "x") -> alt.X:
    return alt.X(f"{field}:Q", title=None, scale=alt.Scale(domain=["$xdomain"], nice=False), axis=alt.Axis(
        orient="top", values=["$places"], labelExpr="names[datum.value]", labelOverlap=False, grid=False, domain=False,
        ticks=False, labelFontSize=12, labelFontWeight="bold", labelColor="$text", labelLimit=220))


def _y(field: str = "y") -> alt.Y:
    return alt.Y(f"{field}:Q", title=None, scale=alt.Scale(domain=["$ydomain"], nice=False), axis=alt.Axis(
        values=["$rows"], labelExpr="times[datum.value]", labelOverlap=False, grid=False, domain=False, ticks=False))


@cache
def _chart() -> Any:
    """Of any round of any run: what differs is in its data and tokens, so that it is made once.

    All layers are put together in one step, because Altair copies layers each time that others are added to them."""
    told = ["label:N", alt.Tooltip("source:N", title="from"), alt.Tooltip("target:N", title="to"),
            alt.Tooltip("count:Q", format=","), alt.Tooltip("nodes:Q", title="by nodes", format=","),
            alt.Tooltip("from_s:Q", title="began, s", format=".4f"),
            alt.Tooltip("until_s:Q", title="ended, s", format=".4f"), alt.Tooltip("wrong:N", title="of these")]
    lifelines = named("lifelines").mark_rule(color="$muted", strokeWidth=1.2, strokeDash=[2, 3]).encode(
        x=_x(), y=_y(), y2="y2:Q")
    return whole(alt.layer(lifelines, *_arrows(told), *_loops(told), *_boxes(told)).add_params(
        alt.param(name="names", value=["$names"]), alt.param(name="times", value=["$times"])))


def message_sequence(one: Sequence) -> Figure:
    """One round as a sequence; a page exchanges its data when another is picked."""
    shown = shown_sequence(one)
    return Figure("sequence", "The messages of a round in their order",
                  "A lifeline is a role, or its only node. An arrow stands for all messages of one type from one role "
                  "to another, with their number, their encoded size, and the fates of those that did not arrive in "
                  "time. A hook stands for messages between nodes of one role. A box stands for computations, with the "
                  "time from the first one's beginning to the last one's end. On the left is the time at which the "
                  "step began, after the first one of the round.",
                  one.text, _chart(), shown.frames, shown.table, shown.tokens, shown.height,
                  max(480, 170 * len(one.lifelines)))


def shown_sequence(one: Sequence) -> Shown:
    """The content of the figure for one round."""
    return Shown(one.text, one.tokens, one.height, one.frames(),
                 one.steps.rename(columns={"from_s": "began_s", "until_s": "ended_s"}))


def _text(data: Any, field: str, x: str, align: str, dx: int, dy: int) -> list[alt.Chart]:
    """The layers of the texts at the steps, with a halo that keeps them apart from lines: `said`, or `wrong` in red."""
    text = data.encode(x=_x(x), y=_y(), text=f"{field}:N")
    place: dict[str, object] = {"align": align, "dx": dx, "dy": dy, "fontSize": 11}
    halo: dict[str, object] = {"stroke": "$card", "strokeWidth": 4, "strokeJoin": "round", "aria": False}
    return [text.mark_text(**place, **halo), text.mark_text(fill="$lost" if field == "wrong" else "$text", **place)]


def _arrows(told: list[Any]) -> list[alt.Chart]:
    base = named("arrows")
    line = base.mark_rule(strokeWidth=1.6, color="$s1").encode(x=_x(), x2="x2:Q", y=_y(), tooltip=told)
    head = base.mark_point(filled=True, opacity=1, size=70, color="$s1").encode(
        x=_x("x2"), y=_y(), tooltip=told, shape=alt.Shape("head:N", legend=None, scale=alt.Scale(
            domain=["right", "left"], range=["M-1.6,-0.8L0,0L-1.6,0.8Z", _LEFT])))
    return [line, head, *_text(base, "said", "middle", "center", 0, -8),
            *_text(base, "wrong", "middle", "center", 0, 10)]


def _loops(told: list[Any]) -> list[alt.Chart]:
    base = named("loops").transform_calculate(out=f"datum.x + {_LOOP}", above="datum.y - 0.2", below="datum.y + 0.2")
    rule = base.mark_rule(strokeWidth=1.6, color="$s1")
    sides = [rule.encode(x=_x(), x2="out:Q", y=_y(y), tooltip=told) for y in ("above", "below")]
    end = rule.encode(x=_x("out"), y=_y("above"), y2="below:Q", tooltip=told)
    head = base.mark_point(filled=True, opacity=1, size=70, color="$s1", shape=_LEFT).encode(
        x=_x(), y=_y("below"), tooltip=told)
    return [*sides, end, head, *_text(base, "said", "x", "left", 10, -14), *_text(base, "wrong", "out", "left", 8, 0)]


def _boxes(told: list[Any]) -> list[alt.Chart]:
    box = named("boxes").mark_point(filled=True, opacity=1, size=170, shape="square", color="$s2", stroke="$card",
                                    strokeWidth=1).encode(x=_x(), y=_y(), tooltip=told)
    return [box, *_text(named("boxes"), "said", "x", "left", 13, 0)]
