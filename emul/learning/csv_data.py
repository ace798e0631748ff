"""Data sets from CSV files, without code: one row a sample, the names of the columns in the first line.

`directory` is one file, of which a share becomes the test samples, or a folder with train.csv and test.csv. Gives the
arrays that `emul.learning.own_data` takes. Nothing of a file is executed.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from emul.base import tables
from emul.base.plain import PlainMapping
from emul.base.streams import generator
from emul.learning.dataset import DataError
from emul.learning.names import unknown

if TYPE_CHECKING:
    import pyarrow as pa

CSV = "csv"
KEYS = ("x", "y", "columns", "test", "missing", "categories")
TEST = 0.2                      # share of the rows of one file that are test samples
MISSING = ("refuse", "drop", "mean")
_MARKS = sorted({*tables.MISSING, "#n/a", "#na", "-nan", "<na>"})       # of no value among numbers, in lower case
_PARTS = ("train", "test")
_UNNAMED = ("", "Unnamed: 0")
_MOST_TEXTS = 100               # different texts of a column that becomes a column for each of them
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_THOUSANDS = r"^[+-]?\d{1,3}(,\d{3})+$"
# also 1.234,56 and 1 234 and 12 %, $5 and 5.5 kg, and what spreadsheets set for a minus
_LIKE_NUMBER = r"^[+\-\x{2212}]?[$€£¥]? ?[+-]?[\d.,' ]*\d[\d.,' ]*([eE][+-]?\d+)?\s*[%$€£¥°\p{L}/]{0,10}$"

Arrays = dict[str, Any]


def missing(spec: Mapping[str, object]) -> str | None:
    """The reason why such a set cannot be read, as far as its description and the names of files tell; None: none."""
    directory, test = spec.get("directory"), spec.get("test")
    if not isinstance(directory, str) or not directory:
        return f'data set "{CSV}": expected directory: a file, or a folder with train.csv and test.csv'
    if not isinstance(spec.get("y"), str):
        return f'data set "{CSV}": expected y, the name of the column of targets, found {spec.get("y")!r}'
    for key in ("x", "columns", "categories"):
        names = spec.get(key)
        if names is not None and not isinstance(names, str) and not (
                isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)):
            return f'data set "{CSV}": expected {key}, the name of a column or a list of names, found {spec[key]!r}'
    if test is not None and (isinstance(test, bool) or not isinstance(test, int | float) or not 0 < test < 1):
        return f'data set "{CSV}": expected test, a share of the rows between 0 and 1, found {test!r}'
    if spec.get("missing", MISSING[0]) not in MISSING:
        return f'data set "{CSV}": expected missing, one of {", ".join(MISSING)}, found {spec["missing"]!r}'
    place = Path(directory).expanduser()
    absent = [file for file in _files(place).values() if not file.is_file()]
    if absent:
        return f"{absent[0]}: there is no such file"
    if place.is_dir() and test is not None:
        return f"{place}: test.csv has the test samples; `test: {test}` is for one file"
    return None


def read(spec: PlainMapping, notes: list[str] | None = None) -> Arrays:
    """The arrays of `{"set": "csv", "directory": path, "y": column, ...}`.

    Columns of numbers are standardised by the training rows, unless the spec says `normalise`; one of texts becomes a
    column of zeros and ones for each of its texts. Targets that are texts are classes in alphabetical order. notes: one
    is added that says what became of each column. Raises DataError.
    """
    if reason := missing(spec):
        raise DataError(reason)
    files = _files(Path(spec["directory"]).expanduser())
    tables = {part: _table(file) for part, file in files.items()}
    first = next(iter(files))
    names = tables[first].rows.column_names
    others, y = _names(spec.get("columns")), spec["y"]
    inputs = [name for name in names if name not in (y, *others)] if spec.get("x") is None else _names(spec["x"])
    categories, rule = _names(spec.get("categories")), spec.get("missing") or MISSING[0]
    for name in categories:
        if name not in (*inputs, *others, y):
            raise DataError(f"{files[first]}: categories: {unknown('column', (*inputs, *others, y), name)}")
    values = {}
    for part, table in tables.items():
        columns = {name: table.column(name, name in categories) for name in (*inputs, y, *others)}
        lacking = {name: column.lacks for name, column in columns.items() if column.lacks.any()}
        for name, lacks in lacking.items():
            if rule == "refuse" or (rule == "mean" and name not in inputs):
                cure = "such a row can be left out: missing: drop" + ("; or the mean of the column be put there: "
                                                                     "missing: mean" if name in inputs else "")
                raise DataError(f'{table.at(int(lacks.argmax()))}: no value in column "{name}"; {cure}')
        kept = np.ones(table.rows.num_rows, bool)
        if rule == "drop":
            kept = ~np.any([kept < 0, *lacking.values()], axis=0)
        values[part] = {name: column.values[kept].astype(np.int64) if column.whole and not column.lacks[kept].any()
                        else column.values[kept] for name, column in columns.items()}
        if notes is not None and (commas := [name for name, column in columns.items() if column.comma]):
            notes.append(f"{table.file}: a comma stands before the decimals of {', '.join(commas)}")
        if notes is not None and lacking:
            what = f"{(~kept).sum():,} of {len(kept):,} rows left out" if rule == "drop" else "the mean in their place"
            notes.append(f"{table.file}: missing values in {', '.join(lacking)}: {what}")
    if len(files) == 1:
        values = _split(values[first], float(spec.get("test") or TEST))
    train, test = (values[part] for part in _PARTS)
    if not len(train[y]):
        raise DataError(f"{files[first]}: expected rows with all their values, found none")
    plain = spec.get("normalise") is not None
    x = {name: _features(train[name], test[name], name, files[first], plain) for name in inputs}
    if not x:
        raise DataError(f"{files[first]}: expected columns of inputs beside {y}, found none")
    targets = _targets(train[y], test[y])
    arrays: Arrays = {}
    for i, part in enumerate(_PARTS):
        arrays[f"{part}_x"] = np.concatenate([both[i] for both in x.values()], axis=1)
        arrays[f"{part}_y"] = targets[i]
        arrays |= {f"{part}_{name}": values[part][name] for name in others}
    if notes is not None:
        notes.append(_summary(files[first], arrays, {name: (both[0].shape[1], train[name].dtype.kind == "U")
                                                     for name, both in x.items()}, y))
    return arrays


def _summary(file: Path, arrays: Arrays, inputs: Mapping[str, tuple[int, bool]], y: str) -> str:
    """A line on what columns give. inputs: of each column how many inputs it gives, and whether it is of texts."""
    numbers = sum(not texts for _, texts in inputs.values())
    of_texts = [f"{count} of {name}" for name, (count, texts) in inputs.items() if texts]
    train = arrays["train_y"]
    targets = "numbers, a regression"
    if train.dtype.kind != "f":
        classes = train.max(initial=0) + 1 if train.dtype.kind in "iu" else len(
            np.unique(np.concatenate([train, arrays["test_y"]])))
        targets = f"{classes:,} classes"
    return (f"{file.name}: {len(arrays['train_y']):,} training and {len(arrays['test_y']):,} test samples, "
            f"{arrays['train_x'].shape[1]} inputs: {numbers} columns of numbers"
            + (f", texts as zeros and ones: {', '.join(of_texts)}" if of_texts else "") + f"; {y}: {targets}")


def _files(place: Path) -> dict[str, Path]:
    return {part: place / f"{part}.csv" for part in _PARTS} if place.is_dir() else {"train": place}


def _names(value: str | Sequence[str] | None) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


@dataclass(frozen=True)
class _Column:
    """A column as it is read."""

    values: np.ndarray          # (n,) integers, floats or texts; truth values as 0 and 1
    lacks: np.ndarray           # (n,) true where there is no value; `values` has nan or an empty text there
    whole: bool = False         # true if its numbers are integers, which `values` has as floats where one is missing
    comma: bool = False         # true if a comma stands before their decimals


@dataclass(frozen=True)
class _Table:
    """A file; `between` stands between its values."""

    file: Path
    rows: pa.Table
    between: str

    def at(self, row: int) -> str:
        """File and line of a row."""
        with self.file.open(encoding="utf-8-sig", newline="") as opened:
            lines = csv.reader(opened, delimiter=self.between)
            ends = [lines.line_num for record in lines if record and not record[0].startswith(("#", "sep="))]
        return f"{self.file}: line {ends[row + 1] if row + 1 < len(ends) else row + 2}"

    def column(self, name: str, categories: bool) -> _Column:
        """categories: its values are texts whatever they look like, and only an empty one is missing. Raises DataError.

        A column in which all values but the marks of a missing one are numbers is one of numbers; where more than half
        look like numbers and one is none, nobody can say what was meant.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if name not in self.rows.column_names:
            raise DataError(f"{self.file}: {unknown('column', self.rows.column_names, name)}")
        column = self.rows[name]
        kind = column.type
        if pa.types.is_boolean(kind) and not column.null_count and not categories:
            return _Column(np.asarray(column.to_pylist(), np.int64), np.zeros(len(column), bool))
        if pa.types.is_string(kind) or pa.types.is_boolean(kind) or categories:
            return self._of_texts(name, pc.utf8_trim_whitespace(pc.fill_null(column.cast(pa.string()), "")), categories)
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
            raise DataError(f'{self.file}: column "{name}": expected numbers or texts, found {kind}; name the columns '
                            "of inputs in x to leave it out, or name it in categories")
        lacks = column.is_null().to_numpy()
        if lacks.all():
            raise DataError(f'{self.at(0)}: no value in column "{name}", nor in any other line; name the columns of '
                            "inputs in x to leave it out")
        found: np.ndarray = column.to_numpy()                   # nan where there is no value
        self._require_finite(name, found, lacks)
        return _Column(found, lacks, pa.types.is_integer(kind))

    def _of_texts(self, name: str, texts: Any, categories: bool) -> _Column:
        import pyarrow as pa
        import pyarrow.compute as pc

        written = texts if self.between == "," else pc.replace_substring(texts, ",", ".")   # a decimal comma
        lacks = pc.is_in(pc.utf8_lower(texts), value_set=pa.array(_MARKS)).to_numpy()
        numbers = pc.match_substring_regex(written, _NUMBER).to_numpy()
        commas = numbers & ~pc.equal(texts, written).to_numpy()
        if commas.any():                # beside a decimal comma a point stands before thousands, or nobody knows
            numbers &= commas | ~pc.match_substring(texts, ".").to_numpy()
        if self.between != ";":
            numbers &= ~pc.match_substring_regex(texts, _THOUSANDS).to_numpy()
        values = (~lacks).sum()
        if not categories and numbers.any() and (lacks | numbers).all():
            found = pc.if_else(pa.array(lacks), None, written).cast(pa.float64()).to_numpy()
            self._require_finite(name, found, lacks)
            whole = not (numbers & pc.match_substring_regex(written, "[.eE]").to_numpy()).any()
            return _Column(found, lacks, whole, bool(commas.any()))
        like = pc.match_substring_regex(texts, _LIKE_NUMBER).to_numpy()
        if not categories and 2 * like.sum() > values:
            row = int((~(lacks | numbers)).argmax())
            raise DataError(f'{self.at(row)}: column "{name}": expected a number such as 1234.5, as {numbers.sum():,} '
                            f'of its {values:,} values are, found "{texts[row].as_py()}"; a column of texts is named '
                            "in categories")
        found = texts.to_numpy().astype(str)
        return _Column(found, found == "")

    def _require_finite(self, name: str, found: np.ndarray, lacks: np.ndarray) -> None:
        if found.dtype.kind == "f" and (wrong := ~(np.isfinite(found) | lacks)).any():
            row = int(wrong.argmax())
            raise DataError(f'{self.at(row)}: column "{name}": expected a finite number, found {found[row]}')


def _table(file: Path) -> _Table:
    """The file, in the dialect of all tables (`emul.base.tables`): commas, semicolons, tabs or bars stand between its
    values, whichever the first line has most of, or what a line `sep=;` says. Read by arrow: such files are large."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    try:
        between, before = "", 0
        with file.open(encoding="utf-8-sig") as opened:
            for head in opened:
                said = re.fullmatch(r"sep=([,;\t|])\s*", head)
                if said is None and head.strip() and not head.startswith("#"):
                    between = between or max(",;\t|", key=head.count)
                    break
                between, before = between if said is None else said[1], before + 1
        # one block: the type of a column is that of all its values, and not of those in the first MiB
        options = arrow.ReadOptions(block_size=min(max(1 << 20, file.stat().st_size + 1), (1 << 31) - 1),
                                    skip_rows=before)
        found = arrow.read_csv(file, options, arrow.ParseOptions(
            delimiter=between or ",", newlines_in_values=True,
            invalid_row_handler=lambda row: "skip" if row.text.lstrip().startswith("#") else "error"))
    except UnicodeDecodeError:
        with file.open("rb") as opened:
            found = "is UTF-16" if opened.read(2) in (b"\xff\xfe", b"\xfe\xff") else "is no UTF-8 text"
        raise DataError(f"{file}: no CSV file: {found}: save it as UTF-8") from None
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(f"{file}: no CSV file: {' '.join(str(error).split())[:200]}") from None
    # lines may end with commas, and pandas and R write the numbers of rows into a column without a name
    found = found.rename_columns([name.strip() for name in found.column_names])
    found = found.select([i for i, name in enumerate(found.column_names) if name not in _UNNAMED])
    twice = [name for name in found.column_names if found.column_names.count(name) > 1]
    if twice:
        raise DataError(f'{file}: two columns are called "{twice[0]}"')
    return _Table(file, found, between)


def _split(columns: dict[str, np.ndarray], share: float) -> dict[str, dict[str, np.ndarray]]:
    """The rows of one file as training and test samples, the same in every run."""
    n = len(next(iter(columns.values())))
    order = generator(0, "data", CSV).permutation(n)            # seed 0: not the scenario's
    count = min(max(1, round(share * n)), n - 1)
    chosen = {"train": np.sort(order[count:]), "test": np.sort(order[:count])}
    return {part: {name: values[rows] for name, values in columns.items()} for part, rows in chosen.items()}


def _features(train: np.ndarray, test: np.ndarray, name: str, file: Path, plain: bool) -> list[np.ndarray]:
    """(n, k) float32 of a column, for training and test. A missing number is the mean, a missing text no text."""
    if (train.dtype.kind == "U") != (test.dtype.kind == "U"):
        ours, theirs = ("texts", "numbers") if train.dtype.kind == "U" else ("numbers", "texts")
        raise DataError(f'{file.with_name("test.csv")}: column "{name}": expected {ours}, as train.csv has, found '
                        f"{theirs}; a column of texts that look like numbers is named in categories")
    if train.dtype.kind == "U":
        texts = np.unique(np.concatenate([train, test]))
        texts = texts[texts != ""]
        if len(texts) > _MOST_TEXTS:
            raise DataError(f'{file}: column "{name}" has {len(texts):,} different texts, such as "{texts[0]}" and '
                            f'"{texts[-1]}", expected numbers or at most {_MOST_TEXTS}; name the columns of inputs in '
                            "x to leave it out")
        return [(part[:, None] == texts).astype(np.float32) for part in (train, test)]
    if test.dtype.kind == "U":
        raise DataError(f'{file.with_name("test.csv")}: column "{name}": expected numbers, as train.csv has, '
                        "found texts")
    if any(np.isnan(part).any() for part in (train, test)):
        filling = float(np.nanmean(train)) if not np.isnan(train).all() else 0.0
        train, test = (np.where(np.isnan(part), filling, part) for part in (train, test))
    mean, std = (0.0, 1.0) if plain else (float(train.mean()), float(train.std()) or 1.0)
    return [((part - mean) / std).astype(np.float32)[:, None] for part in (train, test)]


def _targets(train: np.ndarray, test: np.ndarray) -> list[np.ndarray]:
    """Integers and texts as they are: classes. Else floats."""
    if train.dtype.kind == "U" or test.dtype.kind == "U":
        return [train.astype(str), test.astype(str)]
    return [train, test] if train.dtype.kind == test.dtype.kind else [train.astype(float), test.astype(float)]
