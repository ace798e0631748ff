"""`compress:` of schemes: what travels, what is left for the next round, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emul.base.errors import NotDecodable, NotSendable, ScenarioError
from emul.primitives.compress import choose
from emul.protocols.updates import Mirror, PackedUpdate, Sent, advance, all_decoded, brought_up, encoded, forget
from emul.scenario import loads
from emul.testing import Shuffled, run_text
from emul.workers.pool import Workers

TEXT = """
emul: 1
name: compressed
seed: 5
topology: {generator: star, clients: 7}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server*", outage: {model: bernoulli, p: 0.2, per: round}}
task:
  data: {set: digits}
  partition: {dirichlet: 1.0}
  model: logistic
  solver: {sgd: {lr: 0.1, steps: 3, batch: 16}}
compute: {mode: zero}
schemes: [SCHEME]
stop: {rounds: 4}
"""
D = 64 * 10 + 10
UP, DOWN = {"top_k": {"fraction": 0.1}}, {"uniform": {"bits": 8}}
HEADER = 60                             # bytes of a message beside its arrays, at most


def text(scheme: str, **parameters: Any) -> str:
    written = "".join(f", {key}: {value}" for key, value in parameters.items()).replace("'", "").replace("True", "true")
    return TEXT.replace("SCHEME", f"{{name: {scheme}{written}}}").replace("False", "false")


# --- runs -------------------------------------------------------------------------------------------------------------

def test_top_k_of_all_numbers_is_fedavg_to_the_bit() -> None:
    plain, packed = (run_text(text("fedavg", **said)).models for said in ({}, {"compress": {"top_k": {"k": 10**6}}}))
    assert len(plain) == 4
    assert packed == plain


@pytest.mark.parametrize("scheme", ["fedavg", "fedprox"])
@pytest.mark.parametrize("codec", [UP, "sign", "powersgd", "qsgd"], ids=str)
def test_updates_are_as_large_as_their_codec_says(scheme: str, codec: Any) -> None:
    sent = run_text(text(scheme, compress=codec)).payloads
    expected = choose(codec).shaped(((10, 64), (10,))).nbytes(D)
    found = sent["PackedUpdate"]
    assert len(found) == 4 * 7
    assert all(0 < size - (expected or 0) < (HEADER if expected else D) for size in found)
    assert not sent.keys() & {"Update", "Trained"}


def test_a_model_goes_whole_to_those_that_are_not_known_to_have_the_last_one() -> None:
    """The first round to all; later to those whose last update was lost, and codes of all rounds since to others."""
    ran = run_text(text("fedavg", compress={"down": DOWN}))
    whole, packed = ran.payloads["Model"], ran.payloads["PackedModel"]
    nbytes = choose(DOWN).nbytes(D)
    assert nbytes is not None
    lost = sum(7 - row["received"] for row in ran.rounds)
    assert lost > 0
    assert 7 < len(whole) <= 7 + lost
    assert len(whole) + len(packed) == 4 * 7
    assert all(abs(size % nbytes) < 3 * HEADER for size in packed)


@pytest.mark.parametrize("codec", ["sign", "uniform"])
def test_a_client_whose_updates_are_lost_goes_on_from_the_codes_that_it_has(codec: str) -> None:
    """Nothing is lost on the way down, so every client trains in every round, whatever of its updates came."""
    written = text("fedavg", compress={"down": codec}).replace("p: 0.2", "p: 0.6").replace("rounds: 4", "rounds: 8")
    assert len(run_text(written).payloads["Update"]) == 8 * 7


def test_compressed_runs_are_the_same_for_any_order_and_any_number_of_workers(pools: list[Workers]) -> None:
    written = text("fedavg", fraction=0.7, compress={"up": {"random_k": {"fraction": 0.2}}, "down": "qsgd"})
    first = run_text(written).digest
    assert run_text(written, pool=Shuffled(3)).digest == first
    assert run_text(written, pool=pools[1]).digest == first


def test_signs_are_voted_on() -> None:
    """w - lr sign(sum of votes); a tie moves nothing."""
    from emul.protocols.updates import Update
    from emul.schemes.signsgd import voted

    votes = {k: Update(np.float32(v), 1) for k, v in enumerate(([1, -1, 1], [1, 1, -1], [1, -1, 1], [-1, -1, -1]))}
    assert voted(np.float32([1, 1, 1]), votes, 0.5).tolist() == [0.5, 1.5, 1.0]
    sent = run_text(text("signsgd")).payloads
    assert {size - -(-D // 8) for size in sent["PackedUpdate"]} <= set(range(HEADER))


def test_updates_of_a_buffer_are_codes_and_with_top_k_of_all_what_they_are_without() -> None:
    plain, packed = (run_text(text("fedbuff", buffer=3, **said)).models for said in (
        {}, {"compress": {"top_k": {"fraction": 1.0}}}))
    assert packed == plain != []
    sent = run_text(text("fedbuff", buffer=3, compress="sign")).payloads
    assert {size - (4 + -(-D // 8)) for size in sent["PackedUpdate"]} <= set(range(HEADER))
    assert "Update" not in sent


# --- one node ---------------------------------------------------------------------------------------------------------

def test_what_a_code_leaves_out_is_sent_later() -> None:
    """Top-1 of (3, 2, 1) again and again, by hand: 3; then (3, 4, 2) -> 4; then (6, 2, 3) -> 6; then (3, 4, 4) -> 4."""
    codec, s, rng, x = choose({"top_k": {"k": 1}}), Sent(), np.random.default_rng(0), np.float32([3, 2, 1])
    found = [codec.decode(encoded(codec, s, x, rng), 3).tolist() for _ in range(4)]
    assert found == [[3, 0, 0], [0, 4, 0], [6, 0, 0], [0, 4, 0]]
    assert s.error is not None
    assert s.error.tolist() == [3, 0, 4]


def test_without_feedback_nothing_is_kept() -> None:
    s = Sent()
    encoded(choose("qsgd"), s, np.float32([3, 2, 1]), np.random.default_rng(0))
    assert s.error is None


def test_an_update_that_is_not_finite_is_not_sent() -> None:
    with pytest.raises(NotSendable, match=r"^not to be compressed: an update that is not finite$"):
        encoded(choose("sign"), Sent(), np.float32([np.nan]), np.random.default_rng(0))


def test_codes_that_are_none_are_left_out() -> None:
    codec = choose("sign")
    good = codec.encode(np.float32([1, -1]), np.random.default_rng(0))[0]
    bad = np.concatenate([np.frombuffer(np.float32([np.inf]).tobytes(), np.uint8), good[4:]])
    assert sorted(all_decoded(codec, {1: PackedUpdate(good, 1), 2: PackedUpdate(bad, 1)}, 2)) == [1]


def test_a_client_that_has_missed_rounds_comes_to_the_same_model_as_the_server() -> None:
    codec, s, rng = choose({"top_k": {"k": 2}}), Mirror(np.zeros(9, np.float32), of=1), np.random.default_rng(0)
    for round_ in (2, 3, 4):
        s.codes[round_] = advance(codec, s, rng.standard_normal(9).astype(np.float32), rng)
    assert s.model is not None
    assert brought_up(codec, np.zeros(9, np.float32), list(s.codes.values())).tobytes() == s.model.tobytes()


@pytest.mark.parametrize("codec", ["sign", {"top_k": {"k": 1}}, "uniform"], ids=str)
def test_a_model_that_is_too_far_away_to_be_coded_is_no_model(codec: Any) -> None:
    s = Mirror(np.full(3, -3e38, np.float32), of=1)
    with pytest.raises(NotDecodable, match=r"^the model is too far from the one that clients have$"):
        advance(choose(codec), s, np.full(3, 3e38, np.float32), np.random.default_rng(0))


def test_codes_that_are_longer_than_the_model_are_forgotten() -> None:
    """Three of 16 bytes and a model of 36: the newest two are kept, of the v of round 2."""
    s = Mirror(np.zeros(9, np.float32), of=1, codes={round_: np.zeros(16, np.uint8) for round_ in (2, 3, 4)})
    forget(s)
    assert (s.of, sorted(s.codes)) == (2, [3, 4])


# --- what is refused --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("scheme", "compress", "said"), [
    ("fedavg", "{top_c: {k: 3}}", r'schemes\[0\].compress .* unknown codec "top_c"; did you mean "top_k"\?'),
    ("fedavg", "{up: {top_k: {}}, down: {uniform: {bits: 40}}}", r"(?s)compress.up .* expected either k or fraction.*"
                                                                r"compress.down .* bits = 40: expected 1..16"),
    ("fedavg", "{up: sign, sideways: sign}", r"compress.sideways .* expected a codec such as"),
    ("fedavg", "7", r"schemes\[0\].compress +7 +expected a codec such as"),
    ("secagg", "{top_k: {k: 3}}", r"schemes\[0\].compress.up +secagg +sends no vectors that a codec may change: what "
                                  r"is masked, coded or encrypted needs every coordinate of every client, as it is"),
    ("lightsecagg", "{down: sign}", r"schemes\[0\].compress.down +lightsecagg +sends no model that a codec may change"),
    ("signsgd", "{up: qsgd}", r"schemes\[0\].*compress.up.*signsgd sends signs"),
])
def test_what_makes_no_sense_is_refused_where_it_is_written(scheme: str, compress: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        loads(text(scheme, compress=compress))


def test_attackers_that_know_all_need_the_model_as_it_is() -> None:
    attack = "attacks: [{nodes: [client1], update: trim_attack, knows: all}]\n"
    loads(text("fedavg", compress={"up": "sign"}) + attack)
    with pytest.raises(ScenarioError, match=r"compress.down +attacks\[0\].knows +what others send cannot be computed"):
        loads(text("fedavg", compress={"down": "sign"}) + attack)


def test_none_is_no_compression_and_a_scenario_says_what_it_has_read() -> None:
    assert loads(text("fedavg", compress="none")) == loads(text("fedavg"))
    scenario = loads(text("fedavg", compress=UP))
    assert loads(scenario.resolved()) == scenario
    assert scenario.schemes == [("fedavg", {"compress": {"up": UP}})]


@pytest.mark.parametrize(("codec", "said"), [
    ("{fedpaq: {levels: 1, feedback: true}}",
     "fedavg: compress.up: {'fedpaq': {'levels': 1, 'feedback': True}}: feedback: true, and grows from round to "
     "round, since a code may leave out 25.5 times as much as it is given, sqrt(m) / s for m = 650 numbers that share "
     "a norm: expected levels: 26 or more, or a bucket of 1 or fewer, or feedback: false"),
    ("{down: {qsgd: {levels: 5}}}",
     "fedavg: compress.down: {'qsgd': {'levels': 5}}: what a code leaves out is in the next one, and grows from round "
     "to round, since a code may leave out 5.1 times as much as it is given, sqrt(m) / s for m = 650 numbers that "
     "share a norm: expected levels: 26 or more, or a bucket of 25 or fewer"),
    ("{fedpaq: {levels: 1}}", None), ("{qsgd: {levels: 26, feedback: true}}", None),
    ("{qsgd: {levels: 5, bucket: 25, feedback: true}}", None), ("{up: sign, down: {uniform: {bits: 8}}}", None)])
def test_codes_whose_errors_grow_are_warned_of_with_the_bound(codec: str, said: str | None) -> None:
    found = loads(TEXT.replace("SCHEME", f"{{name: fedavg, compress: {codec}}}")).warnings
    assert found == ([] if said is None else [said])
