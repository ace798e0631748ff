"""docs/own-task.md: what its blocks say runs, in the order of the page, in a folder of the user's."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import huber_loss

import emul
from emul import cli
from emul.learning import names, own_data
from emul.learning.data import load
from emul.learning.objectives import Batch, Objective, Outputs

PAGE = (Path(__file__).parents[1] / "docs/own-task.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)


def block(*words: str, language: str = "python") -> str:
    """The only block of the page that has all these words."""
    found, = (text for kind, text in BLOCKS if kind == language and all(word in text for word in words))
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("mine", None)
    yield tmp_path
    sys.modules.pop("mine", None)


def test_the_commands_at_its_top_run(folder: Path, monkeypatch: pytest.MonkeyPatch,
                                     capsys: pytest.CaptureFixture[str]) -> None:
    commands = [line.partition("#")[0].split() for line in block("new-task", language="bash").splitlines()]
    assert [command[1] for command in commands] == ["new-task", "check", "run"]
    for command in commands:
        monkeypatch.setattr(sys, "argv", [*command, *(["--workers", "0", "--quiet"] if command[1] == "run" else [])])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 0, capsys.readouterr().err
    assert "ok; schemes: fedavg" in capsys.readouterr().out
    assert Path("test_mine.py").is_file()


def test_the_cells_of_its_notebook_run_and_are_the_same_in_processes_of_their_own(folder: Path) -> None:
    head, _, module = block("%%writefile").partition("\n")
    Path(head.split()[1]).write_text(module)
    cell: dict[str, Any] = {}
    exec(block("import emul", 'plugins="mine"').replace('plugins="mine")\nruns.plot', 'plugins="mine", workers=0, '
                                                        'quiet=True)\nruns.plot'), cell)
    run, = cell["runs"]
    assert run.accuracy > 0.7
    again, = emul.run(cell["scenario"], plugins="mine", workers=2, quiet=True)
    assert again.digest == run.digest


def test_saved_arrays_and_a_saved_set_of_hugging_face_are_read(folder: Path) -> None:
    rng = np.random.default_rng(1)
    x, y, who = rng.normal(size=(130, 3)), rng.integers(0, 2, 130), np.arange(130) % 6
    exec(block("np.savez"), {"np": np, "x": x, "y": y, "who": who})
    found = load({"set": "arrays", "directory": "mine.npz"})
    assert (len(found.train_y), found.columns["writer"].train.max()) == (30, 5)
    datasets = pytest.importorskip("datasets", reason="the extra `test` brings datasets")
    datasets.disable_progress_bars()
    exec(block("DatasetDict("), {})
    data = re.search(r"data: (\{set: huggingface.*\})", PAGE)
    assert data is not None
    read = load({"set": "huggingface", "directory": "reviews", "x": "tokens", "y": "label", "columns": ["writer"]})
    assert all(word in data[1] for word in ("directory: reviews", "x: tokens", "y: label", "columns: [writer]"))
    assert (len(read.train_y), read.input_shape, sorted(set(read.columns["writer"].train))) == (
        30, (4,), [f"w{k}" for k in range(5)])


def test_its_functions_of_data_partitions_and_objectives_work() -> None:
    made: dict[str, Any] = {"np": np, "read": lambda directory, length: (np.zeros((300, length)), np.arange(300) % 2,
                                                                        np.arange(300))}
    exec(block("def windows"), made)
    assert own_data.made("windows", {}, made["DATA"]["windows"]({"directory": "."})).input_shape == (24,)
    exec(block("def by_length"), made)
    parts = made["PARTITIONS"]["by_length"](np.zeros(6), {"length": np.array([5, 1, 4, 2, 3, 0])}, 3, None, None)
    assert [part.tolist() for part in parts] == [[5, 1], [3, 4], [2, 0]]
    made |= {"dataclass": dataclass, "huber_loss": huber_loss, "Objective": Objective}
    exec(block("class Huber"), made)
    logits, y = torch.tensor([[0.5], [3.0]]), torch.zeros(2)
    losses = made["OBJECTIVES"]["huber"](delta=1.0)(Outputs(logits), Batch(logits, y), torch.ones(2))
    assert losses.tolist() == [0.125, 2.5]
    exec(block("def flowers"), made)
    assert set(made["DATA"]) == {"flowers"}


def test_its_keys_are_those_that_a_module_offers() -> None:
    assert all(f"{kind.attribute} = {{" in PAGE for kind in names.KINDS)
