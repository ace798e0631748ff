"""The three staleness functions of FedAsync, by hand."""

from __future__ import annotations

import pytest

from emul.primitives.staleness import Staleness


@pytest.mark.parametrize(("s", "values"), [
    (Staleness("constant"), {0: 1, 7: 1}),
    (Staleness("polynomial"), {0: 1, 3: 1 / 2, 8: 1 / 3}),
    (Staleness("hinge"), {4: 1, 5: 1 / 1.5, 6: 1 / 2}),
    (Staleness("polynomial", a=0.5), {0: 1, 3: 1 / 2, 8: 1 / 3}),
    (Staleness("polynomial", a=2), {0: 1, 1: 1 / 4, 2: 1 / 9}),
    (Staleness("hinge", a=10, b=4), {0: 1, 4: 1, 5: 1 / 11, 6: 1 / 21}),
    (Staleness("hinge", a=1, b=0.5), {0: 1, 1: 1 / 1.5})])
def test_an_old_update_counts_as_its_function_says(s: Staleness, values: dict[int, float]):
    assert {u: s(u) for u in values} == pytest.approx(values, rel=1e-15)


def test_what_a_function_has_not_is_told():
    assert Staleness("polynomial", a=0.5, b=4.0).unused() == [
        "b = 4.0: expected none, for polynomial staleness has no b"]
    assert Staleness("constant", a=0.5, b=4.0).unused() == [
        f"{name}: expected none, for constant staleness has no {name[0]}" for name in ("a = 0.5", "b = 4.0")]
    assert Staleness("hinge", a=10, b=4).unused() == Staleness("polynomial", a=1).unused() == []
