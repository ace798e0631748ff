"""Data sets that Hugging Face's datasets and torchvision keep on disk: what is read, what is said of what is not."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emul import engine
from emul.base.errors import ScenarioError
from emul.learning.data import DataError, load, missing
from emul.scenario import Scenario
from emul.scenario import load as load_scenario
from emul.workers.pool import Workers

datasets = pytest.importorskip("datasets", reason="the extra `test` brings datasets")


def rows(n: int, seed: int) -> dict[str, list[Any]]:
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 3, n)
    return {"tokens": [[int(c), int(c), int(rng.integers(0, 9))] for c in label], "label": label.tolist(),
            "writer": [("ann", "bob", "cy", "di")[i % 4] for i in range(n)],
            "picture": [np.full((4, 5, 3), 10 * int(c), np.uint8) for c in label],
            "weight": rng.random(n).tolist(), "text": [f"class {c}" for c in label],
            "ragged": [[1] * (1 + int(c)) for c in label]}


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, the current one, with a DatasetDict in `mine`."""
    monkeypatch.chdir(tmp_path)
    datasets.disable_progress_bars()
    features = datasets.Features({
        "tokens": datasets.Sequence(datasets.Value("int64"), length=3), "writer": datasets.Value("string"),
        "label": datasets.ClassLabel(names=["a", "b", "c"]), "picture": datasets.Image(),
        "weight": datasets.Value("float64"), "text": datasets.Value("string"),
        "ragged": datasets.Sequence(datasets.Value("int64"))})
    made = {split: datasets.Dataset.from_dict(rows(n, seed), features=features)
            for split, n, seed in (("train", 48, 1), ("test", 16, 2), ("validation", 8, 3))}
    datasets.DatasetDict(made).save_to_disk("mine")
    return tmp_path


def spec(**more: Any) -> dict[str, Any]:
    return {"set": "huggingface", "directory": "mine", "x": "tokens", "y": "label", **more}


def test_columns_become_inputs_targets_and_what_a_partition_goes_by(saved: Path) -> None:
    found, asked = load(spec(columns="writer")), rows(48, 1)
    assert found.train_x.tolist() == asked["tokens"]                    # type: ignore[union-attr]
    assert found.train_y.tolist() == asked["label"]
    assert found.columns["writer"].train.tolist() == asked["writer"]
    assert (found.classes, found.input_shape, len(found.test_y)) == (3, (3,), 16)
    assert load(spec(test="validation")).test_y.tolist() == rows(8, 3)["label"]


def test_images_have_their_channels_first_and_several_columns_are_several_tensors(saved: Path) -> None:
    found = load(spec(x="picture"))
    assert found.input_shape == (3, 4, 5)
    assert found.inputs(found.train_x[:1]).max() == pytest.approx(10 * rows(48, 1)["label"][0] / 255)   # type: ignore
    both = load(spec(x=["tokens", "weight"], y="weight"))
    assert both.input_shape == {"tokens": (3,), "weight": ()}
    assert both.classes == 0


def scenario(data: dict[str, Any], **task: Any) -> Scenario:
    return load_scenario({
        "emul": 1, "name": "own", "seed": 1, "topology": {"generator": "star", "clients": 4},
        "links": [{"match": "*", "latency": "1 ms"}], "compute": {"mode": "zero"}, "schemes": ["fedavg"],
        "task": {"data": data, "partition": {"by": "writer"}, "model": "logistic",
                 "solver": {"sgd": {"lr": 0.5, "steps": 2, "batch": 8}}, **task}, "stop": {"rounds": 2}})


@pytest.mark.slow
def test_a_run_is_the_same_for_any_number_of_workers(saved: Path, pools: list[Workers]) -> None:
    plan = scenario(spec(x="picture", columns=["writer"]))
    results = [engine.run(plan, workers=pool, out=Path("runs"))[0] for pool in (0, *pools)]
    assert len({result.summary["digest"] for result in results if result.summary is not None}) == 1
    assert len(results) == 4


@pytest.mark.parametrize(("more", "said"), [
    ({"directory": None}, 'data set "huggingface": expected the directory that it is in'),
    ({"directory": "nowhere"}, "nowhere: expected a folder; it does not exist"),
    ({"directory": "mine/train"}, r"mine/train: expected dataset_dict.json and a folder for each split, .*"),
    ({"y": None}, 'data set "huggingface": expected y, the name of the column of targets, found None'),
    ({"x": []}, r'data set "huggingface": expected x, the name of a column or a list of names, found \[\]'),
    ({"x": "token"}, 'mine: unknown column "token"; did you mean "tokens"\\?'),
    ({"x": "text"}, 'mine: column "text": expected numbers, found <U7; make tokens or classes of text .*'),
    ({"x": "ragged"}, 'mine: column "ragged": expected values of one shape, found several; pad, cut or resize them .*'),
    ({"test": "validatoin"}, 'mine: test: unknown split "validatoin"; did you mean "validation"\\?')])
def test_what_cannot_be_read_is_told(saved: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=f"^{said}$"):
        load(spec(**more))


def test_garbled_files_are_told(saved: Path) -> None:
    for path in (saved / "mine/train/state.json", saved / "mine/dataset_dict.json"):
        path.write_text("{")
        with pytest.raises(DataError, match=r"^mine: no data set of Hugging Face: "):
            load(spec())


def test_mistakes_are_found_before_anything_runs(saved: Path) -> None:
    with pytest.raises(ScenarioError, match=r'task\.data\.column .*unknown key; did you mean "columns"\?'):
        scenario(spec(column="writer"))
    with pytest.raises(ScenarioError, match=r"task\.data\.directory .*nowhere: expected a folder; it does not exist"):
        scenario(spec(directory="nowhere"))
    with pytest.raises(ScenarioError, match=r'task\.data\.set .*unknown column "label2"; did you mean "label"\?'):
        scenario(spec(y="label2"))
    assert scenario(spec(x="picture", columns="writer", test="validation")).task["data"]["test"] == "validation"


def test_a_library_that_is_absent_or_hidden_is_told(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"datasets cannot be imported: ModuleNotFoundError: .*; expected pip install "
                                        r"'emul\[huggingface\]'$"):
        load(spec())
    monkeypatch.delitem(sys.modules, "datasets")
    monkeypatch.syspath_prepend(str(saved))
    (saved / "datasets").mkdir()
    (saved / "datasets" / "__init__.py").touch()
    hidden = r"expected the library datasets, found .*/datasets/__init__\.py, which hides it"
    with pytest.raises(DataError, match=hidden):
        load(spec())
    sys.modules.pop("datasets")


# --- torchvision ----------------------------------------------------------------------------------------------------

LIBRARY = '''
import numpy as np
from PIL import Image

class VisionDataset:
    part = ""

    def __init__(self, root, part):
        self.root, self.n = root, {True: 12, False: 6, "train": 12, "test": 6, "val": 4}[part]
        if root.endswith("empty"):
            raise RuntimeError("Dataset not found. You can use download=True to download it")

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return Image.fromarray(np.full((4, 5), i, np.uint8)), i % 3

class ByTrain(VisionDataset):
    def __init__(self, root, train=True, transform=None, download=False):
        super().__init__(root, train)

class BySplit(VisionDataset):
    def __init__(self, root, split="train", transform=None, download=False):
        super().__init__(root, split)

    def __getitem__(self, i):
        return Image.fromarray(np.full((4, 5, 3), i, np.uint8)), i % 3

class Emnist(ByTrain):
    def __init__(self, root, split, **kwargs):
        assert split == "letters"
        super().__init__(root, **kwargs)

class Whole(VisionDataset):
    def __init__(self, root):
        super().__init__(root, True)

class Sizes(ByTrain):
    def __getitem__(self, i):
        return Image.fromarray(np.zeros((4, 5 + i), np.uint8)), 0

class Boxes(ByTrain):
    def __getitem__(self, i):
        return Image.fromarray(np.zeros((4, 5), np.uint8)), {"boxes": i}
'''


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Something in torchvision's place that has its ways, two of telling a class which part it is to be."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").touch()
    (tmp_path / "torchvision" / "datasets.py").write_text(textwrap.dedent(LIBRARY))
    for folder in ("there", "empty"):
        (tmp_path / folder).mkdir()
    yield tmp_path
    for name in ("torchvision", "torchvision.datasets"):
        sys.modules.pop(name, None)


def vision(name: str, **more: Any) -> dict[str, Any]:
    return {"set": "torchvision", "directory": "there", "name": name, **more}


def test_either_way_of_naming_a_part_is_taken(library: Path) -> None:
    found = load(vision("ByTrain"))
    assert (found.input_shape, found.classes, found.train_y.tolist()) == ((1, 4, 5), 3, [0, 1, 2] * 4)
    assert found.train_x[7].max() == 7                                  # type: ignore[union-attr]
    assert found.scale == 255.0
    assert len(found.test_y) == 6
    assert load(vision("BySplit", test="val")).input_shape == (3, 4, 5)
    assert len(load(vision("BySplit", test="val")).test_y) == 4
    assert load(vision("Emnist", options={"split": "letters"})).train_y.tolist() == found.train_y.tolist()


@pytest.mark.parametrize(("name", "more", "said"), [
    ("BySplitt", {}, 'torchvision.datasets: unknown class "BySplitt"; did you mean "BySplit"\\?'),
    ("VisionDataset", {}, 'torchvision.datasets: unknown class "VisionDataset"; .*'),
    ("ByTrain", {"directory": "empty"}, r"empty: torchvision reads no ByTrain \(train=True\) there: Dataset not .*"),
    ("ByTrain", {"options": {"fold": 1}}, r"there: torchvision reads no ByTrain .*unexpected keyword .* 'fold'.*"),
    ("Whole", {}, "torchvision's Whole has no parts for training and test: .*"),
    ("Sizes", {}, r"Sizes in there: expected images of one size, found \(4, 5\) and \(4, 6\); .*"),
    ("Boxes", {}, "Boxes in there: expected a class for each image, found dict")])
def test_what_torchvision_cannot_give_is_told(library: Path, name: str, more: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=f"^{said}$"):
        load(vision(name, **more))


def test_a_torchvision_that_does_not_fit_torch_is_told(library: Path) -> None:
    (library / "torchvision" / "__init__.py").write_text(
        "raise RuntimeError('operator torchvision::nms does not exist')")
    with pytest.raises(DataError, match=r"torchvision cannot be imported: RuntimeError: operator torchvision::nms does "
                                        r"not exist; expected a torchvision for this torch$"):
        load(vision("ByTrain"))
    assert missing(vision("ByTrain")) is None                           # what the files tell needs no library
    assert missing({"set": "torchvision", "directory": "there"}) == (
        'data set "torchvision": expected name, the name of a class of torchvision.datasets, found None')
