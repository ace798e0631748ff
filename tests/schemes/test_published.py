"""The plug-ins beside the scenarios of published results, against the same loops over numbers."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.learning.objectives import Batch, Outputs
from emul.protocols.asynchronous import Model, Update
from emul.testing import drive

FOLDER = Path(__file__).resolve().parents[2] / "scenarios" / "published"


def plugin(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)      # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


program, averaged, flgo, boston = map(plugin, ("safa_program", "fedavg_program", "flgo_loop", "safa_boston"))

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


@settings(max_examples=30, deadline=None)
@given(rounds, st.sampled_from([0.25, 0.5, 1.0]))
def test_who_does_not_answer_counts_with_the_old_model(crashes: list[list[int]], fraction: float) -> None:
    role: Any = drive(averaged.server, averaged.Params(fraction), clients=CLIENTS, task=Task(), rounds=len(crashes))
    model = 0.0
    for number, crashed in enumerate(crashes, 1):
        drawn = role.node.sample(role.node.clients, fraction)
        ended = {k: trained(model, k, number) for k in drawn if k not in crashed}
        begun = role.sent(program.Begin)
        assert [float(begun[k].parameters[0]) for k in drawn] == pytest.approx([model] * len(drawn), rel=1e-5)
        model += sum(one - model for one in ended.values()) / len(CLIENTS)
        role.deliver({k: program.Ended(np.float32([one]), 1) for k, one in ended.items()})
        if len(ended) < len(drawn):
            role.settle()
        assert float(role.node.state(None).model[0]) == pytest.approx(model, rel=1e-5)
    assert role.ended == ""


@settings(max_examples=60, deadline=None)
@given(st.permutations(range(2, 8)), st.sampled_from([(0, None), (2, None), (0, 3.5), (0, 9.0)]))
def test_flgos_loop_averages_what_has_come(times: list[int], how: tuple[int, float | None]) -> None:
    first, budget = how
    clients, takes = range(1, 7), dict(zip(range(1, 7), times, strict=True))
    role: Any = drive(flgo.server, flgo.Params(2, first, budget), clients=clients, task=Task(), rounds=4)
    now, model, flying = 0.0, 0.0, dict[int, tuple[float, float, int]]()
    for number in range(1, 5):
        sent = role.sent(Model)
        started = [k for k, one in sent.items() if one.number == number]
        assert len(started) == min(2, len(clients) - len(flying))
        assert [float(sent[k].parameters[0]) for k in started] == pytest.approx([model] * len(started), rel=1e-5)
        flying |= {k: (now + takes[k] + k / 100, model, number) for k in started}
        end, came = math.inf if budget is None else now + budget, list[float]()
        for k in sorted(flying, key=lambda k: flying[k]):
            if flying[k][0] >= end or (len(came) == first if first else not set(started) & set(flying)):
                break
            now, base, version = flying.pop(k)
            role.advance_to(now)
            role.deliver({k: Update(np.float32([k]), 1, version)})
            came.append(base + k)
        else:
            assert budget is None or not set(started) & set(flying)
        if budget is not None and set(started) & set(flying):
            now = end
            role.advance_to(now)
        model = sum(came) / len(came) if came else model
        assert float(role.node.state(None).model[0]) == pytest.approx(model, rel=1e-5)
    assert role.ended == ""


def test_boston_is_scaled_and_cut_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(-5, 5, (506, 14))
    np.savetxt(tmp_path / "boston_housing.csv", rows, delimiter=",", header="of columns", comments="")
    monkeypatch.setenv("EMUL_DATA", str(tmp_path))
    found = boston.boston({})
    assert {name: one.shape for name, one in found.items()} == {
        "train_x": (354, 12), "train_y": (354,), "test_x": (152, 12), "test_y": (152,)}
    scaled = (rows[:, 3] - rows[:, 3].min()) / np.ptp(rows[:, 3])
    assert np.concatenate([found["train_x"], found["test_x"]])[:, 3] == pytest.approx(scaled, abs=1e-6)
    parts = boston.blocks(found["train_y"], {}, 5, 0.3, rng)
    assert np.concatenate(parts).tolist() == list(range(354))
    assert len({len(part) for part in parts}) > 1
    assert min(map(len, parts)) >= 14


def test_the_accuracy_of_a_regression_is_theirs() -> None:
    outputs, batch = Outputs(torch.tensor([[2.0], [0.5]])), Batch(None, torch.tensor([1.0, 1.0]))
    for square, accuracy in ((False, [0.5, 0.5]), (True, [0.0, 0.75])):
        assert boston.Relative(square=square).metrics(outputs, batch)["accuracy"].tolist() == accuracy
