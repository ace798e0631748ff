"""Connections of TCP in schemes, whose nodes are in one process or in several: the same run."""

from __future__ import annotations

import pytest

from emul.base import rows as R
from emul.registry import schemes
from emul.testing import run_text
from emul.workers.pool import Workers


@pytest.mark.parametrize("sharing", ["connections", "tcp_fifo"])
@pytest.mark.parametrize("scheme", ["fedbuff", "gossip", "secagg"])
def test_one_digest_whatever_the_number_of_workers(sharing: str, scheme: str, pools: list[Workers]) -> None:
    rule = ("links=[{match: '*', latency: 20 ms, bandwidth: 4 Mbit/s, overhead: {preset: ipv4_tcp}, "
            f"sharing: {sharing}, transport: {{tcp: {{buffer: 30 kB}}}}, "
            "outage: {model: bernoulli, p: 0.1, per: packet}}]")
    text = schemes.find(scheme).example
    alone = run_text(text, rule)
    assert any(row[0] == R.RESENT for row in alone.rows)
    assert run_text(text, rule, pool=pools[1]).digest == alone.digest
