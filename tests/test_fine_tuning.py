"""LoRA on a transformer that was trained before: what is sent, by which schemes, what is found again, what is saved."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import emul
from emul import cli, engine
from emul.learning import Task
from emul.learning.adapters import merge
from emul.scenario import FusedTraining, Scenario, load
from emul.store import Store
from emul.testing import Ran
from emul.testing.world import run_wiring
from emul.workers.pool import Workers
from emul.workers.twin import Twin

OWN = Path(__file__).parents[1] / "scenarios" / "own"
sys.path.append(str(OWN))                                   # as for somebody who stands there

RANK, WIDTH, CLASSES = 4, 32, 6
HEAD = CLASSES * WIDTH + CLASSES
LORA = 4 * RANK * (WIDTH + WIDTH) + HEAD                    # query and value of two blocks
FULL = 27_206
SHORT = ("stop={rounds: 2}", "task.solver={sgd: {lr: 0.2, steps: 1, batch: 8}}", "evaluation={every: 2}")


def scenario(*sets: str) -> Scenario:
    return load(OWN / "languages.yaml", sets=list(sets), plugins=["languages"])


def ran(plan: Scenario, scheme: int = 0, pool: Any = None) -> Ran:
    name, raw = plan.schemes[scheme]
    pool = pool or Twin()
    return run_wiring(engine.wire(plan, name, raw, pool.workers, ["languages"]), pool)


def test_what_is_sent_is_what_is_tuned_and_nothing_else() -> None:
    """Bytes of a model and of an update: 4 d, and a header that is the same but for the length of d; on the links
    4 d + 37, and one less where d fits into a byte."""
    found = {}
    for model, d in (("languages_lora", LORA), ("languages_full", FULL), ("languages_head", HEAD)):
        run = ran(scenario(*SHORT, f"task.model={model}"))
        sent = run.payloads
        assert run.summary["bytes_total"] == 24 * (4 * d + 37 - (d < 256))      # 2 rounds, 6 clients, down and up
        assert {kind: len(sizes) for kind, sizes in sent.items()} == {"Model": 12, "Update": 12}
        found[model] = {kind: {size - 4 * d for size in sizes} for kind, sizes in sent.items()}
    for kind in ("Model", "Update"):
        headers = set.union(*(of[kind] for of in found.values()))
        assert max(headers) - min(headers) <= 8
        assert max(headers) < 150


@pytest.mark.parametrize(("scheme", "least", "most"), [(0, 4, 4), (1, 8, 8), (2, 4, 4), (3, 0.4, 0.9)])
def test_any_scheme_that_sends_updates_sends_what_is_tuned(scheme: int, least: float, most: float) -> None:
    """FedAvg, SCAFFOLD (two vectors), secure aggregation (integers of four bytes), a tenth of the entries."""
    short = ran(scenario(*SHORT), scheme)
    largest = max(size for kind, sizes in short.payloads.items() if kind not in ("Model", "Start") for size in sizes)
    assert least * LORA <= largest <= most * LORA + 150
    assert short.summary["rounds"] == 2
    assert short.summary["rounds_failed"] == 0
    assert len(set(short.models)) == 2


def test_results_are_the_same_for_any_number_of_workers(pools: list[Workers]) -> None:
    plan = replace(scenario(*SHORT), fuse=FusedTraining(3, 2))
    assert len({ran(plan, pool=pool).digest for pool in (Twin(), pools[1])}) == 1


def test_cohorts_are_trained_as_one_but_for_rounding(caplog: pytest.LogCaptureFixture) -> None:
    plan = scenario(*SHORT, "task.solver={sgd: {lr: 0.2, steps: 4, batch: 8}}")
    alone, fused = (ran(replace(plan, fuse=fuse)).finished.observations[-1].values
                    for fuse in (None, FusedTraining(6, 1)))
    assert caplog.records == []                             # nothing was trained one after the other
    assert fused["loss"] == pytest.approx(alone["loss"], rel=1e-3)


def test_tuning_adapters_learns() -> None:
    values = ran(scenario("stop={rounds: 6}", "evaluation={every: 6}")).summary
    assert values["accuracy"] > 0.6                         # 0.17 by chance


def spec(**more: Any) -> dict[str, Any]:
    return {"data": {"set": "new_languages", "samples": 60, "test_samples": 60}, "model": "languages_lora",
            "solver": {"sgd": {"lr": 0.2, "steps": 1, "batch": 8}}, **more}


def test_a_stored_training_is_not_found_for_other_frozen_parameters(tmp_path: Path,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    import languages  # type: ignore[import-not-found]

    def update() -> tuple[np.ndarray, tuple[int, int, int]]:
        task = Task(spec(), 2, 1, store=Store(tmp_path / "store"), plugins=["languages"])
        found = task.for_node("client1", 0, lambda: 1).local_update(task.initial_parameters())[0]
        task.results.close()
        return found, task.results.counts
    (first, made), (second, again) = update(), update()
    assert (made[:2], again[:2]) == ((0, 1), (1, 0))
    assert np.array_equal(first, second)
    state = load_file(languages.TRAINED)
    languages.save_file({name: 1.01 * value for name, value in state.items()}, tmp_path / "other.safetensors")
    monkeypatch.setattr(languages, "TRAINED", tmp_path / "other.safetensors")
    third, other = update()
    assert other[:2] == (0, 1)
    assert not np.array_equal(first, third)


def test_the_full_model_is_evaluated_and_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                               capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("languages.py", "languages.safetensors"):
        shutil.copyfile(OWN / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)           # earlier tests have imported the one of the scenarios' folder
    monkeypatch.delitem(sys.modules, "languages", raising=False)
    run, = emul.run(scenario(*SHORT), schemes="fedavg", workers=0, quiet=True, plugins="languages")
    assert run.model().vector().shape == (LORA,)
    module = run.module()
    assert sum(p.numel() for p in module.parameters()) == FULL + LORA - HEAD
    before = load_file(OWN / "languages.safetensors")
    assert torch.equal(module.get_parameter("blocks.0.query.linear.weight"), before["blocks.0.query.weight"])
    assert torch.equal(module.get_parameter("letters.weight"), before["letters.weight"])
    data = Task(run.scenario.task, 6, 1, plugins=["languages"]).data
    x, y = torch.from_numpy(data.inputs(data.test_x)), torch.from_numpy(data.targets(data.test_y))
    with torch.no_grad():
        right = (module(x).argmax(1) == y).double().mean().item()
        assert right == pytest.approx(run.accuracy, abs=2e-3)
        expected = module(x[:5])
        assert torch.allclose(merge(module)(x[:5]), expected, atol=1e-5)
    monkeypatch.setattr(sys, "argv", ["emul", "export", str(run.path), "--model", "whole.safetensors",
                                      "--plugin", "languages"])
    with pytest.raises(SystemExit, match=r"^0$"):
        cli.main()
    assert capsys.readouterr().out == f"whole.safetensors: {FULL + LORA - HEAD:,} numbers\n"
    saved = load_file("whole.safetensors")
    assert torch.equal(saved["blocks.1.value.linear.weight"], before["blocks.1.value.weight"])
    assert torch.equal(saved["head.bias"], torch.from_numpy(np.array(run.model().tensors["head.bias"])))
