"""The data set `arrays`: files of NumPy as they are, the same for any number of workers, and files that are none."""

from __future__ import annotations

import zipfile
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
    results = [engine.run(plan, workers=pool, out=Path("runs"))[0] for pool in (0, pools[1])]
    summaries = [result.summary for result in results if result.summary is not None]
    assert len(summaries) == 2
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


X = np.random.default_rng(2).normal(0, 1, (40, 3, 2)).astype(np.float32)
Y = np.arange(40) % 3


def wrote(x: np.ndarray = X, y: np.ndarray = Y, **more: Any) -> dict[str, Any]:
    np.savez("own.npz", train_x=x[10:], train_y=y[10:], test_x=x[:10], test_y=y[:10], **more)
    return {"set": "arrays", "directory": "own.npz"}


@pytest.mark.parametrize(("targets", "classes"), [
    (Y[:, None], 3), (Y.astype(np.uint8)[:, None], 3), (np.eye(3)[Y], 3), (np.eye(3, dtype=np.int64)[Y], 3),
    (np.eye(3, dtype=bool)[Y], 3), (np.array([b"bee", b"cat", b"dog"])[Y], 3),
    (np.array(["bee", "cat", "dog"])[Y], 3), (np.array(["bee", "cat", "dog"])[Y][:, None], 3), (Y == 2, 2)])
def test_labels_are_labels_however_they_are_kept(targets: np.ndarray, classes: int, arrays: object) -> None:
    found = load(wrote(y=targets))
    assert (found.classes, found.labelled) == (classes, True)
    assert found.train_y.tolist() == (Y[10:] if classes == 3 else Y[10:] == 2).tolist()


def test_classes_are_called_as_the_labels_are(arrays: object) -> None:
    for labels in (np.array(["bee", "cat", "dog"]), np.array([b"bee", b"cat", b"dog"])):
        assert load(wrote(y=labels[Y])).class_names == ("bee", "cat", "dog")
    assert load(wrote(y=Y == 2)).class_names == ("False", "True")
    assert load(wrote()).class_names == ()
    named = load(wrote(y=np.array(["bee", "cat", "dog"])[Y]))
    assert named.content_key == load(wrote()).content_key               # no result depends on a name


@pytest.mark.parametrize(("x", "y", "said"), [
    (X, Y.astype(float), "train_y: floats that are whole numbers, 0, 1, 2: a regression; for classes give integers"),
    (X, Y[:, None].astype(np.float32), "train_y: floats that are whole numbers, 0, 1, 2: a regression"),
    (X, Y + 1, "1 of 4 classes have no sample: labels are 1, 2, 3, and a model has an output for each number up to"),
    (X, Y * 100, "198 of 201 classes have no sample: labels are 0, 100, 200, and a model"),
    (X, np.where(np.arange(40) < 10, 3, Y), "no training sample has the labels 3, which test samples have"),
    (np.zeros((40, 8, 6, 3), np.uint8), Y, "samples of shape (8, 6, 3) look as if their channels came last; images"),
    (np.zeros((40, 3, 8, 6), np.uint8), Y, ""), (X, Y, ""), (X, X[:, 0, 0], ""), (X, Y * 1.5, "")])
def test_what_hardly_anybody_wants_is_a_warning(x: np.ndarray, y: np.ndarray, said: str, arrays: object) -> None:
    found = load(wrote(x, y)).warnings
    assert [one[len('data set "arrays": '):][:len(said)] for one in found if "channels" in one or x is X] == (
        [said if "shape" not in said else f"train_x: {said}"[:len(said)]] if said else [])


def test_what_is_no_label_stays_what_it_is(arrays: object) -> None:
    tokens = np.arange(80).reshape(40, 2) % 5
    for x, y, classes in ((X, X[:, 0], 0), (X, X[:, 0, :1], 0), (X, np.ones((40, 2), np.int64), 2),
                          (tokens, np.eye(2, dtype=np.int64)[tokens[:, 0] % 2], 2), (tokens[:, :1], Y[:, None], 3)):
        found = load(wrote(x, y))
        assert (found.train_y.shape[1:], found.classes) == (y.shape[1:], classes)


def test_images_of_8_and_16_bits_are_pixels_and_rows_of_integers_are_tokens(arrays: object) -> None:
    deep = np.linspace(0, 65535, 240).reshape(40, 3, 2).astype(np.uint16)
    for x, scale in ((deep, 65535), ((deep >> 8).astype(np.uint8), 255)):
        found = load(wrote(x))
        assert np.allclose(found.inputs(found.train_x), x[10:] / scale, atol=1e-6)
    assert load(wrote(deep[:, 0])).inputs(deep[:1, 0]).dtype == np.int64
    with pytest.raises(ScenarioError, match="takes no integers, which the inputs are: give pixels as uint8"):
        scenario_of(wrote(deep[:, 0]))
    assert scenario_of(wrote((deep >> 8).astype(np.float32))).warnings[0].startswith(
        'data set "arrays": train_x: floats from 64 to 255, which stay as they are; pixels are scaled')


def test_numbers_that_are_not_finite_are_a_warning(arrays: object) -> None:
    x = X.copy()
    x[[13, 15], 1] = np.nan
    assert scenario_of(wrote(x)).warnings == [
        'data set "arrays": train_x: 2 of 30 samples hold a number that is not finite, the first of them is 3; a '
        "training on one gives NaN"]


def scenario_of(data: dict[str, Any], stop: dict[str, Any] | None = None, **task: Any) -> Scenario:
    return load_scenario({
        "emul": 1, "name": "own", "seed": 1, "topology": {"generator": "star", "clients": 4},
        "links": [{"match": "*", "latency": "1 ms"}], "compute": {"mode": "zero"}, "schemes": ["fedavg"],
        "task": {"data": data, "model": "logistic", "solver": {"sgd": {"lr": 0.5, "steps": 1}}, **task},
        "stop": {"rounds": 1} | (stop or {})})


@pytest.mark.parametrize(("x", "y", "stop", "said"), [
    (X, X[:, 0, 0], {"accuracy": 0.5}, "no accuracy: the targets are numbers; expected loss, rounds or virtual_time"),
    (X, X[:, 0, 0], {"loss": 0.5}, ""), (X, Y[:, None], {"accuracy": 0.5}, ""),
    (X[:10], Y[:10], {"loss": 0.5}, "the task has no loss: the data have no test samples; expected rounds or")])
def test_a_stop_on_what_the_task_does_not_measure_is_refused(x: np.ndarray, y: np.ndarray, stop: dict[str, Any],
                                                              said: str, arrays: object) -> None:
    data = wrote(x, y)
    if len(x) == 10:
        np.savez("own.npz", train_x=x, train_y=y, test_x=x[:0], test_y=y[:0])
    if not said:
        scenario_of(data, stop)
        return
    with pytest.raises(ScenarioError) as wrong:
        scenario_of(data, stop)
    assert [problem.place for problem in wrong.value.problems] == [f"stop.{next(iter(stop))}"]
    assert said in wrong.value.problems[0].expected


def test_a_label_that_numbers_no_class_makes_no_model(arrays: object) -> None:
    with pytest.raises(ScenarioError, match="expected labels that number the classes from 0, found 2000000 as a label"):
        scenario_of(wrote(y=Y * 1_000_000))


@pytest.mark.parametrize("held", [b"", b"PK\x03\x04" + bytes(40), b"\x93NUMPY\x01\x00\xff\xff", b"\x93NUMPY"])
def test_a_file_that_is_no_archive_is_an_error_of_the_scenario(held: bytes, arrays: object) -> None:
    Path("own.npz").write_bytes(held)
    Path("own").mkdir()
    for name in ("train_x", "train_y", "test_x", "test_y"):
        Path(f"own/{name}.npy").write_bytes(held)
    for place in ("own.npz", "own", "/dev/null"):
        with pytest.raises(ScenarioError, match=rf"{place}.*(no archive of NumPy arrays|no array of numbers)"):
            scenario_of({"set": "arrays", "directory": place})


def test_an_archive_whose_head_asks_for_more_than_there_is_memory_is_an_error(arrays: object) -> None:
    head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 100), }".ljust(117) + b"\n"
    npy = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head
    with zipfile.ZipFile("own.npz", "w") as archive:
        for name in ("train_x", "train_y", "test_x", "test_y"):
            archive.writestr(f"{name}.npy", npy)
    with pytest.raises(DataError, match=r"own\.npz: train_x: no array of numbers \(.*Unable to allocate"):
        load({"set": "arrays", "directory": "own.npz"})
