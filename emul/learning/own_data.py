"""Data sets of users: what their function gives, checked and made a `DataSet`.

`(spec) -> {"train_x", "train_y", "test_x", "test_y"}`, spec being `task.data` of the scenario. Inputs are arrays
(n, ...), or {name: array} where a sample has several tensors; targets are labels (n,), or integers or floats (n, ...).
Any `train_NAME` (n,), with `test_NAME` or without, is a column: what else is known of a sample, such as who wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from emul.base.plain import PlainMapping
from emul.learning.dataset import (
    IGNORED,
    PARTS,
    Column,
    DataError,
    DataSet,
    is_token,
    levels_of,
    mapped,
    views,
)
from emul.learning.names import DATA, find


def load(name: str, spec: PlainMapping, plugins: Sequence[str] = ()) -> DataSet | None:
    """The data set that somebody offers under this name; None: nobody does. Raises DataError."""
    make = find(DATA, name, plugins)
    if make is None:
        return None
    return made(name, spec, make(spec))


def made(name: str, spec: PlainMapping, given: Any) -> DataSet:
    """The data set of arrays by name, checked. Raises DataError."""
    if not isinstance(given, Mapping):
        raise DataError(f'data set "{name}": expected a dict with {", ".join(PARTS)}, found {type(given).__name__}')
    absent = [part for part in PARTS if part not in given]
    if absent:
        raise DataError(f'data set "{name}": expected the arrays {", ".join(PARTS)}, {", ".join(absent)} not given')
    arrays = {part: mapped(_plain, given[part]) for part in PARTS}
    _check(name, arrays)
    mean, std = levels_of(name, spec, arrays, 0.0, 1.0)
    parts = arrays["train_x"].values() if isinstance(arrays["train_x"], dict) else [arrays["train_x"]]
    scale = 255.0 if any(part.dtype == np.uint8 for part in parts) else 1.0
    return DataSet(name, **views(arrays), classes=_classes(name, arrays), scale=scale, mean=mean, std=std,
                   columns=_columns(name, given))


def array_files(directory: str | None) -> dict[str, Path]:
    """The files of the arrays of a set that is kept as files: name -> file; of an archive each name -> the archive.

    directory: an .npz, or a folder with train_x.npy and others. Raises DataError.
    """
    if not directory:
        raise DataError('data set "arrays": expected a directory: an .npz, or a folder with train_x.npy, ...')
    place = Path(directory).expanduser()
    try:
        if place.is_dir():
            files = {file.stem: file for file in sorted(place.glob("*.npy"))}
        else:
            with np.load(place, allow_pickle=False) as archive:
                files = dict.fromkeys(archive.files, place)
    except (OSError, ValueError, BadZipFile, AttributeError) as error:
        said = getattr(error, "strerror", None) or "no archive of NumPy arrays"
        raise DataError(f"{place}: {said}") from None
    absent = [part for part in PARTS if part not in files]
    if absent:
        raise DataError(f"{place}: expected the arrays {', '.join(PARTS)}, {', '.join(absent)} not there")
    return files


def read_arrays(directory: str | None) -> dict[str, np.ndarray]:
    """All arrays of such a set. Nothing of the files is executed. Raises DataError."""
    found = {}
    for name, file in array_files(directory).items():
        try:
            with file.open("rb") as opened:
                loaded = np.load(opened, allow_pickle=False)
                found[name] = np.asarray(loaded[name] if file.suffix != ".npy" else loaded)
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise DataError(f"{file}: {name}: no array of numbers ({' '.join(str(error).split())[:100]})") from None
    return found


def _plain(array: object) -> np.ndarray:
    """As it is stored: floats as float32, integers as they are."""
    found = np.asarray(array)
    return found.astype(np.float32) if found.dtype.kind == "f" and found.dtype != np.float32 else found


def _classes(name: str, arrays: Mapping[str, Any]) -> int:
    """One more than the largest target; 0 where targets are floats."""
    if arrays["train_y"].dtype.kind == "f":
        return 0
    targets = np.concatenate([arrays[part].reshape(-1) for part in ("train_y", "test_y")])
    if arrays["train_y"].ndim > 1:
        targets = targets[targets != IGNORED]
    if targets.size and targets.min() < 0:
        raise DataError(f'data set "{name}": expected targets of 0 or more, found {targets.min()}')
    return int(targets.max(initial=0)) + 1


def _columns(name: str, given: Mapping[str, Any]) -> dict[str, Column]:
    """The arrays that are given beside the four parts, by name."""
    found = {}
    for key in given:
        kind, _, column = key.partition("_")
        if key in PARTS or (kind == "test" and f"train_{column}" in given):
            continue
        if kind != "train" or not column:
            raise DataError(f'data set "{name}": expected {", ".join(PARTS)} and columns train_NAME, test_NAME; '
                            f'found "{key}"')
        test = given.get(f"test_{column}")
        found[column] = Column(np.asarray(given[key]), None if test is None else np.asarray(test))
        for part, values in (("train", found[column].train), ("test", found[column].test)):
            if values is not None and values.shape != (len(given[f"{part}_y"]),):
                raise DataError(f'data set "{name}": {part}_{column}: expected one value for each of the '
                                f"{len(given[f'{part}_y'])} samples, found an array of shape {values.shape}")
    return found


def _check(name: str, arrays: Mapping[str, Any]) -> None:
    """Raise DataError unless inputs and targets can be trained on."""
    def wrong(expected: str, found: object) -> DataError:
        return DataError(f'data set "{name}": expected {expected}, found {found}')

    if len(arrays["train_y"]) == 0:
        raise wrong("training samples", "none")
    for kind in ("train", "test"):
        x, y = arrays[f"{kind}_x"], arrays[f"{kind}_y"]
        parts = x if isinstance(x, dict) else {f"{kind}_x": x}
        if y.ndim == 0 or y.dtype.kind not in "iuf":
            raise wrong(f"integers or floats for {kind}_y, (n, ...)", f"{y.dtype} of shape {y.shape}")
        for key, array in parts.items():
            if array.dtype.kind not in "iuf":
                raise wrong(f"numbers for {key}", array.dtype)
            if array.ndim == 0 or len(array) != len(y):
                count = len(array) if array.ndim else "no"
                raise wrong(f"one target per {kind} sample", f"{count} samples in {key}, targets of shape {y.shape}")
    shapes = [mapped(lambda part: (part.shape[1:], is_token(part.dtype)), arrays[f"{kind}_x"])
              for kind in ("train", "test")]
    if shapes[0] != shapes[1]:
        raise wrong("samples of one shape and type for training and test",
                    " and ".join(str(mapped(lambda s: s[0], shape)) for shape in shapes))
    if (arrays["train_y"].shape[1:], arrays["train_y"].dtype.kind == "f") != (
            arrays["test_y"].shape[1:], arrays["test_y"].dtype.kind == "f"):
        raise wrong("targets of one shape and type for training and test",
                    f"{arrays['train_y'].dtype} {arrays['train_y'].shape[1:]} and {arrays['test_y'].dtype} "
                    f"{arrays['test_y'].shape[1:]}")
