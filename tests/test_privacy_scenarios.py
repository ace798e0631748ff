"""The scenarios of attacks on MP-DP: they load, and both of the paper's contradictions show in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from emul import engine
from emul.engine.reopening import attack
from emul.scenario import load

FOLDER = Path(__file__).resolve().parents[1] / "scenarios" / "privacy"


def run(name: str, label: str, out: Path) -> Path:
    result, = engine.run(load(FOLDER / name), scheme=label, workers=0, out=out)
    assert result.directory is not None
    return result.directory


@pytest.mark.parametrize(("name", "labels"), [
    ("mp_dp_digits.yaml", ["fedsgd", "central", "local", "paper", "masked", "sound"]),
    ("mp_dp_clients.yaml", ["published", "default", "sound"])])
def test_the_scenarios_have_the_runs_that_the_documents_attack(name: str, labels: list[str]) -> None:
    scenario = load(FOLDER / name, check=False)
    assert [params["label"] for _, params in scenario.schemes] == labels


def test_inputs_are_recovered_exactly_from_the_clear_blocks_of_the_published_scheme(tmp_path: Path) -> None:
    """Contradiction of the paper's theorems 5 and 6."""
    found = attack(run("mp_dp_digits.yaml", "paper", tmp_path), "clear_blocks")
    assert found.rows["input_error"].max() < 1e-12
    assert (found.rows["labels_right"] == 1).all()
    assert len(found.pictures) == 6


@pytest.mark.slow
def test_membership_succeeds_as_on_the_servers_model_once_r_is_estimated(tmp_path: Path) -> None:
    """Contradiction of the paper's table IV: 50 % holds for who does not estimate r."""
    rows = attack(run("mp_dp_clients.yaml", "published", tmp_path), "client_membership").rows
    auc = {view: of["auc"].mean() for view, of in rows.groupby("view")}
    asr = {view: of["asr"].mean() for view, of in rows.groupby("view")}
    assert auc["server"] > 0.7
    assert auc["adaptive"] > auc["server"] - 0.03
    assert asr["adaptive"] > asr["server"] - 0.03
    assert abs(asr["disguised"] - 0.5) < 0.1
    assert rows["r_error"].max() < 0.05
