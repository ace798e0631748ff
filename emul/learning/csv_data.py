"""Data sets from CSV files, without code: one row a sample, the names of the columns in the first line.

`directory` is one file, of which a share becomes the test samples, or a folder with train.csv and test.csv. Gives the
arrays that `emul.learning.own_data` takes. Nothing of a file is executed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from emul.base.streams import generator
from emul.learning.dataset import DataError
from emul.learning.names import unknown

if TYPE_CHECKING:
    import pyarrow as pa

CSV = "csv"
KEYS = ("x", "y", "columns", "test")
TEST = 0.2                      # share of the rows of one file that are test samples
_PARTS = ("train", "test")
_MOST_TEXTS = 100               # different texts of a column that becomes a column for each of them

Arrays = dict[str, Any]


def missing(spec: Mapping[str, object]) -> str | None:
    """The reason why such a set cannot be read, as far as its description and the names of files tell; None: none."""
    directory, test = spec.get("directory"), spec.get("test")
    if not isinstance(directory, str) or not directory:
        return f'data set "{CSV}": expected directory: a file, or a folder with train.csv and test.csv'
    if not isinstance(spec.get("y"), str):
        return f'data set "{CSV}": expected y, the name of the column of targets, found {spec.get("y")!r}'
    for key in ("x", "columns"):
        if not _are_names(spec.get(key)):
            return f'data set "{CSV}": expected {key}, the name of a column or a list of names, found {spec[key]!r}'
    if test is not None and (isinstance(test, bool) or not isinstance(test, int | float) or not 0 < test < 1):
        return f'data set "{CSV}": expected test, a share of the rows between 0 and 1, found {test!r}'
    place = Path(directory).expanduser()
    absent = [file for file in _files(place).values() if not file.is_file()]
    if absent:
        return f"{absent[0]}: there is no such file"
    if place.is_dir() and test is not None:
        return f"{place}: test.csv has the test samples; `test: {test}` is for one file"
    return None


def read(spec: Mapping[str, Any]) -> Arrays:
    """The arrays of `{"set": "csv", "directory": path, "y": column, ...}`.

    Columns of numbers are standardised by the training rows, unless the spec says `normalise`; one of texts becomes a
    column of zeros and ones for each of its texts. Targets that are texts are classes in alphabetical order. Raises
    DataError.
    """
    if reason := missing(spec):
        raise DataError(reason)
    files = _files(Path(spec["directory"]).expanduser())
    tables = {part: _table(file) for part, file in files.items()}
    first = next(iter(files))
    names = tables[first].column_names
    others, y = _names(spec.get("columns")), spec["y"]
    inputs = _names(spec.get("x")) or [name for name in names if name not in (y, *others)]
    values = {part: {name: _column(tables[part], name, file) for name in (*inputs, y, *others)}
              for part, file in files.items()}
    if len(files) == 1:
        values = _split(values[first], float(spec.get("test") or TEST))
    train, test = (values[part] for part in _PARTS)
    plain = spec.get("normalise") is not None
    x = [_features(train[name], test[name], name, files[first], plain) for name in inputs]
    if not x:
        raise DataError(f"{files[first]}: expected columns of inputs beside {y}, found none")
    targets = _targets(train[y], test[y])
    arrays: Arrays = {}
    for i, part in enumerate(_PARTS):
        arrays[f"{part}_x"] = np.concatenate([both[i] for both in x], axis=1)
        arrays[f"{part}_y"] = targets[i]
        arrays |= {f"{part}_{name}": values[part][name] for name in others}
    return arrays


def _files(place: Path) -> dict[str, Path]:
    return {part: place / f"{part}.csv" for part in _PARTS} if place.is_dir() else {"train": place}


def _are_names(value: object) -> bool:
    return value is None or isinstance(value, str) or (
        isinstance(value, list | tuple) and all(isinstance(name, str) for name in value))


def _names(value: str | Sequence[str] | None) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def _table(file: Path) -> pa.Table:
    """The file; commas, semicolons or tabs stand between its values, whichever the first line has most of."""
    import pyarrow as pa
    from pyarrow import csv

    try:
        with file.open(encoding="utf-8-sig") as opened:
            head = opened.readline()
        between = max(",;\t", key=head.count)
        found = csv.read_csv(file, parse_options=csv.ParseOptions(delimiter=between, newlines_in_values=True))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(f"{file}: no CSV file: {' '.join(str(error).split())[:200]}") from None
    twice = [name for name in found.column_names if found.column_names.count(name) > 1]
    if twice:
        raise DataError(f'{file}: two columns are called "{twice[0]}"')
    return found


def _column(table: pa.Table, name: str, file: Path) -> np.ndarray:
    """(n,) integers, floats or texts; truth values as 0 and 1."""
    import pyarrow as pa

    if name not in table.column_names:
        raise DataError(f"{file}: {unknown('column', table.column_names, name)}")
    column = table[name]
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise DataError(f'{file}: line {row + 2}: no value in column "{name}"; leave such rows out, or fill them in')
    kind = column.type
    if pa.types.is_boolean(kind):
        return np.asarray(column.to_pylist(), np.int64)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_string(kind)):
        raise DataError(f'{file}: column "{name}": expected numbers or texts, found {kind}; name the columns of inputs '
                        "in x to leave it out")
    found: np.ndarray = column.to_numpy()
    if pa.types.is_floating(kind) and not np.isfinite(found).all():
        row = int(np.flatnonzero(~np.isfinite(found))[0])
        raise DataError(f'{file}: line {row + 2}: column "{name}": expected a finite number, found {found[row]}')
    return found.astype(str) if found.dtype.hasobject else found


def _split(columns: dict[str, np.ndarray], share: float) -> dict[str, dict[str, np.ndarray]]:
    """The rows of one file as training and test samples, the same in every run."""
    n = len(next(iter(columns.values())))
    order = generator(0, "data", CSV).permutation(n)            # seed 0: not the scenario's
    count = min(max(1, round(share * n)), n - 1)
    chosen = {"train": np.sort(order[count:]), "test": np.sort(order[:count])}
    return {part: {name: values[rows] for name, values in columns.items()} for part, rows in chosen.items()}


def _features(train: np.ndarray, test: np.ndarray, name: str, file: Path, plain: bool) -> list[np.ndarray]:
    """(n, k) float32 of a column, for training and test."""
    if train.dtype.kind == "U":
        texts = np.unique(np.concatenate([train, test]))
        if len(texts) > _MOST_TEXTS:
            raise DataError(f'{file}: column "{name}" has {len(texts):,} different texts, such as "{texts[0]}" and '
                            f'"{texts[-1]}", expected numbers or at most {_MOST_TEXTS}; name the columns of inputs in '
                            "x to leave it out")
        return [(part[:, None] == texts).astype(np.float32) for part in (train, test)]
    if test.dtype.kind == "U":
        raise DataError(f'{file.with_name("test.csv")}: column "{name}": expected numbers, as train.csv has, '
                        "found texts")
    mean, std = (0.0, 1.0) if plain else (float(train.mean()), float(train.std()) or 1.0)
    return [((part - mean) / std).astype(np.float32)[:, None] for part in (train, test)]


def _targets(train: np.ndarray, test: np.ndarray) -> list[np.ndarray]:
    """Integers as they are: classes. Texts: the number of each in alphabetical order. Else floats."""
    if train.dtype.kind == "U" or test.dtype.kind == "U":
        texts = np.unique(np.concatenate([train.astype(str), test.astype(str)]))
        return [np.searchsorted(texts, part.astype(str)) for part in (train, test)]
    return [train, test] if train.dtype.kind == test.dtype.kind else [train.astype(float), test.astype(float)]
