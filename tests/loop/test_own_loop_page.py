"""The page on loops says what is true: its code runs, and its lines make ten algorithms loops on a network."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import personal_loops
import pytest
import torch

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "own-loop.md").read_text(encoding="utf-8")
NAMES = {"SCAFFOLD": "Scaffold", "MOON": "Moon", "FedBABU": "FedBabu", "pFedMe": "PFedMe"}  # on the page, in the code
IDEAL = "emul: 1\nname: ideal\nseed: 1\ntopology: {generator: star, clients: 6}\n"
LOSSY = f"{IDEAL}links: [{{match: 'client*->server', outage: {{model: bernoulli, p: 0.5}}}}]\n"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Matrices of twenty numbers are not for several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def applied(text: str, diff: str) -> str:
    """The text after one block of a diff, whose lines must be in it once."""
    lines = diff.splitlines()
    old, new = ("\n".join(line[1:] for line in lines if line[:1] in f" {sign}" or not line) for sign in "-+")
    assert text.count(f"\n{old}\n") == 1, old
    return text.replace(f"\n{old}\n", f"\n{new}\n")


def changed(diff: str) -> int:
    return sum(line[:1] in ("+", "-") and bool(line[1:].strip()) for line in diff.splitlines())


def with_clock() -> Any:
    """The miniature with the lines of the page."""
    text = Path(personal_loops.__file__).read_text(encoding="utf-8")
    for diff in blocks("diff"):
        text = applied(text, diff)
    module = types.ModuleType("with_clock")
    exec(compile(text, "with_clock.py", "exec"), module.__dict__)
    return module


def test_every_block_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "network.yaml").write_text(blocks("yaml")[0])
    found: dict[str, Any] = {}
    for block in blocks("python"):
        exec(block, found)
    assert [found[name].path.name for name in ("fedavg", "fedasync", "gossip")] == [
        "mine-fedavg-1", "mine-fedasync-1", "mine-gossip-1"]
    assert min(found[name].accuracy for name in ("fedavg", "fedasync", "gossip")) > 0.85
    assert found["fedavg"].summary["messages_lost"] > 0


@pytest.mark.parametrize("cls", personal_loops.ALGORITHMS)
def test_an_algorithm_with_a_clock_learns_the_same_to_the_bit(
        cls: type[personal_loops.Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "network.yaml").write_text(IDEAL)
    alone = cls()
    alone.train()
    on_network = getattr(with_clock(), cls.__name__)()
    on_network.train()
    assert on_network.accuracies == alone.accuracies
    assert all(torch.equal(on_network.model[name], value) for name, value in alone.model.items())
    assert on_network.run.rounds.accuracy.tolist() == alone.accuracies
    assert alone.accuracies[-1] > alone.accuracies[0]


@pytest.mark.parametrize("cls", personal_loops.ALGORITHMS)
def test_an_algorithm_goes_on_without_those_that_the_network_has_lost(
        cls: type[personal_loops.Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "network.yaml").write_text(LOSSY)
    loop = getattr(with_clock(), cls.__name__)(rounds=3)
    loop.train()
    assert len(loop.accuracies) == 3
    assert loop.run.summary["messages_lost"] > 0


def test_the_page_counts_the_lines_that_change() -> None:
    rows = re.findall(r"^\| (\w+) \| [^|]+ \| [^|]+ \| (\d+) \|$", PAGE, re.MULTILINE)
    names = [NAMES.get(name, name) for name, _ in rows]
    assert names == [cls.__name__ for cls in personal_loops.ALGORITHMS]
    of_class = {re.match(r" class (\w+)", diff)[1]: changed(diff)        # type: ignore[index]
                for diff in blocks("diff") if diff.startswith(" class")}
    base = sum(changed(diff) for diff in blocks("diff") if not diff.startswith(" class"))
    of_class["FedBabu"] = of_class["FedRep"]                # it inherits them
    assert [int(count) for _, count in rows] == [base + of_class.get(name, 0) for name in names]
    assert max(int(count) for _, count in rows) < 25
