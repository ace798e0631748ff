"""The tables of docs/reproductions/ebs_cfl.md, from the rows of its finished cells.

    emul sweep scenarios/paper/ebs_cfl_attacks_mnist.yaml --done docs/reproductions/data/ebs_cfl_runs.csv
    python -m benchmarks.ebs_cfl docs/reproductions/data/ebs_cfl_runs.csv

Prints Markdown: for each scenario and value of its grid a row a scheme, a column an attack, the mean over the seeds.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.robustness import called
from emul.study.impact import Impact, attacked, impacts, mean


def read(file: Path) -> list[dict[str, str]]:
    """Rows of a table of `emul sweep --done`."""
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def tables(rows: Sequence[Mapping[str, str]]) -> str:
    """Markdown of all of them."""
    groups: dict[str, list[tuple[Mapping[str, str], Impact]]] = {}
    for row, impact in impacts(rows):
        others = {key: value for key, value in json.loads(row["values"] or "{}").items() if key != "attacks"}
        title = ", ".join([row["scenario"], *(f"{key.rpartition('.')[2]} {value}" for key, value in others.items())])
        groups.setdefault(title, []).append((row, impact))
    return "\n\n".join(f"{title}\n\n{_table(found)}" for title, found in sorted(groups.items()))


def _table(found: Sequence[tuple[Mapping[str, str], Impact]]) -> str:
    names = list(dict.fromkeys(called(attacked(row)) for row, _ in found))
    lines = ["FA / MA / ASR / AIR / drop, in %; of a backdoor also its success", "",
             f"| scheme | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for scheme in dict.fromkeys(row["scheme"] for row, _ in found):
        cells = []
        for name in names:
            own = [impact for row, impact in found if row["scheme"] == scheme and called(attacked(row)) == name]
            cells.append(_cell(own) if own else "-")
        lines.append(f"| `{scheme}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(own: Sequence[Impact]) -> str:
    parts = [mean(own, lambda i: i.fa), mean(own, lambda i: i.ma), mean(own, lambda i: i.asr),
             mean(own, lambda i: i.air), mean(own, lambda i: i.drop)]
    text = " / ".join(f"{100 * value:.1f}" for value in parts)
    doors = [i.backdoor for i in own if i.backdoor is not None]
    return text + (f"; {100 * sum(doors) / len(doors):.1f}" if doors else "") + f" ({len(own)})"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("table", type=Path, nargs="+", help="written by emul sweep --done")
    print(tables([row for file in parser.parse_args().table for row in read(file)]))


if __name__ == "__main__":
    main()
