"""The curves, tables and figures of docs/reproductions, from the directories of their sweeps.

    python -m benchmarks.reproductions seccogc RUNS/seccogc-mnist-symmetric-sweep ... --out docs/reproductions
    python -m benchmarks.reproductions fedrfq RUNS/fedrfq-mnist-sweep ... --out docs/reproductions

Reads the runs that are complete, so a sweep that is under way shows what it has. Prints the tables as Markdown.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
from ruamel.yaml import YAML

ORDER = ["fl_ideal", "fair_seccogc", "fl_lossy", "dnc_private", "fl_private"]


def runs(studies: list[Path]) -> Iterator[tuple[dict[str, Any], dict[str, Any], pd.DataFrame]]:
    """(what was set, summary, rounds with an evaluation) of every complete run of these studies."""
    for study in studies:
        for summary in sorted(study.glob("cells/*/summary.json")):
            directory = summary.parent
            scenario = YAML(typ="safe").load(directory / "scenario.resolved.yaml")
            (solver,) = scenario["task"]["solver"].values()
            said = {"scenario": scenario["name"], "seed": scenario["seed"], "batch": solver.get("batch"),
                    **_partition(scenario["task"]["partition"]), **scenario["schemes"][0]}
            yield said, json.loads(summary.read_text()), pd.read_parquet(directory / "rounds.parquet")


def _partition(said: Any) -> dict[str, Any]:
    if "dirichlet" in said:
        return {"gamma": said["dirichlet"]}
    return {"avg": said["class_space"]["avg"]}


def seccogc(studies: list[Path], out: Path) -> None:
    found = list(runs(studies))
    curves = pd.concat([
        table[table["accuracy"].notna()].assign(
            scenario=said["scenario"], batch=said["batch"], gamma=said["gamma"], scheme=said["name"],
            key_std=said.get("lambda"), seed=said["seed"], digest=summary["digest"][:32])
        for said, summary, table in found])
    columns = ["scenario", "batch", "gamma", "scheme", "key_std", "seed", "round", "accuracy", "completed", "digest"]
    curves = curves[columns].rename(columns={"key_std": "lambda"})
    curves = curves.sort_values([*columns[:2], "gamma", "scheme", "lambda", "seed", "round"])
    curves.round(4).to_csv(out / "data" / "seccogc_mnist_curves.csv", index=False)

    last = curves[curves["round"] == curves.groupby("digest")["round"].transform("max")]
    for (scenario, batch), rows in last.groupby(["scenario", "batch"]):
        print(f"\n{scenario}, batch {batch}\n")
        for (gamma, scheme, key_std), group in rows.groupby(["gamma", "scheme", "lambda"], dropna=False):
            values = ", ".join(f"{v:.3f}" for v in group.sort_values("seed")["accuracy"])
            print(f"| {gamma} | `{scheme}` | {key_std} | {group['accuracy'].mean():.3f} ({values}) |")
    print("\n| run | theory and measurement | MB a round |")
    for said, summary, _ in found:
        both = [f"{name} {values['theory']:.4g} / {values['measured']:.4g}" for name, values
                in summary["analysis"].items() if "measured" in values]
        if both:
            rounds = summary["rounds"] + summary["rounds_failed"]
            print(f"| {said} | {'; '.join(both)} | {summary['bytes_total'] / 1e6 / rounds:.1f} |")
    for (scenario, batch), rows in curves.groupby(["scenario", "batch"]):
        _figure(rows).save(out / "figures" / f"{scenario}-{batch}.png", scale_factor=2)


def _figure(curves: pd.DataFrame) -> alt.Chart:
    """Test accuracy by round, mean of the seeds and each of them: a panel for every Gamma and lambda."""
    with_key = curves[curves["lambda"].notna()]
    without = curves[curves["lambda"].isna()].drop(columns="lambda")
    without = without.merge(with_key[["lambda"]].drop_duplicates(), "cross")
    both = pd.concat([with_key, without]).rename(columns={"lambda": "key"})
    colour = alt.Color("scheme:N", sort=ORDER, title=None, legend=alt.Legend(orient="bottom", symbolOpacity=1))
    accuracy = alt.Y("accuracy:Q", title="test accuracy", scale=alt.Scale(domain=[0, 1]))
    base = alt.Chart(both).encode(x=alt.X("round:Q", title="round"), y=accuracy, color=colour)
    layers = base.mark_line(opacity=0.25, strokeWidth=1).encode(detail="seed:N") + base.mark_line().encode(
        y="mean(accuracy):Q")
    return layers.properties(width=260, height=190).facet(
        column=alt.Column("key:N", title="lambda"), row=alt.Row("gamma:N", title="Gamma"))


def fedrfq(studies: list[Path], out: Path) -> None:
    rows, curves = [], []
    for said, summary, table in runs(studies):
        own = summary["accuracy_of_clients"] or {}
        rows.append({**said, "rounds": summary["rounds"], "bytes": summary["bytes_total"], **own,
                     "digest": summary["digest"][:32]})
        seen = table[table["accuracy"].notna()].groupby("round")["accuracy"].agg(["mean", "std"]).reset_index()
        curves.append(seen.assign(scenario=said["scenario"], avg=said["avg"], scheme=said["name"], seed=said["seed"],
                                  pooling=said.get("pooling"), psi=said.get("psi"), digest=summary["digest"][:32]))
    results = pd.DataFrame(rows).sort_values(["scenario", "avg", "name", "seed"])
    print(results.to_string())
    results.to_csv(out / "data" / "fedrfq_runs.csv", index=False)
    pd.concat(curves).round(5).to_csv(out / "data" / "fedrfq_curves.csv", index=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paper", choices=["seccogc", "fedrfq"])
    parser.add_argument("studies", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/reproductions"))
    given = parser.parse_args()
    for folder in ("data", "figures"):
        (given.out / folder).mkdir(parents=True, exist_ok=True)
    {"seccogc": seccogc, "fedrfq": fedrfq}[given.paper](given.studies, given.out)


if __name__ == "__main__":
    main()
