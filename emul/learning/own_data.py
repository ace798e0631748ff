"""Data sets of users: what their function gives, checked and made a `DataSet`.

`(spec) -> {"train_x", "train_y", "test_x", "test_y"}`, spec being `task.data` of the scenario. Inputs are arrays
(n, ...), or {name: array} where a sample has several tensors; targets are labels (n,), or integers or floats (n, ...).
Any `train_NAME` (n,), with `test_NAME` or without, is a column: what else is known of a sample, such as who wrote it.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

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

Arrays = Mapping[str, Any]              # name -> array, or what should be one
_MOST_BYTES = 2**32                     # of the arrays of an archive, and for each byte of its file this many more
_BYTES_A_BYTE = 64
_FEW = 100                              # different targets that may be classes


def load(name: str, spec: PlainMapping, plugins: Sequence[str] = ()) -> DataSet | None:
    """The data set that somebody offers under this name; None: nobody does. Raises DataError."""
    make = find(DATA, name, plugins)
    if make is None:
        return None
    return made(name, spec, make(spec))


def made(name: str, spec: PlainMapping, given: object, notes: Sequence[str] = (), class_names: Sequence[str] = (),
         ) -> DataSet:
    """The data set of arrays by name, checked. notes: what is to be told of it. class_names: of targets that are
    integers. Raises DataError."""
    if not isinstance(given, Mapping):
        raise DataError(f'data set "{name}": expected a dict with {", ".join(PARTS)}, found {type(given).__name__}')
    absent = [part for part in PARTS if part not in given]
    if absent:
        raise DataError(f'data set "{name}": expected the arrays {", ".join(PARTS)}, {", ".join(absent)} not given')
    arrays = {part: mapped(np.asarray, given[part]) for part in PARTS}
    arrays["train_y"], arrays["test_y"], texts, said = _labels(arrays)
    arrays = {part: mapped(_plain, arrays[part]) for part in PARTS}
    _check(name, arrays)
    mean, std = levels_of(name, spec, arrays, 0.0, 1.0)
    parts = arrays["train_x"].values() if isinstance(arrays["train_x"], dict) else [arrays["train_x"]]
    scale = 255.0 if any(part.dtype == np.uint8 for part in parts) else 1.0
    return DataSet(name, **views(arrays), classes=_classes(name, arrays), scale=scale, mean=mean, std=std,
                   columns=_columns(name, given), notes=(*notes, *said), warnings=tuple(_doubtful(name, spec, arrays)),
                   class_names=texts or tuple(map(str, class_names)))


def array_files(directory: str | None) -> dict[str, Path]:
    """The files of the arrays of a set that is kept as files: name -> file; of an archive each name -> the archive.

    directory: an .npz, or a folder with train_x.npy and others. Raises DataError.
    """
    if not directory:
        raise DataError('data set "arrays": expected a directory: an .npz, or a folder with train_x.npy, ...')
    place = Path(directory).expanduser()
    if place.is_dir():
        files = {file.stem: file for file in sorted(place.glob("*.npy"))}
    else:
        try:
            if place.exists() and not place.is_file():
                raise ValueError
            with np.load(place, allow_pickle=False) as archive:
                files = dict.fromkeys(archive.files, place)
        except OSError as error:
            raise DataError(f"{place}: {error.strerror or 'no archive of NumPy arrays'}") from None
        except Exception:           # NumPy and zipfile let out what a garbled file makes of them
            raise DataError(f"{place}: no archive of NumPy arrays") from None
    absent = [part for part in PARTS if part not in files]
    if absent:
        there = f"; there are {', '.join(sorted(files)[:20])}" if files else ""
        raise DataError(f"{place}: expected the arrays {', '.join(PARTS)}, {', '.join(absent)} not there{there}")
    return files


def read_arrays(directory: str | None) -> dict[str, np.ndarray]:
    """All arrays of such a set. Nothing of the files is executed. Raises DataError."""
    found = {}
    for name, file in array_files(directory).items():
        try:
            if not file.is_file():          # to open a pipe would wait for ever
                raise ValueError("is no regular file")
            if file.suffix == ".npy":
                found[name] = np.asarray(np.load(file, allow_pickle=False))
            else:
                _require_fitting(file)
                with np.load(file, allow_pickle=False) as archive:
                    found[name] = np.asarray(archive[name])
        except Exception as error:      # as above; a MemoryError where a header asks for more than there is
            raise DataError(f"{file}: {name}: no array of numbers ({' '.join(str(error).split())[:100]})") from None
    return found


def _require_fitting(archive: Path) -> None:
    """Raises ValueError for an archive that holds far more than its own size: 10 MB of zeros make 10 GB."""
    with zipfile.ZipFile(archive) as members:
        size = sum(member.file_size for member in members.infolist())
    most = _MOST_BYTES + _BYTES_A_BYTE * archive.stat().st_size
    if size > most:
        raise ValueError(f"the archive holds {size:,} bytes, expected at most {most:,} in a file of this size")


def _plain(found: np.ndarray) -> np.ndarray:
    """As it is stored: floats and truth values as float32, integers as they are. Images of 16 bits become [0, 1], as
    those of 8 bits do; rows of such integers may be tokens."""
    if found.dtype == np.uint16 and found.ndim > 2:
        return (found / np.float32(65535)).astype(np.float32)
    return found.astype(np.float32) if found.dtype.kind in "fb" and found.dtype != np.float32 else found


def _labels(arrays: Arrays) -> tuple[np.ndarray, np.ndarray, tuple[str, ...], list[str]]:
    """Targets of training and test, the names of their classes, and what was made of them: texts and truth values are
    classes in their order, a column of integers (n, 1) is (n,), and rows of one 1 among zeros, (n, C), say which of C
    classes."""
    both = train, test = arrays["train_y"], arrays["test_y"]
    kinds = {y.dtype.kind for y in both}
    if any(y.ndim == 2 and y.shape[1] == 1 for y in both) and kinds <= set("iubUS") and not _is_row(arrays["train_x"]):
        both = train, test = tuple(y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y for y in both)
    if kinds <= set("US") and all(y.ndim == 1 for y in both):
        classes = np.unique(np.concatenate(both))
        named = tuple(one.decode(errors="replace") if isinstance(one, bytes) else one for one in classes.tolist())
        return (np.asarray(np.searchsorted(classes, train)), np.asarray(np.searchsorted(classes, test)), named,
                [f"targets are texts: {len(classes):,} classes in alphabetical order, {', '.join(named[:5])}"
                 + (", ..." if len(classes) > 5 else "")])
    if kinds == {"b"} and all(y.ndim == 1 for y in both):
        return train.astype(np.int64), test.astype(np.int64), ("False", "True"), []
    if kinds == {"b"}:
        train, test = both = train.astype(np.int64), test.astype(np.int64)
    if kinds <= set("iufb") and not _is_row(arrays["train_x"]) and train.shape[1:] == test.shape[1:] and all(
            y.ndim == 2 and y.shape[1] > 1 and bool(((y == 1).sum(1) == 1).all() and ((y == 0) | (y == 1)).all())
            for y in both) and len(train):
        return train.argmax(1), test.argmax(1), (), [
            f"targets are rows with one 1: labels of {train.shape[1]} classes"]
    return train, test, (), []


def _is_row(x: object) -> bool:
    """True of rows of tokens, whose targets are rows, too."""
    return isinstance(x, np.ndarray) and is_token(x.dtype)


def _doubtful(name: str, spec: PlainMapping, arrays: Arrays) -> Iterator[str]:
    """Warnings of values that a run takes as they are, and hardly anybody wants."""
    x = arrays["train_x"]
    if isinstance(x, np.ndarray) and x.dtype.kind == "f" and x.ndim > 2 and x.size and not spec.get("normalise"):
        least, most = float(x.min()), float(x.max())
        if least >= 0 and 100 < most <= 255:
            yield (f'data set "{name}": train_x: floats from {least:g} to {most:g}, which stay as they are; pixels are '
                   "scaled to [0, 1] where they are uint8, or by normalise: {mean: 0, std: 255}")
    if isinstance(x, np.ndarray) and x.ndim == 4 and x.shape[3] in (1, 3, 4) and x.shape[1] not in (1, 3, 4):
        yield (f'data set "{name}": train_x: samples of shape {x.shape[1:]} look as if their channels came last; '
               "images are (n, channels, height, width)")
    yield from _doubtful_targets(name, arrays["train_y"], arrays["test_y"])
    for part in PARTS:
        each = arrays[part] if isinstance(arrays[part], dict) else {part: arrays[part]}
        for key, array in each.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                wrong = ~np.isfinite(array.reshape(len(array), -1)).all(axis=1)
                yield (f'data set "{name}": {key}: {wrong.sum():,} of {len(array):,} samples hold a number that is not '
                       f"finite, the first of them is {int(wrong.argmax())}; a training on one gives NaN")


def _doubtful_targets(name: str, train: np.ndarray, test: np.ndarray) -> Iterator[str]:
    """Warnings of targets (n,) that are labels as floats, and of labels that training or all samples lack."""
    if train.ndim != 1 and train.shape[1:] != (1,):
        return
    there = np.unique(train)
    if train.dtype.kind == "f":
        if len(there) <= _FEW and np.isfinite(there).all() and (there == there.round()).all() and there[0] >= 0:
            yield (f'data set "{name}": train_y: floats that are whole numbers, {_some(there)}: a regression; for '
                   "classes give integers, or name the column of a CSV file in categories")
        return
    both = np.union1d(there, test)
    if both.size and both[0] >= 0 and (absent := int(both[-1]) + 1 - len(both)):
        yield (f'data set "{name}": {absent:,} of {int(both[-1]) + 1:,} classes have no sample: labels are '
               f"{_some(both)}, and a model has an output for each number up to the largest")
    if len(unseen := np.setdiff1d(test, there)):
        yield f'data set "{name}": no training sample has the labels {_some(unseen)}, which test samples have'


def _some(values: np.ndarray) -> str:
    return ", ".join(f"{value:g}" for value in values[:5]) + (", ..." if len(values) > 5 else "")


def _classes(name: str, arrays: Arrays) -> int:
    """One more than the largest target; 0 where targets are floats."""
    if arrays["train_y"].dtype.kind == "f":
        return 0
    targets = np.concatenate([arrays[part].reshape(-1) for part in ("train_y", "test_y")])
    if arrays["train_y"].ndim > 1:
        targets = targets[targets != IGNORED]
    if targets.size and targets.min() < 0:
        raise DataError(f'data set "{name}": expected targets of 0 or more, found {targets.min()}')
    return int(targets.max(initial=0)) + 1


def _columns(name: str, given: Arrays) -> dict[str, Column]:
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


def _check(name: str, arrays: Arrays) -> None:
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
