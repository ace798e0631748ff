"""The data set `arrays`: files of NumPy as they are, the same for any number of workers, and files that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emul import engine
from emul.base.errors import ScenarioError
from emul.learning.data import DataError, load
from emul.scenario import Scenario
from emul.scenario import load as load_scenario
from emul.workers.pool import Workers


@pytest.fixture
def arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """Points of a plane in three clusters, each by one of four people; the current folder is empty."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, 120)
    x = np.stack([np.cos(2.1 * y), np.sin(2.1 * y)], axis=1) + rng.normal(0, 0.2, (120, 2))
    who = np.array(["ann", "bob", "cy", "di"])[np.arange(120) % 4]
    return {"train_x": x[30:], "train_y": y[30:], "train_who": who[30:], "test_x": x[:30], "test_y": y[:30]}


def scenario(directory: str, **task: Any) -> Scenario:
    return load_scenario({
        "emul": 1, "name": "own", "seed": 1, "topology": {"generator": "star", "clients": 4},
        "links": [{"match": "*", "latency": "1 ms"}], "compute": {"mode": "zero"}, "schemes": ["fedavg"],
        "task": {"data": {"set": "arrays", "directory": directory}, "partition": {"by": "who"}, "model": "logistic",
                 "solver": {"sgd": {"lr": 0.5, "steps": 5, "batch": 16}}, **task}, "stop": {"rounds": 4}})


def test_an_archive_and_a_folder_hold_the_same_set(arrays: dict[str, np.ndarray]) -> None:
    np.savez_compressed("mine.npz", **arrays)
    Path("mine").mkdir()
    for name, array in arrays.items():
        np.save(f"mine/{name}.npy", array)
    archive, folder = (load({"set": "arrays", "directory": place}) for place in ("mine.npz", "mine"))
    assert archive.classes == folder.classes == 3
    assert np.array_equal(archive.train_x, folder.train_x)
    assert archive.train_x.dtype == np.float32
    assert archive.columns["who"].train.tolist() == arrays["train_who"].tolist()


def test_a_run_on_arrays_learns_and_is_the_same_for_any_number_of_workers(
        arrays: dict[str, np.ndarray], pools: list[Workers]) -> None:
    np.savez("mine.npz", **arrays)
    plan = scenario("mine.npz")
    results = [engine.run(plan, workers=pool, out=Path("runs"))[0] for pool in (0, *pools)]
    summaries = [result.summary for result in results if result.summary is not None]
    assert len(summaries) == 4
    assert len({summary["digest"] for summary in summaries}) == 1
    assert summaries[0]["accuracy"] > 0.9


@pytest.mark.parametrize(("left_out", "directory", "said"), [
    ("test_y", "mine.npz", "expected the arrays train_x, train_y, test_x, test_y, test_y not there"),
    ("", "nowhere.npz", "No such file or directory"),
    ("", "text.npz", "no archive of NumPy arrays"),
    ("", "objects", "train_y: no array of numbers"),
    ("", None, "expected a directory: an .npz, or a folder with train_x.npy")])
def test_what_is_no_such_set_is_said(arrays: dict[str, np.ndarray], left_out: str, directory: str | None,
                                     said: str) -> None:
    np.savez("mine.npz", **{name: array for name, array in arrays.items() if name != left_out})
    Path("text.npz").write_text("no archive")
    Path("objects").mkdir()
    for name, array in arrays.items():
        np.save(f"objects/{name}.npy", array.astype(object) if name == "train_y" else array, allow_pickle=True)
    with pytest.raises(DataError, match=said):
        load({"set": "arrays", "directory": directory})


def test_mistakes_are_found_before_anything_runs(arrays: dict[str, np.ndarray]) -> None:
    with pytest.raises(ScenarioError, match=r"task\.data\.directory .*nowhere\.npz: No such file"):
        scenario("nowhere.npz")
    np.savez("short.npz", **arrays | {"train_y": arrays["train_y"][:5]})
    with pytest.raises(ScenarioError, match="expected one target per train sample, found 90 samples in train_x"):
        scenario("short.npz")
    np.savez("mine.npz", **arrays)
    with pytest.raises(ScenarioError, match="size"):
        scenario("mine.npz", partition={"by": "size"})


@pytest.mark.parametrize(("scheme", "servers"), [({"name": "vertical", "embedding": 4}, 1),
                                                 ({"name": "vertical_logistic_he", "real_up_to": 0}, 2)])
def test_columns_of_own_arrays_are_learned_from_together(scheme: dict[str, Any], servers: int, tmp_path: Path) -> None:
    """The class is a sum of a number of each party: who sees one of the two is right in three of four cases at most."""
    rng = np.random.default_rng(5)
    x = rng.normal(0, 1, (600, 3)).astype(np.float32)
    y = (x[:, 0] + x[:, 2] > 0).astype(np.int64)
    np.savez(tmp_path / "mine.npz", train_x=x[200:], train_y=y[200:], test_x=x[:200], test_y=y[:200])

    def of(groups: list[list[int]]) -> Scenario:
        return load_scenario({
            "emul": 1, "name": "own", "seed": 1, "schemes": [scheme], "compute": {"mode": "zero"},
            "topology": {"generator": "star_mesh", "clients": 2, "servers": servers},
            "links": [{"match": "*", "latency": "1 ms"}], "stop": {"rounds": 4},
            "task": {"data": {"set": "arrays", "directory": str(tmp_path / "mine.npz")}, "model": "logistic",
                     "partition": {"columns": {"groups": groups, "common": 0.8}},
                     "solver": {"sgd": {"lr": 0.5, "epochs": 2, "batch": 16}}}})

    result, = engine.run(of([[0, 1], [2]]), workers=0, out=tmp_path / "runs")
    assert result.error is None
    assert result.summary is not None
    assert result.summary["accuracy"] > 0.93
    with pytest.raises(ScenarioError, match=r"samples have the columns 0\.\.2, groups are \[\[0, 1\], \[3\]\]"):
        of([[0, 1], [3]])
