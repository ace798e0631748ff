"""What nodes leave in the run directory: arrays, and their last models; the same for any number of workers."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import emul
from emul import engine
from emul.base import kept
from emul.base.errors import ReplayMismatch, RoleFailed
from emul.base.files import as_file_name, from_file_name
from emul.base.kept import KeptError, KeptModel, digest_of
from emul.learning import models
from emul.preview.footprint import Weighing
from emul.record.journal import MemoryJournal
from emul.report.build import write
from emul.roles import Node
from emul.scenario import Crash, Scenario, loads
from emul.testing import drive, run_world
from emul.workers.twin import Twin

TASK = ("task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: digits_classic, "
        "solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}")
SCENARIO = """
emul: 1
name: kept
seed: 3
topology: {generator: star, clients: 3}
links: [{match: "*", latency: 5 ms, bandwidth: 10 Mbit/s}]
%s
compute: {mode: zero}
schemes: [{name: %s}]
stop: {rounds: 3}
"""


def scenario(scheme: str) -> Scenario:
    return loads(SCENARIO % (TASK, scheme), plugins=["keeping_scheme"])


def run(scheme: str, out: Path, workers: Any = 0) -> tuple[Path, dict[str, Any]]:
    result, = engine.run(scenario(scheme), workers=workers, out=out, plugins=["keeping_scheme"])
    assert result.error is None
    assert result.directory is not None
    assert result.summary is not None
    return result.directory, result.summary


def tree(path: Path) -> dict[str, str]:
    """File -> digest of its bytes, of what nodes left."""
    return {file.relative_to(path).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
            for folder in (kept.MODELS, kept.ARTEFACTS) for file in sorted((path / folder).rglob("*"))
            if file.is_file()}


# --- models ---------------------------------------------------------------------------------------------------------

def test_the_last_model_of_the_server_is_kept_under_the_names_of_its_parts(tmp_path: Path) -> None:
    path, summary = run("fedavg", tmp_path)
    loaded = emul.load_run(path)
    assert loaded.models == ["server"]
    assert summary["models"] == {"server": 3}
    model = loaded.model()
    assert (model.node, model.round) == ("server", 3)
    module = models.create("digits_classic", (1, 8, 8), 10, 0)
    assert list(model.tensors) == [name for name, _ in module.named_parameters()]
    module.load_state_dict({name: torch.from_numpy(t.copy()) for name, t in model.tensors.items()})
    flat = torch.cat([p.detach().reshape(-1) for p in module.parameters()]).numpy()
    assert np.array_equal(flat, model.vector())
    assert digest_of(model.vector()) == model.digest


def test_clients_with_models_of_their_own_leave_one_each(tmp_path: Path) -> None:
    path, summary = run("local", tmp_path)
    loaded = emul.load_run(path)
    assert loaded.models == ["client1", "client2", "client3"]
    assert summary["models"] == dict.fromkeys(loaded.models, 3)
    vectors = [loaded.model(name).vector() for name in loaded.models]
    assert not np.array_equal(vectors[0], vectors[1])


def test_what_is_reported_and_is_no_model_is_kept_whole(tmp_path: Path) -> None:
    path, _ = run("fedproto", tmp_path)
    loaded = emul.load_run(path)
    assert list(loaded.model("server").tensors) == ["parameters"]
    assert "client1" in loaded.models
    assert len(loaded.model("client1").tensors) > 1


@pytest.mark.parametrize("scheme", ["fedavg", "fedper", "keeping_scheme"])
def test_files_are_the_same_to_the_byte_for_any_number_of_workers(
        scheme: str, tmp_path: Path, pools: list[Any]) -> None:
    alone, found = (tree(run(scheme, tmp_path, pool)[0]) for pool in (0, pools[1]))
    assert alone
    assert found == alone


def test_no_model_is_kept_of_a_run_without_a_directory() -> None:
    chosen = scenario("fedavg")
    wiring = engine.wire(chosen, *chosen.schemes[0])
    finished = engine.execute(wiring, Twin(), MemoryJournal(engine.header(wiring)))
    assert [(one.node, one.name, one.round) for one in finished.kept] == [(0, "", 3)]


def test_the_memory_of_models_that_are_held_is_foretold() -> None:
    chosen, weighing = scenario("local"), Weighing()
    wiring = engine.wire(chosen, *chosen.schemes[0])
    engine.execute(wiring, weighing, MemoryJournal(engine.header(wiring)))
    d = weighing.seen.dimension
    assert weighing.seen.kept["client"] == 3 * 2 * 4 * d         # in its state, and as the last one that it reported


# --- arrays ---------------------------------------------------------------------------------------------------------

def test_arrays_are_kept_by_node_and_name_and_the_newest_stays(tmp_path: Path) -> None:
    path, summary = run("keeping_scheme", tmp_path)
    loaded = emul.load_run(path)
    assert loaded.artefacts == {name: ["mean/all", "round 1", "round 2", "round 3"] for name in (
        "client1", "client2", "client3")}
    assert np.array_equal(loaded.artefact("client2", "round 2"), np.full((2, 3), 2, np.int16))
    assert loaded.artefact("client2", "mean/all") == 3.0
    assert list(summary["artefacts"]["client1"]) == loaded.artefacts["client1"]


def test_replay_computes_arrays_again_and_sees_a_file_that_was_changed(tmp_path: Path) -> None:
    path, summary = run("keeping_scheme", tmp_path)
    assert engine.replay(path, 0, ["keeping_scheme"]) == summary["digest"]
    file = path / "artefacts" / "client1" / "round%202.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(ReplayMismatch, match=r"artefacts/client1/round%202\.npy: its bytes are not those"):
        engine.replay(path, 0, ["keeping_scheme"])


def test_the_report_lists_what_was_left(tmp_path: Path) -> None:
    path, _ = run("keeping_scheme", tmp_path)
    page = write(path, tmp_path / "report.html").read_text()
    assert "Left in the run directory" in page
    assert "array mean/all" in page
    assert "model of round 3" in page


def test_keeping_costs_nothing_and_leaves_no_row(tmp_path: Path) -> None:
    def world(keeps: bool) -> Any:
        async def server(node: Node, p: Any) -> None:
            async for round_ in node.rounds():
                with round_:
                    if keeps:
                        node.keep("x", np.zeros(1 << 20))
                    await node.sleep(1)

        async def client(node: Node, p: Any) -> None:
            return

        return run_world({"server": server, "client": client}, clients=1)

    assert world(True).digest == world(False).digest


@pytest.mark.parametrize(("name", "array", "said"), [
    ("", np.zeros(1), r"keep\(''\): expected a name"), (3, np.zeros(1), r"keep\(3\): expected a name"),
    ("x", [object()], r"keep\('x'\): an array of list objects cannot be kept: plain numbers only"),
    ("x", {"a": 1}, r"keep\('x'\): an array of dict objects cannot be kept")])
def test_what_cannot_be_kept_ends_the_run_by_name(name: Any, array: Any, said: str) -> None:
    async def server(node: Node, p: Any) -> None:
        node.keep(name, array)

    async def client(node: Node, p: Any) -> None:
        return

    with pytest.raises(RoleFailed, match=said):
        run_world({"server": server, "client": client}, clients=1)


def test_a_role_alone_shows_what_it_keeps() -> None:
    async def server(node: Node, p: Any) -> None:
        node.keep("x", np.arange(3))

    assert drive(server).kept["x"].tolist() == [0, 1, 2]


def test_a_node_that_crashes_leaves_what_it_had_kept(tmp_path: Path) -> None:
    _, summary = run("keeping_scheme", tmp_path)
    half = round(summary["virtual_seconds"] / 2 * 1e9)
    crashed = dataclasses.replace(scenario("keeping_scheme"), faults=[Crash(half, "client1")])
    result, = engine.run(crashed, workers=0, out=tmp_path, plugins=["keeping_scheme"])
    assert result.directory is not None
    found = emul.load_run(result.directory).artefacts
    assert "round 3" in found["client2"]
    assert "round 3" not in found["client1"]
    assert "round 1" in found["client1"]


# --- files ----------------------------------------------------------------------------------------------------------

@given(st.text(min_size=1, max_size=20))
def test_any_name_is_the_name_of_a_file_in_its_folder(name: str) -> None:
    file = as_file_name(name)
    assert from_file_name(file) == name
    assert "/" not in file
    assert "\0" not in file
    assert not file.startswith(".")


@given(hnp.arrays(st.sampled_from(["<f4", "<f8", "<i2", "?", "<c8", "<U3"]), hnp.array_shapes(min_dims=0, max_dims=3,
                                                                                           min_side=0)))
def test_an_array_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, array: np.ndarray) -> None:
    home = tmp_path_factory.mktemp("kept")
    kept.write_array(home, "n", "a", kept.array_bytes(array))
    back = kept.read_array(home, "n", "a")
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()
    assert os.listdir(home / "artefacts" / "n") == ["a.npy"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    tensors = {"b.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.float32([0.5])}
    vector = np.concatenate([t.reshape(-1) for t in tensors.values()])
    kept.write_model(tmp_path, KeptModel("no/de", 4, digest_of(vector), tensors))
    return tmp_path / "models" / "no%2Fde.safetensors"


def test_a_model_comes_back_in_the_order_of_its_vector(model: Path) -> None:
    found = kept.read_model(model.parents[1], "no/de")
    assert list(found.tensors) == ["b.weight", "a"]
    assert found.vector().tolist() == [0, 1, 2, 3, 4, 5, 0.5]
    assert kept.models(model.parents[1]) == ["no/de"]


def test_a_damaged_model_is_an_error_with_its_file(model: Path) -> None:
    content = model.read_bytes()
    for place in range(0, len(content), 7):
        for changed in (content[:place], content[:place] + bytes([content[place] ^ 0x15]) + content[place + 1:]):
            model.write_bytes(changed)
            with pytest.raises(KeptError, match=r"no%2Fde\.safetensors: "):
                kept.read_model(model.parents[1], "no/de")


def test_a_damaged_array_is_an_error_with_its_file(tmp_path: Path) -> None:
    kept.write_array(tmp_path, "n", "a", kept.array_bytes(np.arange(5)))
    file = tmp_path / "artefacts" / "n" / "a.npy"
    content = file.read_bytes()
    for damaged in (b"", content[:-1], content + b"x", content[:20], b"\x93NUMPY" + bytes(40),
                    content.replace(b"(5,)", b"[[[[")):
        file.write_bytes(damaged)
        with pytest.raises(KeptError, match=r"n/a\.npy: "):
            kept.read_array(tmp_path, "n", "a")
    with pytest.raises(KeptError, match="n kept no array 'b'"):
        kept.read_array(tmp_path, "n", "b")


def test_a_header_that_would_fill_the_memory_is_not_read(tmp_path: Path) -> None:
    """Of one changed byte, in a file that goes on for ever, NumPy makes a header of 660 MB."""
    kept.write_array(tmp_path, "n", "a", kept.array_bytes(np.arange(5)))
    file = tmp_path / "artefacts" / "n" / "a.npy"
    content = bytearray(file.read_bytes())
    content[6] = 2                                      # the version
    file.write_bytes(content)
    os.truncate(file, 1 << 40)
    tracemalloc.start()
    with pytest.raises(KeptError, match=r"n/a\.npy: .* version 2\.0 of NumPy's format, expected 1\.0"):
        kept.read_array(tmp_path, "n", "a")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_it_must_be_clear_whose_model_is_meant(tmp_path: Path) -> None:
    path, _ = run("local", tmp_path)
    loaded = emul.load_run(path)
    with pytest.raises(KeptError, match="3 deciding nodes left a model: say whose"):
        loaded.model()
    with pytest.raises(KeptError, match="nobody left no model"):
        loaded.model("nobody")
