"""vertical_logistic_he against descent on the loss of its paper, bytes and times against closed forms, mistakes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from emul import engine, load_run
from emul.base.errors import NotDecodable, ScenarioError
from emul.base.streams import generator
from emul.learning import Task
from emul.preview.explain import explain
from emul.primitives.he.paillier import Packing, key_pair, seconds
from emul.protocols.sealed import Box, Ciphertexts, StandIns
from emul.scenario import loads
from emul.schemes.vertical_logistic_he import COLUMN, SCORE, opened, products, residuals
from emul.testing import MS, run_text

TEXT = """
emul: 1
name: vertical_logistic_he
seed: 7
topology: {generator: star_mesh, clients: 2, servers: 2}
links: [{match: "*", latency: 20 ms}]
task: {data: {set: digits, held_out: 1400}, partition: {columns: {groups: 2, common: 0.8}}, model: logistic,
       solver: {sgd: {lr: 0.2, steps: 3, batch: 6, weight_decay: 0.05}}}
compute: {mode: zero}
schemes: [{name: vertical_logistic_he, positive: 0, bits: 256}]
stop: {rounds: 2}
"""
DECLARED = "schemes[0].real_up_to=0"


def in_one_place(rounds: int) -> np.ndarray:
    """theta by float64, from the gradient (1/4 theta.x - 1/2 y) x of the loss, on the same batches."""
    task = Task(loads(TEXT, "t").task, 2, 7)
    node = task.for_node("server2", None, lambda: 1)
    role = generator(7, "role", "server2")
    role.bytes(32)                                      # its secret
    both = set(task.indices(0).tolist()) & set(task.indices(1).tolist())
    common = np.array([id_ for id_ in role.permutation(task._pools[1]).tolist() if id_ in both])
    seeds, theta = generator(7, "batches", "server2"), np.zeros(65)
    for _ in range(rounds):
        for rows in node.plan(len(common), int(seeds.integers(2**63))):
            x = task.data.inputs(task.data.train_x[common[rows]])
            x = np.hstack([x[..., :4].reshape(len(rows), -1), x[..., 4:].reshape(len(rows), -1),
                           np.ones((len(rows), 1))]).astype(np.float64)
            y = np.where(task.data.train_y[common[rows]] == 0, 1, -1)
            theta = theta - 0.2 * (x.T @ (x @ theta / 4 - y / 2) / len(rows) + 0.05 * theta)
    return theta


def test_it_is_descent_on_the_loss_of_the_paper_by_encryption_and_declared(tmp_path: Path) -> None:
    real, declared = (
        load_run(engine.run(loads(TEXT, "t", sets), workers=0, out=tmp_path / str(len(sets)))[0].directory)
        for sets in ([], [DECLARED]))
    found = real.model("server1").vector()
    np.testing.assert_allclose(found, in_one_place(2), atol=1e-4)
    assert np.abs(found - in_one_place(1)).max() > 0.01
    assert np.array_equal(found, declared.model("server1").vector())
    assert real.rounds["accuracy"].tolist() == declared.rounds["accuracy"].tolist()
    assert real.rounds["samples"].dropna().tolist() == [18, 18]


def test_it_learns_to_tell_a_digit_from_the_others() -> None:
    ran = run_text(TEXT, DECLARED, "task.data.held_out=0", "task.solver={sgd: {lr: 0.2, epochs: 1, batch: 32}}",
                   "stop.rounds=4", "links[0].latency=1 ms")
    assert max(row["accuracy"] for row in ran.rounds if row["accuracy"] is not None) > 0.97     # all others: 0.9


@pytest.mark.parametrize("bits", [256, 512])
def test_a_batch_sends_as_many_ciphertexts_as_the_closed_form_says(bits: int) -> None:
    """2 K b + d + 1 of them: a score a sample of each party, residuals to each, a gradient a column and one."""
    ran = run_text(TEXT, "stop.rounds=1", f"schemes[0].bits={bits}", DECLARED)
    sealed = {kind: [size - size % (bits // 4) for size in ran.payloads[kind]]
              for kind in ("Scores", "Residuals", "Gradient")}
    assert sum(map(sum, sealed.values())) == 3 * (2 * 2 * 6 + 64 + 1) * bits // 4
    assert all(size % (bits // 4) < 100 for kind in sealed for size in ran.payloads[kind])
    real = run_text(TEXT, "stop.rounds=1", f"schemes[0].bits={bits}")
    for kind, sizes in sealed.items():
        assert [size - size % (bits // 4) for size in real.payloads[kind]] == sizes


@pytest.mark.parametrize("declared", [False, True])
def test_a_batch_takes_four_latencies_and_what_is_declared(declared: bool) -> None:
    """Exactly. Parties encrypt scores and multiply side by side; what is done for real takes no time here."""
    sets = ["stop.rounds=1"] + [DECLARED] * declared
    one, three = (run_text(TEXT, *sets, f"task.solver.sgd.steps={n}") for n in (1, 3))
    each, b, K, d = seconds(256), 6, 2, 32
    computed = [b * each.encrypt, (K + 1) * b * each.add + b * each.scale, b * d * (each.scale + each.add),
                (K * d + 1) * each.decrypt]
    expected = 4 * 20 * MS + (sum(round(1e9 * s) for s in computed) if declared else 0)
    assert three.rounds[0]["left_ns"] - one.rounds[0]["left_ns"] == 2 * expected


def test_explain_says_what_a_batch_sends() -> None:
    found = Counter[str]()
    for row in explain(loads(TEXT, "t"))["schemes"][0]["round"]["by_type"]:
        found[row["type"]] += row["messages"]
    assert [found[kind] for kind in ("Coefficients", "Scores", "Residuals", "Gradient")] == [3, 2, 2, 3]


@pytest.mark.parametrize("box", [Ciphertexts, StandIns])
def test_the_largest_numbers_come_out_exact_and_larger_ones_are_refused(box: type[Box]) -> None:
    """A batch as large as `check` allows, of numbers as large as the fixed point has."""
    key, rng = key_pair(256, np.random.default_rng(1)), np.random.default_rng(2)
    desk = box(key.public, Packing(1, 254))
    b, K = (1 << 16) // 4 - 1, 3
    u, x = np.full(4, -(2**27 - 1)), np.full((4, 2), 2**20 - 1)
    w, summed = residuals(desk, [desk.seal(u, rng)] * K, u)
    z = opened(desk, key, [products(desk, w, x), summed], [2, 1])
    assert z.tolist() == [4 * (K + 1) * -(2**27 - 1) * (2**20 - 1)] * 2 + [4 * (K + 1) * -(2**27 - 1) << COLUMN]
    assert b * (K + 1) * (2**27 - 1) * (2**20 - 1) < 2**63
    assert (COLUMN, SCORE) == (14, 18)
    if box is Ciphertexts:
        with pytest.raises(NotDecodable, match="more than 64 bits"):
            opened(desk, key, [desk.seal_each([2**70], rng)], [1])


@pytest.mark.parametrize(("edit", "said"), [
    ("task.partition=iid", "vertical_logistic_he needs one by columns"),
    ("task.model=digits_mlp", "expected logistic, which is what is trained"),
    ("task.solver={adam: {lr: 0.1, steps: 1, batch: 4}}", "needs sgd"),
    ("task.solver={sgd: {lr: 0.1, steps: 1}}", "expected at most 21845, whose sums are exact"),
    ("schemes[0].bits=100", "expected a multiple of 16"),
    ("schemes[0].positive=-1", "expected a class, 0 or more")])
def test_what_is_wrong_is_an_error_of_check(edit: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        loads(TEXT, "t", [edit])
