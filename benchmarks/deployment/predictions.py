"""Predictions of a case before it is measured: one JSON file for each case and predictor, with a digest.

A prediction knows the scenario and what a calibration has found: every scheme runs once over loopback, unshaped, and
the median of what each computation takes there, by role and label, is what it is predicted to take. Trainings take
what is declared. A deployment keeps the digests of all predictions that there were when it began; so one that was made
later, or changed, can be told.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.deployment import compare, others, runs
from benchmarks.deployment.cases import MODELS, REPLAYED, Case, Costs, Model, Net
from benchmarks.deployment.networks import below_edges
from emul.base import rows as R
from emul.base.rows import Row

FORMULAS = {"analytic": others.analytic, "appfl": others.appfl, "feddes": others.feddes}
PREDICTING = tuple(model for model in MODELS if model != REPLAYED)      # the losses are not known beforehand
SEEDS = 5                           # of what is judged by its law
FASTEST = 1000                      # Mbit/s, where nothing is shaped
CALIBRATED = "costs.json"
BEFORE, AFTER, CHANGED, NONE = "before", "afterwards", "changed", "none"


@dataclass(frozen=True)
class Prediction:
    """Of one case by one predictor."""

    case: str
    predictor: str                  # the name of a model of the links, or of a formula
    rounds: list[list[float]]       # seed -> seconds of each round; of a formula: of one round
    scenario: str                   # fingerprint of the scenario of the first seed, its computations included; "": none
    revision: str
    code: str
    made: str                       # UTC

    @property
    def digest(self) -> str:
        """Of all that it says."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def mean_s(self) -> float:
        return mean(seconds for seed in self.rounds for seconds in seed)

    def keep(self, file: Path) -> None:
        """Write it, with its digest. Raises FileExistsError: what has been predicted is never written again."""
        with file.open("x") as f:
            f.write(json.dumps({**asdict(self), "digest": self.digest}))

    @classmethod
    def read(cls, file: Path) -> tuple[Prediction, bool]:
        """The prediction that `keep` has written, and whether it is unchanged."""
        found = json.loads(file.read_text())
        digest = found.pop("digest")
        prediction = cls(**found)
        return prediction, prediction.digest == digest


def file_of(folder: Path, case: str, predictor: str) -> Path:
    """The file of the prediction."""
    return folder / "predictions" / f"{plain(case)}--{plain(predictor)}.json"


def plain(name: str) -> str:
    """As a file is called."""
    return name.replace(" ", "-").replace(",", "").replace("/", "-")


def standing(prediction: Prediction | None, sound: bool, began: str, known: Mapping[str, str]) -> str:
    """True if a prediction was there before a deployment began that has kept the digests of those it knew of."""
    if prediction is None:
        return NONE
    told = known.get(prediction.predictor)
    if not sound or (told is not None and told != prediction.digest):
        return CHANGED
    return BEFORE if told is not None and prediction.made <= began else AFTER


# --- calibration ----------------------------------------------------------------------------------------------------

def costs_of(case: Case, rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """role -> label -> the median of what it took, seconds."""
    found: dict[str, dict[str, list[float]]] = {}
    role_of = {node: role for role, nodes in case.roles.items() for node in nodes}
    for row in rows:
        if row[0] == R.COMPUTE:
            found.setdefault(role_of[row[2]], {}).setdefault(row[3], []).append(row[4] / 1e9)
    return {role: {label: median(taken) for label, taken in labels.items()} for role, labels in found.items()}


def calibrated(folder: Path, case: Case, ports: Sequence[int]) -> Costs:
    """The times of the computations of the case's scheme over loopback with so many nodes; measured once."""
    file = folder / CALIBRATED
    known: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    n, key = case.net.nodes, f"{case.scheme} {case.net.nodes}"
    if key not in known:
        net, edges = Net("loopback", "htb", [FASTEST] * n, [FASTEST] * n), case.edges and (n - 2, n - 1)
        alone = replace(case, net=below_edges(net, edges) if edges else net, rounds=3, edges=edges)
        known[key] = costs_of(alone, runs.on_loopback(alone, ports).rows)
        file.write_text(json.dumps(known, indent=1))
    found: Costs = known[key]
    return found


# --- predicting -----------------------------------------------------------------------------------------------------

def of_models(case: Case, costs: Costs, models: Sequence[Model]) -> list[Prediction]:
    """By emulations; of what is judged by its law, over several seeds."""
    _, _, revision, code = runs.provenance()
    known: dict[Model, tuple[list[list[float]], str]] = {}
    for model in models:
        alike = case.tells_apart(model)
        if alike not in known:
            known[alike] = _emulated(case, costs, alike)
    return [Prediction(case.name, model.name, *known[case.tells_apart(model)], revision, code, runs.now())
            for model in models]


def _emulated(case: Case, costs: Costs, model: Model) -> tuple[list[list[float]], str]:
    """Seconds of each round for each seed, and the fingerprint of the scenario of the first."""
    found = [runs.predict(case, costs, model, 7 + seed)
             for seed in range(SEEDS if case.asynchronous or (case.drawn and model.tcp) else 1)]
    rounds = [compare.round_times(rows, runs.deciders_of(case)) for rows, _ in found]
    return [[round(seconds, 6) for seconds in seed] for seed in rounds], found[0][1]


def of_formula(case: Case, name: str) -> Prediction | None:
    """By a formula; None: it has none for this scheme."""
    seconds = FORMULAS[name](case)
    if seconds is None:
        return None
    _, _, revision, code = runs.provenance()
    return Prediction(case.name, name, [[round(seconds, 6)]], "", revision, code, runs.now())


def known_of(folder: Path, case: str) -> dict[str, str]:
    """predictor -> digest of all that is predicted of a case by now."""
    found = [Prediction.read(file) for file in sorted((folder / "predictions").glob(f"{plain(case)}--*.json"))]
    return {one.predictor: one.digest for one, sound in found if sound}


# --- the table of all predictions -----------------------------------------------------------------------------------

PREDICTIONS = "deployment_predictions.csv"


def write(found: Sequence[tuple[Prediction, str]], folder: Path) -> None:
    """A line a prediction, with whether it was there before the deployment; `;` is between seeds."""
    runs.write_table(folder / PREDICTIONS, [
        {"case": one.case, "predictor": one.predictor, "standing": standing, "mean": round(one.mean_s, 4),
         "rounds": ";".join(" ".join(f"{seconds:.4f}" for seconds in seed) for seed in one.rounds), "made": one.made,
         "revision": one.revision, "code": one.code, "scenario": one.scenario, "digest": one.digest}
        for one, standing in found])


def sample(rounds: str) -> list[float]:
    """All rounds of a line of the table.

    >>> sample("1.0 2.0;1.5 2.5")
    [1.0, 2.0, 1.5, 2.5]
    """
    return [float(seconds) for seconds in rounds.replace(";", " ").split()]
