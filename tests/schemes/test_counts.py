"""histogram and heavy_hitters against plain counts, and their noise against its law."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from emul.base import rows as R
from emul.base.errors import ScenarioError
from emul.learning import Task
from emul.protocols.counts import in_ring, polya
from emul.protocols.pairwise import client as members
from emul.protocols.pairwise.messages import Reveal
from emul.scenario import loads
from emul.schemes.heavy_hitters import Extend, Params, count, right
from emul.testing import Ran, run_text

TEXT = """
emul: 1
name: counts
seed: 7
topology: {generator: star_mesh, clients: 4}
links: [{match: "*", latency: 20 ms}]
task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1}}}
compute: {mode: zero}
schemes: [SCHEME]
stop: {rounds: 2}
"""


def labels() -> np.ndarray:
    task = Task(loads(TEXT.replace("SCHEME", "histogram"), "t").task, 4, 7)
    return np.concatenate([task.data.train_y[task.indices(k)] for k in range(4)])


def ran(scheme: str, *sets: str) -> Ran:
    return run_text(TEXT.replace("SCHEME", scheme), *sets)


def test_without_noise_the_histogram_is_exact() -> None:
    rounds = ran("histogram").rounds
    assert [row["error"] for row in rounds] == [0.0, 0.0]
    assert [row["counted"] for row in rounds] == [len(labels())] * 2
    few = ran("{name: histogram, bins: 3}", "stop.rounds=1").rounds[0]
    assert (few["error"], few["counted"]) == (0.0, int((labels() < 3).sum()))


def test_noise_of_a_round_is_new_and_small() -> None:
    """A two-sided geometric variable of epsilon = 1 has a standard deviation of 1.36."""
    first, second = (row["counted"] - len(labels()) for row in ran("{name: histogram, epsilon: 1.0}").rounds)
    assert first != second
    assert max(abs(first), abs(second)) < 30


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("t", [1, 3, 10])
def test_shares_of_noise_add_up_to_the_two_sided_geometric_law(epsilon: float, t: int) -> None:
    """P(z) = (1 - alpha) / (1 + alpha) alpha^|z|, alpha = exp(-epsilon)."""
    n, alpha = 40_000, math.exp(-epsilon)
    rng = np.random.default_rng(t)
    total = sum((polya(epsilon, t, (n,), rng) for _ in range(t)), np.zeros(n, np.int64))
    for z in (-2, -1, 0, 1, 2):
        p = (1 - alpha) / (1 + alpha) * alpha**abs(z)
        assert abs((total == z).mean() - p) < 5 * math.sqrt(p * (1 - p) / n)


def test_negative_counts_come_back_from_the_ring() -> None:
    x, _ = in_ring(np.array([-3, 5, 0]), 1)
    y, _ = in_ring(np.array([1, -5, -7]), 1)
    assert (x + y).view(np.int32).tolist() == [-2, 0, -7]


def test_heavy_hitters_finds_the_values_that_are_frequent_and_begins_anew() -> None:
    most = int(np.sort(np.bincount(labels()))[-4])          # the four most frequent labels reach it
    rounds = ran(f"{{name: heavy_hitters, bits: 4, step: 2, at_least: {most}}}", "stop.rounds=3").rounds
    assert [row["length"] for row in rounds] == [2, 4, 2]
    assert rounds[1]["kept"] == int((np.bincount(labels()) >= most).sum())
    assert all(row["precision"] == row["recall"] == 1.0 for row in rounds)


def test_only_continuations_of_the_prefixes_are_counted() -> None:
    p = Params(bits=4, step=2)
    values = np.array([0b0001, 0b0001, 0b0111, 0b1110, 0b1111, 99, -1])
    assert count(p, values, Extend(0, np.array([0], np.uint32))).tolist() == [2, 1, 0, 2]
    assert count(p, values, Extend(2, np.array([0, 3], np.uint32))).tolist() == [0, 2, 0, 0, 0, 0, 1, 1]
    kept = np.array([1, 2, 14, 1], np.float32)
    assert right(lambda: values, Params(bits=4, step=2, at_least=2), 4, kept) == {"precision": 0.5, "recall": 1.0}


@pytest.mark.parametrize(("scheme", "said"), [
    ("{name: histogram, epsilon: 0.0}", r"expected a number in \[1e-6, 1e6\], or none"),
    ("{name: histogram, bins: 0}", r"expected 1\.\.1048576"), ("{name: histogram, threshold: 9}", r"expected 2\.\.4"),
    ("{name: histogram, of: client*}", "expected labels: the built-in data sets have no columns"),
    ("{name: heavy_hitters, bits: 5}", "expected a number that divides bits = 5"),
    ("{name: heavy_hitters, at_least: 0}", "expected a number of samples, 1 or more")])
def test_what_is_wrong_with_their_parameters_is_said(scheme: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        loads(TEXT.replace("SCHEME", scheme), "t")


@pytest.mark.parametrize("scheme", ["{name: histogram, verify_spare: VERIFY}",
                                    "{name: heavy_hitters, bits: 4, step: 2, at_least: 1, verify_spare: VERIFY}"])
def test_false_shares_are_seen_by_spare_ones(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four clients, a threshold of three: one share is spare."""
    def outcome(verify: str) -> str:
        return str(ran(scheme.replace("VERIFY", verify), "stop.rounds=1").of(0, R.LEAVE)[0][4])

    assert [outcome(verify) for verify in ("false", "true")] == ["", ""]
    real = members.reveal

    def lies(i: int, *rest: Any) -> Reveal:
        told: Reveal = real(i, *rest)
        return Reveal(told.ids, told.shares ^ np.uint8(i == liar))

    liar = ran("histogram", "stop.rounds=1").header["names"].index("client1")
    monkeypatch.setattr(members, "reveal", lies)
    assert outcome("false") == "", "the counts are wrong without an error"
    assert outcome("true").startswith("NotDecodable: inconsistent_sets: ")
