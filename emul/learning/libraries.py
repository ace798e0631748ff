"""Data sets of other libraries, from disk: Hugging Face `datasets` and torchvision. Nothing is downloaded.

    huggingface   what `save_to_disk` of a DatasetDict left: Arrow and JSON
    torchvision   what a class of `torchvision.datasets` finds in its folder

Both give the arrays that `emul.learning.own_data` takes. The libraries are imported when a set of theirs is read.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from emul.base.plain import PlainMapping
from emul.learning.dataset import DataError

HUGGINGFACE, TORCHVISION = "huggingface", "torchvision"
KEYS = {HUGGINGFACE: ("x", "y", "columns", "train", "test"), TORCHVISION: ("name", "options", "train", "test")}
_SPLITS = "dataset_dict.json"           # a folder with this file is a DatasetDict

Arrays = dict[str, Any]


def read(spec: PlainMapping) -> tuple[Arrays, Sequence[str]]:
    """The arrays of `{"set": "huggingface" or "torchvision", "directory": path, ...}`, and the names of its classes
    where the library knows them. Raises DataError."""
    if reason := missing(spec):
        raise DataError(reason)
    return _READERS[spec["set"]](spec)


def missing(spec: Mapping[str, object]) -> str | None:
    """The reason why such a set cannot be read, as far as its description and file names tell; None: nothing is
    wrong."""
    name, directory = spec["set"], spec.get("directory")
    if not isinstance(directory, str) or not directory:
        return f'data set "{name}": expected the directory that it is in'
    for key in ("y",) if name == HUGGINGFACE else ("name",):
        if not isinstance(spec.get(key), str):
            return f'data set "{name}": expected {key}, the name of {_WHAT[key]}, found {spec.get(key)!r}'
    folder = Path(directory).expanduser()
    if not folder.is_dir():
        return f"{folder}: expected a folder; it does not exist"
    if name == HUGGINGFACE and not (folder / _SPLITS).is_file():
        return (f"{folder}: expected {_SPLITS} and a folder for each split, as save_to_disk of a DatasetDict leaves "
                "them; a Dataset without splits gets them by train_test_split")
    return None


_WHAT = {"y": "the column of targets", "name": "a class of torchvision.datasets"}


# --- Hugging Face -------------------------------------------------------------------------------------------------

def _huggingface(spec: PlainMapping) -> tuple[Arrays, Sequence[str]]:
    library = _library("datasets", "load_from_disk", HUGGINGFACE)
    folder = Path(spec["directory"]).expanduser()
    try:
        splits = library.load_from_disk(str(folder))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder}: no data set of Hugging Face: {_line(error)}") from error
    x, columns = _list(spec.get("x"), "x"), _list([] if spec.get("columns") is None else spec["columns"], "columns")
    arrays: Arrays = {}
    for part in ("train", "test"):
        split = _known(str(spec.get(part) or part), splits, f"{folder}: {part}: unknown split")
        read = [_column(splits[split], column, folder) for column in (*x, spec["y"], *columns)]
        inputs, targets, others = read[:len(x)], read[len(x)], read[len(x) + 1:]
        arrays[f"{part}_x"] = inputs[0] if isinstance(spec["x"], str) else dict(zip(x, inputs, strict=True))
        arrays[f"{part}_y"] = targets
        arrays |= {f"{part}_{name}": values for name, values in zip(columns, others, strict=True)}
    found = arrays["train_x"]
    checked = [*(found.values() if isinstance(found, dict) else [found]), arrays["train_y"]]
    for name, array in zip((*x, spec["y"]), checked, strict=True):
        if array.dtype.kind not in "iuf":
            raise DataError(f'{folder}: column "{name}": expected numbers, found {array.dtype}; make tokens or classes '
                            "of text before save_to_disk")
    return arrays, getattr(splits[str(spec.get("train") or "train")].features[spec["y"]], "names", ())


def _column(split: Any, column: str, folder: Path) -> np.ndarray:
    """All values of a column, (n, ...); images as (n, channels, height, width)."""
    _known(column, split.features, f"{folder}: unknown column")
    values = split.with_format("numpy")[column][:]
    array = values if isinstance(values, np.ndarray) else np.asarray(values, dtype=object)
    if array.dtype.hasobject:
        raise DataError(f'{folder}: column "{column}": expected values of one shape, found several; pad, cut or resize '
                        "them before save_to_disk")
    return _channels_first(array) if type(split.features[column]).__name__ == "Image" else array


def _list(value: object, key: str) -> list[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names) or (
            key == "x" and not names):
        raise DataError(f'data set "{HUGGINGFACE}": expected {key}, the name of a column or a list of names, found '
                        f"{value!r}")
    return list(names)


# --- torchvision --------------------------------------------------------------------------------------------------

def _torchvision(spec: PlainMapping) -> tuple[Arrays, Sequence[str]]:
    library = _library("torchvision.datasets", "VisionDataset", TORCHVISION)
    sets = [name for name, each in vars(library).items() if inspect.isclass(each)
            and issubclass(each, library.VisionDataset) and each is not library.VisionDataset]
    made = getattr(library, _known(spec["name"], sets, "torchvision.datasets: unknown class"))
    options = dict(spec.get("options") or {})
    key = _part_key(made, options)
    arrays: Arrays = {}
    for part in ("train", "test"):
        value = part == "train" if key == "train" else str(spec.get(part) or part)
        try:
            found = made(str(Path(spec["directory"]).expanduser()), **options, **{key: value})
        except Exception as error:                  # any error of the class at files and options
            raise DataError(f"{spec['directory']}: torchvision reads no {spec['name']} ({key}={value!r}) there: "
                            f"{_line(error)}; with download=True torchvision fetches it, once") from error
        arrays[f"{part}_x"], arrays[f"{part}_y"] = _samples(found, f"{spec['name']} in {spec['directory']}")
    return arrays, getattr(found, "classes", ())


def _part_key(made: Any, options: PlainMapping) -> str:
    """The argument that tells a class which part to load: `train` or `split`."""
    takes = inspect.signature(made).parameters
    if "train" in takes or "split" in options:          # EMNIST has both, and says `train` in **kwargs
        return "train"
    if "split" in takes:
        return "split"
    raise DataError(f"torchvision's {made.__name__} has no parts for training and test: make them in a function of "
                    "yours, see docs/own-task.md")


def _samples(found: Any, where: str) -> tuple[np.ndarray, np.ndarray]:
    """(n, channels, height, width) and (n,)."""
    x: np.ndarray | None = None
    y = np.empty(len(found), np.int64)
    for i in range(len(found)):
        image, label = found[i]
        pixels = np.asarray(image)
        if x is None:
            x = np.empty((len(found), *pixels.shape), pixels.dtype)
        if pixels.shape != x.shape[1:]:
            raise DataError(f"{where}: expected images of one size, found {x.shape[1:]} and {pixels.shape}; resize "
                            "them in a function of yours, see docs/own-task.md")
        if not isinstance(label, int | np.integer):
            raise DataError(f"{where}: expected a class for each image, found {type(label).__name__}")
        x[i], y[i] = pixels, label
    if x is None:
        raise DataError(f"{where}: expected images, found none")
    return (x if hasattr(image, "detach") else _channels_first(x)), y


# --- both ---------------------------------------------------------------------------------------------------------

def _channels_first(pixels: np.ndarray) -> np.ndarray:
    """(n, height, width) or (n, height, width, channels) as (n, channels, height, width)."""
    return np.ascontiguousarray(pixels[:, None] if pixels.ndim == 3 else pixels.transpose(0, 3, 1, 2))


def _library(module: str, needs: str, extra: str) -> Any:
    """The module of a library. Raises DataError: it is not installed, does not fit torch, or something hides it."""
    package = module.partition(".")[0]
    try:
        found = importlib.import_module(module)
    except Exception as error:          # torchvision built for another torch raises RuntimeError, or OSError
        absent = isinstance(error, ModuleNotFoundError)
        how = f"pip install 'emul[{extra}]'" if absent else f"a {package} for this torch"
        raise DataError(f'data set "{extra}": {package} cannot be imported: {type(error).__name__}: {_line(error)}; '
                        f"expected {how}") from error
    if not hasattr(found, needs):
        where = getattr(found, "__file__", None) or next(iter(getattr(found, "__path__", ["?"])))
        raise DataError(f'data set "{extra}": expected the library {package}, found {where}, which hides it')
    return found


def _known(name: str, names: Iterable[str], otherwise: str) -> str:
    known = [str(each) for each in names]
    if name in known:
        return name
    near = get_close_matches(name, known, n=1)
    raise DataError(f'{otherwise} "{name}"; ' + (f'did you mean "{near[0]}"?' if near else
                                                f"there are: {', '.join(known[:20])}"))


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


_READERS: dict[str, Callable[[PlainMapping], tuple[Arrays, Sequence[str]]]] = {
    HUGGINGFACE: _huggingface, TORCHVISION: _torchvision}
