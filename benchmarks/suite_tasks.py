"""The data, prices and units of the suite's tasks.

    python -m benchmarks.suite_tasks                    characters.npz from the docstrings of networkx, and tabular.csv
                                                        from the table of breast cancers of scikit-learn
    python -m benchmarks.suite_tasks --priced TASK      TASK.profile.json: what every computation of the schemes below
                                                        costs on this machine with a task
    python -m benchmarks.suite_tasks --units TASK       TASK.units.csv: of each network the virtual second at which the
                                                        median update of FedAvg's first round arrives
    python -m benchmarks.suite_tasks --league NAME      leagues/NAME.profile.json: prices of a league's schemes with its
                                                        task and net; prints the units of its networks

All are files of scenarios/suite. They are kept, and no run makes them anew: another version of networkx has other
texts, and another machine other prices.
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import emul
from benchmarks.common import ROOT
from emul import engine, scenario
from emul.base.errors import ScenarioError
from emul.record.rundir import write_json
from emul.record.tables import read_table
from emul.study.leagues import League
from emul.study.suite import Suite, SuiteEntry, entries, patient, task_of

TASKS = ROOT / "scenarios" / "suite" / "tasks"
ALPHABET = " abcdefghijklmnopqrstuvwxyz.,"       # all other characters count as a blank
BEFORE = 8                          # characters that a model sees
MODULES, TRAIN, TEST = 120, 100, 25            # modules with the longest texts, and windows of each


def characters(folder: Path) -> dict[str, np.ndarray]:
    """Windows of 8 characters and the one after each, from the docstrings of a package, (n, 8) and (n,).

    folder: of the package's sources. Returns the arrays of the data set `arrays`, as int16, with the column `module`.
    Test windows are the last of each module.
    """
    texts = {file.relative_to(folder).with_suffix("").as_posix(): _docstrings(file)
             for file in sorted(folder.rglob("*.py")) if "tests" not in file.parts}
    longest = sorted(texts, key=lambda name: (-len(texts[name]), name))[:MODULES]
    parts: dict[str, list[np.ndarray]] = {"train": [], "test": []}
    for name in sorted(longest):
        tokens = np.array([ALPHABET.find(letter) for letter in texts[name]], np.int16)
        windows = np.lib.stride_tricks.sliding_window_view(tokens, BEFORE + 1)
        places = np.linspace(0, len(windows) - 1, TRAIN + TEST).astype(int)
        parts["train"].append(windows[places[:TRAIN]])
        parts["test"].append(windows[places[TRAIN:]])
    names = np.array(sorted(longest))
    found: dict[str, np.ndarray] = {}
    for part, count in (("train", TRAIN), ("test", TEST)):
        windows = np.concatenate(parts[part])
        found |= {f"{part}_x": windows[:, :-1], f"{part}_y": windows[:, -1], f"{part}_module": np.repeat(names, count)}
    return found


def _docstrings(file: Path) -> str:
    """All docstrings of a file in small letters of the alphabet, one blank between words."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    said = " ".join(ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented))
    return " ".join("".join(letter if letter in ALPHABET else " " for letter in said.lower()).split())


# --- prices and units -------------------------------------------------------------------------------------------------

PRICED = ("fedavg", "over_selection", "qsgd", "scaffold", "fedadam", "fedbuff", "fedasync", "fedat", "fedprox",
          "fednova", "gossip", "secagg", "secagg_plus", "lightsecagg", "median", "krum", "splitfed")


def priced(task: str) -> None:
    """Write the profile of a task."""
    suite = Suite.of()
    measure([own[""] for own in entries(suite, PRICED).values()], task_of(suite, task).edits,
            suite.folder / "tasks" / f"{task}.profile.json")


def priced_league(name: str) -> None:
    """Write the profile of a league, and print the units of its networks where it has its own. Where nothing is
    trained, training costs nothing."""
    league = League.of(name)
    edits = [*task_of(league.suite, league.task).edits,
             *(one for one in league.sets if one.partition("=")[0] not in ("compute", "fuse", "training"))]
    file = league.suite.folder / "leagues" / f"{name}.profile.json"
    measure([entry.parameters for entry in league.entries], edits, file)
    if "training=skip" in league.sets:
        found = json.loads(file.read_text(encoding="utf-8"))
        found["costs"] |= {key: [0.0, 0.0] for key in found["costs"] if key.endswith("/train")}
        write_json(file, found)
    edits.append(f"compute={{mode: profile, file: {json.dumps(str(file))}}}")
    for network in league.own_units:
        print(f"{network} = {unit(league.suite.networks[network], edits):.3g}")


def measure(schemes: Sequence[SuiteEntry], task: Sequence[scenario.Edit], file: Path) -> None:
    """Write a profile of all computations of these schemes that run with the task on the LAN."""
    suite = Suite.of()
    edits = [*task, "compute={mode: measured}", "stop={rounds: 3}"]
    found = []
    for entry in (patient(one, "1 h", ()) for one in schemes):
        one = [*edits, f"schemes={json.dumps([entry])}"]
        try:
            plan = scenario.load(suite.networks["lan"], one)
            engine.wire(plan, *plan.schemes[0])
        except ScenarioError as error:
            print(f"{entry['name']}: {error}")
            continue
        found.append(entry)
    plan = scenario.load(suite.networks["lan"], [*edits, f"schemes={json.dumps(found)}"])
    engine.profile(plan, file, repeat=1, tell=print)


def units(task: str) -> None:
    """Write the units of all networks with a task, and of those with an assumed number moved."""
    suite = Suite.of()
    learnt = task_of(suite, task).edits
    found = [f"{network},{unit(path, learnt):.3g}\n" for network, path in suite.networks.items()]
    found += [f"{name},{unit(suite.networks[of], [*learnt, edit]):.3g}\n" for name, (of, edit) in suite.moved().items()]
    (suite.folder / "tasks" / f"{task}.units.csv").write_text("".join(["network,unit_s\n", *found]), encoding="utf-8")


def unit(network: Path, edits: list[scenario.Edit]) -> float:
    """Virtual seconds: the median, over the clients whose first update of FedAvg arrives, of its arrival."""
    plan = scenario.load(network, [*edits, "schemes=[fedavg]", "stop={rounds: 1}", "training=skip"])
    with tempfile.TemporaryDirectory() as folder:
        run, = emul.run(plan, out=folder, workers=0, quiet=True)
        sent = read_table(run.path / "messages.parquet", ["type", "round", "arrived_ns"]).to_pandas()
    return float(sent[(sent["type"] == "Update") & (sent["round"] == 1)]["arrived_ns"].dropna().median()) / 1e9


def data() -> None:
    """Write the files of characters and tabular."""
    import networkx
    from sklearn.datasets import load_breast_cancer

    arrays = characters(Path(networkx.__file__).parent)
    np.savez_compressed(TASKS / "characters.npz", allow_pickle=False, **arrays)
    found = load_breast_cancer()
    with (TASKS / "tabular.csv").open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow([*(name.replace(" ", "_") for name in found.feature_names), "diagnosis"])
        lines.writerows([*(f"{value:g}" for value in row), found.target_names[kind]]
                        for row, kind in zip(found.data, found.target, strict=True))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--priced", nargs="+", default=[], metavar="TASK")
    parser.add_argument("--units", nargs="+", default=[], metavar="TASK")
    parser.add_argument("--league", nargs="+", default=[], metavar="NAME")
    said = parser.parse_args()
    for task in said.priced:
        priced(task)
    for task in said.units:
        units(task)
    for name in said.league:
        priced_league(name)
    if not said.priced and not said.units and not said.league:
        data()


if __name__ == "__main__":
    main()
