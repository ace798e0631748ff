"""The tables and curves of docs/reproductions/ebs_cfl.md, from the rows of its finished cells.

    emul sweep scenarios/paper/ebs_cfl_attacks_mnist.yaml --done docs/reproductions/data/ebs_cfl_runs.csv
    python -m benchmarks.ebs_cfl docs/reproductions/data/ebs_cfl_runs.csv --into docs/reproductions/ebs_cfl.md

Markdown: for each scenario and value of its grid a row a scheme, a column an attack, the mean over the seeds, for the
accuracy at the end with half of what the seeds are apart; all runs of a table are taken as if they had ended when the
shortest of them did. On a page it stands between <!-- name --> and <!-- end -->,
name being that of the scenario with underscores. `--masks RUN` makes the rows of ebs_cfl_masks.csv from a run of
ebs_cfl_secure_mnist.yaml.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import altair as alt
import pandas as pd

from benchmarks import document
from benchmarks.common import ROOT
from benchmarks.document import replaced
from benchmarks.finished import markdown
from benchmarks.impact import Impact, attacked, evened, impacts, length, mean, until
from benchmarks.robustness import called

Row = Mapping[str, str]
ORDER = ("no attack", "label_flip", "krum_attack", "trim_attack", "scaling", "adaptive", "adaptive, estimated",
         "sine")                        # of columns
# of rows, each with its colour in every figure
SCHEMES = {"fedavg": "#4c78a8", "median": "#b279a2", "trimmed_mean": "#ff9da6", "krum": "#9d755d", "fltrust": "#f58518",
           "ifca": "#e45756", "rfca": "#72b7b2", "rfca_least": "#eeca3b", "rfca_refresh": "#54a24b",
           "rfca_quarter": "#79706e", "rfca_decay": "#3b3b98", "ebs_cfl": "#000000"}
SHORT = {"backdoor": "scaling", "adaptive search plane passes 2 reference": "adaptive, estimated",
         "adaptive": "adaptive"}        # the first that a name begins with
STEPS = {"rfca": (1.0, 0.0), "rfca_quarter": (0.25, 0.0), "rfca_decay": (1.0, 0.1)}     # rate, rate_decay
TABLE_OF_MASKS = ROOT / "docs" / "reproductions" / "data" / "ebs_cfl_masks.csv"
MASKS = {"apart": "largest difference of a parameter", "trust": "W of `rfca` / `ebs_cfl`",
         "accuracy": "accuracy of `rfca` / `ebs_cfl`"}
SHARDS = "ebs-cfl-shards-mnist"
FALL = 0.2                              # below the best accuracy so far
CHANCE = 0.1                            # the accuracy of a guess
FALLS: dict[str, tuple[str, dict[str, object]]] = {
    "i.i.d.": ("ebs-cfl-attacks-mnist", {}),
    **{f"alpha {alpha}": ("ebs-cfl-skew-mnist", {"task.partition.dirichlet": alpha}) for alpha in (0.1, 0.5, 0.9)}}


def read(file: Path) -> list[dict[str, str]]:
    """Rows of a table of `emul sweep --done`."""
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def keep(file: Path, rows: Sequence[Row]) -> None:
    """Write a table of rows of one shape."""
    with file.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.DictWriter(lines, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def tables(rows: Sequence[Row]) -> dict[str, str]:
    """{scenario: Markdown of its tables}."""
    found: dict[str, list[str]] = {}
    for title, own in _by_title(rows).items():
        even, rounds = evened(own)
        found.setdefault(own[0]["scenario"], []).append(f"{title}, {rounds} rounds\n\n{_table(impacts(even))}")
    return {scenario: "\n\n".join(own) for scenario, own in found.items()}


def _by_title(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """All rows but those of `by_clients`."""
    found: dict[str, list[Row]] = {}
    for row in sorted(rows, key=_title):
        if row["scenario"] != SHARDS or not _others(row):
            found.setdefault(_title(row), []).append(row)
    return found


def by_clients(rows: Sequence[Row]) -> str:
    """Fig. 5: accuracy after 100 rounds by the number of clients, each of which holds two classes; mean (each seed).
    The scenario has 20."""
    own: dict[str, dict[int, list[str]]] = {}
    for row in until([row for row in rows if row["scenario"] == SHARDS], 100):
        clients = int(str(_others(row).get("topology.clients", 20)))
        own.setdefault(row["scheme"], {}).setdefault(clients, []).append(row["accuracy"])
    numbers = sorted({clients for cells in own.values() for clients in cells})

    def shown(cells: Sequence[str]) -> str:
        values = [100 * float(cell) for cell in cells]
        return f"{sum(values) / len(values):.1f} ({', '.join(f'{value:.1f}' for value in values)})"

    return markdown(["scheme", *(f"{clients} clients" for clients in numbers)], (
        [f"`{scheme}`", *(shown(cells[clients]) for clients in numbers)]
        for scheme, cells in own.items() if len(cells) == len(numbers)))


def written(page: str, rows: Sequence[Row], hidden: Sequence[Row]) -> str:
    """The page with the tables in their places. Raises DocumentError where a scenario has none."""
    for scenario, text in tables(rows).items():
        page = replaced(page, scenario.replace("-", "_"), text)
    page = replaced(page, "by_clients", by_clients(rows))
    return replaced(replaced(page, "falls", falls(rows)), "under_masks", markdown(
        ["round", *MASKS.values()], ([row[name] for name in ("round", *MASKS)] for row in hidden)))


def masked(run: Path) -> list[dict[str, str]]:
    """By round of a run: how far the models of `ebs_cfl` are from those of `rfca`, and what both report."""
    from emul.record.load import load_run

    clear, hidden = (load_run(next(run.glob(f"*-{scheme}-*"))) for scheme in ("rfca", "ebs_cfl"))
    found = []
    for round_ in sorted(int(at) for at in hidden.rounds["round"].unique()):
        apart = max(float(abs(clear.model(node, round_).vector() - hidden.model(node, round_).vector()).max())
                    for node in hidden.models)
        both = [run_.rounds[run_.rounds["round"] == round_] for run_ in (clear, hidden)]
        found.append({"round": str(round_), "apart": f"{apart:.2g}", **{
            name: " / ".join(f"{own[column].dropna().mean():.{digits}f}" for own in both)
            for name, (column, digits) in {"trust": ("W", 5), "accuracy": ("accuracy", 4)}.items()}})
    return found


def falls(rows: Sequence[Row]) -> str:
    """The rounds in which accuracy falls with the one reference, by its rate, and full steps until then."""
    names = [attack for attack in ORDER if attack in {_attack(row) for row in rows}]
    lines = []
    for title, (scenario, values) in FALLS.items():
        for attack in names:
            for seed in ("0", "1"):
                own = {scheme: max((row for row in rows if (row["scenario"], row["scheme"], row["seed"]) == (
                    scenario, scheme, seed) and _others(row) == values and _attack(row) == attack),
                    key=length, default=None) for scheme in STEPS}
                if any(own[scheme] for scheme in STEPS if scheme != "rfca"):
                    lines.append([f"{title}, {attack}, seed {seed}", *(_fall(own[scheme], scheme) for scheme in STEPS)])
    return markdown(["data, attack", *(f"`{scheme}`" for scheme in STEPS)], lines)


def full_steps(scheme: str, rounds: int) -> float:
    """The sum of the rates of so many rounds.

    >>> full_steps("rfca", 7), full_steps("rfca_quarter", 8), round(full_steps("rfca_decay", 11), 2)
    (7.0, 2.0, 7.69)
    """
    rate, decay = STEPS[scheme]
    return sum(rate / (1 + decay * earlier) for earlier in range(rounds))


def _fall(row: Row | None, scheme: str) -> str:
    if row is None:
        return "-"
    best, before = 0.0, 0
    for at, accuracy in ((int(at), float(value)) for at, _, value in (
            point.partition(":") for point in row["curve"].split())):
        if accuracy < best - FALL:
            return (f"rounds {before + 1} to {at}: {full_steps(scheme, before):.0f} to "
                    f"{full_steps(scheme, at):.0f} full steps")
        best, before = max(best, accuracy), at
    if best < CHANCE + FALL:
        return f"has not learnt: {100 * best:.0f} % at best"
    return f"not by round {before}: {full_steps(scheme, before):.0f}"


def _others(row: Row) -> dict[str, object]:
    return {key: value for key, value in json.loads(row["values"] or "{}").items() if key != "attacks"}


def _attack(row: Row) -> str:
    name = called(attacked(row))
    return next((short for long, short in SHORT.items() if name.startswith(long)), name)


def _place(name: str, order: Sequence[str] = ORDER) -> int:
    return order.index(name) if name in order else len(order)


def _title(row: Row) -> str:
    return ", ".join([row["scenario"], *(f"{key.rpartition('.')[2]} {value}" for key, value in _others(row).items())])


def _table(found: Sequence[tuple[Row, Impact]]) -> str:
    names = sorted({_attack(row) for row, _ in found}, key=_place)
    lines = [f"| scheme | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for scheme in sorted(dict.fromkeys(row["scheme"] for row, _ in found), key=lambda one: _place(one, list(SCHEMES))):
        cells = []
        for name in names:
            own = [impact for row, impact in found if row["scheme"] == scheme and _attack(row) == name]
            cells.append(_cell(own, name != ORDER[0]) if own else "-")
        lines.append(f"| `{scheme}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(own: Sequence[Impact], attack: bool) -> str:
    parts = [mean(own, lambda i: i.fa), mean(own, lambda i: i.ma)]
    if attack:
        parts += [mean(own, lambda i: i.asr), mean(own, lambda i: i.air), mean(own, lambda i: i.drop)]
    ends = [i.fa for i in own]
    shown = [f"{100 * value:z.1f}" for value in parts]
    shown[0] += f" ± {50 * (max(ends) - min(ends)):.1f}" if len(own) > 1 else ""
    doors = [i.backdoor for i in own if i.backdoor is not None]
    return " / ".join(shown) + (f"; {100 * sum(doors) / len(doors):.1f}" if doors else "") + f" ({len(own)})"


# --- curves -----------------------------------------------------------------------------------------------------------

def figures(rows: Sequence[Row], folder: Path) -> list[Path]:
    """One picture a scenario: test accuracy by round, a panel for every attack and value. Returns the files."""
    even = [row for own in _by_title(rows).values() for row in evened(own)[0]]
    table = pd.DataFrame(_points(even), columns=["scenario", "values", "attack", "scheme", "round", "accuracy"])
    files = []
    for scenario, own in table.groupby("scenario"):
        files.append(folder / f"{scenario}.png")
        _chart(own).save(files[-1], scale_factor=2)
    return files


def _points(rows: Sequence[Row]) -> Iterator[tuple[str, str, str, str, int, float]]:
    for row in rows:
        for point in row["curve"].split():
            round_, _, accuracy = point.partition(":")
            yield (row["scenario"], _title(row).partition(", ")[2], _attack(row), row["scheme"], int(round_),
                   float(accuracy))


def _chart(own: pd.DataFrame) -> alt.VConcatChart:
    """A row of panels for each value. Not a grid of rows by columns: where some attacks are missing in a row, Vega puts
    panels under the wrong headings."""
    rows = [_row(found, [one for one in SCHEMES if one in set(own["scheme"])]).properties(title=value)
            for value, found in own.groupby("values")]
    return alt.vconcat(*rows)


def _row(own: pd.DataFrame, schemes: list[str]) -> alt.Chart:
    order = sorted(set(own["attack"]), key=_place)
    colours = alt.Scale(domain=schemes, range=[SCHEMES[one] for one in schemes])
    legend = alt.Legend(orient="bottom", symbolSize=600)        # the same for both, so that its lines are dashed, too
    lines = alt.Chart(own).mark_line().encode(
        x=alt.X("round:Q", title="round"),
        y=alt.Y("mean(accuracy):Q", title="test accuracy", scale=alt.Scale(domain=[0, 1])),
        color=alt.Color("scheme:N", scale=colours, title=None, legend=legend),
        strokeDash=alt.StrokeDash("scheme:N", scale=alt.Scale(domain=schemes), title=None, legend=legend))
    sized = lines.properties(width=230, height=170)
    return sized.facet(facet=alt.Facet("attack:N", title=None, sort=order), columns=len(order) if len(order) < 5 else 3)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("table", type=Path, nargs="+", help="written by emul sweep --done")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="write the tables there, in place of printing them")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="write a picture of the curves of each scenario")
    parser.add_argument("--masks", type=Path, metavar="RUN", help="make the rows of its models first")
    chosen = parser.parse_args()
    if chosen.masks is not None:
        keep(TABLE_OF_MASKS, masked(chosen.masks))
    rows = [row for file in chosen.table for row in read(file)]
    if chosen.into is None:
        print("\n\n".join(tables(rows).values()))
    else:
        document.save(chosen.into, written(document.read(chosen.into), rows, read(TABLE_OF_MASKS)))
    if chosen.figures is not None:
        figures(rows, chosen.figures)


if __name__ == "__main__":
    main()
