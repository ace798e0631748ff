"""What docs/fidelity.md says of deployments: tables and a figure, made of the committed data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.common import ROOT
from benchmarks.deployment import compare
from benchmarks.deployment.cases import BEST, MODELS
from benchmarks.deployment.runs import AGAIN, MEASURED, ROUNDS, SUMS
from benchmarks.document import replaced

PAGE = ROOT / "docs" / "fidelity.md"
HOME = ROOT / "docs" / "studies"
FIGURE = HOME / "figures" / "deployment.svg"
MARKS = "deployment"
MEDIAN, MOST = 0.02, 0.10           # the gates: median and 90th percentile of the error of a round


def tables(folder: Path) -> str:
    """Both tables, from the two files of a folder."""
    rounds, sums = pd.read_csv(folder / ROUNDS), pd.read_csv(folder / SUMS)
    return "\n".join([*_by_model(rounds), "", *_by_case(rounds, sums)])


def committed() -> pd.DataFrame:
    """The rounds that the page is made of."""
    return pd.read_csv(HOME / "data" / ROUNDS)


def off(rounds: pd.DataFrame, model: str) -> pd.Series:
    """Of every round, how far the model is off, relative and without sign."""
    return (rounds[model] / rounds[MEASURED] - 1).abs()


def means(rounds: pd.DataFrame, model: str) -> dict[str, float]:
    """case -> mean seconds of a round, by a model or as measured."""
    return rounds.groupby("case", sort=False)[model].mean().to_dict()


def networks(rounds: pd.DataFrame) -> pd.Series:
    """Of every round, the name of its network."""
    return rounds["case"].str.extract(r"^\w+ (\w+)")[0]


def asynchronous(rounds: pd.DataFrame) -> pd.Series:
    """Of every round, whether it ends with whoever comes first."""
    return rounds["case"].str.startswith("fedbuff")


def _by_model(rounds: pd.DataFrame) -> Iterator[str]:
    names = list(networks(rounds).unique())
    yield (f"| links as | {' | '.join(f'`{name}`' for name in names)} | 90th percentile without `wan` | with it: "
           "median | 90th percentile | Kendall's tau | with FedBuff: median | 90th percentile | Kendall's tau |")
    yield "|" + "---|" * (8 + len(names))
    together = ~asynchronous(rounds)
    for model in MODELS:
        found = off(rounds, model.name)
        each = found[together].groupby(networks(rounds)).median()
        shaped = together & (networks(rounds) != "wan")
        yield (f"| {model.written} | {' | '.join(_gated(each[name], MEDIAN) for name in names)} | "
               f"{_gated(found[shaped].quantile(0.9), MOST)} | {_sums(rounds[together], model.name)} | "
               f"{_sums(rounds, model.name)} |")


def _sums(rounds: pd.DataFrame, model: str) -> str:
    found = off(rounds, model)
    tau = compare.kendall(means(rounds, model), means(rounds, MEASURED))
    return f"{_gated(found.median(), MEDIAN)} | {_gated(found.quantile(0.9), MOST)} | {tau:.2f}"


def _gated(value: float, most: float) -> str:
    return f"{value:.1%}" if value <= most else f"**{value:.1%}**"


def _by_case(rounds: pd.DataFrame, sums: pd.DataFrame) -> Iterator[str]:
    yield ("| case | measured, s a round | emulated | a round: median error | 90th percentile | measured again: median "
           "| a node's round: median error | 90th percentile | sent, MB | emulated | on links, MB | emulated |")
    yield "|" + "---|" * 12
    error = off(rounds, BEST.name).groupby(rounds["case"])
    repeat = off(rounds, AGAIN).groupby(rounds["case"]).median()
    truth, said = means(rounds, MEASURED), means(rounds, BEST.name)
    for row in sums.to_dict("records"):
        case = row["case"]
        one = error.get_group(case)
        equal = "equal" if row["sent"] == row["sent_emulated"] else f"{row['sent_emulated'] / 1e6:.3f}"
        again = "" if pd.isna(repeat[case]) else f"{repeat[case]:.1%}"
        yield (f"| {case} | {truth[case]:.3f} | {said[case]:.3f} | {one.median():.1%} | {one.quantile(0.9):.1%} | "
               f"{again} | {row['node_median']:.1%} | {row['node_p90']:.1%} | {row['sent'] / 1e6:.3f} | {equal} | "
               f"{row['wire'] / 1e6:.1f} | {row['wire_emulated'] / 1e6:.1f} |")


def fill(machine: str) -> None:
    """Rewrite the tables of the page."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(replaced(text, MARKS, f"{tables(HOME / 'data')}\n\n{machine}."), encoding="utf-8")


def draw(folder: Path, file: Path) -> None:
    """Every round, emulated against measured, and how the cases rank: as SVG."""
    import altair as alt

    rounds = pd.read_csv(folder / ROUNDS)
    rounds["network"], rounds["emulated"] = networks(rounds), rounds[BEST.name]
    rounds["scheme"] = rounds["case"].str.partition(" ")[0]
    ends = [0.1, 8.0]
    scale = alt.Scale(type="log", domain=ends, nice=False, clamp=True)
    across, up = (alt.X("measured:Q", title="measured, seconds a round", scale=scale),
                  alt.Y("emulated:Q", title="emulated, seconds", scale=scale))
    line = alt.Chart(pd.DataFrame({"measured": ends, "emulated": ends})).mark_line(
        color="#b9c3cf", strokeWidth=1).encode(across, up)
    points = alt.Chart(rounds).mark_point(size=45, opacity=0.8).encode(
        across, up, color=alt.Color("network:N", scale=alt.Scale(range=["#0b6bb8", "#c4490b", "#12805c", "#7d3fc1"])),
        shape="scheme:N")
    alt.hconcat((line + points).properties(width=340, height=340), _ranks(rounds)).resolve_scale(
        color="independent", shape="independent").configure_view(stroke=None).save(file)


def _ranks(rounds: pd.DataFrame) -> Any:
    """Mean round of every case, the fastest above: measured, and by three ways to take the links."""
    import altair as alt

    shown = [MEASURED, BEST.name, "rtt_weighted", "fifo packetized"]
    colours, shapes = ["#1b2430", "#0b6bb8", "#b86a00", "#b9c3cf"], ["circle", "cross", "triangle-up", "diamond"]
    frame = rounds.groupby("case", as_index=False)[shown].mean().melt("case", shown, "links as", "seconds")
    order = compare.ranking(means(rounds, MEASURED))
    return alt.Chart(frame).mark_point(filled=True, size=55, opacity=0.9).encode(
        alt.X("seconds:Q", title="mean seconds a round", scale=alt.Scale(type="log", nice=False, padding=12)),
        alt.Y("case:N", sort=order, title=None, axis=alt.Axis(grid=True)),
        color=alt.Color("links as:N", scale=alt.Scale(domain=shown, range=colours)),
        shape=alt.Shape("links as:N", scale=alt.Scale(domain=shown, range=shapes)),
    ).properties(width=340, height=340)

