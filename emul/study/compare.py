"""`emul compare`: every scheme on every seed, on the same realisations, into the directory of a study."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

from emul import scenario
from emul.base.errors import Problem, ScenarioError
from emul.base.files import write_atomically
from emul.record.rundir import SCENARIO, SUMMARY, read_json
from emul.study import tables, text
from emul.study.cells import Cell, cells
from emul.study.comparison import Comparison, choose_targets, differences, differences_table, measure, metrics_table
from emul.study.directory import Failure, StudyError, opened, write_study, write_table
from emul.study.job import CELLS
from emul.study.runs import StudyOutcome, Where, complete


def compare(given: scenario.Given, where: Where, *, schemes: Sequence[str] = (), seeds: Sequence[int] | None = None,
            target: float | None = None, sets: Sequence[scenario.Edit] = (), out: Path | None = None) -> Comparison:
    """Run every scheme of a scenario on every seed into `out` (default: `runs/<name>-compare`), and compare them.

    seeds: default those of the section `sweep`, else the scenario's own. target: the accuracy to reach, of whatever
    kind a scheme reports; default `stop.accuracy`, else for each kind 95 % of the final accuracy of the scheme whose
    median over the seeds is lowest.
    Raises ScenarioError and StudyError as `emul.study.sweep.sweep` does.
    """
    base = scenario.load(given, sets, plugins=where.plugins)
    if seeds is None:
        seeds = base.sweep.seeds if base.sweep is not None and base.sweep.seeds is not None else [base.seed]
    found = cells(given, {}, seeds, schemes, sets, where.plugins)
    names = list(dict.fromkeys(cell.scheme for cell in found))
    if len(names) < 2:
        raise ScenarioError(scenario.named(given),
                            [Problem("schemes", ", ".join(names), "expected two or more to compare")])
    out = out or Path("runs") / f"{base.name}-compare"

    def save(runs: list[Cell], failed: list[Failure]) -> None:
        write_table(out, "results", tables.results(out, runs))
        write_study(out, "compare", base.name, {}, seeds, runs, failed)

    with opened(out, base.name):
        return _compared(base, names, seeds, target, complete(out, found, where, save))


def compare_runs(runs: Sequence[Path], target: float | None = None, out: Path | None = None) -> Comparison:
    """Compare runs that there are, such as those of loops, which emul cannot run again. `out` has links to them.

    Runs of one label and several seeds are one scheme. out: default `runs/<name>-compare`. Raises StudyError: runs of
    fewer than two labels, two of one label and seed, or one that has not ended.
    """
    found: dict[tuple[str, int], Cell] = {}
    for run in runs:
        if not (run / SUMMARY).is_file():
            raise StudyError(f"{run}: no directory of a run that has ended")
        one, label = scenario.load(run / SCENARIO, check=False), str(read_json(run / SUMMARY)["label"])
        if (label, one.seed) in found:
            raise StudyError(f"{run}: there is a run of {label} with seed {one.seed} already: leave one of them out, "
                             "or give a loop another label")
        link = blake2b(str(run.resolve()).encode(), digest_size=8).hexdigest()      # the name of a link to the run
        found[label, one.seed] = Cell(link, label, one.seed, {}, one)
    cells, names = list(found.values()), list(dict.fromkeys(label for label, _ in found))
    if len(names) < 2:
        raise StudyError(f"runs of {', '.join(names) or 'nothing'}: expected two labels or more to compare")
    base, seeds = cells[0].scenario, sorted({cell.seed for cell in cells})
    out = out or Path("runs") / f"{base.name}-compare"
    with opened(out, base.name):
        for run, cell in zip(runs, cells, strict=True):
            if not (out / CELLS / cell.key).exists():
                (out / CELLS / cell.key).symlink_to(run.resolve(), target_is_directory=True)
        write_table(out, "results", tables.results(out, cells))
        return _compared(base, names, seeds, target, StudyOutcome(out, cells, [], len(cells), [], []))


def _compared(base: scenario.Scenario, names: Sequence[str], seeds: Sequence[int], target: float | None,
              study: StudyOutcome) -> Comparison:
    """The comparison of a study whose runs have ended, and its files."""
    out = study.path
    curves = tables.curves(out, study.runs)
    results = tables.results(out, study.runs)
    targets, said = choose_targets(target, base.stop.accuracy, results)
    values = measure(curves, results, targets)
    knowing = frozenset(results[results["oracle_waits"] > 0]["scheme"])
    kinds = tables.kinds_of(results)
    comparison = Comparison(study, list(names), list(seeds), targets, said, values,
                            differences(values, names, list(seeds), knowing, kinds), kinds, knowing,
                            results.groupby("scheme")["epsilon_in_total"].first().to_dict())
    write_table(out, "curves", curves)
    write_table(out, "metrics", metrics_table(comparison))
    write_table(out, "differences", differences_table(comparison))
    write_study(out, "compare", base.name, {}, seeds, study.runs, study.failed,
                {"targets": targets, "target_from": said, "accuracy_of": kinds, "answer": text.answer(comparison)})
    with write_atomically(out / "compare.tex") as temporary:
        temporary.write_text(text.latex(comparison), encoding="utf-8")
    return comparison
