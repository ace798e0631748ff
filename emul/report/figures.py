"""The figures of a report: one function a figure, from frames to an Altair chart.

`emul.report.drawing` has what they are made of, `curves` those of learning.
"""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd

from emul.base.plain import PlainDict
from emul.record.side_tables import SAMPLE_COLUMNS, SAMPLES
from emul.record.tables import read_table
from emul.report import palette
from emul.report.data import KINDS, STATES, RunData
from emul.report.drawing import (
    KIND_COLOURS,
    Figure,
    Shown,
    amount,
    byte_unit,
    coloured,
    in_rows,
    named,
    ranked,
    round_axis,
    row_axis,
    stacked,
    whole,
)
from emul.report.spacetime import FATES, HALF, RoundDiagram, SpaceTime
from emul.report.topology import RELAY, Map

_LINKS, _NODES, _CAUSES, _LOSSY = 20, 24, 14, 30        # rows that a figure shows, at most
_BYTES_ROWS = 4000
_BINS = 100                                             # of rounds on an axis

_STATE_COLOURS = ["$s1", "$wait", "$between", "$down"]
_FATE_COLOURS = ["$delivered", "$late", "$lost", "$ended", "$s6", "$rejected", "$flight"]
BACKGROUND = ("carried", "dropped")
_CROSS = "M-0.8,-0.8L0.8,0.8M0.8,-0.8L-0.8,0.8"


# --- bytes ----------------------------------------------------------------------------------------------------------

_MEANING = ("first: sent once and of use; retransmitted: sent again by reliable links; wasted: of copies that came "
            "after their round was over or to a node that had ended, were rejected or never read; lost: of copies that "
            "were lost, with all hops.")


def bytes_by_type(traffic: pd.DataFrame) -> Figure:
    """MB by message type and direction, stacked by what became of them."""
    found = traffic.groupby(["type", "direction", "kind"], as_index=False, sort=False)["bytes"].sum()
    found = found.assign(message=found["type"] + ", " + found["direction"])
    unit, factor = byte_unit(found.groupby("message")["bytes"].sum().max())
    found = found.assign(size=found["bytes"] / factor, rank=ranked(found["kind"], KINDS))
    order = found.groupby("message")["bytes"].sum().sort_values(ascending=False).index.tolist()
    chart = stacked(
        named("bytes"), row_axis("message", order), alt.X("size:Q", title=f"{unit} on all links"), "kind", KINDS,
        KIND_COLOURS, ["type:N", "direction:N", "kind:N", alt.Tooltip("size:Q", title=unit, format=",.4~f")])
    kinds = traffic.groupby("kind")["bytes"].sum()
    said = ", ".join(f"{kinds[k] / 1e6:.4g} MB {k}" for k in KINDS if k in kinds)
    return Figure("bytes-by-type", "Bytes by message type and direction",
                  f"All bytes on all links, overhead included. {_MEANING}",
                  f"Stacked bars of bytes by message type: {said or 'nothing was sent'}.",
                  in_rows(chart, len(order)), {"bytes": found},
                  found[["type", "direction", "kind", "bytes"]].sort_values("bytes", ascending=False), least_width=330)


def bytes_by_link(traffic: pd.DataFrame) -> Figure:
    """MB by link, stacked by what became of them, for all message types or one."""
    full = traffic.assign(link=traffic["from"] + "→" + traffic["to"])
    total = full.groupby("link", sort=False)["bytes"].sum().sort_values(ascending=False, kind="stable")
    rank = pd.Series(np.arange(len(total)), index=total.index)
    full = full.assign(order=full["link"].map(rank)).sort_values(["order", "bytes"], ascending=[True, False])
    unit, factor = byte_unit(total.max())
    kept = full.head(_BYTES_ROWS).assign(size=lambda f: f["bytes"] / factor)
    kept = kept.assign(rank=ranked(kept["kind"], KINDS)).drop(
        columns=["from", "to", "bytes"])
    types = sorted(full["type"].unique())
    directions = sorted(full["direction"].unique())
    by_type, by_way = (
        alt.param(name=name, value="all", bind=alt.binding_select(options=["all", *options], name=label))
        for name, options, label in (("type", types, "message type "), ("way", directions, "direction ")))
    most = (named("bytes").transform_filter("type == 'all' || datum.type == type")
            .transform_filter("way == 'all' || datum.direction == way")
            .transform_joinaggregate(total="sum(size)", groupby=["link"])
            .transform_window(place="dense_rank()", sort=[alt.SortField("total", order="descending"),
                                                          alt.SortField("order")])
            .transform_filter(f"datum.place <= {_LINKS}"))
    chart = stacked(
        most, row_axis("link", alt.SortField("place")), alt.X("sum(size):Q", title=f"{unit} offered to the link"),
        "kind", KINDS, KIND_COLOURS, ["link:N", "kind:N", alt.Tooltip("sum(size):Q", title=unit, format=",.4~f")])
    chart = chart.add_params(by_type, by_way)
    cut = "" if len(total) <= _LINKS else f" The {_LINKS} links with the most bytes of {len(total):,}."
    if len(full) > _BYTES_ROWS:
        cut += " A type or direction is chosen among the links with the most bytes in all."
    busiest = f"{total.index[0]} with {amount(total.iloc[0] / 1e6, 'MB')}" if len(total) else "none"
    return Figure("bytes-by-link", "Bytes by link", f"Each direction of a link is a link. {_MEANING}{cut}",
                  f"Stacked bars of bytes by link. Busiest: {busiest}.",
                  in_rows(chart, min(len(total), _LINKS)), {"bytes": kept},
                  full[["from", "to", "type", "direction", "kind", "bytes"]], least_width=330)


def background(links: list[PlainDict]) -> Figure:
    """MB of background traffic by link, as `bytes_background` of a summary has them: carried and dropped."""
    found = pd.DataFrame([(one["link"], kind, one[f"{kind}_bytes"]) for one in links for kind in BACKGROUND],
                         columns=["link", "kind", "bytes"])
    unit, factor = byte_unit(max(one["offered_bytes"] for one in links))
    drawn = found.assign(size=found["bytes"] / factor, rank=ranked(found["kind"], BACKGROUND))
    chart = stacked(
        named("bytes"), row_axis("link", [one["link"] for one in links]),
        alt.X("size:Q", title=f"{unit} of background traffic"), "kind", BACKGROUND, ["$s6", "$lost"],
        ["link:N", "kind:N", alt.Tooltip("size:Q", title=unit, format=",.4~f")])
    said = ", ".join(f"{found['bytes'][found['kind'] == kind].sum() / 1e6:.4g} MB {kind}" for kind in BACKGROUND)
    return Figure("background", "Background traffic by link",
                  "Bytes beside those of the scheme, until the end of the run, on the links to which most was offered; "
                  "dropped: above the rate of the link, or while a fault had it down.",
                  f"Stacked bars of background traffic by link: {said}.",
                  in_rows(chart, len(links)), {"bytes": drawn}, found, least_width=330)


def bytes_by_run(traffics: dict[str, pd.DataFrame]) -> Figure:
    """MB of several runs side by side, stacked by what became of them."""
    found = pd.concat([t.groupby("kind", as_index=False)["bytes"].sum().assign(run=name)
                       for name, t in traffics.items()], ignore_index=True)
    unit, factor = byte_unit(max(t["bytes"].sum() for t in traffics.values()))
    found = found.assign(size=found["bytes"] / factor, rank=ranked(found["kind"], KINDS))
    chart = stacked(
        named("bytes"), row_axis("run", list(traffics)), alt.X("size:Q", title=f"{unit} on all links"), "kind", KINDS,
        KIND_COLOURS, ["run:N", "kind:N", alt.Tooltip("size:Q", title=unit, format=",.4~f")])
    said = "; ".join(f"{name} {t['bytes'].sum() / 1e6:.4g} MB" for name, t in traffics.items())
    return Figure("bytes-by-run", "Bytes side by side", f"All bytes on all links. {_MEANING}",
                  f"Stacked bars of bytes by run: {said}.", in_rows(chart, len(traffics)),
                  {"bytes": found}, found[["run", "kind", "bytes"]], least_width=320)


# --- network --------------------------------------------------------------------------------------------------------

def topology(found: Map) -> Figure:
    """The map: width of a line by load, colour by the fraction lost."""
    v, e = found.vertices, found.edges.sort_values("loss", kind="stable")       # the worst on top
    roles = sorted(dict.fromkeys(v["role"]), key=lambda role: role == RELAY)        # last, and pale
    colours = [*palette.series(len(roles) - 1), "$clean"] if RELAY in roles else palette.series(len(roles))
    unit, factor = byte_unit(e["bytes"].max() if len(e) else 0)
    quiet, busy = e[e["bytes"] == 0], e[e["bytes"] > 0].assign(load=lambda f: f["bytes"] / factor)
    x = alt.X("x:Q", axis=None, scale=alt.Scale(zero=False, nice=False, padding=45))
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(zero=False, nice=False, padding=28))
    worst = max(0.01, float(busy["loss"].max())) if len(busy) else 0.01
    most = float(busy["load"].max()) if len(busy) else 1.0
    widest = float(np.clip(36 / max(len(busy), 1) ** 0.5, 1.5, 7))          # px: many lines must be thin
    lines = named("edges").mark_rule(strokeCap="round").encode(
        x=x, y=y, x2="x2:Q", y2="y2:Q",
        strokeWidth=alt.StrokeWidth("load:Q", title=unit, scale=alt.Scale(domain=[0, most], range=[0, widest]),
                                    legend=alt.Legend(symbolStrokeColor="$muted", tickCount=3, format=".3~g")),
        color=alt.Color("loss:Q", title="copies lost", scale=alt.Scale(domain=[0, worst], range=["$clean", "$lost"]),
                        legend=alt.Legend(format=".1~%", gradientLength=80, tickCount=2)),
        tooltip=["from:N", "to:N", alt.Tooltip("load:Q", title=unit, format=",.4~f"),
                 alt.Tooltip("copies:Q", format=","), alt.Tooltip("lost:Q", format=","),
                 alt.Tooltip("loss:Q", title="share lost", format=".1%")])
    idle = named("quiet").mark_rule(color="$line", strokeWidth=1, strokeDash=[3, 3]).encode(
        x=x, y=y, x2="x2:Q", y2="y2:Q", tooltip=["from:N", "to:N"])
    shapes = ["square", "circle", "diamond", "triangle-up", "cross", "triangle-down"]
    dots = named("vertices").mark_point(filled=True, opacity=1, stroke="$page", strokeWidth=1.5).encode(
        x=x, y=y, shape=alt.Shape("role:N", title="role", scale=alt.Scale(
            domain=roles, range=[shapes[i % len(shapes)] for i in range(len(roles))])),
        size=alt.Size("size:Q", legend=None, scale=alt.Scale(type="sqrt", domain=[1, max(2, int(v["size"].max()))],
                                                             range=[130, 1400])),
        fill=alt.Fill("role:N", title="role", scale=alt.Scale(domain=roles, range=colours)),
        tooltip=["name:N", "role:N", alt.Tooltip("size:Q", title="vertices")])
    label = named("vertices").encode(x=x, y=y, text="label:N")
    up = -14 if v["size"].max() == 1 else -26
    names = (label.mark_text(dy=up, fontSize=11, stroke="$card", strokeWidth=4, strokeJoin="round", aria=False)
             + label.mark_text(dy=up, fontSize=11))
    chart = ((idle + lines if len(quiet) else lines) + dots + names).resolve_scale(color="independent")
    lossy = busy.sort_values("loss", ascending=False).head(3)
    said = "; ".join(f"{r['from']}→{r['to']} lost {r['loss']:.0%} of {r['copies']:,}" for _, r in lossy.iterrows()
                     if r["lost"])
    return Figure("topology", "The network and what it carried",
                  "A line is one direction of a link, drawn on its right-hand side: the wider, the more bytes were "
                  f"offered to it; the redder, the larger the share of copies that it lost. {found.text}",
                  f"Map of {int(v['size'].sum()):,} vertices and {len(e):,} directed links. "
                  + (f"Most lossy: {said}." if said else "No link lost anything."),
                  whole(chart, height=int(np.clip(620 * found.aspect, 320, 560))),
                  {"vertices": v, "edges": busy, **({"quiet": quiet} if len(quiet) else {})},
                  e.sort_values("bytes", ascending=False)[["from", "to", "bytes", "copies", "lost", "loss"]],
                  least_width=330 if len(v) <= 30 else 560, elastic=True)


def matrix(found: Map) -> Figure:
    """The bytes that each link carried and lost, from vertex to vertex: for networks whose map is full of lines."""
    e = found.edges[found.edges["bytes"] > 0]
    unit, factor = byte_unit(e["bytes"].max())
    names = found.vertices["name"].tolist()
    worst = max(0.01, float(e["loss"].max()))
    chart = named("links").mark_square(opacity=1).encode(
        x=alt.X("to:N", title="to", sort=names, scale=alt.Scale(domain=names), axis=alt.Axis(labelAngle=-60)),
        y=alt.Y("from:N", title="from", sort=names, scale=alt.Scale(domain=names)),
        size=alt.Size("load:Q", title=unit,
                      scale=alt.Scale(domain=[0, float(e["bytes"].max() / factor)], range=[0, 220]),
                      legend=alt.Legend(symbolFillColor="$muted", symbolStrokeWidth=0, tickCount=2, format=".3~g")),
        color=alt.Color("loss:Q", title="copies lost", scale=alt.Scale(domain=[0, worst], range=["$clean", "$lost"]),
                        legend=alt.Legend(format=".1~%", gradientLength=120, tickCount=2)),
        tooltip=["from:N", "to:N", alt.Tooltip("load:Q", title=unit, format=",.4~f"),
                 alt.Tooltip("copies:Q", format=","), alt.Tooltip("lost:Q", format=","),
                 alt.Tooltip("loss:Q", title="share lost", format=".1%")])
    top = e.sort_values("loss", ascending=False).iloc[0]
    return Figure("links", "Load and losses of each link",
                  "A square is one direction of a link: the larger, the more bytes were offered to it; the redder, the "
                  "larger the share of copies that it lost.",
                  f"Matrix of {len(e):,} links. Most lossy: {top['from']}→{top['to']} with {top['loss']:.0%}.",
                  whole(chart, height=16 * max(6, len(names))), {"links": e.assign(load=e["bytes"] / factor)},
                  e.sort_values("bytes", ascending=False)[["from", "to", "bytes", "copies", "lost", "loss"]],
                  least_width=340)


def outages(losses: pd.DataFrame) -> Figure:
    """Share of copies lost by link and round."""
    total = losses.groupby("link")["lost"].sum().sort_values(ascending=False, kind="stable")
    kept = losses[losses["link"].isin(total.index[:_LOSSY])]
    kept, width = binned(kept, ["link"], {"copies": "sum", "lost": "sum"})
    kept = kept.assign(share=kept["lost"] / kept["copies"], begin=kept["round"] - 0.5, until=kept["until"] - 0.5)
    chart = named("losses").mark_rect(stroke="$card", strokeWidth=0.5).encode(
        x=alt.X("begin:Q", title="round", axis=alt.Axis(tickMinStep=1, grid=False),
                scale=alt.Scale(nice=False, zero=False)), x2="until:Q",
        y=row_axis("link", total.index[:_LOSSY].tolist()),
        color=alt.Color("share:Q", title="share lost", scale=alt.Scale(domain=[0, 1], range=["$line", "$lost"]),
                        legend=alt.Legend(format=".1~%", gradientLength=120, tickCount=2)),
        tooltip=["link:N", "round:Q", "copies:Q", "lost:Q", alt.Tooltip("share:Q", format=".0%")])
    cut = "" if len(total) <= _LOSSY else f" The {_LOSSY} links of {len(total):,} that lost most."
    cut += f" {width} rounds to a cell." if width > 1 else ""
    return Figure("outages", "Losses by link and round",
                  "Share of the copies offered to a link that it lost, by the round of their sender (0: outside "
                  f"rounds); an empty cell: none was. Links that lost nothing are left out.{cut}",
                  f"Heat map of losses. {len(total):,} links lost {int(total.sum()):,} copies, most "
                  f"{total.index[0]} with {int(total.iloc[0]):,}.",
                  whole(chart, height=18 * max(2, min(len(total), _LOSSY))), {"losses": kept}, losses,
                  least_width=340)


def binned(frame: pd.DataFrame, by: list[str], how: dict[str, str]) -> tuple[pd.DataFrame, int]:
    """Rounds put together so that an axis has at most _BINS of them; `until`: where a cell ends. And its width."""
    last = int(frame["round"].max()) if len(frame) else 0
    width = -(-(last + 1) // _BINS)
    start = frame["round"] // width * width if width > 1 else frame["round"]
    found = frame.assign(round=start).groupby([*by, "round"], as_index=False, sort=False).agg(how)
    return found.assign(until=found["round"] + width), width


# --- time -----------------------------------------------------------------------------------------------------------

def space_time(found: SpaceTime) -> Figure:
    """One round; the page exchanges its data when another is picked."""
    first = found.rounds[found.first]
    shown = shown_round(first)
    labels = found.labels
    several = len(found.lanes) > 1              # then a computation is drawn a little above or below its node
    name = "lanes[round(datum.lane)]" if several else "lanes[datum.lane]"
    scale = alt.Scale(domain=["$ydomain"], nice=False)
    x = alt.X("x:Q", title="$xtitle", scale=alt.Scale(domain=["$xdomain"], nice=False))

    def boxes(data: str, half: float) -> alt.Chart:
        return (named(data).transform_calculate(ya=f"datum.lane - {half}", yb=f"datum.lane + {half}", node=name,
                                                took="datum.x2 - datum.x").mark_rect())

    axis = alt.Axis(values=["$ticks"], labelExpr="lanes[datum.value]", grid=True, domain=False, ticks=False)
    y = alt.Y("ya:Q", scale=scale, title=None, axis=axis)
    span = [alt.Tooltip("x:Q", title="$said_from"), alt.Tooltip("took:Q", title="$said_for", format=".4~g")]
    waits = boxes("waits", 0.07).transform_calculate(       # a node that is away may compute: a pale band behind it
        ya="datum.lane - (datum.state == 'away' ? 0.45 : 0.07)",
        yb="datum.lane + (datum.state == 'away' ? 0.45 : 0.07)").encode(
        x=x, x2="x2:Q", y=y, y2="yb:Q",
        opacity=alt.condition("datum.state == 'away'", alt.value(0.3), alt.value(1)),
        color=coloured("state", [*STATES[1:], "away"], [*_STATE_COLOURS[1:], "$late"], "not computing",
                      legend=alt.Legend(columns=2)),
        tooltip=["node:N", "state:N", *span])
    work = boxes("computations", HALF / max(1, len(found.lanes))).encode(
        x=x, x2="x2:Q", y=y, y2="yb:Q", color=coloured("label", labels, palette.series(len(labels)), "computing",
                                         legend=alt.Legend(columns=max(1, -(-len(labels) // 2)))),
        tooltip=["node:N", "label:N", *span])
    fates, legend = list(FATES), alt.Legend(symbolStrokeWidth=2, columns=4)
    colour = coloured("fate", fates, _FATE_COLOURS, "messages", legend=legend)
    copies = named("messages").transform_calculate(source="lanes[datum.y]", to="lanes[datum.target]",
                                                   took="datum.x2 - datum.x")
    told = ["type:N", alt.Tooltip("source:N", title="from"), "to:N", "fate:N", alt.Tooltip("bytes:Q", format=","),
            alt.Tooltip("x:Q", title="$said_sent"), alt.Tooltip("took:Q", title="$said_under_way", format=".4~g")]
    y_copy = alt.Y("y:Q", scale=scale, title=None, axis=axis)
    lines = copies.mark_rule(strokeWidth=1.2).encode(
        x=x, x2="x2:Q", y=y_copy, y2="y2:Q", color=colour, tooltip=told,
        strokeDash=alt.StrokeDash("fate:N", title="messages", legend=legend, scale=alt.Scale(
            domain=fates, range=[[1, 0], [6, 2], [3, 3], [6, 2], [1, 0], [8, 2, 2, 2], [1, 3]])),
        opacity=alt.condition("datum.fate == 'delivered'", alt.value(0.6), alt.value(0.95)))
    ends = copies.mark_point(filled=False, strokeWidth=1.8, opacity=1).encode(
        size=alt.condition("datum.fate == 'delivered'", alt.value(14), alt.value(60)),
        x=alt.X("x2:Q", scale=alt.Scale(domain=["$xdomain"], nice=False), title="$xtitle"), y=alt.Y(
            "y2:Q", scale=scale, title=None, axis=axis), color=colour, tooltip=told,
        shape=alt.Shape("fate:N", title="messages", legend=legend, scale=alt.Scale(domain=fates, range=[
            "circle", "triangle-up", _CROSS, "square", "diamond", "triangle-down", "circle"])))
    over = named("marks").mark_rule(strokeDash=[2, 2], strokeWidth=1.5, color="$text").encode(
        x=x, tooltip=alt.value("the last deciding node leaves the round"))
    chart = (over + work + waits + (lines + ends)).add_params(alt.param(name="lanes", value=["$lanes"])).resolve_scale(
        color="independent", shape="independent", strokeDash="independent")
    divided = f" The thick bars of a node are, from the top: {', '.join(found.lanes)}." if several else ""
    chosen = ("" if len(found.rounds) == found.total else
              f" The page holds {len(found.rounds):,} of {found.total:,} rounds, evenly chosen.")
    return Figure("space-time", "The nodes and messages of a round, in time",
                  "A row is a node. Thick bars are computations, thin bars are waits or times down. A slanted line is "
                  "a message from its sending to its arrival; a lost one ends in a cross, whose place on the way has "
                  "no meaning. At the dotted upright line the last deciding node leaves the round. The diagram is cut "
                  f"at twice the length of the round.{divided}{chosen}",
                  first.text, whole(chart), shown.frames, first.nodes, first.tokens, first.height, 720,
                  {name: f for name, f in shown.frames.items() if name != "marks"})


def shown_round(one: RoundDiagram) -> Shown:
    """The content of the space-time diagram for one round."""
    return Shown(one.text, one.tokens, one.height, {
        "computations": one.computations, "waits": one.waits, "messages": one.messages,
        "marks": pd.DataFrame({"x": [one.tokens["left"]]})}, one.nodes)


def waiting(states: pd.DataFrame) -> Figure:
    """Seconds by node and what it did."""
    wide = states.pivot(index="node", columns="state", values="seconds")
    order = wide.sort_values("waiting", ascending=False, kind="stable").index
    kept = order[:_NODES]
    frame = states[states["node"].isin(kept)]
    frame = frame[frame["seconds"] > 0].assign(rank=ranked(frame["state"], STATES))
    names = states.drop_duplicates("node").set_index("node")["name"]
    chart = stacked(
        named("states"), alt.Y("name:N", title=None, sort=names.loc[kept].tolist()),
        alt.X("seconds:Q", title="virtual seconds"), "state", STATES, _STATE_COLOURS,
        ["name:N", "role:N", "state:N", alt.Tooltip("seconds:Q", format=",.4f")])
    cut = "" if len(order) <= _NODES else f" The {_NODES} of {len(order):,} nodes that waited longest."
    top = f"{names.loc[order[0]]} waited longest, {amount(wide.loc[order[0], 'waiting'], 's')}" if len(order) else ""
    table = wide.loc[order, list(STATES)].add_suffix("_s").reset_index()
    table.insert(1, "name", names.loc[order].to_numpy())
    return Figure("waiting", "Time of each node, by activity",
                  "Waiting: for messages, or sleeping. Between rounds: for the next one to begin. The time after the "
                  f"end of a role is left out.{cut}", f"Stacked bars of time by node. {top}.",
                  in_rows(chart, len(kept)), {"states": frame}, table, least_width=320)


_HOW = ["arrival", "loss known", "deadline", "round over", "a departure"]
_HOW_COLOURS = ["$s1", "$lost", "$late", "$s4", "$wait"]
_HOW_SHAPES = ["circle", "cross", "triangle-up", "square", "diamond"]


def delays(found: pd.DataFrame) -> Figure:
    """The nodes that ended the longest wait of each round."""
    total = found.groupby("cause")["waited_s"].sum().sort_values(ascending=False, kind="stable")
    kept = found.assign(cause=found["cause"].where(found["cause"].isin(total.index[:_CAUSES]), "others"))
    kept, width = binned(kept, ["cause", "how"], {"waited_s": "mean", "alone_s": "mean", "decider": "size"})
    kept = kept.rename(columns={"decider": "waits"})
    order = [*total.index[:_CAUSES], *(["others"] if len(total) > _CAUSES else [])]
    legend = alt.Legend(columns=3)
    chart = named("delays").mark_point(filled=True, opacity=0.85).encode(
        x=alt.X("round:Q", title="round", axis=round_axis(kept["round"].min(), kept["round"].max()),
                scale=alt.Scale(zero=False)),
        y=alt.Y("cause:N", title=None, sort=order, axis=alt.Axis(grid=True)),
        size=alt.Size("waited_s:Q", title="waited, s", scale=alt.Scale(range=[0, 320]),
                      legend=alt.Legend(tickCount=2, symbolFillColor="$muted", symbolStrokeWidth=0, format=".3~g")),
        color=coloured("how", _HOW, _HOW_COLOURS, "ended by", legend=legend),
        shape=alt.Shape("how:N", title="ended by", legend=legend, scale=alt.Scale(domain=_HOW, range=_HOW_SHAPES)),
        tooltip=["round:Q", "cause:N", "how:N", "waits:Q", alt.Tooltip("waited_s:Q", format=".4f"),
                 alt.Tooltip("alone_s:Q", format=".4f")])
    often = found["cause"].value_counts().head(3)
    said = ", ".join(f"{name} {count} times" for name, count in often.items())
    cut = f" {width} rounds to a point, with the means of their waits." if width > 1 else ""
    return Figure("delays", "Delays of each round",
                  "The longest wait of each deciding node in each round, by the event that ended it. A message that "
                  "came last, or whose loss became known last, names its sender. A deadline names every node whose "
                  "message came later or was lost. waited_s: the length of the wait. alone_s: the part of it after the "
                  f"last but one message, which this sender alone cost.{cut}",
                  f"Points by round and cause. Most often: {said}.",
                  in_rows(chart, len(order), least=3), {"delays": kept},
                  found.sort_values(["round", "decider"]), least_width=340)


def computing(found: pd.DataFrame) -> Figure:
    """Virtual seconds by role and label, and what this machine took."""
    frame = found.assign(what=found["role"] + ", " + found["label"])
    roles = list(dict.fromkeys(frame["role"]))
    y = row_axis("what", frame["what"].tolist())
    told = ["role:N", "label:N", alt.Tooltip("count:Q", format=","),
            alt.Tooltip("virtual_s:Q", title="virtual s", format=",.4f"),
            alt.Tooltip("real_cpu_s:Q", title="real CPU s", format=",.4f"),
            alt.Tooltip("mean_ms:Q", title="mean, virtual ms", format=",.4f"),
            alt.Tooltip("largest_ms:Q", title="largest, virtual ms", format=",.4f")]
    bars = named("computing").mark_bar().encode(
        y=y, x=alt.X("virtual_s:Q", title="seconds, all nodes and rounds together"), tooltip=told,
        color=coloured("role", roles, palette.series(len(roles))))
    ticks = named("computing").mark_tick(thickness=3, color="$text").encode(
        y=y, x=alt.X("real_cpu_s:Q", title="seconds, all nodes and rounds together"), tooltip=told)
    top = f"{frame['what'][0]}: {amount(frame['virtual_s'][0], 's')}" if len(frame) else "nothing was computed"
    return Figure("computing", "Computing by role and label",
                  "Bars: virtual seconds charged. Upright ticks: CPU seconds that the computations really took on the "
                  "machine of the run, whose speed need not be that of the virtual one.",
                  f"Bars of virtual seconds by role and label. Largest is {top}.",
                  in_rows(bars + ticks, len(frame)), {"computing": frame}, found, least_width=320)


def computing_by_run(frames: dict[str, pd.DataFrame]) -> Figure:
    """Virtual seconds of several runs side by side, by label."""
    found = pd.concat([f.assign(run=name) for name, f in frames.items()], ignore_index=True)
    found = found.assign(what=found["role"] + ", " + found["label"])
    order = found.groupby("what")["virtual_s"].sum().sort_values(ascending=False).index.tolist()
    if len(order) > palette.SERIES:
        found["what"] = found["what"].where(found["what"].isin(order[:palette.SERIES - 1]), "others")
        order = [*order[:palette.SERIES - 1], "others"]
    # 1.2e-7 and not 0.00000012, which went out of a figure of a column's width at the right end of the axis. Vega gives
    # a `format` without a precision one of its own, and writes 2e+1 for 20.
    chart = named("computing").mark_bar().encode(
        y=row_axis("run", list(frames)),
        x=alt.X("virtual_s:Q", title="virtual seconds", axis=alt.Axis(labelExpr="format(datum.value, '.6~g')")),
        color=coloured("what", order, palette.series(len(order)), legend=alt.Legend(columns=3)),
        tooltip=["run:N", "role:N", "label:N", alt.Tooltip("count:Q", format=","),
                 alt.Tooltip("virtual_s:Q", title="virtual s", format=",.4f")])
    said = "; ".join(f"{name} {amount(f['virtual_s'].sum(), 's')}" for name, f in frames.items())
    return Figure("computing-by-run", "Computing side by side", "Virtual seconds charged, by role and label.",
                  f"Stacked bars of computing by run: {said}.", in_rows(chart, len(frames)),
                  {"computing": found}, found[["run", "role", "label", "count", "virtual_s", "real_cpu_s"]],
                  least_width=320)


# --- studies --------------------------------------------------------------------------------------------------------

def differences(found: pd.DataFrame) -> list[Figure]:
    """A figure a metric: mean difference to the baseline with its interval."""
    return [_difference(str(metric), part, i) for i, (metric, part)
            in enumerate(found.groupby("metric", sort=False), 1) if part["mean"].notna().any()]


def _difference(metric: str, part: pd.DataFrame, number: int) -> Figure:
    unit = str(part["unit"].iloc[0] or "")
    part = part.assign(pair=part["scheme"] + " − " + part["baseline"])
    y = row_axis("pair", part["pair"].tolist(), 260)
    title = "difference" + (f", {unit}" if unit else " in accuracy" if metric.startswith("accuracy") else "")
    zero = named("zero").mark_rule(color="$muted", strokeDash=[3, 3]).encode(x="x:Q")
    told = ["pair:N", "n_seeds:Q", alt.Tooltip("mean:Q", format=",.4f"), alt.Tooltip("low:Q", format=",.4f"),
            alt.Tooltip("high:Q", format=",.4f"), "note:N"]
    text = "Left of the dashed line the first of the two has less, which is "
    text += "worse." if metric.startswith("accuracy") else "better."
    bars = []                               # Vega warns of bars of which none has ends
    for low, high, width, said in (("t_low", "t_high", 1, "Thin bar: that of the paired t-test."),
                                   ("low", "high", 3, "Thick bar: the interval of the bootstrap.")):
        if low in part and part[low].notna().any():
            bars.append(named("differences").mark_rule(strokeWidth=width, color="$s1").encode(
                y=y, x=alt.X(f"{low}:Q", title=title), x2=f"{high}:Q", tooltip=told))
            text += f" {said}"
    dots = named("differences").mark_point(filled=True, size=80, color="$s1", opacity=1).encode(
        y=y, x=alt.X("mean:Q", title=title), tooltip=told)
    seen = "; ".join(f"{r['pair']}: {r['mean']:.4g} {unit}" + (
        f" ({r['low']:.4g} to {r['high']:.4g})" if pd.notna(r["low"]) else "") for _, r in part.iterrows()
        if pd.notna(r["mean"]))
    return Figure(f"difference-{number}", metric.replace("_", " ").capitalize(),
                  text, f"Differences: {seen}.", whole(alt.layer(zero, *bars, dots), height=30 * max(2, len(part))),
                  {"differences": part.drop(columns=["metric"]), "zero": pd.DataFrame({"x": [0]})},
                  part.drop(columns=["pair"]), least_width=300)


# --- the samples that each node held: what a partition made of the data ---------------------------------------------

_HOLDERS, _CLASSES = 40, 60       # rows and columns that the figure shows, at most
_SHORT = 3                        # characters of a class's name that fit over its column


def samples_held(run: RunData) -> pd.DataFrame:
    """`samples.parquet` of the run, `SAMPLE_COLUMNS`; empty where it has none. Raises RecordError."""
    file = run.path / SAMPLES
    if not file.is_file():
        return pd.DataFrame(columns=list(SAMPLE_COLUMNS))
    *needed, class_name = SAMPLE_COLUMNS        # tables of before have no names of classes
    found: pd.DataFrame = read_table(file, needed, (class_name,)).to_pandas()
    return found


def samples_by_class(found: pd.DataFrame) -> Figure:
    """The matrix from nodes to classes; a bar a node where targets are no labels."""
    held = found.groupby(["node", "name"], sort=True)["samples"].sum().reset_index()
    shown = held.iloc[np.unique(np.linspace(0, len(held) - 1, min(len(held), _HOLDERS)).round().astype(int))]
    frame = found[found["node"].isin(shown["node"])]
    labelled = found["class"].notna().all()
    classes = found.groupby("class")["samples"].sum().nlargest(_CLASSES).index.sort_values() if labelled else []
    label = {row.node: f"{row.name} ({row.samples:,})" for row in shown.itertuples(index=False)}
    y = row_axis("holder", list(label.values()))
    class_names = _class_names(found)
    kind = "class:N" if class_names else "class:O"
    told = ["name:N", *([kind] if labelled else []), alt.Tooltip("samples:Q", format=",")]
    if labelled:
        frame = frame[frame["class"].isin(classes)].astype({"class": int})
        if class_names:
            frame["class"] = frame["class"].map(class_names)
        long = max(map(len, class_names.values()), default=0) > _SHORT
        chart = named("samples").mark_rect(stroke="$card", strokeWidth=1).encode(
            x=alt.X(kind, title="class", sort=[class_names[c] for c in classes] if class_names else "ascending",
                    axis=alt.Axis(labelAngle=-40 if long else 0, labelLimit=110, labelOverlap=not long)),
            y=y, tooltip=told,
            color=alt.Color("samples:Q", title="samples", scale=alt.Scale(
                domain=[0, int(frame["samples"].max())], range=["$line", "$s1"]),
                legend=alt.Legend(gradientLength=120, tickCount=2, format=",d")))
        table = found.pivot(index=["node", "name"], columns="class", values="samples").fillna(0).astype(int)
        table = table.rename(columns=lambda c: class_names.get(c, f"class {c}")).reset_index().merge(held.rename(
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
                  in_rows(chart, len(shown), px=18, least=3),
                  {"samples": frame.assign(holder=frame["node"].map(label)).drop(columns=["node"])}, table,
                  least_width=320)


def _class_names(found: pd.DataFrame) -> dict[int, str]:
    """Class -> its name, each once, of a set whose classes have names; {} of others."""
    rows = found.drop_duplicates("class") if "class_name" in found else found.iloc[:0]
    if rows.empty or rows["class_name"].isna().any():
        return {}
    names = {int(c): str(name) for c, name in zip(rows["class"], rows["class_name"], strict=True)}
    twice = len({*names.values(), "node", "name", "all"}) < len(names) + 3      # columns of the table
    return {c: f"{c} {name}" if twice else name for c, name in names.items()}


def _range(values: pd.Series) -> str:
    """The least and the largest value.

    >>> _range(pd.Series([150, 1200])), _range(pd.Series([3, 3]))
    ('150 to 1,200', '3')
    """
    least, most = int(values.min()), int(values.max())
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
