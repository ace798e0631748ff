"""The formulas of TCP against the numbers of the literature, and what a kernel measured."""

from __future__ import annotations

import doctest
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import tcp_formulas
from benchmarks.tcp_formulas import mathis_bps, pftk_bps
from emul.base.errors import NetworkError

MS = 10**6
losses = st.floats(1e-6, 0.3)
rtts = st.integers(1 * MS, 1000 * MS)


def test_the_examples_hold():
    assert doctest.testmod(tcp_formulas).failed == 0


@pytest.mark.parametrize(("p", "measured", "to_mathis", "to_pftk"), [
    (0.0025, 7.72e6, 1.09, 1.12), (0.01, 3.76e6, 1.06, 1.18), (0.04, 1.54e6, 0.87, 1.28)])
def test_reno_on_a_kernel_at_40_ms_stands_to_the_formulas_as_published(p, measured, to_mathis, to_pftk):
    assert measured / mathis_bps(40 * MS, p) == pytest.approx(to_mathis, abs=0.01)
    assert measured / pftk_bps(40 * MS, p) == pytest.approx(to_pftk, abs=0.01)


def test_mathis_by_hand():
    """1460 bytes, 100 ms, 1 %: 0.1168 Mbit/s * sqrt(3/2) / 0.1; delayed acknowledgements cost sqrt(2)."""
    assert mathis_bps(100 * MS, 0.01, mss_bytes=1460) == pytest.approx(116_800 * 1.5**0.5 / 0.1, rel=1e-12)
    assert mathis_bps(100 * MS, 0.01, b=2) == pytest.approx(mathis_bps(100 * MS, 0.01) / 2**0.5, rel=1e-12)


@given(losses, rtts)
def test_timeouts_make_pftk_the_lower_one_and_without_them_both_are_one(p, rtt):
    assert pftk_bps(rtt, p) < mathis_bps(rtt, p)
    assert pftk_bps(rtt, p, rto_ns=0) == pytest.approx(mathis_bps(rtt, p), rel=1e-12)


@given(losses, rtts, st.floats(1.01, 3))
def test_more_loss_a_longer_rtt_and_a_longer_timeout_give_less(p, rtt, more):
    for rate in (mathis_bps, pftk_bps):
        assert rate(rtt, p * more) < rate(rtt, p)
        assert rate(round(rtt * more), p) < rate(rtt, p)
    assert pftk_bps(rtt, p, rto_ns=round(tcp_formulas.RTO_NS * more)) < pftk_bps(rtt, p)


def test_the_window_caps_and_without_loss_nothing_else_does():
    for rate in (mathis_bps, pftk_bps):
        assert rate(100 * MS, 0) == inf
        assert rate(100 * MS, 0, window_bytes=65_535) == 8 * 65_535 * 10
        assert rate(100 * MS, 0.5, window_bytes=10**9) == rate(100 * MS, 0.5)


@pytest.mark.parametrize(("wrong", "text"), [
    ({"rtt_ns": 0}, "tcp: rtt 0: expected ns, more than 0"),
    ({"p": 1.5, "mss_bytes": 0}, "tcp: loss 1.5: expected a probability in [0, 1]; mss 0: expected bytes, more than 0"),
    ({"b": 0}, "tcp: b 0: expected packets an acknowledgement, 1 or more"),
    ({"window_bytes": 0}, "tcp: window 0: expected bytes, more than 0"),
])
def test_what_no_connection_has_is_refused(wrong, text):
    for rate in (mathis_bps, pftk_bps):
        with pytest.raises(NetworkError) as caught:
            rate(**{"rtt_ns": 1, "p": 0.1} | wrong)
        assert str(caught.value) == text
    with pytest.raises(NetworkError) as caught:
        pftk_bps(1, 0.1, rto_ns=-1)
    assert str(caught.value) == "rto -1: expected ns, 0 or more"
