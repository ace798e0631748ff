"""The data, prices and units of the suite's tasks.

    python -m benchmarks.suite_tasks                    characters.npz from the docstrings of networkx, and tabular.csv
                                                        from the table of breast cancers of scikit-learn
    python -m benchmarks.suite_tasks --priced TASK      TASK.profile.json: what every computation of the schemes below
                                                        costs on this machine with a task
    python -m benchmarks.suite_tasks --units TASK       TASK.units.csv: of each network the virtual second at which the
                                                        median update of FedAvg's first round arrives
    python -m benchmarks.suite_tasks --league NAME      prices of a league's schemes with its task and net, where its
                                                        profiles lack; prints the units of its networks

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
from emul.record.rundir import SUMMARY, read_json, write_json
from emul.record.tables import read_table
from emul.study.leagues import League, LeagueEntry
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
    """Write those profiles of a league that there are not yet, and print the units of its networks where it has its
    own. Where nothing is trained, training costs nothing. An entry with prices of its own is measured together with the
    baseline, and its prices are scaled so that the baseline's training costs what the league's profile says: the
    machine may be slower on another day."""
    league = League.of(name)
    edits = learnt(league)
    network, folder = league.suite.networks[league.networks[0].partition(":")[0]], league.suite.folder
    file = folder / "leagues" / f"{name}.profile.json"
    if any(file.name in one for one in league.sets) and not file.is_file():
        measure([entry.parameters for entry in league.entries if not own_prices(entry)], edits, file, network)
        if "training=skip" in league.sets:
            found = json.loads(file.read_text(encoding="utf-8"))
            found["costs"] |= {key: [0.0, 0.0] for key in found["costs"] if key.endswith("/train")}
            write_json(file, found)
    of_all = file if file.is_file() else folder / "tasks" / f"{league.task}.profile.json"
    for added in dict.fromkeys(own_prices(entry) for entry in league.entries if own_prices(entry)):
        if not (folder / added).is_file():
            priced_entries(league, edits, folder / added, of_all)
    edits.append(f"compute={{mode: profile, file: {json.dumps(str(of_all))}}}")
    for one in league.own_units:
        print(f"{one} = {unit(league.suite.networks[one], edits, league):.3g}")


def learnt(league: League) -> list[scenario.Edit]:
    """The edits of a league that say what is learnt, so that it can be measured."""
    return [*task_of(league.suite, league.task).edits,
            *(one for one in league.sets if one.partition("=")[0] not in ("compute", "fuse", "training"))]


def own_prices(entry: LeagueEntry) -> str:
    """The file of prices of this entry alone; "": those of the league."""
    return next((one.partition("=")[2] for one in entry.sets if one.startswith("compute.file=")), "")


def priced_entries(league: League, edits: Sequence[scenario.Edit], file: Path, of_all: Path) -> None:
    """Write the prices of the entries of a league that have this file, over those of its baseline. All are measured
    with one topology, that of the entry with most servers: no computation depends on links."""
    mine = [entry for entry in league.entries if league.suite.folder / own_prices(entry) == file]
    topologies = sorted((one for entry in mine for one in entry.sets if one.startswith("topology=")),
                        key=lambda one: one.partition("servers: ")[2])
    base = next(entry for entry in league.entries if entry.label == league.baseline)
    measure([base.parameters, *(entry.parameters for entry in mine)], [*edits, *topologies[-1:]], file,
            league.suite.networks[league.networks[0].partition(":")[0]])
    found, before = (json.loads(one.read_text(encoding="utf-8")) for one in (file, of_all))
    key = f"{base.parameters['name']}/client/train"
    scale = before["costs"][key][0] / found["costs"][key][0]
    print(f"{file.name}: scaled by {scale:.3f}")
    names = {entry.parameters["name"] for entry in mine}
    found["costs"] = {one: [scale * value for value in cost] for one, cost in found["costs"].items()
                      if one.partition("/")[0] in names}
    write_json(file, found)


def measure(schemes: Sequence[SuiteEntry], task: Sequence[scenario.Edit], file: Path, network: Path | None = None,
            plugins: Sequence[str] = ()) -> None:
    """Write a profile of all computations of these schemes that run with the task on a network, by default the LAN."""
    network = network or Suite.of().networks["lan"]
    edits = [*task, "compute={mode: measured}", "stop={rounds: 3}"]
    found = []
    for entry in (patient(one, "1 h", plugins) for one in schemes):
        one = [*edits, f"schemes={json.dumps([entry])}"]
        try:
            plan = scenario.load(network, one, plugins=plugins)
            engine.wire(plan, *plan.schemes[0], plugins=plugins)
        except ScenarioError as error:
            print(f"{entry['name']}: {error}")
            continue
        found.append(entry)
    plan = scenario.load(network, [*edits, f"schemes={json.dumps(found)}"], plugins=plugins)
    engine.profile(plan, file, plugins=plugins, repeat=1, tell=print)


def units(task: str) -> None:
    """Write the units of all networks with a task, and of those with an assumed number moved."""
    suite = Suite.of()
    learnt = task_of(suite, task).edits
    found = [f"{network},{unit(path, learnt):.3g}\n" for network, path in suite.networks.items()]
    found += [f"{name},{unit(suite.networks[of], [*learnt, edit]):.3g}\n" for name, (of, edit) in suite.moved().items()]
    (suite.folder / "tasks" / f"{task}.units.csv").write_text("".join(["network,unit_s\n", *found]), encoding="utf-8")


def unit(network: Path, edits: list[scenario.Edit], league: League | None = None) -> float:
    """Virtual seconds: the median, over the clients whose first update of FedAvg arrives, of its arrival; in a league
    in which FedAvg has no part, the first round of the baseline."""
    baseline = next((entry.parameters for entry in league.entries if entry.label == league.baseline),
                    {"name": "fedavg"}) if league else {"name": "fedavg"}
    own = baseline["name"] != "fedavg"
    plan = scenario.load(network, [*edits, f"schemes=[{json.dumps(patient(baseline, '1 h', ()) if own else 'fedavg')}]",
                                   "stop={rounds: 1}", *([] if own else ["training=skip"])])
    with tempfile.TemporaryDirectory() as folder:
        run, = emul.run(plan, out=folder, workers=0, quiet=True)
        if own:
            return float(read_json(run.path / SUMMARY)["virtual_seconds"])
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
