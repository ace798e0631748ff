"""The scenarios of MP-DP: they load, and every scheme of the small one runs beside the others."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from benchmarks import document
from benchmarks import mp_dp as page
from benchmarks import mp_dp_attacks as privacy
from benchmarks.ebs_cfl import read
from emul import engine
from emul.record.progress import protection
from emul.scenario import Stop, load
from emul.study.cells import asked, cells
from emul.study.done import Done
from emul.workers.twin import Twin

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"
PAPER = ROOT / "scenarios" / "paper"
NAMES = sorted(path.stem for path in PAPER.glob("mp_dp_*.yaml"))


def test_every_scheme_of_the_small_scenario_runs(tmp_path: Path) -> None:
    fewer = ["topology.clients=4", "schemes[6].t=4", "schemes[8].t=4"]
    scenario = dataclasses.replace(load(PAPER / "mp_dp_digits.yaml", fewer), stop=Stop(rounds=1))
    light = [entry for entry in scenario.schemes if entry[0] not in ("tp_smc", "tp_smc_alone", "pile")]
    results = engine.run(dataclasses.replace(scenario, schemes=light), workers=Twin(), out=tmp_path)
    assert [(r.error, r.violations) for r in results] == [(None, ())] * len(light)
    assert all(r.summary["rounds"] == 1 and r.summary["rounds_failed"] == 0 for r in results)
    said = {r.summary["label"]: " ".join(protection(r.summary)) for r in results}
    assert said["fedavg"] == ""
    assert re.match(r"preset sound, guarantee: \(eps, delta\)-DP of one client's .* nobody; delta 1e-05, "
                    r"epsilon of a round 3, epsilon in total 3$", said["mp_dp"])
    assert re.match(r"preset paper, guarantee: none: .*; delta 1e-05, nominal epsilon of a round 3, nominal",
                    said["mp_dp_paper"])
    assert all("guarantee: " in said[name] for name in ("mp_cdp", "mp_dp_naive"))


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] if "cifar" in name else [])
                                  for name in NAMES])
def test_the_scenarios_of_the_paper_are_sound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "digits" not in name:
        if not SHARED.is_dir():
            pytest.skip(f"no data in {SHARED}")
        monkeypatch.setenv("EMUL_DATA", str(SHARED))
    scenario = load(PAPER / f"{name}.yaml", check=True)
    assert not [warning for warning in scenario.warnings if "matches no" in warning]


def test_the_committed_table_has_finished_cells_of_the_scenarios_and_the_page_says_them() -> None:
    rows = read(page.TABLE)
    assert len(Done(page.TABLE).code) == len(rows)
    for name in ("mp_dp_digits", "mp_dp_digits_eps"):           # a change of what they ask for makes the table old
        asked_for = {asked(cell.scenario) for cell in cells(PAPER / f"{name}.yaml", {}, range(5))}
        own = {row["key"] for row in rows if row["scenario"] == name.replace("_", "-")}
        assert own
        assert own <= asked_for
    text = document.read(page.PAGE)
    made = page.filled(text, rows, read(page.ATTACKS), read(page.COSTS))
    assert made == text, "make it anew: python -m benchmarks.mp_dp"


def test_a_cell_that_was_not_run_is_a_dash_and_the_figure_has_what_there_is() -> None:
    rows = [{"scenario": scenario, "scheme": scheme, "seed": str(seed), "values": "{}", "accuracy": accuracy}
            for scenario, scheme in (("mp-dp-digits", "fedavg"), ("mp-dp-digits-eps", "mp_dp_3"))
            for seed, accuracy in enumerate(("0.5", "0.6"))]
    assert "| `fedavg` | no clipping | 0.550 ± 0.071 (2) | - |" in page.accuracy(rows)
    assert "| `mp_dp` | - | - | - | 0.550 ± 0.071 (2) | - | - |" in page.by_eps(rows)
    drawn = [point for data in page.figure(rows).to_dict()["datasets"].values() for point in data if "eps" in point]
    assert [(point["scheme"], point["eps"]) for point in drawn][:1] == [("mp_dp", 3.0)]


# --- attacks ----------------------------------------------------------------------------------------------------------

def test_attacks_become_rows_once_and_a_table_has_means_of_the_seeds(tmp_path: Path,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    few = privacy.AttackOfTable("every gradient", "mp_dp_digits.yaml", "fedsgd", of="FedAvg",
                                parameters=(("iterations", 2), ("most", 1)), printed=(13.56, 0.80, 0.15))
    monkeypatch.setattr(privacy, "SERVER", (few,))
    monkeypatch.setattr(privacy, "CLIENT", ())
    table = tmp_path / "attacks.csv"
    privacy.attacked(table, [1])
    first = table.read_text(encoding="utf-8")
    privacy.attacked(table, [1])
    assert table.read_text(encoding="utf-8") == first, "it is not run again"
    row, = privacy.read(table)
    assert (row["file"], row["scheme"], row["seed"], row["messages"]) == (
        "scenarios/privacy/mp_dp_digits.yaml", "fedsgd", "1", "1")
    assert float(row["psnr"]) < 30
    said = privacy.server([row, {**row, "seed": "2", "psnr": "10"}]).splitlines()
    assert said[2].startswith("| every gradient | FedAvg | ")
    assert said[2].endswith(" | 13.56, 0.80, 0.15 |")
    assert said[3].startswith("| the mean training image, no attack | ")


def test_success_of_clients_is_told_by_view_and_way() -> None:
    about = {"file": "scenarios/privacy/mp_dp_clients.yaml", "scheme": "sound", "attack": "client_membership",
             "parameters": "{}", "by": "threshold"}
    rows = [{**about, "seed": str(seed), "view": view, "asr": asr}
            for view, both in (("server", ("0.7", "0.8")), ("disguised", ("0.5", "0.6")))
            for seed, asr in enumerate(both)]
    assert privacy.client(rows).splitlines()[2:] == [
        "| `sound`, no r | the server's model, undisguised | 75.0 (70.0, 80.0) | - | - |  |",
        "| `sound`, no r | disguised | 55.0 (50.0, 60.0) | - | - |  |"]
