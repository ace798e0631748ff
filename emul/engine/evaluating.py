"""The scores of a run's kept models, computed again: as the run evaluated them, or on other data; and of their mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from emul.base.kept import KeptModel
from emul.engine.reopening import Reopened, reopen
from emul.record.journal import RecordError
from emul.record.summary import final_mean
from emul.workers.evaluations import BY_SCENARIO, again, by_scenario
from emul.workers.twin import one_thread


@dataclass(frozen=True)
class Evaluated:
    """One model. values: what was measured; None: its scheme measures with more than the model."""

    node: str
    round: int
    values: Mapping[str, float] | None


@dataclass(frozen=True)
class RoundModels:
    """The models of one round. accuracy: their mean, as the summary has it; None: none of them has one.

    expected: the summary's own, where it is of these models on these data. mean: the values of the mean of the models,
    for schemes whose nodes have one each; None: it is one model, or nodes asked for evaluations of their own.
    """

    round: int
    models: Sequence[Evaluated]
    accuracy: float | None
    expected: float | None
    mean: Mapping[str, float] | None


def evaluate(directory: Path, data: str | None = None, round_: int | None = None,
             plugins: Sequence[str] | None = None) -> RoundModels:
    """Evaluate the models that the run in `directory` kept of a round; by default of the last that it evaluated, or, if
    none was kept of it, of the last one.

    data: as `task.data` of a scenario says it, in YAML: another set, on whose test samples they are evaluated.
    Raises RecordError: no such models, or they take other inputs; ScenarioError: no such data.
    """
    said = data if data is None or data.lstrip().startswith("{") else f"{{set: {data}}}"
    opened = reopen(directory, plugins, [] if said is None else [f"task.data={said}"])
    run = opened.run
    seen = run.rounds.loc[run.rounds["accuracy"].notna(), "round"] if "accuracy" in run.rounds else ()
    last = int(max(seen)) if len(seen) else None            # whose accuracy is the summary's
    kept = max((run.model(node).round for node in run.models), default=None)
    wanted = [last, kept] if round_ is None else [round_]
    models = next(filter(None, (_models_of(opened, number) for number in wanted)), [])
    if not models:
        raise RecordError(f"{directory}: it has kept no model of round {wanted[-1]}; with record: {{models: 1}} in its "
                          "scenario those of all rounds are kept")
    with one_thread():
        found = [Evaluated(model.node, model.round, _values(opened, model)) for model in models]
        mean = _of_mean(opened, models)
    names = opened.wiring.setups[0].names
    accuracy = final_mean([(names.index(one.node), one.round, one.values) for one in found if one.values], "accuracy")
    same = data is None and models[0].round == last and all(one.values is not None for one in found)
    return RoundModels(models[0].round, found, accuracy, run.summary["accuracy"] if same else None, mean)


def _models_of(opened: Reopened, round_: int | None) -> list[KeptModel]:
    """The models of a round, in the order of the nodes."""
    run, found = opened.run, []
    for node in sorted(run.models, key=opened.wiring.setups[0].names.index):
        last = run.model(node)
        if last.round == round_:
            found.append(last)
        elif round_ in run.model_rounds(node):
            found.append(run.model(node, round_))
    return found


def _values(opened: Reopened, model: KeptModel) -> Mapping[str, float] | None:
    """As the run evaluated it: of a poisoned node that asked for it itself, nothing was."""
    setup, shard = opened.wiring.setups[0], opened.shards.get(model.node)
    if model.by != BY_SCENARIO and model.node in opened.run.summary["poisoned"]:
        return {}
    vector, d = model.vector(), opened.task.dimension
    if model.by and len(vector) % d:
        raise RecordError(f"{opened.run.path}: the model of {model.node} has {len(vector):,} parameters, on these data "
                          f"it would have {d:,}: their inputs or classes are others")
    return again(model.by, opened.task, model.node, shard, setup.evaluate_scope, vector)


def _of_mean(opened: Reopened, models: Sequence[KeptModel]) -> Mapping[str, float] | None:
    if len(models) < 2 or {model.by for model in models} != {BY_SCENARIO}:
        return None
    total = np.zeros(opened.task.dimension)
    for model in models:
        total += model.vector()
    scope = opened.wiring.setups[0].evaluate_scope
    return by_scenario(opened.task, scope, None, (total / len(models)).astype(np.float32))
