"""The trigger, what is poisoned with it, and what shows that it works."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.attacks import Backdoor


@given(st.integers(1, 6), st.integers(0, 9), st.floats(0.05, 1), st.integers(0, 99))
@settings(max_examples=30)
def test_a_share_of_the_other_classes_has_the_trigger_and_the_target(size, target, share, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(0, 1, (60, 1, 8, 8)).astype(np.float32), rng.integers(0, 10, 60)
    given_x, given_y = x.copy(), y.copy()
    door = Backdoor(target, size, share)
    poisoned, labels = door(x, y, 10, np.random.default_rng(seed))
    np.testing.assert_array_equal(x, given_x)
    np.testing.assert_array_equal(y, given_y)
    changed = (poisoned != x).any((1, 2, 3))
    others = int((y != target).sum())
    assert changed.sum() == round(share * others)
    assert (labels[changed] == target).all()
    assert (y[changed] != target).all()
    np.testing.assert_array_equal(labels[~changed], y[~changed])
    assert (poisoned[changed][..., -size:, -size:] == x.max()).all()
    np.testing.assert_array_equal(poisoned[..., :-size, :], x[..., :-size, :])


def test_the_trial_is_all_other_classes_with_the_trigger():
    x, y = np.zeros((4, 1, 3, 3), np.float32), np.array([0, 1, 2, 0])
    x[0, 0, 0, 0] = 9
    seen, wanted = Backdoor(target=0, size=1).trial(x, y)
    assert wanted.tolist() == [0, 0]
    assert seen[:, 0, 2, 2].tolist() == [9, 9]
    assert seen.sum() == 18


def test_vectors_are_stamped_at_their_end():
    assert Backdoor(size=2).stamp(np.array([[1.0, 2, 3, 4, 5, 6]])).tolist() == [[1, 2, 6, 6, 6, 6]]


@pytest.mark.parametrize(("wrong", "said"), [({"target": -1}, "a class"), ({"size": 0}, "1 pixel"),
                                             ({"share": 0.0}, "a fraction")])
def test_parameters_that_make_no_sense_are_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        Backdoor(**wrong)


@given(st.integers(0, 99), st.sampled_from([None, 0.25, 1.0]))
@settings(max_examples=30)
def test_copies_are_added_and_the_samples_stay(seed, share):
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(0, 1, (40, 1, 8, 8)).astype(np.float32), rng.integers(0, 10, 40)
    door = Backdoor(target=3, size=2, share=share, copies=True)
    poisoned, labels = door(x, y, 10, np.random.default_rng(seed))
    np.testing.assert_array_equal(poisoned[:40], x)
    np.testing.assert_array_equal(labels[:40], y)
    assert (labels[40:] == 3).all()
    assert (poisoned[40:][..., -2:, -2:] == x.max()).all()
    assert 0 <= len(labels) - 40 <= 40
    if share is not None:
        assert len(labels) - 40 == round(40 * share)
