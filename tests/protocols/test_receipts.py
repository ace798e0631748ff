"""`receipts` of the pairwise protocol: a client whose shares have not come leaves the sum, and the round goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.summing import SumOutcome, sums
from emul.base.errors import ProtocolViolation
from emul.protocols.demands import Refused
from emul.protocols.pairwise import client as members
from emul.protocols.pairwise.hand import reveal_without
from emul.protocols.pairwise.messages import UnmaskWithout, id_array

OTHERS = frozenset({2, 3, 4, 5, 6, 7})


def of_client1(receivers: frozenset[int]) -> Callable[..., bool]:
    """Shares of client 1 that are lost: those to `receivers`."""
    return lambda kind, source, target, round_: kind == "Shares" and source == 1 and target in receivers


def seven(**params: Any) -> dict[str, Any]:
    return {"threshold": 3, **params}


@pytest.mark.parametrize("deadline_s", [None, 0.08])
def test_a_client_whose_links_to_the_others_are_down_ends_the_round_for_all_without_receipts_and_for_itself_with(
        deadline_s: float | None) -> None:
    plain = sums("secagg", 7, seven(stage_deadline_s=deadline_s), lost=of_client1(OTHERS))
    assert plain.rounds == {1: "TooFewClients: unmask: 1 shares of the self mask of client1, threshold t = 3"}
    found = sums("secagg", 7, seven(stage_deadline_s=deadline_s, receipts=True), lost=of_client1(OTHERS))
    assert (found.verdict(), found.included[1]) == ("exact", [2, 3, 4, 5, 6, 7])
    assert found.reports[1]["unheld"] == 1


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 6), st.frozensets(st.integers(2, 7)), st.booleans())
def test_whatever_one_client_sends_to_whom_and_whether_it_answers_in_the_end_no_round_is_lost(
        t: int, lost: frozenset[int], silent: bool) -> None:
    """It is in the sum if nobody misses its shares, or t others have them: its own word for it counts for nothing."""
    found = sums("secagg", 7, {"threshold": t, "receipts": True}, lost=of_client1(lost),
                 drops={1: "Reveal"} if silent else {})
    inside = not lost or len(OTHERS - lost) >= t
    assert (found.verdict(), found.included[1]) == ("exact", sorted(OTHERS | {1} if inside else OTHERS))


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 6), st.booleans())
def test_one_client_that_says_that_it_lacks_everybody_excludes_nobody(t: int, silent: bool) -> None:
    """It is as if its shares of the others were gone: t of the other five hold them, or it has to be excluded."""
    found = sums("secagg", 7, {"threshold": t, "receipts": True}, drops={1: "Reveal"} if silent else {},
                 lost=lambda kind, source, target, round_: kind == "Shares" and target == 1)
    if t <= 5:
        assert (found.verdict(), found.included[1]) == ("exact", [1, 2, 3, 4, 5, 6, 7])
    else:
        assert found.verdict().startswith("too_few")


COPIES = st.tuples(st.sampled_from(["AdvertiseKeys", "KeyRing", "Shares", "Shared", "Sharers", "SharesUp", "SharesDown",
                                    "MaskedLacking", "UnmaskWithout", "Reveal"]), st.integers(0, 7), st.integers(0, 7))


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(["secagg", "secagg_plus", "ccesa"]), st.sampled_from(["direct", "server"]), st.integers(2, 5),
       st.integers(0, 99), st.frozensets(COPIES, max_size=12))
def test_whatever_is_lost_a_sum_is_exact_or_given_up_and_nobody_is_exposed(
        scheme: str, route: str, t: int, seed: int, lost: frozenset[tuple[str, int, int]]) -> None:
    own = {"secagg": {}, "secagg_plus": {"neighbours": 4}, "ccesa": {"p": 0.8}}[scheme]
    found = sums(scheme, 7, {**own, "threshold": t, "route": route, "receipts": True}, seed=seed,
                 lost=lambda kind, source, target, round_: (kind, source, target) in lost)
    assert found.verdict() == "exact" or found.verdict().startswith("too_few")
    assert not found.exposed


def rubbish_of_client1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Client 1 encrypts nothing that anybody can open."""
    real = members.share_secrets

    def share(i: int, *rest: Any) -> Any:
        hand = real(i, *rest)
        if i == 1:
            for box in hand.boxes.values():
                assert box.size
            hand.boxes.update({j: box ^ np.uint8(1) for j, box in hand.boxes.items()})
        return hand
    monkeypatch.setattr(members, "share_secrets", share)


@pytest.mark.parametrize("route", ["direct", "server"])
def test_boxes_that_nobody_can_open_are_as_if_they_had_not_come(route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rubbish_of_client1(monkeypatch)

    def found(receipts: bool) -> SumOutcome:
        return sums("secagg", 7, seven(route=route, receipts=receipts))
    assert found(False).verdict() == "too_few_shares"
    assert (found(True).verdict(), found(True).included[1]) == ("exact", [2, 3, 4, 5, 6, 7])


def test_masks_of_a_client_that_dropped_out_after_shares_that_have_not_come_are_taken_off_by_its_peers() -> None:
    """Nobody can give its mask key back."""
    found = sums("secagg", 7, seven(receipts=True), lost=of_client1(OTHERS), drops={1: "MaskedLacking"})
    assert (found.verdict(), found.included[1]) == ("exact", [2, 3, 4, 5, 6, 7])
    plain = sums("secagg", 7, seven(), lost=of_client1(OTHERS), drops={1: "Masked"})
    assert plain.rounds == {1: "TooFewClients: unmask: 0 shares of the mask key of client1, threshold t = 3"}


def test_with_somebody_left_out_so_everybody_has_to_answer_the_last_stage() -> None:
    found = sums("secagg", 7, seven(receipts=True), lost=of_client1(OTHERS), drops={4: "Reveal"})
    assert found.rounds == {1: "TooFewClients: unmask: client4 has not revealed its pair mask with client1, whose "
                               "shares too few hold"}


HELD = {j: bytes([j]) * 64 for j in (1, 2, 3, 5)}
SEEDS = {j: bytes([16 + j]) * 32 for j in (1, 2, 3, 4)}


def asked(survivors: list[int], dropped: list[int], unheld: list[int], t: int = 3) -> list[tuple[int, int]]:
    """What client 5 of U2 = 1 .. 5 reveals: (owner, first byte)."""
    request = UnmaskWithout(id_array(survivors), id_array(dropped), id_array(unheld))
    answer = reveal_without(5, HELD, SEEDS, [1, 2, 3, 4, 5], request, t)
    return list(zip(answer.ids.tolist(), answer.shares[:, 0].tolist(), strict=True))


def test_a_client_reveals_one_thing_of_each_and_of_those_whose_shares_too_few_hold_its_pair_mask() -> None:
    assert asked([1, 2, 5], [3], [4]) == [(1, 1), (2, 2), (5, 5), (3, 3), (4, 20)]


@pytest.mark.parametrize(("survivors", "dropped", "unheld", "why"), [
    ([1, 2, 5], [3], [2], r"^inconsistent_sets: both secrets asked for nodes \[2\]$"),
    ([1, 2, 5], [3], [3], "^inconsistent_sets: a mask key and the pair mask of one client$"),
    ([1, 2, 5], [], [6], r"^inconsistent_sets: secrets asked for nodes \[6\], which are not in U2$"),
    ([1, 2, 3], [], [5], "^inconsistent_sets: my own masked input was sent, but I am asked as one who dropped out$"),
    ([1, 5], [], [2, 3], "^2 clients in U3, threshold t = 3$")])
def test_a_client_refuses_what_would_give_two_things_of_one_client(
        survivors: list[int], dropped: list[int], unheld: list[int], why: str) -> None:
    with pytest.raises((Refused, ProtocolViolation), match=why):
        asked(survivors, dropped, unheld)
