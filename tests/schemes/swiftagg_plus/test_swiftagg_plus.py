"""SwiftAgg+: the sum over the contributors is exact, or the round fails with its reason; never anything else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.base.errors import ProtocolViolation
from emul.message.wire import encode
from emul.primitives.crypto.keys import key_pair
from emul.primitives.field import P31
from emul.protocols import channels
from emul.protocols.channels import AdvertiseKey, Roster, ids_of
from emul.schemes import swiftagg_plus
from emul.schemes.swiftagg_plus import client_role as member
from emul.schemes.swiftagg_plus import server_role as hub
from emul.schemes.swiftagg_plus.messages import Agreed, Begin, Held, Running, Share, Total
from emul.schemes.swiftagg_plus.rules import bits_of, members_of, seat


@dataclass
class Seen:
    """What really went on in the last round: taken where the roles compute."""

    inputs: dict[int, np.ndarray] = field(default_factory=dict)     # client -> x_i
    sums: list[np.ndarray] = field(default_factory=list)            # the server's, one a round that succeeds
    agreed: list[set[int]] = field(default_factory=list)            # A_g

    def total(self, whose: Any) -> np.ndarray:
        return sum((self.inputs[i].astype(np.uint64) for i in whose), np.zeros(self.sums[-1].size, np.uint64)) % P31

    @property
    def exact(self) -> bool:
        return np.array_equal(self.sums[-1], self.total(set().union(*self.agreed)))


@contextmanager
def seen() -> Iterator[Seen]:
    """Record inputs, agreements and sums."""
    found = Seen()
    coded_input, decoded, agreements = member.coded_input, hub.decoded, hub.agreements

    def see_input(own: Any, seats: Any, code: Any, codec: Any, update: Any, samples: int, seed: bytes) -> Any:
        found.inputs[own.me] = codec.encode(update, samples)[0]
        return coded_input(own, seats, code, codec, update, samples, seed)

    def see_sum(*given: Any) -> Any:
        found.sums.append(decoded(*given))
        return found.sums[-1]

    def see_agreements(*given: Any) -> Any:
        found.agreed = agreements(*given)
        return found.agreed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(member, "coded_input", see_input)
        patch.setattr(hub, "decoded", see_sum)
        patch.setattr(hub, "agreements", see_agreements)
        yield found


# --- A15: any pattern of losses -------------------------------------------------------------------------------------

KINDS = ("Begin", "AdvertiseKey", "Roster", "Held", "Agreed", "Running", "Total")


@dataclass(frozen=True)
class Pattern:
    n: int
    K: int
    T: int
    D: int
    lost: frozenset[tuple[str, int]]                # (kind, the client that it is from, or from the server to)
    shares: frozenset[tuple[int, int]]              # (from, to)

    @property
    def params(self) -> dict[str, int]:
        return {"segments": self.K, "colluders": self.T, "dropouts": self.D}

    def __call__(self, kind: str, source: int, target: int, round_: int) -> bool:
        return (source, target) in self.shares if kind == "Share" else (kind, source or target) in self.lost


@st.composite
def patterns(draw: st.DrawFn, most: int) -> Pattern:
    n = draw(st.integers(5, most))
    K, T, D = draw(st.integers(1, 3)), draw(st.integers(0, 1)), draw(st.integers(0, 2))
    K = max(1, min(K, n - T - D))
    client = st.integers(1, n)
    lost = draw(st.frozensets(st.tuples(st.sampled_from(KINDS), client), max_size=draw(st.integers(0, 4))))
    shares = draw(st.frozensets(st.tuples(client, client), max_size=draw(st.integers(0, n))))
    return Pattern(n, K, T, D, lost, shares)


def predicate(p: Pattern) -> tuple[str, set[int]]:
    """(how the round fails, "" if it succeeds; the contributors), from the words of the specification."""
    def arrives(kind: str, i: int) -> bool:
        return (kind, i) not in p.lost

    nu, need = p.K + p.T + p.D, p.K + p.T
    U1 = [i for i in range(1, p.n + 1) if arrives("Begin", i) and arrives("AdvertiseKey", i)]
    if len(U1) < nu:
        return "too_few_clients: keys: ", set()
    groups = [U1[g * nu:(g + 1) * nu] for g in range(len(U1) // nu)]
    active = {i for i in U1 if arrives("Roster", i)}
    reported = {i for i in active if arrives("Held", i)}
    live = [s for s in range(nu) if all(group[s] in reported for group in groups)]
    if len(live) < need:
        return "too_few_sequences: ", set()
    contributors = set()
    for g, group in enumerate(groups):
        everybody = [*group, *U1[len(groups) * nu:][g::len(groups)]]
        contributors |= {i for i in everybody if i in active
                         and all(i == group[s] or (i, group[s]) not in p.shares for s in live)}
    if len(contributors) < 3:
        return "too_few_clients: shares: ", set()
    arrived = [s for s in live if all(arrives("Agreed", group[s]) and
                                      arrives("Total" if group is groups[-1] else "Running", group[s])
                                      for group in groups)]
    return ("", contributors) if len(arrived) >= need else ("too_few_sequences: ", contributors)


def holds(play: Any, p: Pattern) -> None:
    with seen() as found:
        played = play("swiftagg_plus", p.n, p.params, lost=p, d=10)
    why, contributors = predicate(p)
    if why:
        assert played.why[0, 1].startswith(f"TooFewClients: {why}")
        assert not found.sums
        assert not played.models[0].any()
    else:
        assert played.why[0, 1] == ""
        assert set().union(*found.agreed) == contributors
        assert found.exact


@settings(max_examples=25, deadline=None)
@given(patterns(16))
def test_A15_exact_iff_enough_sequences_live(play: Any, p: Pattern) -> None:
    holds(play, p)


@pytest.mark.release
@settings(max_examples=400, deadline=None)
@given(patterns(50))
def test_A15_exact_in_400_patterns_iff_enough_sequences_live(play: Any, p: Pattern) -> None:
    holds(play, p)


def pays(played: Any) -> dict[str, int]:
    """Bytes of the arrays of all copies."""
    examples = {"Share": Share(np.zeros(2016, np.uint8)), "Running": Running(np.zeros(2016, np.uint8)),
                "Total": Total(np.zeros(500, np.uint32))}
    return {kind: sum(played.frame_bytes(kind)) - len(played.frame_bytes(kind)) * len(encode(example).header)
            for kind, example in examples.items()}


def test_A15_the_loads_are_those_of_section_8(play: Any) -> None:
    """n = 20, K, T, D = 2, 1, 2, d = 1000: 161280 / 30240 / 10000; n (nu + 1) / 2 links carry something."""
    n, nu, d = 20, 5, 1000
    played = play("swiftagg_plus", n, {"segments": 2, "colluders": 1, "dropouts": 2}, d=d)
    assert pays(played) == {"Share": 161280, "Running": 30240, "Total": 10000}
    links = {frozenset((source, target)) for kind in ("Share", "Running", "Total")
             for _, source, target in played.sent(kind)}
    assert len(links) == n * (nu + 1) // 2
    assert len(played.frame_bytes("Held")) == len(played.frame_bytes("Agreed")) == n


@pytest.mark.parametrize(("kind", "contributors"), [("AdvertiseKey", 9), ("Share", 9), ("Held", 10), ("Agreed", 10),
                                                    ("Running", 10)])
def test_a_dropout_in_any_stage_leaves_an_exact_sum(play: Any, kind: str, contributors: int) -> None:
    """Section 12: rec- for keys and shares, rec+ with one's seat lost for what comes later. Client 3 holds a seat."""
    stages = ["AdvertiseKey", "Share", "Held", "Running", "Total"]
    gone = stages[stages.index("Running" if kind == "Agreed" else kind):]
    with seen() as found:
        played = play("swiftagg_plus", 10, {"segments": 2, "colluders": 1, "dropouts": 1},
                      lost=lambda what, source, *_: source == 3 and what in gone)
    assert played.why[0, 1] == ""
    assert found.exact
    assert played.reports[1]["contributors"] == contributors
    assert played.reports[1]["sequences"] == 3


def test_two_dropouts_of_one_sequence_cost_one(play: Any) -> None:
    """Seats 1 and 5 have seat 0 of both groups; D = 1."""
    for gone, why in (({1, 5}, ""), ({1, 6}, "TooFewClients: too_few_sequences: 2 of 4 sequences have come, need 3")):
        with seen() as found:
            played = play("swiftagg_plus", 8, {"segments": 2, "colluders": 1, "dropouts": 1},
                          lost=lambda kind, source, *_, gone=gone: kind in ("Running", "Total") and source in gone)
        assert played.why[0, 1] == why
        assert [s.size for s in found.sums] == ([] if why else [40])


# --- A16: the agreement ---------------------------------------------------------------------------------------------

def one_share_lost(play: Any, seed: int, **params: Any) -> tuple[str, bool]:
    """n = 20, K, T, D = 2, 1, 2. (why the round failed, whether the sum is that of all, or of all but the sender.)"""
    rng = np.random.default_rng(seed)
    group = 5 * int(rng.integers(4))
    source, target = (1 + group + rng.permutation(5)[:2]).tolist()
    with seen() as found:
        played = play("swiftagg_plus", 20, {"segments": 2, "colluders": 1, "dropouts": 2, **params}, d=6, seed=seed,
                      lost=lambda kind, *way: kind == "Share" and way[:2] == (source, target))
    if not found.sums:
        return played.why[0, 1], False
    assert set().union(*found.agreed) == set(range(1, 21)) - {source}
    return "", found.exact or np.array_equal(found.sums[0], found.total(range(1, 21)))


def test_A16_one_lost_share_is_exact_with_the_agreement(play: Any) -> None:
    assert [one_share_lost(play, seed) for seed in range(8)] == [("", True)] * 8


def test_A16_without_the_agreement_it_is_wrong_and_the_spare_check_sees_it(play: Any,
                                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swiftagg_plus, "those_agreed", member.all_held)
    outcomes = [one_share_lost(play, seed) for seed in range(15)]
    assert all(why == "" for why, _ in outcomes)                            # without any error
    assert 4 <= sum(not right for _, right in outcomes) <= 14               # 60 % expected: 3 of 5 sequences are used
    flagged = [one_share_lost(play, seed, verify_spare=True) for seed in range(6)]
    assert all(why.startswith("NotDecodable: inconsistent_sets: ") for why, _ in flagged)


@pytest.mark.release
def test_A16_in_200_rounds(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(one_share_lost(play, seed) == ("", True) for seed in range(200))
    monkeypatch.setattr(swiftagg_plus, "those_agreed", member.all_held)
    wrong = sum(not one_share_lost(play, seed)[1] for seed in range(200))
    assert 100 <= wrong <= 140
    assert all(one_share_lost(play, seed, verify_spare=True)[0].startswith("NotDecodable: inconsistent_sets: ")
               for seed in range(200))


def test_the_spare_check_passes_what_is_sound(play: Any) -> None:
    assert play("swiftagg_plus", 10, {"verify_spare": True}, rounds=2).why[0, 2] == ""


@pytest.mark.parametrize("group", [0, 1])
@pytest.mark.parametrize("lie", ["its share of a member's input", "its sum"])
def test_a_false_share_or_sum_of_one_seat_is_seen_by_a_spare_sequence(play: Any, monkeypatch: pytest.MonkeyPatch,
                                                                     group: int, lie: str) -> None:
    """Two groups of five seats, K, T, D = 3, 1, 1. A seat of the first or of the last group adds up something else."""
    liar = 1 + 5 * group                    # seat 0, which decoding uses
    opened, sum_of = member.opened, member.sum_of

    def opens(hand: Any, *rest: Any) -> Any:
        found = opened(hand, *rest)
        if hand.channels.me == liar:
            found[liar + 1] = found[liar + 1] ^ np.uint32(1)
        return found

    def sums(shares: Any, *rest: Any) -> Any:
        return sum_of(shares, *rest) ^ np.uint32(next(iter(shares)) == liar)

    if lie == "its sum":
        monkeypatch.setattr(member, "sum_of", sums)
    else:
        monkeypatch.setattr(member, "opened", opens)
    params = {"segments": 3, "colluders": 1, "dropouts": 1}
    with seen() as found:
        assert play("swiftagg_plus", 10, params, d=6).why[0, 1] == ""
    assert not found.exact, "it is wrong without an error"
    checked = play("swiftagg_plus", 10, {**params, "verify_spare": True}, d=6)
    assert checked.why[0, 1].startswith("NotDecodable: inconsistent_sets: ")
    gone = play("swiftagg_plus", 10, {**params, "verify_spare": True}, d=6,
                lost=lambda kind, source, *_: kind == "Total" and source == 10)
    assert gone.why[0, 1] == "", "no sequence is spare"


# --- deadlines --------------------------------------------------------------------------------------------------------

def test_with_deadlines_no_wait_uses_fates(play: Any) -> None:
    with seen() as found:
        played = play("swiftagg_plus", 12, {"stage_deadline_s": 0.1, "segments": 2}, rounds=2,
                      lost=lambda kind, source, target, _: (kind, source) == ("Held", 2) or (kind, source, target) == (
                          "Share", 5, 6))
    assert not played.kernel.oracle_waits
    assert [played.why[0, t] for t in (1, 2)] == ["", ""]
    assert found.exact


def test_weights_by_samples_give_the_weighted_mean(play: Any) -> None:
    with seen() as found:
        played = play("swiftagg_plus", 6, {"clip": 4.0, "weights": "samples"})
    whose = sorted(set().union(*found.agreed))
    x = np.stack([found.inputs[i] for i in whose]).astype(np.float64)
    mean = x[:, :-1].sum(axis=0) / x[:, -1].sum() * 8.0 / 65535 - 4.0
    assert np.abs(played.models[0] - mean).max() < 1e-6


# --- seats, and a seat alone ------------------------------------------------------------------------------------------

@given(st.integers(1, 40), st.integers(1, 8))
def test_everybody_is_in_one_group_and_seats_are_full(n: int, size: int) -> None:
    members = list(range(3, 3 + n))
    if n < size:
        with pytest.raises(ValueError, match=rf"^{n} members, expected {size} or more$"):
            seat(members, size)
        return
    seating = seat(members, size)
    assert sorted(i for group in seating.groups for i in group) == members
    assert len(seating.groups) == n // size
    assert all(len(seating.seats(g)) == size for g in range(len(seating.groups)))
    assert max(map(len, seating.groups)) - min(map(len, seating.groups)) <= 1
    assert all(seating.group_of(i) == g for g, group in enumerate(seating.groups) for i in group)
    assert [seating.sequence(s)[0] for s in range(size)] == list(seating.groups[0][:size])


def test_sets_of_members_are_bits_of_their_group() -> None:
    group = [5, 7, 8, 9, 11, 12, 20, 21, 30]
    assert bits_of(group, {5, 8, 30}).tolist() == [0b10100000, 0b10000000]
    assert members_of(group, bits_of(group, {5, 8, 30})) == [5, 8, 30]
    with pytest.raises(ProtocolViolation, match=r"^members: not a bit for each member$"):
        members_of(group, np.zeros(1, np.uint8))
    with pytest.raises(ProtocolViolation, match=r"^members: bits of nobody$"):
        members_of(group, np.array([0, 1], np.uint8))


class Group:
    """A group of clients 1..3, as the client under test, number 3, hears of them. K, T, D = 1, 1, 1."""

    def __init__(self, drive: Any):
        self.client = drive("swiftagg_plus", "client", 3, 3, {})
        self.client.enter(1)
        self.client.deliver((0, Begin(np.zeros(40, np.float32))))
        public = {3: self.client.only(AdvertiseKey).key.tobytes()}
        own = {i: key_pair(bytes([i] * 32)) for i in (1, 2)}
        public |= {i: pair.public for i, pair in own.items()}
        code = swiftagg_plus.code_of(swiftagg_plus.Params(), 3)
        codec = swiftagg_plus.codec(swiftagg_plus.Params(), 3, P31)
        self.hands = {i: member.coded_input(
            channels.Channels(i, 1, [1, 2, 3], own[i], {j: public[j] for j in public if j != i}), (1, 2, 3), code,
            codec, np.zeros(40, np.float32), 1, bytes([i] * 32)) for i in own}
        keys = np.stack([np.frombuffer(public[i], np.uint8) for i in (1, 2)])
        self.client.deliver((0, Roster(ids_of([1, 2]), keys)))
        self.shared = [(to, m.box.size) for to, m in self.client.sent if isinstance(m, Share)]

    def share(self, *whose: int) -> None:
        self.client.deliver(*((i, Share(self.hands[i].boxes[3])) for i in whose))


def test_a_seat_says_whom_it_holds_and_adds_up_the_agreed(drive: Any) -> None:
    group = Group(drive)
    assert group.shared == [([1], 176), ([2], 176)]
    group.hands[2].boxes[3] = group.hands[2].boxes[3] ^ np.uint8(1)             # a broken box is not held
    group.share(1, 2)
    assert group.client.only(Held).members.tolist() == [0b10100000]
    group.client.deliver((0, Agreed(np.array([0b10000000], np.uint8))))
    values = group.client.only(Total).values
    box = channels.Channels(3, 1, [], key_pair(bytes(32)), {}, {1: group.hands[1].channels.keys[3]})
    assert np.array_equal(values, box.open(1, group.hands[1].boxes[3], P31))


@pytest.mark.parametrize(("bits", "why"), [
    (0b11100000, "inconsistent_sets: asked for shares that have not come"),
    (0b10010000, "members: bits of nobody")])
def test_a_seat_stays_silent_when_asked_for_what_it_does_not_hold(drive: Any, bits: int, why: str) -> None:
    group = Group(drive)
    group.share(1)
    group.client.deliver((0, Agreed(np.array([bits], np.uint8))))
    assert group.client.left == [f"Refused: {why}"]
    assert group.client.sent == []


def test_the_server_takes_no_set_without_its_sender() -> None:
    accept = hub.by_group(seat([1, 2, 3], 3))
    for bits, fine in ((0b01000000, True), (0b10100000, False)):
        message = Held(np.array([bits], np.uint8))
        object.__setattr__(message, "sender", 2)
        if fine:
            accept(message)
        else:
            with pytest.raises(ProtocolViolation, match=r"^members: without the sender$"):
                accept(message)


# --- parameters -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("params", "errors"), [
    ({}, []),
    ({"segments": 6, "colluders": 2, "dropouts": 2}, []),
    ({"segments": 7, "colluders": 2, "dropouts": 2}, [
        "segments = 7: bad_parameters: a group of K + T + D = 7 + 2 + 2 seats needs as many clients, a round has "
        "n = 10"]),
    ({"segments": 0, "colluders": -1, "least": 1}, [
        "segments = 0: expected 1 or more: bad_parameters", "colluders = -1: expected 0 or more: bad_parameters",
        "least = 1: expected 2 or more: the sum of one client is its update"]),
    ({"fraction": 2.0}, ["fraction = 2.0: expected a number in (0, 1]"])])
def test_check_names_what_is_wrong(params: Any, errors: list[str]) -> None:
    assert swiftagg_plus.check(swiftagg_plus.Params(**params), SimpleNamespace(clients=10)) == errors


def test_without_colluders_is_a_warning() -> None:
    assert swiftagg_plus.warn(swiftagg_plus.Params(), SimpleNamespace(clients=10)) == []
    assert len(swiftagg_plus.warn(swiftagg_plus.Params(colluders=0), SimpleNamespace(clients=10))) == 1
