"""Random patterns of losses, for every scheme that keeps an audit: exact in all elements, or given up for a reason."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.loss_patterns import BAD, pattern, run, verdicts
from emul.record.audit import reason
from emul.registry import schemes

FAMILY = [name for name in schemes.known() if schemes.find(name).audits]


def test_the_family_is_found() -> None:
    assert {"secagg", "secagg_plus", "ccesa", "safelearning"} <= set(FAMILY)


@pytest.mark.parametrize("scheme", FAMILY)
def test_sums_are_exact_or_given_up(scheme: str) -> None:
    assert not [one for one in verdicts(scheme, 1, 12) if one[1] in BAD]


@pytest.mark.release
@pytest.mark.parametrize("scheme", FAMILY)
def test_A1_sums_are_exact_or_given_up_in_300_patterns(scheme: str) -> None:
    found = Counter(verdict for _, verdict in verdicts(scheme, 2, 300))
    assert not [verdict for verdict in found if verdict in BAD], found
    assert found["exact"] >= 100
    assert len(found) >= 2


def test_a_pattern_is_the_same_whenever_it_is_run() -> None:
    assert pattern("secagg", 0, 17) == pattern("secagg", 0, 17) != pattern("secagg", 0, 18)
    first, again = (run("secagg", 0, 17)[1] for _ in range(2))
    assert first.rows == again.rows


@pytest.mark.parametrize(("why", "word"), [
    ("", ""), ("TooFewClients: unmask: 7 shares of the self mask of client1, threshold t = 8", "too_few_shares"),
    ("TooFewClients: keys: 5 of 6 clients answered, 2 of them around client1, threshold t = 3", "too_few_neighbours"),
    ("TooFewClients: shares: 0 of 6 clients answered, threshold t = 3", "too_few_clients"),
    ("NotDecodable: all_rejected: the detector has flagged every group", "all_rejected"), ("ValueError: ...", "other")])
def test_a_round_that_was_given_up_has_one_of_the_reasons(why: str, word: str) -> None:
    assert reason(why) == word
