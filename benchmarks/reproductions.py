"""The curves, tables and figures of docs/reproductions, from the directories of their sweeps.

    emul sweep scenarios/paper/fedrfq_mnist.yaml --done RUNS/fedrfq.csv
    python -m benchmarks.reproductions fedrfq RUNS/fedrfq-mnist-sweep ... --done RUNS/fedrfq.csv

Reads the runs that are complete, so a sweep that is under way shows what it has. Prints the tables as Markdown. The
table of `--done` says what makes each run again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
from ruamel.yaml import YAML

from benchmarks.finished import again, curve

ORDER = ["fl_ideal", "fair_seccogc", "fl_lossy", "dnc_private", "fl_private"]


def runs(studies: list[Path]) -> Iterator[tuple[dict[str, Any], dict[str, Any], pd.DataFrame, Path]]:
    """(what was set, summary, rounds, directory) of every complete run of these studies."""
    for study in studies:
        for summary in sorted(study.glob("cells/*/summary.json")):
            directory = summary.parent
            scenario = YAML(typ="safe").load(directory / "scenario.resolved.yaml")
            (solver,) = scenario["task"]["solver"].values()
            said = {"scenario": scenario["name"], "seed": scenario["seed"], "batch": solver.get("batch"),
                    **_partition(scenario["task"]["partition"]), **scenario["schemes"][0]}
            yield said, json.loads(summary.read_text()), pd.read_parquet(directory / "rounds.parquet"), directory


def _partition(said: Any) -> dict[str, Any]:
    if "dirichlet" in said:
        return {"gamma": said["dirichlet"]}
    return {"avg": said["class_space"]["avg"]}


def seccogc(studies: list[Path], done: Mapping[str, Mapping[str, str]], out: Path) -> None:
    found = list(runs(studies))
    rows, parts = [], []
    for said, summary, table, _ in found:
        seen = table[table["accuracy"].notna()].groupby("round", as_index=False)["accuracy"].mean()
        own = {**{name: said[name] for name in ("scenario", "batch", "gamma")}, "lambda": said.get("lambda")}
        rows.append({**done[summary["digest"]], **own, "accuracy": round(seen["accuracy"].iloc[-1], 4),
                     "best_accuracy": round(seen["accuracy"].max(), 4),
                     "curve": curve(seen["round"], seen["accuracy"])})
        parts.append(seen.assign(**own, scheme=said["name"], seed=said["seed"], digest=summary["digest"]))
    order = ["scenario", "batch", "gamma", "scheme", "lambda", "seed"]
    pd.DataFrame(rows).sort_values(order).to_csv(out / "data" / "seccogc_mnist_runs.csv", index=False)
    curves = pd.concat(parts).sort_values([*order, "round"])

    last = curves[curves["round"] == curves.groupby("digest")["round"].transform("max")]
    for (scenario, batch), rows in last.groupby(["scenario", "batch"]):
        print(f"\n{scenario}, batch {batch}\n")
        for (gamma, scheme, key_std), group in rows.groupby(["gamma", "scheme", "lambda"], dropna=False):
            values = ", ".join(f"{v:.3f}" for v in group.sort_values("seed")["accuracy"])
            print(f"| {gamma} | `{scheme}` | {key_std} | {group['accuracy'].mean():.3f} ({values}) |")
    print("\n| run | theory and measurement | MB a round |")
    for said, summary, *_ in found:
        both = [f"{name} {values['theory']:.4g} / {values['measured']:.4g}" for name, values
                in summary["analysis"].items() if "measured" in values]
        if both:
            rounds = summary["rounds"] + summary["rounds_failed"]
            print(f"| {said} | {'; '.join(both)} | {summary['bytes_total'] / 1e6 / rounds:.1f} |")
    for (scenario, batch), rows in curves.groupby(["scenario", "batch"]):
        if rows["scheme"].nunique() > 1:
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


def fedrfq(studies: list[Path], done: Mapping[str, Mapping[str, str]], out: Path) -> None:
    rows, curves = [], []
    for said, summary, table, directory in runs(studies):
        key = {"scenario": said["scenario"], "avg": said["avg"], "scheme": said["name"], "pool": said.get("pool"),
               "psi": said.get("psi"), "seed": said["seed"]}
        own = summary["accuracy_of_clients"]
        last = table[table["round"] == table["round"].max()].iloc[0]
        seen = table[table["accuracy"].notna()].groupby("round", as_index=False)["accuracy"].mean()   # of all deciders
        rows.append({**done[summary["digest"]], **key, "best_five": own["best_five"], "std": own["std"],
                     "converged": own["rounds_to_converge"],
                     "uploaded": table["uploaded"].mean() if "uploaded" in table else 0.0, **_bytes(directory),
                     "silhouette": last.get("silhouette"), "failure_rate": last.get("failure_rate"),
                     **_hits(table, summary["poisoned"], said.get("psi")),
                     "curve": curve(seen["round"], seen["accuracy"])})
        curves.append(seen.assign(**key))
    found = pd.DataFrame(rows).sort_values(["scenario", "avg", "scheme", "pool", "psi", "seed"])
    found.round(5).to_csv(out / "data" / "fedrfq_runs.csv", index=False)
    drawn = pd.concat(curves).sort_values(["scenario", "avg", "scheme", "pool", "psi", "seed", "round"])

    numbers = ["best_five", "std", "converged", "uploaded", "up_kB", "down_kB", "servers_kB", "silhouette",
               "failure_rate", "hits", "places"]
    for scenario, part in found.groupby("scenario"):
        print(f"\n{scenario}: means over the seeds; best_five of each seed\n")
        groups = part.groupby(["avg", "scheme", "pool", "psi"], dropna=False)
        means = groups[numbers].mean()
        means["each"] = groups["best_five"].agg(lambda values: " ".join(f"{100 * v:.2f}" for v in values))
        print(means.dropna(axis=1, how="all").round(4).to_string())
    grid = drawn[drawn["scenario"] == "fedrfq-mnist"]
    if len(grid):
        _figure_fedrfq(grid).save(out / "figures" / "fedrfq-mnist.png", scale_factor=2)


def _bytes(directory: Path) -> dict[str, float]:
    """kB on the links a round: by the clients, to them, and among servers."""
    sent = pd.read_parquet(directory / "messages.parquet", columns=["source_name", "target_name", "wire_bytes"])
    names = sent[["source_name", "target_name"]].astype(str)
    by, to = (names[column].str.startswith("client") for column in names)
    rounds = pd.read_parquet(directory / "rounds.parquet", columns=["round"])["round"].max()
    return {f"{what}_kB": sent["wire_bytes"][chosen].sum() / 1e3 / rounds
            for what, chosen in (("up", by), ("down", ~by & to), ("servers", ~by & ~to))}


def _hits(table: pd.DataFrame, poisoned: list[str], psi: int | None) -> dict[str, float]:
    """The numbers of poisoned clients among those the filter left out, and of those it had to leave out, by rounds."""
    if not poisoned or not psi or "excluded" not in table:
        return {"hits": float("nan"), "places": float("nan")}
    left_out = table.drop_duplicates("round")["excluded"].str.split()
    return {"hits": float(left_out.map(lambda names: len(set(names) & set(poisoned))).mean()),
            "places": float(left_out.map(len).mean())}


def _figure_fedrfq(curves: pd.DataFrame) -> alt.Chart:
    """Mean accuracy of the clients by round, mean of the seeds: a panel for every mean number of classes."""
    return alt.Chart(curves).mark_line(clip=True).encode(
        x=alt.X("round:Q", title="round"),
        y=alt.Y("mean(accuracy):Q", title="mean accuracy of the clients", scale=alt.Scale(domain=[0.92, 1])),
        color=alt.Color("scheme:N", title=None, legend=alt.Legend(orient="bottom")),
    ).properties(width=260, height=190).facet(column=alt.Column("avg:N", title="classes a client, on average"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paper", choices=["seccogc", "fedrfq"])
    parser.add_argument("studies", nargs="+", type=Path)
    parser.add_argument("--done", nargs="+", type=Path, required=True, help="tables of these sweeps")
    parser.add_argument("--out", type=Path, default=Path("docs/reproductions"))
    given = parser.parse_args()
    for folder in ("data", "figures"):
        (given.out / folder).mkdir(parents=True, exist_ok=True)
    {"seccogc": seccogc, "fedrfq": fedrfq}[given.paper](given.studies, again(given.done), given.out)


if __name__ == "__main__":
    main()
