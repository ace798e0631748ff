"""The dates when the rows of the pages were made and last computed again: the block `evidence` of each page.

    emul verify --all --budget 6h --plugin wide
    python -m benchmarks.evidence --code

Every table of `docs/*/data` is either one of cells, which `emul verify` computes again, or one of `TIMINGS`. `--code`
compares the code of all rows with that of today first, which takes minutes, and keeps what it finds in `changed.csv`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import document
from benchmarks.common import ROOT
from benchmarks.document import replaced
from benchmarks.ebs_cfl import keep, read
from benchmarks.finished import markdown
from emul.study import verify
from emul.study.job import origin

DOCS = ROOT / "docs"
REPRODUCTIONS, STUDIES = DOCS / "reproductions" / "data", DOCS / "studies" / "data"
CHANGED = "changed.csv"
TABLES = {                              # table of cells -> pages that stand on it
    REPRODUCTIONS / "ppfpl_done.csv": ("reproductions/ppfpl.md",),
    REPRODUCTIONS / "mp_dp_done.csv": ("reproductions/mp_dp.md",),
    REPRODUCTIONS / "ebs_cfl_runs.csv": ("reproductions/ebs_cfl.md",),
    REPRODUCTIONS / "fedrfq_runs.csv": ("reproductions/fedrfq.md",),
    REPRODUCTIONS / "fedrfq_done.csv": ("reproductions/fedrfq.md",),
    REPRODUCTIONS / "seccogc_mnist_runs.csv": ("reproductions/seccogc.md",),
    REPRODUCTIONS / "seccogc_done.csv": ("reproductions/seccogc.md",),
    REPRODUCTIONS / "others_runs.csv": ("reproductions/others.md",),
    REPRODUCTIONS / "robustness_runs.csv": ("robustness.md",),
    REPRODUCTIONS / "secagg_networks.csv": ("schemes/secure_aggregation.md",),
    STUDIES / "stragglers.csv": ("studies/stragglers.md", "studies/bytes.md"),
    STUDIES / "split.csv": ("studies/split.md",),
    STUDIES / "moving.csv": ("studies/moving.md",),
    STUDIES / "moving_grid.csv": ("studies/moving.md",),
    STUDIES / "internet.csv": ("studies/internet.md",),
    **{file: ("atlas.md",) for file in sorted(STUDIES.glob("league_*.csv")) if file.stem != "league_again"},
}
TIMINGS = {                             # what a machine took, which no other one takes -> what was timed
    REPRODUCTIONS / "ebs_cfl_costs.csv": "CPU seconds of the steps of secure sums",
    REPRODUCTIONS / "mp_dp_costs.csv": "CPU seconds of gradients, masks and recovery",
    REPRODUCTIONS / "ppfpl_costs.csv": "CPU seconds of encryption",
    REPRODUCTIONS / "secagg_costs.csv": "CPU seconds of secure sums",
    STUDIES / "deployment_runs.csv": "deployments of real processes",
    STUDIES / "deployment_rounds.csv": "rounds of real processes",
    STUDIES / "deployment_predictions.csv": "rounds of real processes, predicted before",
    STUDIES / "flower_deployed.csv": "rounds of Flower apps with a SuperLink and SuperNodes, predicted before",
    STUDIES / "connections_ns3.csv": "transfers in ns-3 and in the model",
    STUDIES / "gpu.csv": "trainings on a GPU",
    STUDIES / "devices.csv": "steps of training on this machine",
}
OTHERS = {                              # without a key for each row -> what the table has
    REPRODUCTIONS / "safa_printed.csv": "the numbers that Wu et al. have printed",
    REPRODUCTIONS / "safa_lag_printed.csv": "the numbers that Wu et al. have printed, by lag tolerance",
    REPRODUCTIONS / "safa_svm_speeds.csv": "the speeds of clients that Wu et al. have drawn",
    REPRODUCTIONS / CHANGED: "rows whose code has changed, which `python -m benchmarks.evidence --code` finds again",
    STUDIES / CHANGED: "the same of studies",
    REPRODUCTIONS / "ebs_cfl_masks.csv": "models of a run, which `python -m benchmarks.ebs_cfl --masks` compares again",
    REPRODUCTIONS / "seccogc_analysis.csv": "`analysis` of runs of seccogc_done.csv",
    REPRODUCTIONS / "mp_dp_attacks.csv": "attacks on runs, which `python -m benchmarks.mp_dp_attacks` makes again",
    STUDIES / "league_again.csv": "rows of leagues, which `python -m benchmarks.leagues --again 0.05` computes again",
    STUDIES / "devices_operations.csv": "operations of steps, which `python -m benchmarks.bench_devices` counts again",
    STUDIES / "devices_published.csv": "seconds of steps that others have printed",
    STUDIES / "suite_flower.csv": "Flower apps, which `python -m benchmarks.suite_flower` runs again",
}
# rounds that tests compute of cells that take minutes; `real_s` is no guide, since trainings came out of stores, too
PLUGINS = ("wide", "niid", "safa_begun", "safa_program", "fedavg_program", "safa_boston", "flgo_loop")   # of rows
FIRST = {"ppfpl_done.csv": 5, "mp_dp_done.csv": 10, "ebs_cfl_runs.csv": 10, "fedrfq_runs.csv": 5,
         "seccogc_mnist_runs.csv": 5}
Row = Mapping[str, str]


def block(tables: Sequence[Path]) -> str:
    """Of each table and each processor that made rows of it: how many, when, by which revisions, and what came of them
    since; below it the cells that came out different."""
    lines, further = [], list[str]()
    for table in tables:
        rows, said = verify.read(table), verify.verdicts(table.with_name(verify.FILE))
        last = {(v["key"], v["digest"]): v for v in said if v["table"] == table.name}
        of = {row["key"]: last[row["key"], row["digest"]] for row in rows if (row["key"], row["digest"]) in last}
        groups: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            groups.setdefault((row["processor"], row["torch"]), []).append(row)
        lines += [[table.name, *_line(on, own, of)] for on, own in sorted(groups.items())]
        further += _different(rows, of)
    head = ["table", "rows", "made", "by emul", "on", "computed again", "equal", "equal in values", "different",
            "first rounds only", "within"]
    (folder,) = {table.parent.relative_to(ROOT) for table in tables}
    return f"In `{folder}`:\n\n" + "\n".join([markdown(head, lines), *further, *_changed(tables)])


def changed(table: Path) -> list[dict[str, str]]:
    """By scheme of a table: its rows, and those of them whose code is not that of today."""
    code, found = verify.coder(table, PLUGINS), dict[str, list[bool]]()
    for row in verify.read(table):
        found.setdefault(row["scheme"], []).append(code(row) != row["code"])
    return [{"table": table.name, "scheme": scheme, "rows": str(len(old)), "changed": str(sum(old)),
             "revision": origin()["revision"]} for scheme, old in sorted(found.items())]


def _changed(tables: Sequence[Path]) -> Iterator[str]:
    """Marks the schemes whose code has changed since their rows were made."""
    said, revision = [], ""
    for table in tables:
        file = table.with_name(CHANGED)
        own = [row for row in read(file) if row["table"] == table.name] if file.exists() else []
        if own:
            revision = own[0]["revision"]
            rows, old = (sum(int(row[name]) for row in own) for name in ("rows", "changed"))
            later = len(verify.read(table)) - rows
            same = [f"`{row['scheme']}`" for row in own if row["changed"] == "0"]
            said.append(f"{old} of {rows} of `{table.name}`" + (f" (none of {', '.join(same)})" if same and old else "")
                        + (f" and {later} that came later were not compared" if later else ""))
    if said:
        yield f"\nRows whose code has changed since, at {revision}: {'; '.join(said)}."


def _line(on: tuple[str, str], rows: Sequence[Row], of: Mapping[str, Row]) -> list[str]:
    found = [of[row["key"]] for row in rows if row["key"] in of]
    again = f"{len(found)}, last {max(v['made'] for v in found)}" if found else "none"
    by_day = sorted(rows, key=lambda row: row["made"])
    counts = (str(sum(v["verdict"] == verdict for v in found)) for verdict in (
        verify.EQUAL, verify.IN_VALUES, verify.DIFFERENT))
    first = sum("the first" in v["detail"] for v in found)
    within = [float(v["tolerance"]) for v in found if v["verdict"] == verify.IN_VALUES]
    return [str(len(rows)), _range(row["made"] for row in by_day), _range(row["revision"] for row in by_day),
            f"{on[0]}, torch {on[1]}", again, *counts, str(first), f"{max(within):g}" if within else "-"]


def _range(values: Iterable[str]) -> str:
    every = list(dict.fromkeys(values))
    return every[0] if len(every) == 1 else f"{every[0]} to {every[-1]}"


def _different(rows: Sequence[Row], of: Mapping[str, Row]) -> Iterator[str]:
    for row in rows:
        verdict = of.get(row["key"])
        if verdict is not None and verdict["verdict"] == verify.DIFFERENT:
            where = f" from round {verdict['round']} on" if verdict["round"] else ""
            at = f"at {verdict['revision']} on {verdict['processor']} within {verdict['tolerance']}"
            cell = f"`{Path(row['file']).stem}`, `{row['scheme']}`, seed {row['seed']}, `{row['values']}`"
            yield f"\nDifferent{where}, {at}: {cell}{': ' + verdict['detail'] if verdict['detail'] else ''}."


def filled(page: Path, text: str) -> str:
    """The text of a page with its block made anew."""
    tables = [table for table, pages in TABLES.items() if page.relative_to(DOCS).as_posix() in pages]
    return replaced(text, "evidence", block(tables))


def pages() -> list[Path]:
    """All pages that stand on tables of cells."""
    return [DOCS / name for name in dict.fromkeys(name for names in TABLES.values() for name in names)]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--code", action="store_true", help="compare the code of all rows with that of today")
    if parser.parse_args().code:
        for folder in (REPRODUCTIONS, STUDIES):
            keep(folder / CHANGED, [row for table in TABLES if table.parent == folder for row in changed(table)])
    for page in pages():
        document.save(page, filled(page, document.read(page)))


if __name__ == "__main__":
    main()
