"""A data set that is loaded: read-only arrays, and how to make network inputs of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from emul.base.errors import EmulError
from emul.base.plain import PlainMapping
from emul.store import KeyMaker

PARTS = ("train_x", "train_y", "test_x", "test_y")
IGNORED = -100                      # a target that counts for nothing, such as what is behind the end of a short text

Inputs = np.ndarray | dict[str, np.ndarray]
Level = float | tuple[float, ...]   # of all pixels, or of each channel


class DataError(EmulError):
    """A data set is missing or is not what it should be; the text names the file and what was expected."""


@dataclass(frozen=True)
class DataSet:
    """Read-only arrays of samples and targets, and how to make network inputs of them.

    Inputs are one array, or {name: array} where a sample has several tensors. Stored bytes (uint8) and floats become
    float32, other integers stay what they are (int64: tokens). Targets are labels, integers or floats of any shape.
    """

    name: str
    train_x: Inputs                 # (n, *input_shape)
    train_y: np.ndarray             # (n,) integer labels, 0 <= y < classes; or (n, ...) integers, or floats
    test_x: Inputs
    test_y: np.ndarray
    classes: int                    # 0: targets are floats
    scale: float = 1.0              # stored byte / scale is in [0, 1] where the set has pixels
    mean: Level = 0.0               # normalisation, after the scaling
    std: Level = 1.0
    columns: dict[str, Column] = field(default_factory=dict)    # other values of each sample, such as its writer
    notes: tuple[str, ...] = ()     # what became of the files, for who brings them
    warnings: tuple[str, ...] = ()  # what may be wrong with them
    class_names: tuple[str, ...] = ()   # of the classes 0, 1, ...; (): they have none

    @cached_property
    def content_key(self) -> bytes:
        """In keys of results: a hash of all that a result may depend on, made once. Columns only say who holds what."""
        return KeyMaker().key([getattr(self, f.name) for f in fields(self)
                               if f.name not in ("columns", "notes", "warnings", "class_names")])

    @property
    def input_shape(self) -> Any:
        """Of one sample: a tuple, or {name: tuple}."""
        return mapped(lambda x: tuple(x.shape[1:]), self.train_x)

    @property
    def labelled(self) -> bool:
        """True if a target is the label of a class."""
        return self.classes > 0 and self.train_y.ndim == 1

    @property
    def outputs(self) -> int:
        """The number of outputs of a model: one for each class, or one for each number of a target."""
        return self.classes or prod(self.train_y.shape[1:])

    def inputs(self, raw: Any) -> Any:
        """Network inputs, fresh arrays of the same shape: int64 of integers, else (raw / scale - mean) / std."""
        return mapped(self._network, raw)

    def _network(self, raw: np.ndarray) -> np.ndarray:
        if is_token(raw.dtype):
            return raw.astype(np.int64)
        x = raw.astype(np.float32)
        if self.scale != 1.0 and raw.dtype == np.uint8:
            x /= np.float32(self.scale)
        if self.mean != 0.0:
            x -= self.over_channels(self.mean)
        if self.std != 1.0:
            x /= self.over_channels(self.std)
        return x

    def over_channels(self, level: Level) -> np.ndarray:
        """As float32, to be broadcast over samples: a scalar, or a number a channel, the first dimension of a sample:
        (channels, 1, 1) for images, (channels,) for rows of numbers."""
        value = np.asarray(level, dtype=np.float32)
        others = 0 if isinstance(self.train_x, dict) else max(0, self.train_x.ndim - 2)
        return value.reshape(-1, *[1] * others) if value.ndim else value

    def targets(self, raw: np.ndarray) -> np.ndarray:
        """Targets as losses take them, fresh: int64 or float32."""
        return raw.astype(np.int64 if raw.dtype.kind in "iu" else np.float32)

    @cached_property
    def testing(self) -> DataSet:
        """The test samples in the place of the training samples."""
        columns = {name: Column(column.test, column.test) for name, column in self.columns.items()
                   if column.test is not None}
        return replace(self, train_x=self.test_x, train_y=self.test_y, columns=columns)


@dataclass(frozen=True)
class Column:
    """One value for each sample: numbers or texts."""

    train: np.ndarray               # (n,)
    test: np.ndarray | None = None  # (m,); None: nobody knows


def is_token(kind: np.dtype) -> bool:
    """True if stored inputs of this dtype are integers that a model embeds."""
    return kind.kind in "iu" and kind != np.uint8


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """The function of a value, or of each in {name: value}: inputs of samples with one tensor, or with several."""
    return {name: function(each) for name, each in value.items()} if isinstance(value, dict) else function(value)


def views(arrays: Mapping[str, object]) -> dict[str, Any]:
    """The four parts, read-only."""
    def view(array: object) -> np.ndarray:
        found = np.asarray(array).view()        # asarray: np.memmap indexes far slower
        found.flags.writeable = False
        return found

    return {part: mapped(view, arrays[part]) for part in PARTS}


def levels_of(name: str, spec: PlainMapping, arrays: Mapping[str, Any], mean: Level, std: Level,
              ) -> tuple[Level, Level]:
    """Mean and standard deviation that the scenario says, or else those given. Raises DataError."""
    normalise = {"mean": mean, "std": std} | (spec.get("normalise") or {})
    x = arrays["train_x"]
    channels = 1 if isinstance(x, dict) or x.ndim < 2 else x.shape[1]
    found: list[Level] = []
    for level in (normalise["mean"], normalise["std"]):
        if isinstance(level, list | tuple) and len(level) != channels:
            raise DataError(f'data set "{name}": expected {channels} numbers to normalise with, one for each channel, '
                            f"found {len(level)}")
        found.append(tuple(map(float, level)) if isinstance(level, list | tuple) else float(level))
    return found[0], found[1]
