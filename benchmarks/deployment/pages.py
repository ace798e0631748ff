"""The part of docs/fidelity.md on deployments: tables and a figure, made of the committed data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import document
from benchmarks.common import ROOT
from benchmarks.deployment import compare
from benchmarks.deployment.cases import BEST, MODELS
from benchmarks.deployment.networks import CASES, PARTS, TAKEN
from benchmarks.deployment.predictions import BEFORE, FORMULAS, PREDICTING, PREDICTIONS, sample
from benchmarks.deployment.runs import MEASURED, ROUNDS, RUNS
from benchmarks.document import replaced

PAGE = ROOT / "docs" / "fidelity.md"
HOME = ROOT / "docs" / "studies"
FIGURE = HOME / "figures" / "deployment.svg"
FIRST, MARKS = "predicted", "deployment"        # the table at the top of the page; all others
MEDIAN, MOST = 0.02, 0.06           # the gates where queues are fair: median and 90th percentile of a round's error
FIFO = 0.05                         # and of the mean round where there is one queue
ALIKE = 0.01                        # the least p of Kolmogorov and Smirnov
LATER = "†"                         # of a prediction that was not there before the deployment
SAID = {"analytic": "sizes over rates plus latency", "appfl": "APPFL's formula", "feddes": "FedDES' formulas (FedAvg)",
        **{model.name: model.written for model in PREDICTING}}
BY_NAME = {case.name: case for case in [*CASES, *PARTS]}


# --- rows -----------------------------------------------------------------------------------------------------------

def read(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Rounds, deployments, predictions."""
    rounds, runs, predictions = (pd.read_csv(folder / name) for name in (ROUNDS, RUNS, PREDICTIONS))
    return rounds, runs, predictions


def committed() -> pd.DataFrame:
    """The rounds that the page is made of, without those of a changed kernel."""
    rounds = pd.read_csv(HOME / "data" / ROUNDS)
    return rounds[~changed(rounds)]


def off(rounds: pd.DataFrame, model: str) -> pd.Series:
    """Of every round, how far the model is off, relative and without sign."""
    return (rounds[model] / rounds[MEASURED] - 1).abs()


def means(rounds: pd.DataFrame, model: str = MEASURED) -> dict[str, float]:
    """case -> mean seconds of a round, by a model or as measured."""
    return rounds.groupby("case", sort=False)[model].mean().to_dict()


def networks(frame: pd.DataFrame) -> pd.Series:
    """Of every row, the name of its network."""
    return frame["case"].str.extract(r"^\w+ ([\w.]+)")[0]


def schemes(frame: pd.DataFrame) -> pd.Series:
    """Of every row, the name of its scheme."""
    return frame["case"].str.partition(" ")[0]


def asynchronous(frame: pd.DataFrame) -> pd.Series:
    """Of every row, whether its rounds end with whoever comes first."""
    return schemes(frame) == "fedbuff"


def changed(frame: pd.DataFrame) -> pd.Series:
    """Of every row, whether a part of TCP was taken away in its deployment."""
    return frame["case"].map(lambda case: any(part in case for part in TAKEN))


def judged_by_law(case: str) -> bool:
    """True if one deployment of the case differs from the next."""
    return BY_NAME[case].drawn


# --- tables ---------------------------------------------------------------------------------------------------------

def table_of_predictions(folder: Path) -> str:
    """Network x scheme: measured, predicted, error; the sentence behind it says what is beyond the gates."""
    rounds, _, predictions = read(folder)
    rounds = rounds[~changed(rounds)]
    truth, ours = means(rounds), predictions[predictions["predictor"] == BEST.name].set_index("case")
    columns = list(dict.fromkeys(schemes(rounds)))
    lines = _table("network", *columns)
    for network in dict.fromkeys(networks(rounds)):
        cells = []
        for scheme in columns:
            case = f"{scheme} {network}"
            if case not in truth or case not in ours.index:
                cells.append("")
                continue
            error = ours.loc[case, "mean"] / truth[case] - 1
            mark = "" if ours.loc[case, "standing"] == BEFORE else LATER
            cells.append(f"{truth[case]:.3f}, {ours.loc[case, 'mean']:.3f}{mark}, "
                         f"{_gated(error, MEDIAN if BY_NAME[case].net.discipline == 'htb' else FIFO, '+.1%')}")
        lines.append(_row(f"`{network}`", *cells))
    return "\n".join(lines)


def tables(folder: Path) -> str:
    """All tables but the first, from the files of a folder."""
    rounds, runs, predictions = read(folder)
    plain = rounds[~changed(rounds)]
    blocks = [_by_predictor(plain, predictions), _by_model(plain), _by_case(plain, runs, predictions)]
    laws = plain[plain["case"].map(judged_by_law)]
    if not laws.empty:
        blocks.append(_laws(laws, predictions))
    if len(plain) < len(rounds):
        blocks.append(_parts(rounds))
    return "\n\n".join("\n".join(block) for block in [*blocks, _provenance(runs), _made(predictions)])


def _table(*head: str) -> list[str]:
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _gated(value: float, most: float, form: str = ".1%") -> str:
    """Bold is beyond the gate."""
    return f"{value:{form}}" if abs(value) <= most else f"**{value:{form}}**"


def _errors(errors: pd.Series) -> str:
    """Median and 90th percentile of the errors of rounds; bold is beyond the gate."""
    errors = errors.dropna()
    return "" if errors.empty else f"{_gated(errors.median(), MEDIAN)}, {_gated(errors.quantile(0.9), MOST)}"


def _tau(said: Mapping[str, float], truth: Mapping[str, float]) -> str:
    both = [case for case in truth if case in said]
    tau = compare.kendall({case: said[case] for case in both}, {case: truth[case] for case in both})
    return "" if isnan(tau) else f"{tau:.2f}"


def _within(said: Mapping[str, float], truth: Mapping[str, float]) -> str:
    """The least and the mean of Kendall's tau over networks with three schemes or more."""
    groups: dict[str, list[str]] = {}
    for case in truth:
        if case in said:
            groups.setdefault(case.split(" ")[1], []).append(case)
    found = [compare.kendall({case: said[case] for case in group}, {case: truth[case] for case in group})
             for group in groups.values() if len(group) > 2]
    return f"{mean(found):.2f} ({min(found):.2f})" if found else ""


def _by_predictor(rounds: pd.DataFrame, predictions: pd.DataFrame) -> list[str]:
    """The predictions for the mean round of every case: errors by network, and the order."""
    truth = means(rounds)
    nets = list(dict.fromkeys(networks(rounds)))
    lines = _table("predicted by", *(f"`{name}`" for name in nets), "all: median", "90th percentile",
                   "tau over all cases", "tau within networks: mean (least)")
    for name in [*FORMULAS, *(model.name for model in reversed(PREDICTING))]:
        mine = predictions[predictions["predictor"] == name]
        said = {case: value for case, value in zip(mine["case"], mine["mean"], strict=True) if case in truth}
        if not said:
            continue
        errors = {case: abs(said[case] / truth[case] - 1) for case in said}
        by_net = [[error for case, error in errors.items() if case.split(" ")[1] == net] for net in nets]
        late = LATER * bool((mine["standing"] != BEFORE).any())
        lines.append(_row(SAID[name] + late, *(f"{np.median(of):.1%}" if of else "" for of in by_net),
                          f"{np.median(list(errors.values())):.1%}", f"{np.quantile(list(errors.values()), 0.9):.1%}",
                          _tau(said, truth), _within(said, truth)))
    return lines


def _by_model(rounds: pd.DataFrame) -> list[str]:
    """Computations as they were measured; schemes whose rounds end when all have answered; of the order, all."""
    nets = list(dict.fromkeys(networks(rounds)))
    lines = _table("links as", *(f"`{name}`" for name in nets), "all", "tau over all cases",
                   "tau within networks: mean (least)")
    together = rounds[~asynchronous(rounds)]
    for model in MODELS:
        error = off(together, model.name)
        said, truth = means(rounds, model.name), means(rounds)
        lines.append(_row(model.written, *(_errors(error[networks(together) == name]) for name in nets),
                          _errors(error), _tau(said, truth), _within(said, truth)))
    return lines


def _by_case(rounds: pd.DataFrame, runs: pd.DataFrame, predictions: pd.DataFrame) -> list[str]:
    lines = _table("case", "deployed", "rounds", "measured, s a round", "predicted", "a round: median error",
                   "90th percentile", "emulated afterwards", "a round: median error", "90th percentile",
                   "a node's round: median error", "sent, MB", "emulated", "on links, MB", "emulated",
                   "lost by relays", "dropped by queues")
    ours = predictions[predictions["predictor"] == BEST.name].set_index("case")
    truth = means(rounds)
    for case, one in rounds.groupby("case", sort=False):
        mine = runs[runs["case"] == case]
        mega = mine[["sent", "sent_emulated", "wire", "wire_emulated"]].mean() / 1e6
        equal = (mine["sent"] == mine["sent_emulated"]).all()
        by_law = judged_by_law(str(case))
        said = ours.loc[case] if case in ours.index else None
        lines.append(_row(
            str(case), f"{len(mine)} times", str(len(one)), f"{truth[str(case)]:.3f}",
            *(("", "", "") if said is None else (
                f"{said['mean']:.3f}" + LATER * bool(said["standing"] != BEFORE),
                *(("", "") if by_law else _split(_errors(_predicted_off(one, said["rounds"])))))),
            f"{one[MODELS[0].name].mean():.3f}",
            *(("", "") if bool(asynchronous(one).any()) else _split(_errors(off(one, MODELS[0].name)))),
            f"{mine['node_median'].median():.1%}" if not asynchronous(one).any() else "",
            f"{mega['sent']:.3f}", "equal" if equal else f"{mega['sent_emulated']:.3f}", f"{mega['wire']:.1f}",
            f"{mega['wire_emulated']:.1f}", f"{mine['lost'].mean():.0f}", f"{mine['dropped'].mean():.0f}"))
    return lines


def _split(errors: str) -> Sequence[str]:
    return errors.split(", ") if errors else ("", "")


def _predicted_off(rounds: pd.DataFrame, predicted: str) -> pd.Series:
    """Of every round of a case, how far its prediction is off."""
    said = sample(predicted)
    found = zip(rounds["round"], rounds[MEASURED], strict=True)
    return pd.Series([abs(said[number - 1] / seconds - 1) for number, seconds in found if number <= len(said)])


def _laws(rounds: pd.DataFrame, predictions: pd.DataFrame) -> list[str]:
    """Quartiles and 90th percentile of rounds, measured and predicted, and how far the two laws are apart."""
    lines = _table("case", "deployed", "measured: quartiles, s", "90th percentile", "predicted: quartiles",
                   "90th percentile", "KS distance", "p", "of a repeat from the others",
                   "of an emulation of a repeat from them")
    ours = predictions[predictions["predictor"] == BEST.name].set_index("case")
    for case, one in rounds.groupby("case", sort=False):
        if case not in ours.index:
            continue
        runs = [run for _, run in one.groupby("repeat")]
        real, emulated = ([run[column].tolist() for run in runs] for column in (MEASURED, MODELS[0].name))
        measured, predicted = one[MEASURED].tolist(), sample(ours.loc[case, "rounds"])
        apart = ([f"{mean(compare.distances(each, real)):.2f}" for each in (real, emulated)] if len(runs) > 1
                 else ["", ""])
        p = compare.alike(measured, predicted)
        lines.append(_row(str(case), f"{len(runs)} times", *(cell for law in map(compare.law, (measured, predicted))
                          for cell in (" ".join(f"{x:.2f}" for x in law[:3]), f"{law[3]:.2f}")),
                          f"{compare.distance(measured, predicted):.2f}",
                          f"{p:.2g}" if p > ALIKE else f"**{p:.2g}**", *apart))
    return lines


def _parts(rounds: pd.DataFrame) -> list[str]:
    """Cases of which a part of TCP was taken away, below the same case with the kernel as it is."""
    lines = _table("case", "TCP", "measured, s a round", "emulated", "mean: emulated is off by")
    there = set(rounds["case"])
    for case in CASES:
        mine = [part.name for part in PARTS if part.name in there and base(part.name) == case.name]
        for name in [case.name, *mine] if mine and case.name in there else []:
            one = rounds[rounds["case"] == name]
            real, ours = one[MEASURED].mean(), one[BEST.name].mean()
            lines.append(_row(case.name, name.removeprefix(case.name).removeprefix(", ") or "as it is", f"{real:.3f}",
                              f"{ours:.3f}", f"{ours / real - 1:+.1%}"))
    return lines


def base(name: str) -> str:
    """Of the case of which a part was taken away."""
    return max((case.name for case in CASES if name.startswith(f"{case.name}, ")), key=len)


def _provenance(runs: pd.DataFrame) -> list[str]:
    """A row of each machine and revision: when, and how busy it was."""
    lines = _table("deployed on", "when", "revision", "deployments", "cores in use", "by other processes, at most")
    for (machine, revision), one in runs.groupby(["machine", "revision"], sort=False):
        dates = " to ".join(sorted({one["date"].min(), one["date"].max()}))
        others = f"{one['others'].max():.1%}" if one["others"].notna().any() else ""
        lines.append(_row(machine, dates, revision, str(len(one)),
                          f"{one['busy'].min():.0%} to {one['busy'].max():.0%}", others))
    return lines


def _made(predictions: pd.DataFrame) -> list[str]:
    """A row of each revision that has predicted."""
    return [*_table("predictions", "made", "revision", "made before the deployment, or after it"),
            *(_row(str(len(one)), f"{one['made'].min()} to {one['made'].max()}", str(revision), ", ".join(
                f"{count} {standing}" for standing, count in one["standing"].value_counts().items()))
              for revision, one in predictions.groupby("revision", sort=False))]


def fill() -> None:
    """Rewrite the tables of the page."""
    text = document.read(PAGE)
    text = replaced(text, FIRST, table_of_predictions(HOME / "data"))
    document.save(PAGE, replaced(text, MARKS, tables(HOME / "data")))


# --- figure ---------------------------------------------------------------------------------------------------------

COLOURS = ["#0b6bb8", "#c4490b", "#12805c", "#b86a00", "#7d3fc1", "#1b2430", "#8a8f98"]


def draw(folder: Path, file: Path) -> None:
    """Every case, predicted against measured, by four predictors, and the laws of rounds: as SVG."""
    import altair as alt

    rounds, _, predictions = read(folder)
    rounds = rounds[~changed(rounds)]
    truth = means(rounds)
    shown = {BEST.name: "emul, windows of TCP", "connections": "emul, without", "analytic": "sizes over rates",
             "appfl": "APPFL's formula"}
    points = predictions[predictions["predictor"].isin(list(shown)) & predictions["case"].isin(list(truth))].copy()
    points["predictor"], points["measured"] = points["predictor"].map(shown), points["case"].map(truth)
    points["network"], points["scheme"] = networks(points), schemes(points)
    ends = [0.1, 12.0]
    scale = alt.Scale(type="log", domain=ends, nice=False, clamp=True)
    ticks = alt.Axis(values=[0.1, 0.2, 0.5, 1, 2, 5, 10])
    across, up = (alt.X("measured:Q", title="measured, seconds a round", scale=scale, axis=ticks),
                  alt.Y("mean:Q", title="predicted, seconds", scale=scale, axis=ticks))
    line = alt.Chart(pd.DataFrame({"measured": ends, "mean": ends})).mark_line(
        color="#b9c3cf", strokeWidth=1).encode(across, up)
    panels = [(line + alt.Chart(points[points["predictor"] == said]).mark_point(size=40, opacity=0.8).encode(
        across, up, color=alt.Color("scheme:N", scale=alt.Scale(range=COLOURS), sort=None))).properties(
            width=250, height=250, title=said) for said in shown.values()]
    above = alt.vconcat(alt.hconcat(*panels[:2]), alt.hconcat(*panels[2:]))
    alt.vconcat(above, _functions(rounds[rounds["case"].map(judged_by_law)], predictions)).resolve_scale(
        color="independent").configure_view(stroke=None).save(file)


def _functions(rounds: pd.DataFrame, predictions: pd.DataFrame) -> Any:
    """Distribution functions of the rounds of FedBuff, and of each case with repeats: every repeat, all, and as
    predicted."""
    import altair as alt

    def steps(case: str, times: Sequence[float], of: str, run: str) -> pd.DataFrame:
        return pd.DataFrame({"case": case, "seconds": np.sort(times), "of": of, "run": run,
                             "share of rounds": np.arange(1, len(times) + 1) / len(times)})

    frames = []
    ours = predictions[predictions["predictor"] == BEST.name].set_index("case")
    for name, case in rounds.groupby("case", sort=False):
        if name not in ours.index or (case["repeat"].nunique() == 1 and not BY_NAME[str(name)].asynchronous):
            continue
        frames += [steps(str(name), run[MEASURED].tolist(), "repeat", f"repeat {number}")
                   for number, run in case.groupby("repeat")]
        frames += [steps(str(name), case[MEASURED].tolist(), "measured", "all"),
                   steps(str(name), sample(ours.loc[name, "rounds"]), "predicted", "ours")]
    kinds = alt.Scale(domain=["measured", "repeat", "predicted"], range=["#1b2430", "#b9c3cf", "#0b6bb8"])
    return alt.Chart(pd.concat(frames)).mark_line(interpolate="step-after").encode(
        alt.X("seconds:Q", title="seconds a round", scale=alt.Scale(zero=False)),
        alt.Y("share of rounds:Q", title="share of rounds"), detail="run:N",
        color=alt.Color("of:N", title="rounds", scale=kinds),
        strokeWidth=alt.condition(alt.datum.of == "repeat", alt.value(1), alt.value(2)),
    ).properties(width=150, height=110).facet(alt.Facet("case:N", title=None, sort=None), columns=4).resolve_scale(
        x="independent")
