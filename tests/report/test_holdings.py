"""`samples.parquet` and its figure: who holds how many samples of each class, as the partition dealt them."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_scenario import SMALL

import emul
from emul.learning import data as data_sets
from emul.record.journal import RecordError
from emul.report import data, figures, write
from emul.scenario.source import read


def made(tmp_path: Path, **changes: Any) -> Path:
    """A run of FedAvg with these parts of the task."""
    scenario = read(SMALL).tree
    scenario["task"] |= changes.pop("task", {})
    found = emul.run({**scenario, "schemes": ["fedavg"], **changes}, workers=0, out=tmp_path, quiet=True)
    return found[0].path


@pytest.fixture(scope="module")
def two_classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("runs"), task={"partition": {"classes": 5}}, topology={
        "generator": "star", "clients": 4})


def test_every_sample_is_counted_once_with_its_class(two_classes: Path) -> None:
    found = emul.load_run(two_classes).samples
    assert list(found.columns) == ["node", "name", "class", "samples", "class_name"]
    assert found["class_name"].isna().all()                                 # digits have none
    assert found["name"].unique().tolist() == ["client1", "client2", "client3", "client4"]
    assert (found.groupby("name")["class"].nunique() == 5).all()            # 4 clients of 5 classes: each class twice
    labels = np.bincount(data_sets.load({"set": "digits"}).train_y)
    assert found.groupby("class")["samples"].sum().tolist() == labels.tolist()
    assert (found["samples"] > 0).all()


def test_the_report_draws_the_matrix_and_its_table_has_the_zeros(two_classes: Path, tmp_path: Path) -> None:
    found = figures.samples_held(data.open_run(two_classes))
    figure = figures.samples_by_class(found)
    assert figure.table.shape == (4, 2 + 10 + 1)
    assert figure.table["all"].sum() == found["samples"].sum() == 1500
    assert (figure.table.filter(like="class") == 0).sum().sum() == 4 * 5
    assert "A node has 5 of 10 classes" in figure.words
    page = write(two_classes, tmp_path / "page.html").read_text()
    assert "Training samples of each node, by class" in page
    changed = two_classes / "samples.parquet"
    before = changed.read_bytes()
    try:
        changed.write_bytes(before[:-1])
        with pytest.raises(RecordError, match=r"damaged or changed since the run: samples\.parquet"):
            write(two_classes, tmp_path / "page.html")
    finally:
        changed.write_bytes(before)


def test_classes_with_names_are_called_by_them(tmp_path: Path) -> None:
    rows = [f"{x},{('owl', 'cat', 'eel')[x % 3]}" for x in range(60)]
    (tmp_path / "pets.csv").write_text("x,kind\n" + "\n".join(rows) + "\n")
    task = {"data": {"set": "csv", "directory": str(tmp_path / "pets.csv"), "y": "kind"}, "model": "logistic"}
    found = figures.samples_held(data.open_run(made(tmp_path, task=task)))
    pairs = found[["class", "class_name"]].drop_duplicates().sort_values("class")
    assert pairs.to_numpy().tolist() == [[0, "cat"], [1, "eel"], [2, "owl"]]
    figure = figures.samples_by_class(found)
    assert list(figure.table.columns) == ["node", "name", "cat", "eel", "owl", "all"]
    assert set(figure.frames["samples"]["class"]) == {"cat", "eel", "owl"}
    assert figure.spec()["encoding"]["x"]["sort"] == ["cat", "eel", "owl"]
    alike = figures.samples_by_class(found.assign(class_name="all"))        # nor do names of columns come twice
    assert list(alike.table.columns) == ["node", "name", "0 all", "1 all", "2 all", "all"]
    old = figures.samples_by_class(found.drop(columns="class_name"))
    assert list(old.table.columns) == ["node", "name", "class 0", "class 1", "class 2", "all"]


def test_another_table_in_its_place_is_no_table_of_samples(two_classes: Path, tmp_path: Path) -> None:
    path = shutil.copytree(two_classes, tmp_path / "copy")
    (path / "seal.json").unlink()
    shutil.copyfile(path / "rounds.parquet", path / "samples.parquet")
    with pytest.raises(RecordError, match=r"samples\.parquet: no column name, class, samples; there are round, node"):
        write(path, tmp_path / "page.html")


def test_of_many_nodes_and_classes_some_are_drawn_and_the_table_has_all() -> None:
    many = pd.DataFrame({"node": np.repeat(np.arange(100), 90), "name": np.repeat([f"c{k}" for k in range(100)], 90),
                         "class": np.tile(np.arange(90), 100), "samples": np.tile(np.arange(1, 91), 100)})
    figure = figures.samples_by_class(many)
    drawn = figure.frames["samples"]
    assert drawn["name"].nunique() == 40
    assert {"c0", "c99"} <= set(drawn["name"])
    assert sorted(drawn["class"].unique()) == list(range(30, 90))
    assert "40 of 100 nodes" in figure.text
    assert "60 classes with the most samples, of 90" in figure.text
    assert len(figure.table) == 100


def test_targets_that_are_no_labels_make_bars() -> None:
    found = pd.DataFrame({"node": [1, 2], "name": ["a", "b"], "class": [None, None], "samples": [30, 70]})
    figure = figures.samples_by_class(found)
    assert figure.title == "Training samples of each node"
    assert figure.table["samples"].tolist() == [30, 70]
    assert figure.spec()["mark"]["type"] == "bar"


@pytest.mark.parametrize("changes", [{"training": "skip"}, {"task": {"partition": {"columns": {"groups": 3}}}}],
                         ids=["nothing is trained", "columns in place of samples"])
def test_a_run_without_samples_of_nodes_has_no_table_and_no_figure(tmp_path: Path, changes: dict[str, Any]) -> None:
    schemes = ["vertical"] if "task" in changes else ["fedavg"]
    path = made(tmp_path, **{**changes, "schemes": schemes})
    assert not (path / "samples.parquet").exists()
    assert figures.samples_held(data.open_run(path)).empty
    with pytest.raises(RecordError, match=r"samples\.parquet: no table"):
        _ = emul.load_run(path).samples


def test_data_that_cannot_be_read_again_cost_the_table_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                             caplog: pytest.LogCaptureFixture) -> None:
    def gone(*_: object) -> None:
        raise OSError("gone")

    monkeypatch.setattr("emul.engine.findings._counts", gone)
    with caplog.at_level(logging.WARNING):
        path = made(tmp_path)
    assert "the samples of the nodes were not counted: OSError: gone" in caplog.text
    assert (path / "summary.json").is_file()
    assert not (path / "samples.parquet").exists()
