r"""The runs and the tables of docs/robustness.md, from the directory of its sweep.

    emul sweep scenarios/robustness.yaml --done runs/robustness.csv
    python -m benchmarks.robustness runs/robustness-sweep --done runs/robustness.csv \
        --out docs/reproductions/data/robustness_runs.csv

Prints the tables as Markdown: a row an attack, a column a rule, mean and (least to largest) over the seeds. The table
of `--done` says what makes each run again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.finished import again

COLUMNS = ["attack", "accuracy", "attack_success", "attackers_kept", "rounds"]


def called(attacks: list[dict[str, Any]]) -> str:
    """The name of an attack in a table: `backdoor + scale`, `ipm, epsilon 3`.

    >>> called([{"nodes": {"fraction": 0.4}, "data": "label_flip"}])
    'label_flip'
    """
    return "; ".join(" + ".join(_named(each[kind]) for kind in ("data", "prototypes", "update") if kind in each)
                     for each in attacks) or "no attack"


def _named(written: str | dict[str, Any]) -> str:
    if isinstance(written, str):
        return written
    return " ".join([written["name"], *(f"{key} {value}" for key, value in written.items() if key != "name")])


def runs(study: Path, done: Path) -> pd.DataFrame:
    """One row a run: what makes it again, then `COLUMNS`. attackers_kept: the share of the attackers' updates that the
    rule kept something of, over all rounds; of a mean, nothing."""
    found = pd.read_csv(study / "results.csv")
    found["attack"] = [called(json.loads(said)) for said in found["attacks"]]
    found["attackers_kept"] = [_kept(study / directory) for directory in found["directory"]]
    known = again([done])
    made = pd.DataFrame([known[digest] for digest in found["digest"]], index=found.index)
    return pd.concat([made, found[COLUMNS].round(4)], axis=1)


def _kept(run: Path) -> float | None:
    rounds = pd.read_parquet(run / "rounds.parquet")
    if "attackers_judged" not in rounds or not rounds["attackers_judged"].sum():
        return None
    return float(rounds["attackers_kept"].sum() / rounds["attackers_judged"].sum())


def table(found: pd.DataFrame, value: str) -> str:
    """Markdown; attacks without such a value are left out."""
    rules = list(dict.fromkeys(found["scheme"]))
    lines = [f"| attack | {' | '.join(rules)} |", "|---" * (len(rules) + 1) + "|"]
    for attack, rows in found.groupby("attack", sort=False):
        each = [rows[rows["scheme"] == rule][value].dropna() for rule in rules]
        if any(len(v) for v in each):
            lines.append(f"| {attack} | {' | '.join(_cell(v) for v in each)} |")
    return "\n".join(lines)


def _cell(values: pd.Series[float]) -> str:
    if values.empty:
        return "-"
    return f"{values.mean():.2f} ({values.min():.2f} to {values.max():.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, help="directory of the sweep")
    parser.add_argument("--done", type=Path, required=True, help="table of this sweep")
    parser.add_argument("--out", type=Path, help="CSV file of the runs")
    said = parser.parse_args()
    found = runs(said.study, said.done)
    if said.out is not None:
        found.to_csv(said.out, index=False)
    for value in ("accuracy", "attack_success", "attackers_kept"):
        print(f"\n{value}\n\n{table(found, value)}")


if __name__ == "__main__":
    main()
