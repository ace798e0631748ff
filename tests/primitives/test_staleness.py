"""The three staleness functions of FedAsync, by hand."""

from __future__ import annotations

import pytest

from emul.primitives.staleness import Staleness


@pytest.mark.parametrize(("s", "values"), [
    (Staleness("constant"), {0: 1, 7: 1}),
    (Staleness("polynomial", a=0.5), {0: 1, 3: 1 / 2, 8: 1 / 3}),
    (Staleness("polynomial", a=2), {0: 1, 1: 1 / 4, 2: 1 / 9}),
    (Staleness("hinge", a=10, b=4), {0: 1, 4: 1, 5: 1 / 11, 6: 1 / 21}),
    (Staleness("hinge", a=1, b=0.5), {0: 1, 1: 1 / 1.5})])
def test_an_old_update_counts_as_its_function_says(s: Staleness, values: dict[int, float]):
    assert {u: s(u) for u in values} == pytest.approx(values, rel=1e-15)
