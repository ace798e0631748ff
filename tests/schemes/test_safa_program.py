"""The loop of the authors of SAFA, a plug-in beside its scenario, against the same loop over numbers."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.testing import drive

FILE = Path(__file__).resolve().parents[2] / "scenarios" / "published" / "safa_program.py"
spec = importlib.util.spec_from_file_location("safa_program", FILE)
assert spec is not None
assert spec.loader is not None
program = importlib.util.module_from_spec(spec)
sys.modules["safa_program"] = program           # dataclasses look their module up
spec.loader.exec_module(program)

CLIENTS = (1, 2, 3, 4)


class Task:
    """A model of one number."""

    dimension = 1

    def initial_parameters(self) -> np.ndarray:
        return np.zeros(1, np.float32)


def trained(model: float, client: int, round_: int) -> float:
    return float(np.float32(model + client + 10 * round_))


def looped(crashes: list[list[int]], quota: int, lag: int) -> list[float]:
    """The model after each round, in the order of the program: choose, synchronise, train, merge, keep the rest."""
    model, local, cache = 0.0, dict.fromkeys(CLIENTS, 0.0), dict.fromkeys(CLIENTS, 0.0)
    versions, picked, models = dict.fromkeys(CLIENTS, -1), list[int](), list[float]()
    for t, crashed in enumerate(crashes):
        made = [k for k in CLIENTS if k not in crashed]
        fresh = [k for k in made if k not in picked]
        picked = (fresh + [k for k in made if k in picked])[:quota]
        for k in CLIENTS:
            if t - 1 - versions[k] > lag:
                local[k] = cache[k] = model
                versions[k] = t - 1
            elif versions[k] == t - 1:
                local[k] = model
        for k in made:
            local[k], versions[k] = trained(local[k], k, t + 1), t
        for k in picked:
            cache[k] = local[k]
        model = sum(cache.values()) / len(CLIENTS)
        for k in made:
            cache[k] = local[k]
        models.append(model)
    return models


rounds = st.lists(st.lists(st.sampled_from(CLIENTS), max_size=3, unique=True), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(rounds, st.sampled_from([0.25, 0.5, 1.0]), st.integers(1, 3))
def test_the_models_are_those_of_the_program(crashes: list[list[int]], fraction: float, lag: int) -> None:
    role: Any = drive(program.server, program.Params(fraction, lag), clients=CLIENTS, task=Task(), rounds=len(crashes))
    found = []
    for number, crashed in enumerate(crashes, 1):
        begun = role.sent(program.Begin)
        role.deliver({k: program.Ended(np.float32([trained(float(begun[k].parameters[0]), k, number)]), 1)
                      for k in CLIENTS if k not in crashed})
        if crashed:
            role.settle()
        found.append(float(role.node.state(None).model[0]))
    assert found == pytest.approx(looped(crashes, math.ceil(fraction * len(CLIENTS)), lag), rel=1e-5)
