import re

import pytest

from emul.learning import solver
from emul.learning.solver import Adam, AdamW, RateSchedule, Sgd, SolverError


def test_solvers_are_made_from_what_a_scenario_says():
    assert solver.make({"sgd": {"lr": 0.1, "steps": 5, "batch": 32}}) == Sgd(lr=0.1, steps=5, batch=32)
    assert solver.make({"adam": {"lr": 0.002, "epochs": 0}}) == Adam(lr=0.002, epochs=0)
    written = {"lr": 0.1, "steps": 1, "clip": 1, "keep": True, "schedule": {"steps": 9, "to": 0.1}}
    assert solver.make({"adamw": written}) == AdamW(
        lr=0.1, steps=1, clip=1, keep=True, schedule=RateSchedule(steps=9, to=0.1))
    assert Sgd(lr=0.1, epochs=3).with_steps(2) == Sgd(lr=0.1, steps=2)
    assert Sgd(lr=0.1, epochs=3).with_steps(None) == Sgd(lr=0.1, epochs=3)


@pytest.mark.parametrize(("spec", "text"), [
    ("sgd", "solver: expected one solver such as {sgd: {lr: 0.1, steps: 5, batch: 32}}"),
    ({"sdg": {}}, 'solver: unknown solver; did you mean "sgd"?'),
    ({"sgd": 0.1}, "solver.sgd: expected its options, such as {lr: 0.1, steps: 5}"),
    ({"sgd": {"steps": 1}}, "solver.sgd: expected lr"),
    ({"sgd": {"lr": 0.1}}, "solver.sgd: expected either steps or epochs"),
    ({"sgd": {"lr": 0.1, "steps": 1, "epochs": 1}}, "solver.sgd: expected either steps or epochs"),
    ({"sgd": {"lr": 0, "steps": 1.5, "batch": 0, "momentum": 1}},
     "solver.sgd.lr: expected a number > 0; solver.sgd.steps: expected an integer >= 0; "
     "solver.sgd.batch: expected an integer >= 1; solver.sgd.momentum: expected a number in [0, 1)"),
    ({"sgd": {"lr": 0.1, "steps": 1, "momentm": 0.9}}, 'solver.sgd.momentm: unknown option; did you mean "momentum"?'),
    ({"sgd": {"lr": True, "steps": 1, "weight_decay": -1}},
     "solver.sgd.lr: expected a number; solver.sgd.weight_decay: expected a number >= 0"),
    ({"adamw": {"lr": 0.1, "steps": 1, "clip": 0, "accumulate": None, "keep": 1, "schedule": 3}},
     "solver.adamw.clip: expected a number > 0; solver.adamw.accumulate: expected an integer >= 1; "
     "solver.adamw.keep: expected true or false; "
     "solver.adamw.schedule: expected such as {warm_up: 30, steps: 200, to: 0.1}"),
    ({"adamw": {"lr": 0.1, "steps": 1, "schedule": {"warm_up": 1.5, "too": 1, "to": 2}}},
     "solver.adamw.schedule.warm_up: expected an integer >= 0; "
     'solver.adamw.schedule.too: unknown option; did you mean "to"?; '
     "solver.adamw.schedule.to: expected a number in [0, 1]; solver.adamw.schedule: expected steps"),
    ({"adamw": {"lr": 0.1, "steps": 1, "schedule": {"warm_up": 9, "steps": 9}}},
     "solver.adamw.schedule.warm_up: expected less than the 9 steps")])
def test_every_mistake_is_said(spec, text):
    with pytest.raises(SolverError, match=f"^{re.escape(text)}$"):
        solver.make(spec)
