"""Loss-threshold membership inference: its measures against counting, and on runs whose models were kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.attacks.privacy.membership import judged

LOSSES = st.lists(st.floats(0, 10, width=16), min_size=1, max_size=12)


@settings(max_examples=40)
@given(LOSSES, LOSSES)
def test_measures_equal_those_that_are_counted_pair_by_pair(members: list[float], others: list[float]) -> None:
    found = judged(np.array(members), np.array(others))
    threshold = sum(members) / len(members)
    tpr = sum(loss <= found["loss_members"] for loss in members) / len(members)
    fpr = sum(loss <= found["loss_members"] for loss in others) / len(others)
    assert found["loss_members"] == pytest.approx(threshold)
    assert found["advantage"] == pytest.approx(tpr - fpr)
    assert found["asr"] == pytest.approx((found["advantage"] + 1) / 2)
    pairs = [(m < o) + 0.5 * (m == o) for m in members for o in others]
    assert found["auc"] == pytest.approx(sum(pairs) / len(pairs))
    allowed = [t for t in [-1.0, *members, *others] if sum(o <= t for o in others) / len(others) <= 0.01]
    best = max(sum(m <= t for m in members) / len(members) for t in allowed)
    assert found["tpr_at_fpr_1"] == pytest.approx(best)


def test_a_model_that_has_learnt_its_samples_by_heart_gives_them_away() -> None:
    found = judged(np.zeros(5), np.full(7, 3.0))
    assert (found["asr"], found["auc"], found["tpr_at_fpr_1"]) == (1.0, 1.0, 1.0)


def test_a_model_that_has_diverged_gives_finite_measures() -> None:
    found = judged(np.array([np.nan, np.inf]), np.array([np.inf, 1.0]))
    assert all(np.isfinite(value) for value in found.values())
    assert found["auc"] == 0.25
