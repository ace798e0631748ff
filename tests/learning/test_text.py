"""The data set `text` and the model `transformer`: bytes of sources as tokens, and what is said of what cannot be."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from emul import engine
from emul.base.errors import ScenarioError
from emul.learning import Task, models
from emul.learning.data import DataError, load
from emul.learning.text import corpus, digest_of
from emul.record.journal import MemoryJournal
from emul.scenario import loads
from emul.workers.twin import Twin

PUBLISHED = "d31bc12611df15d7cca586cb39aa3350c95c620981ec41990489a15a9c2aef51"      # of 3.6.1, in four shards by file
TINY = {"transformer": {"blocks": 1, "width": 16, "heads": 2}}
TEXT = """
emul: 1
name: text
seed: 3
topology: {generator: star, clients: 4}
links: [{match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}]
task:
  data: {set: text, package: networkx, window: 32, test: 20}
  partition: {by: file}
  model: {transformer: {blocks: 1, width: 16, heads: 2}}
  solver: {adamw: {lr: 0.01, steps: 2, batch: 4}}
compute: {mode: zero}
schemes: [fedavg]
stop: {rounds: 2}
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """An installed package of 20 files, of which the last is for tests: the contents in their order."""
    texts = [bytes([n]) * (2 * n + 1) for n in range(20)]
    (tmp_path / "words" / "tests").mkdir(parents=True)
    (tmp_path / "words" / "tests" / "a.py").write_bytes(b"left out")
    (tmp_path / "words" / "a.txt").write_bytes(b"left out")
    for n, text in enumerate(texts):
        (tmp_path / "words" / f"m{n:02}.py").write_bytes(text)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("words", None)
    return texts


def test_windows_of_a_file_stand_side_by_side_and_targets_are_the_bytes_that_follow(small: list[bytes]) -> None:
    found = load({"set": "text", "package": "words", "window": 8})
    assert (found.classes, found.input_shape, found.labelled) == (256, (8,), False)
    wanted = [(n, text[i:i + 8], text[i + 1:i + 9]) for n, text in enumerate(small[:19])
              for i in range(0, len(text) - 8, 8)]
    assert [(int(n), bytes(x.tolist()), bytes(y.tolist()))
            for n, x, y in zip(found.columns["file"].train, found.train_x, found.train_y, strict=True)] == wanted
    assert len(found.test_y) == 4
    assert found.inputs(found.train_x).dtype == np.int64
    assert len(load({"set": "text", "package": "words", "window": 8, "test": 3}).test_y) == 3


@pytest.mark.skipif(networkx.__version__ != "3.6.1", reason="the published digest is that of networkx 3.6.1")
def test_the_corpus_is_the_published_one() -> None:
    train, test = corpus("networkx")
    shards = [text for k in range(4) for text in train[k::4]]
    assert hashlib.sha256(b"".join([*shards, *test])).hexdigest() == PUBLISHED
    assert (len(train) + len(test), sum(map(len, test))) == (288, 222_891)


def test_a_digest_is_compared_if_it_is_asked_for(small: list[bytes]) -> None:
    spec: dict[str, Any] = {"set": "text", "package": "words", "window": 8}
    digest = hashlib.sha256(b"".join(small)).hexdigest()
    assert digest == digest_of(*corpus("words"))
    load(spec | {"sha256": digest})
    with pytest.raises(DataError, match=f"with the digest {'0' * 64}, version without a number is installed and has "
                                        f"{digest}$"):
        load(spec | {"sha256": "0" * 64})
    with pytest.raises(DataError, match="test: expected at most the 4 test windows, found 5"):
        load(spec | {"test": 5})


@pytest.mark.parametrize(("old", "new", "said"), [
    ("package: networkx", "package: netwrkx",
     'data.package  "netwrkx"  no package of this name is installed: pip install netwrkx'),
    ("package: networkx", "package: a.b", "expected the name of an installed package, such as networkx"),
    ("package: networkx, ", "", "data.package  nothing  expected the name of an installed package"),
    ("window: 32", "windw: 32", 'data.windw   32       unknown key; did you mean "window"?'),
    ("window: 32", "window: 0", "data.window  0  expected the bytes of a sample, 1 or more, such as 128"),
    ("test: 20", "sha256: abc", 'data.sha256  "abc"  expected 64 digits 0-9a-f'),
    ("test: 20", "sha256: " + "a" * 64, f"expected sources of networkx with the digest {'a' * 64}, version "),
    ("heads: 2", "heads: 3", "model.transformer.heads  3  expected a number that divides the width 16"),
    ("heads: 2", "head: 2", 'model.transformer.head  2  unknown option; did you mean "heads"?'),
    ("blocks: 1", "blocks: 0", "expected an integer >= 1"),
    ("{transformer: {blocks: 1, width: 16, heads: 2}}", "{logistic: {width: 3}}", "logistic has no options"),
    ("{transformer: {blocks: 1, width: 16, heads: 2}}", "[transformer]", "expected the name of a model, or one with"),
    ("{set: text, package: networkx, window: 32, test: 20}", "{set: digits}",
     "transformer takes rows of tokens, such as those of the set text, the data have (1, 8, 8)"),
])
def test_mistakes_are_said_before_the_run(old: str, new: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(said)):
        loads(TEXT.replace(old, new))


def test_the_transformer_has_the_published_number_of_parameters_and_sees_nothing_that_follows() -> None:
    module = models.create("transformer", (128,), 256, 7)
    assert sum(weights.numel() for weights in module.parameters()) == 1_035_008
    small = models.create(TINY, (8,), 256, 7)
    x = torch.arange(16).reshape(2, 8)
    changed = x.clone()
    changed[:, 5:] = 99
    with torch.no_grad():
        one, other = small(x), small(changed)
    assert one.shape == (2, 8, 256)
    torch.testing.assert_close(one[:, :5], other[:, :5])
    assert not torch.allclose(one[:, 5:], other[:, 5:])


def test_a_run_ends_at_the_loss_that_the_scenario_asks_for() -> None:
    text = TEXT.replace("rounds: 2}", "rounds: 30, loss: 5}").replace("lr: 0.01", "lr: 0.005")
    scenario = loads(text)
    wiring = engine.wire(scenario, *scenario.schemes[0])
    finished = engine.execute(wiring, Twin(), MemoryJournal({}))
    losses = [seen.values["loss"] for seen in sorted(finished.observations, key=lambda seen: seen.round)]
    assert 1 < len(losses) < 30, losses
    assert losses[-1] <= 5 < min(losses[:-1])


def test_its_loss_falls_and_is_in_nats_a_byte() -> None:
    spec = {"data": {"set": "text", "package": "networkx", "window": 32, "test": 20}, "model": TINY,
            "partition": {"by": "file"}, "solver": {"adamw": {"lr": 0.01, "steps": 30, "batch": 8}}}
    task = Task(spec, 4, 7)
    before = task.initial_parameters()
    first = task.evaluate(before)
    assert first["loss"] == pytest.approx(np.log(256), abs=0.05)
    after = before + task.for_node("client0", 0, lambda: 1).local_update(before)[0]
    found = task.evaluate(after)
    assert found["loss"] < 4

    module = models.create(TINY, (32,), 256, 0)
    torch.nn.utils.vector_to_parameters(torch.from_numpy(after), module.parameters())
    with torch.no_grad():
        logits = module(torch.from_numpy(task.data.test_x.astype(np.int64)))
    wanted = F.cross_entropy(logits.reshape(-1, 256), torch.from_numpy(task.data.test_y.astype(np.int64)).reshape(-1))
    assert found["loss"] == pytest.approx(float(wanted), rel=1e-5)
    assert sorted(np.concatenate([np.unique(task.data.columns["file"].train[task.indices(k)]) for k in range(4)])) == (
        np.unique(task.data.columns["file"].train).tolist())
