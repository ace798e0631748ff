"""The links of a run over its whole time: contacts with their transfers, background traffic beside the scheme's."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd

from emul.record.tables import read_table
from emul.report.data import RunData
from emul.report.drawing import Figure, coloured, in_rows, named, row_axis, whole
from emul.report.film import KINDS, journeys
from emul.report.spacetime import spaced, unit_of

_LINKS = 24             # of a plan that are drawn, those with the most bytes
_BARS = 3000            # contacts, and transfers, at most
_SHARED, _BINS = 6, 120         # links with background traffic, and parts of the time axis
_HEIGHT = 0.85          # of a row of that figure, that its largest rate takes
_RATES, _ARRIVALS = "background_bps", "arrival_bytes"


def contact_plan(run: RunData, contacts: pd.DataFrame) -> Figure:
    """A row a link: its contacts as pale bars, and its transfers on top, over the whole run. contacts: as of
    `moving.contacts_of`."""
    moved = journeys(run)
    names = np.array(run.vertices, dtype=object)

    def linked(u: np.ndarray, v: np.ndarray) -> np.ndarray:
        return names[u] + "→" + names[v]

    key = contacts["u"].to_numpy(np.int64) << 32 | contacts["v"].to_numpy(np.int64)
    on = moved.columns["u"] << 32 | moved.columns["v"]
    planned = np.unique(key)
    moved = moved.only(np.isin(on, planned))
    on = moved.columns["u"] << 32 | moved.columns["v"]
    load = np.zeros(len(planned), np.int64)
    np.add.at(load, np.searchsorted(planned, on), moved.columns["wire"])
    chosen = planned[np.lexsort((np.arange(len(planned)), -load))][:_LINKS]
    order = sorted(linked(chosen >> 32, chosen & 0xFFFFFFFF).tolist(), key=_natural)
    unit, factor = unit_of(max(run.end_ns, 1))
    met = contacts[np.isin(key, chosen)]
    table = pd.DataFrame({"link": linked(met["u"].to_numpy(), met["v"].to_numpy()), "what": "contact",
                          "from": met["from_ns"] / factor, "to": met["to_ns"] / factor, "bytes": 0})
    drawn = moved.only(np.isin(on, chosen))
    transfers = pd.DataFrame({"link": linked(drawn.columns["u"], drawn.columns["v"]), "what": drawn.columns["kind"],
                              "from": drawn.begin / factor, "to": drawn.end / factor, "bytes": drawn.columns["wire"]})
    bars = table.iloc[spaced(len(table), _BARS)].drop(columns="bytes")
    over = transfers.iloc[spaced(len(transfers), _BARS)]
    y = row_axis("link", order)
    x = alt.X("from:Q", title=f"{unit} of virtual time", scale=alt.Scale(domain=[0, run.end_ns / factor], nice=False))
    whats, colours = ["contact", *KINDS], ["$between", "$s1", "$late", "$lost"]
    colour = coloured("what", whats, colours, legend=alt.Legend(columns=2))
    told = ["link:N", "what:N", alt.Tooltip("from:Q", title=f"from, {unit}", format=",.4~f"),
            alt.Tooltip("to:Q", title=f"to, {unit}", format=",.4~f")]
    stroke = alt.Stroke(field="what", type="nominal", legend=None,         # also of no length
                        scale={"domain": whats, "range": colours})
    chart = (named("contacts").mark_bar(height={"band": 0.8}).encode(x=x, x2="to:Q", y=y, color=colour, tooltip=told)
             + named("transfers").mark_bar(height={"band": 0.35}, strokeWidth=1.5).encode(
                 x=x, x2="to:Q", y=y, color=colour, stroke=stroke, tooltip=[*told, alt.Tooltip("bytes:Q", format=",")]))
    cut = "" if len(planned) <= _LINKS else f" The {_LINKS} links of {len(planned):,} that were offered most bytes."
    if len(over) < len(transfers) or len(bars) < len(table):
        cut += f" {len(bars):,} of {len(table):,} contacts and {len(over):,} of {len(transfers):,} transfers are drawn."
    return Figure("contacts", "Contacts and transfers of each link",
                  "A row is one direction of a link that transmits only in contacts. Wide bars: its contacts. Narrow "
                  f"bars: messages, from their offer to the link to their arrival behind it, waiting included.{cut}",
                  f"Bars by link: {len(table):,} contacts and {len(transfers):,} transfers of {len(order):,} links "
                  f"over {run.end_ns / factor:.4g} {unit}.",
                  in_rows(chart, len(order), px=20), {"contacts": bars, "transfers": over},
                  pd.concat([table, transfers], ignore_index=True).rename(
                      columns={"from": f"from_{unit}", "to": f"to_{unit}"}), least_width=340)


def _natural(name: str) -> list[tuple[int, str]]:
    """client2 before client10."""
    import re

    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def shared_links(run: RunData) -> Figure | None:
    """The rates of background traffic and of the scheme on one time axis, of the links with most background that the
    scheme used; None: the record of the draws of the links has no background."""
    if run.derived is not None:
        return None
    rows = read_table(run.path / "network.parquet", where=("what", (_RATES, _ARRIVALS))).to_pandas()
    if not len(rows):
        return None
    end = max(run.end_ns, 1)
    edges = np.linspace(0, end, _BINS + 1)
    begin = rows["start_ns"].to_numpy(float)
    arrives = (rows["what"] == _ARRIVALS).to_numpy()
    until = np.where(arrives, begin + 1, rows["end_ns"].astype(float).fillna(end).to_numpy())
    size = np.where(arrives, rows["value"], rows["value"] * (until - begin) / 8e9)
    good = (begin < end) & (until > begin) & np.isfinite(size)
    link = (rows["source"] + "→" + rows["destination"]).to_numpy(object)
    moved, names = journeys(run), np.array(run.vertices, dtype=object)
    on = names[moved.columns["u"]] + "→" + names[moved.columns["v"]]
    found = {}
    for name in dict.fromkeys(link[good].tolist()):
        mine = good & (link == name)
        there = on == name
        if there.any():
            own = moved.only(there)
            start = own.begin.astype(float)
            found[name] = (_rates(begin[mine], until[mine], size[mine], edges), _rates(
                start, np.maximum(own.end.astype(float), start + 1), own.columns["wire"].astype(float), edges))
    if not found:
        return None
    most = sorted(found, key=lambda name: (-found[name][0].sum(), name))[:_SHARED]
    return _shared(run, {name: found[name] for name in sorted(most, key=_natural)}, edges, len(found))


def _rates(begin: np.ndarray, until: np.ndarray, size: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """(bins,) mean bit/s of bytes that are each spread evenly from `begin` to `until`, ns."""
    slope = size / (until - begin)
    times = np.concatenate([begin, until])
    order = np.argsort(times, kind="stable")
    times, rate = times[order], np.cumsum(np.concatenate([slope, -slope])[order])
    amount = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(times))])
    return np.maximum(np.diff(np.interp(edges, times, amount)), 0) * 8e9 / np.diff(edges)


def _shared(run: RunData, found: dict[str, tuple[np.ndarray, np.ndarray]], edges: np.ndarray, total: int) -> Figure:
    unit, factor = unit_of(max(run.end_ns, 1))
    kinds = ("background", "scheme")
    frames, labels = [], []
    for i, (name, (background, own)) in enumerate(found.items()):
        base = len(found) - 1 - i
        top = max(float((background + own).max()), 1e-9)
        labels.append((base + _HEIGHT / 2, f"{name}, to {top / 1e6:.3g} Mbit/s"))
        low = np.full(_BINS, float(base))
        for kind, rate in zip(kinds, (background, own), strict=True):
            high = low + rate / top * _HEIGHT
            steps = np.flatnonzero(np.append(True, np.abs(np.diff(low)) + np.abs(np.diff(high)) > 1e-9))
            frames.append(pd.DataFrame({
                "link": name, "kind": kind, "from": edges[steps] / factor,
                "to": edges[np.append(steps[1:], _BINS)] / factor, "mbps": rate[steps] / 1e6, "low": low[steps],
                "high": high[steps]}))
            low = high
    every = pd.concat(frames, ignore_index=True)
    places, said = [place for place, _ in labels], [text for _, text in labels]
    axis = alt.Axis(values=places, labelExpr="said[indexof(places, datum.value)]", grid=False, domain=False,
                    ticks=False, labelLimit=220, labelPadding=6)
    x = alt.X("from:Q", title=f"{unit} of virtual time", scale=alt.Scale(domain=[0, run.end_ns / factor], nice=False))
    chart = named("rates").mark_rect().encode(
        x=x, x2="to:Q", y=alt.Y("low:Q", title=None, axis=axis, scale=alt.Scale(domain=[0, len(found)], nice=False)),
        y2="high:Q", color=coloured("kind", list(kinds), ["$s6", "$s1"], legend=alt.Legend(columns=2)),
        tooltip=["link:N", "kind:N", alt.Tooltip("mbps:Q", title="Mbit/s", format=",.4~f"),
                 alt.Tooltip("from:Q", title=f"from, {unit}", format=",.4~f")])
    floors = named("floors").mark_rule(color="$line").encode(y="low:Q")
    chart = (floors + chart).add_params(alt.param(name="places", value=places), alt.param(name="said", value=said))
    cut = "" if total <= len(found) else f" The {len(found)} links of {total:,} with the most background."
    means = "; ".join(f"{name} {background.mean() / 1e6:.3g} and {own.mean() / 1e6:.3g} Mbit/s"
                      for name, (background, own) in found.items())
    return Figure("shared-links", "Background and scheme on one time axis",
                  "A row is a link, as high as its largest rate, of which the name says how much it is. On top of the "
                  "background that was offered to the link stand the bytes of the scheme, each message spread evenly "
                  "from its offer to the link to its arrival behind it. Flows that never end have no rate of their "
                  f"own.{cut}",
                  f"Mean rates of background and scheme by link: {means}.",
                  whole(chart, height=64 * len(found)),
                  {"rates": every[(every["high"] > every["low"])], "floors": pd.DataFrame({"low": range(len(found))})},
                  every[["link", "kind", "from", "to", "mbps"]].rename(
                      columns={"from": f"from_{unit}", "to": f"to_{unit}"}), least_width=340)
