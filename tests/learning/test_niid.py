"""The net and the partition of NIID-Bench, a plug-in beside its scenarios."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

FILE = Path(__file__).resolve().parents[2] / "scenarios" / "published" / "niid.py"
spec = importlib.util.spec_from_file_location("niid", FILE)
assert spec is not None
assert spec.loader is not None
niid = importlib.util.module_from_spec(spec)
spec.loader.exec_module(niid)


def test_the_net_has_the_parameters_of_its_paper() -> None:
    net = niid.MODELS["niid_cnn"]((1, 28, 28), 10)
    assert sum(p.numel() for p in net.parameters()) == 44_426
    assert net(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 8), st.sampled_from([0.5, 5.0]))
def test_each_sample_is_with_one_party_and_none_has_fewer_than_the_least(seed: int, clients: int, beta: float) -> None:
    targets = np.random.default_rng(seed).integers(0, 5, 400)
    parts = niid.niid_labels(targets, {}, clients, beta, np.random.default_rng(seed))
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(400))
    assert min(map(len, parts)) >= niid.LEAST


def test_the_share_of_a_class_follows_dirichlet() -> None:
    """Shares of the first class, before any party is full: the variance of Dir(b 1_n) is (1/n)(1 - 1/n)/(n b + 1)."""
    targets, clients, beta = np.repeat(np.arange(5), 200), 4, 5.0
    rng = np.random.default_rng(0)
    parts = [part for _ in range(300) for part in niid.niid_labels(targets, {}, clients, beta, rng)]
    shares = [np.sum(part < 200) / 200 for part in parts]
    assert np.mean(shares) == 0.25
    assert abs(np.var(shares) / (0.25 * 0.75 / (clients * beta + 1)) - 1) < 0.2
