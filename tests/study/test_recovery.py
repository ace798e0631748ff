"""The recovery matrix: what becomes of a round when clients drop out at each stage, from real runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from emul.cli import app
from emul.protocols.pairwise import server as hub
from emul.record.audit import REASONS
from emul.scenario import DropOut
from emul.study.recovery import audited, matrix, outcome, page, text, undisturbed

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


CODED = {"lightsecagg": ["AdvertiseKey", "Coded", "Masked", "Answer"],
         "fastsecagg": ["AdvertiseKey", "Coded", "Masked", "Answer"]}


@pytest.mark.parametrize("name", CODED)
def test_of_coded_masks_a_client_is_in_the_sum_iff_its_masked_input_was_in_time(name: str) -> None:
    found = matrix([name])
    assert found["stage"].tolist() == CODED[name]
    assert found["one client"].tolist() == ["rec-", "rec-", "rec-", "rec+"]
    assert found["all but one"].tolist() == ["too_few_clients"] * 4


def test_of_coded_inputs_a_client_is_in_the_sum_iff_its_shares_were_in_time() -> None:
    found = matrix(["swiftagg_plus"]).set_index("stage")
    assert found["one client"].to_dict() == {"AdvertiseKey": "rec-", "Share": "rec-", "Held": "rec+", "Running": "rec+",
                                             "Total": "rec+"}
    assert found["all but one"].to_dict() == {"AdvertiseKey": "too_few_clients"} | dict.fromkeys(
        ["Share", "Held", "Running", "Total"], "too_few_sequences")


def test_of_encrypted_updates_a_client_is_in_the_sum_iff_its_upload_was_in_time() -> None:
    found = matrix(["pefl"]).set_index("stage")
    assert found["one client"].to_dict() == {"KeysHeld": "rec-", "Upload": "rec-"}
    assert set(found["all but one"]) == {"too_few_clients"}


@pytest.mark.parametrize(("node", "stage"), [("server1", "Blinded"), ("server1", "Exchange"), ("server2", "Median"),
                                             ("server2", "Weights"), ("server2", "Exchange")])
def test_without_one_of_its_two_servers_a_round_of_pefl_is_given_up(node: str, stage: str) -> None:
    base = undisturbed("pefl")
    assert outcome(base, "pefl", []).verdict == "rec"
    found = outcome(base, "pefl", [DropOut(node, stage)])
    assert found.verdict in REASONS
    assert "from server2" in found.why


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


def test_the_command_prints_the_matrix_and_writes_the_page(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["recovery", "secagg_plus", "--out", str(tmp_path / "matrix.html")])
    assert done.exit_code == 0, done.output
    assert "| secagg_plus | Reveal | rec+ | too_few_shares |" in done.output
    assert (tmp_path / "matrix.html").read_text().startswith("<!doctype html>")


def test_a_wrong_sum_is_told_and_ends_the_command_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    right = hub.dropped_pair_seeds
    monkeypatch.setattr(hub, "dropped_pair_seeds", lambda *args: {j: {} for j in right(*args)})
    done = CliRunner().invoke(app, ["recovery", "secagg_plus"])
    assert done.exit_code == 1
    assert "| secagg_plus | Masked | wrong |" in done.output
