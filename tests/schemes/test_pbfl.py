"""PBFL: FLTrust's rule on directions, the chain of hashes, and what is declared of encryption."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from emul.base import rows as R
from emul.base.errors import ProtocolViolation, ScenarioError
from emul.registry import schemes
from emul.roles import Declared
from emul.schemes import pbfl
from emul.testing import Ran, run_text

QUIET = "links[1].outage.p=0"


def run(*sets: str, text: str = pbfl.EXAMPLE) -> Ran:
    return run_text(text, *sets)


def test_with_root_data_it_learns_what_fltrust_learns() -> None:
    same = schemes.find("fltrust").example
    for sets, kind, keys in (([], "global", ("accuracy", "loss")),
                             (["schemes.pbfl.personal=true"], "personal", ("accuracy", "loss_received"))):
        ours = run(QUIET, *sets)
        theirs = run(QUIET, "task.root.samples=50", *[one.replace("pbfl", "fltrust") for one in sets], text=same)
        assert ours.summary["accuracy_of"] == theirs.summary["accuracy_of"] == kind
        for key in keys:
            assert [v[key] for v in ours.rounds] == pytest.approx([v[key] for v in theirs.rounds], abs=1e-3)


def test_without_root_data_the_last_aggregate_is_the_reference() -> None:
    with pytest.raises(ScenarioError, match=r"reference = root +expected root in the task, such as"):
        run("task.root=null")
    found = run("task.root=null", QUIET, "schemes.pbfl.reference=previous", "stop.rounds=6").rounds
    losses = [v["loss"] for v in found]
    assert losses[-1] < losses[0]
    assert all(v["kept"] >= 1 for v in found)


def test_sign_flippers_are_not_trusted() -> None:
    attack = "attacks=[{nodes: [client2], update: {name: scale, factor: -1}}]"
    assert [v["attackers_kept"] for v in run(QUIET, attack).rounds] == [0, 0, 0]


def test_ciphertexts_are_declared_by_their_number() -> None:
    ran = run(QUIET)
    sizes = {kind: {row[6] for row in ran.rows if row[0] == R.SEND and row[5] == kind} for kind in ("Upload", "Global")}
    assert all(0 < size - 364_500 < 150 for size in sizes["Upload"])
    assert all(0 < size - 249_200 < 150 for size in sizes["Global"])
    assert pbfl.ciphertexts(21_840) == 6
    each = 3 * 5
    client = ran.summary["seconds_declared"]["client"]
    assert client == pytest.approx({"encrypt": each * 6e-3, "decrypt": each * 1.5e-3})


def test_every_change_of_what_was_sent_changes_the_chain() -> None:
    first = pbfl.next_head(bytes(32), 1, {1: b"a" * 32, 2: b"b" * 32}, b"m" * 32)
    others = [pbfl.next_head(bytes(32), 1, uploads, model) for uploads, model in (
        ({1: b"b" * 32, 2: b"a" * 32}, b"m" * 32), ({1: b"a" * 32}, b"m" * 32),
        ({1: b"a" * 32, 2: b"b" * 32}, b"x" * 32), ({1: b"a" * 32, 3: b"b" * 32}, b"m" * 32))]
    assert first not in others
    assert first == pbfl.next_head(bytes(32), 1, {2: b"b" * 32, 1: b"a" * 32}, b"m" * 32)
    assert pbfl.next_head(first, 2, {}, b"m" * 32) != pbfl.next_head(bytes(32), 2, {}, b"m" * 32)


def test_the_heads_of_all_rounds_are_kept_and_one_is_reported() -> None:
    found = run(QUIET).rounds
    assert len({v["head"] for v in found}) == 3
    assert run(QUIET).digest == run(QUIET).digest


def test_an_upload_that_is_not_what_its_hash_says_is_rejected() -> None:
    unit = np.ones(3, np.float32)
    accept = pbfl.as_hashed(3)
    accept(pbfl.Upload(unit, 1.0, hashlib.sha256(unit.tobytes()).digest(), Declared(0)))
    for message, reason in ((pbfl.Upload(unit, 1.0, bytes(32), Declared(0)), "another vector's"),
                            (pbfl.Upload(unit[:2], 1.0, bytes(32), Declared(0)), r"shape \(2,\), expected \(3,\)"),
                            (pbfl.Upload(unit, -1.0, bytes(32), Declared(0)), "no length of an update")):
        with pytest.raises(ProtocolViolation, match=reason):
            accept(message)
