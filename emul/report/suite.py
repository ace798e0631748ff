"""The page of a suite: networks x schemes, differences to a baseline, ranks, fronts, what cannot run.

Files of its directory: study.json, suite.parquet, differences.parquet, and those of `emul.report.study`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from emul.record.journal import RecordError
from emul.record.marks import NOTE, among, in_words, mean_text
from emul.record.rundir import read_json
from emul.record.tables import read_table
from emul.report.cards import of_suite
from emul.report.drawing import Figure, named, slug, whole
from emul.report.page import Part
from emul.report.study import STUDY
from emul.report.tradeoffs import front_figure, on_front, scheme_marks

KIND = "suite"
_METRICS = {"time": "Time to the target, s", "bytes": "MB to the target", "accuracy": "Accuracy at the end"}
_COSTS = {"time": "virtual_s", "bytes": "mb"}       # as front figures call them
_RANKED = {"time": "by time", "bytes": "by bytes", "accuracy": "by accuracy"}
_BEST = "The best scheme of each network; in brackets the second, and how many times as much it takes"


def is_suite(path: Path) -> bool:
    """True if it is the directory of a suite."""
    try:
        return read_json(path / STUDY).get("kind") == KIND
    except RecordError:
        return False


def suite_parts(path: Path) -> tuple[str, list[Part]]:
    """Title and sections. Raises RecordError for a suite that has not come to its end."""
    said = read_json(path / STUDY)
    if "badge" not in said:
        raise RecordError(f"{path}: this suite has not come to its end; `emul suite` goes on with it")
    table, differences = (read_table(path / f"{name}.parquet").to_pandas() for name in ("suite", "differences"))
    if not len(table):
        raise RecordError(f"{path}: no run of this suite has ended")
    knowing = table.loc[table["oracle_waits"] > 0, "scheme"].unique().tolist()
    kinds = table.set_index("scheme")["accuracy_of"].map(in_words).to_dict()
    several = len({*kinds.values()}) > 1
    marks = {scheme: among(scheme, knowing) + (f" ({kinds[scheme]})" if several and kinds.get(scheme) else "")
             for scheme in said["schemes"]}
    table = table.assign(scheme=table["scheme"].map(marks))
    differences = differences.assign(scheme=differences["scheme"].map(marks),
                                     baseline=differences["baseline"].map(marks))
    schemes = [marks[scheme] for scheme in said["schemes"] if marks[scheme] in set(table["scheme"])]
    networks = [network for network in said["networks"] if network in set(table["network"])]
    refused = {(one["network"], marks[one["scheme"]]) for one in said["refused"]}
    target = "" if said["target"] is None else f" The target is an accuracy of {said['target']:g}."
    about = f"{said['badge']}.{target} Tables for a paper: suite.tex and suite.csv beside this page."
    about += f" {NOTE}." if knowing else ""
    parts = [
        Part("overview", "Overview", answer=said["answer"], cards=of_suite(said, networks, schemes),
             text=about, tables=[(_BEST, _winners(table, networks))]),
        Part("networks", "Networks and schemes", [dots(table, metric, networks, schemes) for metric in _METRICS
                                                  if table[metric].notna().any()],
             text="A point is the mean over the seeds, a bar its 95 % interval by Student's t, from 3 seeds on. A "
                  "scheme without a point did not reach the target there, or cannot run there.",
             folded=[(f"{title}: mean (interval; n/m: n of m seeds reached the target; x: cannot run)",
                      _crossed(table, metric, networks, schemes, refused)) for metric, title in _METRICS.items()
                     if table[metric].notna().any()]),
        _compared(differences),
        Part("ranks", "Ranks by network", text="1 is the best. A scheme that reached the target on more seeds goes "
             "before those that reached it on fewer; empty: it never did.",
             tables=[(_RANKED[metric].capitalize(), _ranks(table, metric, networks, schemes)) for metric in _METRICS
                     if table[metric].notna().any()]),
        _fronts(table, networks, schemes)]
    if said["refused"] or said["failed"]:
        left_out = [("A scheme that cannot run on a network", pd.DataFrame(said["refused"]))] if said["refused"] else []
        if said["failed"]:
            left_out.append(("Runs that failed", pd.DataFrame([
                {**{key: one.get(key) for key in ("network", "scheme", "seed")},
                 "error": "".join(str(one.get("error", "")).strip().splitlines()[-1:])} for one in said["failed"]])))
        parts.append(Part("left-out", "What could not run", tables=left_out))
    results = read_table(path / "results.parquet").to_pandas()[
        ["directory", "accuracy", "rounds", "virtual_s", "bytes", "messages_lost", "real_s", "digest"]]
    runs = pd.DataFrame([{name: entry[name] for name in ("network", "scheme", "seed", "directory")}
                         for entry in said["runs"]]).merge(results, on="directory", how="left").assign(
        digest=lambda f: f["digest"].astype(str).str[:12]).drop(columns="directory")
    parts.append(Part("all", "All runs", folded=[("A row for each run; emul report RUN shows one", runs)]))
    return f"Suite {said['suite']}: {said['task']}", parts


def _winners(table: pd.DataFrame, networks: Sequence[str]) -> pd.DataFrame:
    rows = []
    kinds = list(dict.fromkeys(table["accuracy_of"]))
    for network, kind in product(networks, kinds):
        row: dict[str, Any] = {"network": network, **({"accuracy of": in_words(kind)} if len(kinds) > 1 else {})}
        for metric, head in _RANKED.items():
            mine = table[(table["network"] == network) & (table["accuracy_of"] == kind)
                         & table[f"{metric}_rank"].notna()].sort_values(f"{metric}_rank")
            row[head] = "" if mine.empty else str(mine.iloc[0]["scheme"]) + _second(mine, metric)
        rows.append(row)
    return pd.DataFrame(rows)


def _second(mine: pd.DataFrame, metric: str) -> str:
    if len(mine) < 2 or not mine.iloc[0][metric]:
        return ""
    first, second = mine.iloc[0], mine.iloc[1]
    more = (f"{first[metric] - second[metric]:.3f} less" if metric == "accuracy" else
            f"on {second['reached']:.0f} of {second['seeds']:.0f} seeds" if second["reached"] < first["reached"] else
            f"{second[metric] / first[metric]:.3g} times")
    return f" ({second['scheme']}, {more})"


def _crossed(table: pd.DataFrame, metric: str, networks: Sequence[str], schemes: Sequence[str],
             refused: set[tuple[str, str]]) -> pd.DataFrame:
    """Networks x schemes, each mean with its interval, as text."""
    found = table.set_index(["network", "scheme"])

    def cell(network: str, scheme: str) -> str:
        if (network, scheme) in refused:
            return "x"
        if (network, scheme) not in found.index:
            return ""
        row = found.loc[(network, scheme)]
        counted = f"{row['reached']:.0f}/{row['seeds']:.0f}" if metric != "accuracy" else ""
        if pd.isna(row[metric]):
            return counted
        low, high = row[f"{metric}_low"], row[f"{metric}_high"]
        ends = "" if pd.isna(low) else f"{mean_text(metric, low)} to {mean_text(metric, high)}"
        more = [ends, counted if row["reached"] < row["seeds"] else ""]
        return mean_text(metric, row[metric]) + (f" ({'; '.join(filter(None, more))})" if any(more) else "")

    return pd.DataFrame([{"network": network, **{scheme: cell(network, scheme) for scheme in schemes}}
                         for network in networks])


def dots(table: pd.DataFrame, metric: str, networks: Sequence[str], schemes: Sequence[str]) -> Figure:
    """Schemes on one axis, a row for each network: the order of points tells who wins where."""
    frame = table.dropna(subset=[metric]).rename(columns={"scheme": "series"})[
        ["network", "series", "accuracy_of", metric, f"{metric}_low", f"{metric}_high", "reached", "seeds"]]
    spread = frame[metric].max() / max(frame[metric].min(), 1e-12)
    scale = alt.Scale(type="log") if metric != "accuracy" and spread > 8 else alt.Scale(zero=False)
    y = alt.Y("network:N", title=None, sort=list(networks), axis=alt.Axis(grid=True))
    title = _METRICS[metric][:1].lower() + _METRICS[metric][1:] if metric != "bytes" else _METRICS[metric]
    x = alt.X(f"{metric}:Q", title=title, scale=scale)
    colour, shape = scheme_marks(list(schemes), list(schemes))
    offset = alt.YOffset("series:N", sort=list(schemes))
    told: Any = ["network:N", alt.Tooltip("series:N", title="scheme"), alt.Tooltip(f"{metric}:Q", format=",.4~g"),
                 "reached:Q", "seeds:Q"]
    base = named("schemes").encode(y=y, yOffset=offset, color=colour, tooltip=told)
    # the ends of an interval below 0 are no place on a logarithmic axis
    bars = [base.transform_filter(f"isValid(datum.{metric}_low) && datum.{metric}_low > 0").mark_rule(
        strokeWidth=1.5, opacity=0.6).encode(x=alt.X(f"{metric}_low:Q", title=title, scale=scale),
                                            x2=f"{metric}_high:Q")] if (frame[f"{metric}_low"] > 0).any() else []
    points = base.mark_point(filled=True, size=60, opacity=1).encode(x=x, shape=shape)
    by_kind = frame.groupby(["network", "accuracy_of"], sort=False)[metric]
    best = frame.loc[by_kind.idxmin() if metric != "accuracy" else by_kind.idxmax()]
    words = "; ".join(f"{row['network']}: {row['series']}" for _, row in best.iterrows())
    return Figure(f"suite-{metric}", _METRICS[metric], "A row is a network, a point a scheme; " + (
        "to the right is better." if metric == "accuracy" else "to the left is better."),
        f"Points by network. The {'largest' if metric == 'accuracy' else 'least'}: {words}.",
        whole(alt.layer(*bars, points), height=max(14 * len(schemes), 40) * len(networks) // 2 + 40),
        {"schemes": frame}, frame, least_width=340)


def _compared(differences: pd.DataFrame) -> Part:
    if not len(differences):
        return Part("differences", "Differences to the baseline", text="There is no scheme to compare it with.")
    baseline = differences["baseline"].iloc[0]
    known = differences.dropna(subset=["p_holm"])
    clear = known[known["p_holm"] < 0.05]
    text = f"Scheme minus {baseline}, seed by seed: on one seed both meet the same realisation of the network. " + (
        f"Of {len(known)} differences with an interval {len(clear)} are settled, marked with ! (paired t-test, p by "
        "Holm within a network and measure below 0.05)." if len(known) else
        "No difference has an interval: that takes three seeds.")
    tables = []
    for metric, title in _METRICS.items():
        mine = differences[differences["metric"] == metric]
        if len(mine):
            tables.append((title, _differing(mine, metric)))
    return Part("differences", f"Differences to {baseline}", text=text, tables=tables[:1], folded=[
        *tables[1:], ("All differences, with their tests", differences.drop(columns="baseline"))])


def _differing(mine: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Networks x schemes of mean differences; in bold letters nothing, but `!` where it is settled."""
    def cell(row: Any) -> str:
        sign = f"{row['mean']:+.3f}" if metric == "accuracy" else f"{row['mean']:+,.3g}"
        if abs(row["mean"]) >= 1000:
            sign = f"{row['mean']:+,.0f}"
        return sign + (" !" if row["p_holm"] == row["p_holm"] and row["p_holm"] < 0.05 else "")

    texts = mine.assign(said=[cell(row) for _, row in mine.iterrows()])
    crossed = texts.pivot(index="network", columns="scheme", values="said")
    order = [list(dict.fromkeys(mine[name])) for name in ("network", "scheme")]
    return crossed.loc[order[0], order[1]].fillna("").rename_axis(columns=None).reset_index()


def _ranks(table: pd.DataFrame, metric: str, networks: Sequence[str], schemes: Sequence[str]) -> pd.DataFrame:
    ranks = table.pivot(index="network", columns="scheme", values=f"{metric}_rank").reindex(
        index=networks, columns=schemes)
    shown = ranks.map(lambda rank: "" if rank != rank else f"{rank:.0f}")
    first = (ranks == 1).sum()
    shown.loc["best on"] = [f"{first[scheme]}" for scheme in schemes]
    return shown.rename_axis(index="network", columns=None).reset_index()


def _fronts(table: pd.DataFrame, networks: Sequence[str], schemes: Sequence[str]) -> Part:
    """Of each network the schemes that no other beats in time and bytes at once."""
    rows, group = [], []
    kinds = list(dict.fromkeys(table["accuracy_of"]))
    for network, kind in product(networks, kinds):
        mine = table[(table["network"] == network) & (table["accuracy_of"] == kind)
                     & (table["reached"] == table["seeds"]) & (table["seeds"] > 0)]
        name = network if len(kinds) == 1 else f"{network}, {in_words(kind)} accuracy"
        if mine.empty:
            rows.append({"network": name, "on the front": "no scheme reached the target on every seed"})
            continue
        front = on_front(mine[[*_COSTS]].to_numpy(float))
        rows.append({"network": name, "on the front": ", ".join(mine.loc[front, "scheme"])})
        if len(mine) > 1:
            drawn = front_figure(_as_costs(mine), "virtual_s", "mb", list(schemes))
            figure = replace(drawn, key=f"{slug(name)}-{drawn.key}", title=f"{name}: {drawn.title}")
            group.append(Part(f"front-{slug(name)}", name, group=[
                Part(f"front-{slug(name)}-costs", "Time and bytes", [figure])]))
    return Part("fronts", "Pareto fronts", tables=[("", pd.DataFrame(rows))], group=group, text=(
        "A scheme is on the front if no other one is at least as good in time and bytes to the target, and "
        "better in one. Only schemes that reached the target on every seed are compared."))


def _as_costs(mine: pd.DataFrame) -> pd.DataFrame:
    """Rows of the table as `front_figure` has them; without an interval its ends are the mean."""
    found = pd.DataFrame({"series": mine["scheme"], "seeds": mine["seeds"]})
    for metric, name in _COSTS.items():
        found[name] = mine[metric]
        for end in ("low", "high"):
            # an interval may reach below 0, where no cost is, and no logarithm
            found[f"{name}_{end}"] = mine[f"{metric}_{end}"].fillna(mine[metric]).clip(lower=mine[metric] / 10)
    return found.reset_index(drop=True)
