"""FLTrust, median and trimmed mean as schemes of their own: the rule, and what is theirs beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emul.base.errors import ScenarioError
from emul.learning import Task
from emul.scenario import loads
from emul.testing import run_text
from emul.workers.twin import Twin

TEXT = """
emul: 1
name: robust
seed: 5
topology: {generator: star, clients: 7}
task:
  data: {set: digits}
  root: {samples: 60, bias: 0.3, class: 2}
  partition: {dirichlet: 1.0}
  model: logistic
  solver: {sgd: {lr: 0.1, steps: 3, batch: 16}}
compute: {mode: zero}
schemes: [SCHEME]
stop: {rounds: 2}
"""


def models(scheme: str) -> list[np.ndarray]:
    """What the server reports."""
    seen: list[np.ndarray] = []

    class Looking(Twin):
        def open(self, setups: Any) -> None:
            super().open(setups)
            observe = self.core._observe
            self.core._observe = lambda n, r, w, e: (seen.append(w.copy()), observe(n, r, w, e))[1]    # type: ignore

    run_text(TEXT.replace("SCHEME", scheme), pool=Looking())
    return seen


@pytest.mark.parametrize(("scheme", "rule"), [
    ("fltrust", "fltrust"), ("median", "median"), ("{name: trimmed_mean, f: 2}", "{trimmed_mean: {f: 2}}"),
    ("{name: trimmed_mean, beta: 0.3}", "{trimmed_mean: {f: 2}}"),
])
def test_the_scheme_does_to_the_bit_what_fedavg_does_with_the_rule(scheme: str, rule: str) -> None:
    ours, theirs = (run_text(TEXT.replace("SCHEME", entry)) for entry in (
        scheme, f"{{name: fedavg, aggregate: {rule}}}"))
    assert ours.models == theirs.models


def test_the_rate_of_fltrust_scales_the_step() -> None:
    scenario = loads(TEXT.replace("SCHEME", "fltrust"))
    w = Task(scenario.task, 7, scenario.seed).initial_parameters()
    whole, half = (models(f"{{name: fltrust, rate: {rate}}}")[0] for rate in (1, 0.5))
    assert np.abs(whole - w).max() > 0.01
    np.testing.assert_allclose(half - w, (whole - w) / 2, atol=1e-6)


@pytest.mark.parametrize(("scheme", "said"), [
    ("trimmed_mean", "expected either f or beta"),
    ("{name: trimmed_mean, f: 1, beta: 0.1}", "expected either f or beta"),
    ("{name: trimmed_mean, f: 4}", "needs 9 updates, 7 clients take part in a round"),
    ("{name: fltrust, rate: 0}", "expected a number above 0"),
])
def test_wrong_parameters_are_told(scheme: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        loads(TEXT.replace("SCHEME", scheme), "t", check=True)


def test_fltrust_needs_root_data() -> None:
    with pytest.raises(ScenarioError, match=r"no root data at the server  expected root in the task, such as"):
        loads(TEXT.replace("SCHEME", "fltrust").replace("  root: {samples: 60, bias: 0.3, class: 2}\n", ""), "t",
              check=True)
