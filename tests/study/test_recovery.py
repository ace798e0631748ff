"""The recovery matrix: what becomes of a round when clients drop out at each stage, from real runs."""

from __future__ import annotations

import pytest

from emul.protocols.audit import REASONS
from emul.study.recovery import audited, matrix, page, text

PAIRWISE = {"secagg": ["AdvertiseKeys", "Shares", "Shared", "Masked", "Reveal"],
            "secagg_plus": ["AdvertiseKeys", "SharesUp", "Masked", "Reveal"],
            "ccesa": ["AdvertiseKeys", "SharesUp", "Masked", "Reveal"],
            "safelearning": ["AdvertiseKeys", "SharesUp", "MaskedParts", "Reveal", "RevealLow"]}


@pytest.mark.parametrize("name", PAIRWISE)
def test_a_client_is_in_the_sum_iff_its_masked_input_was_in_time(name: str) -> None:
    found = matrix([name])
    assert found["stage"].tolist() == PAIRWISE[name]
    last = next(k for k, stage in enumerate(PAIRWISE[name]) if stage == "Reveal")
    assert found["one client"].tolist() == ["rec-"] * last + ["rec+"] * (len(found) - last)
    assert found["all but one"].tolist() == ["too_few_neighbours"] * last + ["too_few_shares"] * (len(found) - last)
    assert all(found["why"].str.contains("threshold t = "))


def test_every_scheme_that_keeps_an_audit_is_never_wrong() -> None:
    known = audited()
    assert set(PAIRWISE) <= set(known)
    others = [name for name in known if name not in PAIRWISE]
    found = matrix(others)
    assert set(found["one client"]) | set(found["all but one"]) <= {"rec+", "rec-", "rec+-", *REASONS}


def test_the_matrix_is_a_page_and_a_table() -> None:
    found = matrix(["secagg_plus"])
    assert text(found).splitlines()[2:4] == [
        "| secagg_plus | AdvertiseKeys | rec- | too_few_neighbours |",
        "| secagg_plus | SharesUp | rec- | too_few_neighbours |"]
    html = page(found)
    assert "Recovery matrix" in html
    assert "too_few_shares" in html
