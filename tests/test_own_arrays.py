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
