"""Data sets: decoded once per machine, then mapped read-only by every process.

Arrays are stored as unsigned bytes and become float32 batch by batch, those of the built-in sets standardised: mean 0
and standard deviation 1 over the training images, of each channel. The decoded arrays are written once as .npy into
`$XDG_CACHE_HOME/emul/data` (or `~/.cache/emul/data`), under a key made of the sources' sizes and times, and mapped
from there: the pages are shared by all workers of a machine. Data sets of users (`emul.learning.names`) are functions
`(spec) -> {"train_x", "train_y", "test_x", "test_y"}`, see `emul.learning.own_data`; they
are not cached.
"""

from __future__ import annotations

import gzip
import logging
import os
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from emul.base.plain import PlainDict
from emul.base.streams import generator
from emul.learning import csv_data, images, libraries, own_data, text
from emul.learning.dataset import PARTS, DataError, DataSet, Level, levels_of, mapped, views
from emul.learning.names import DATA, unknown
from emul.learning.names import names as names_of

_log = logging.getLogger(__name__)

_FORMAT = 2                         # of the cached arrays: raise it when what is stored changes
_DIGITS_TRAIN = 1500                # of 1797; the rest is the test set
_UNSIGNED_BYTE = 8                  # the type code of an IDX file
_MOST_BYTES = 2**32                 # of its values: the largest that are known, of EMNIST, take 2^29

Arrays = dict[str, np.ndarray]

__all__ = ["BUILT_IN", "BuiltInData", "DataError", "DataSet", "load", "mapped", "missing", "names"]


@dataclass(frozen=True)
class BuiltInData:
    """The facts about a built-in data set that are known before it is loaded."""

    input_shape: tuple[int, ...]
    classes: int
    samples: int                    # of the training set
    scale: float                    # a stored byte is divided by it,
    mean: Level                     # then this is subtracted, and the rest divided by `std`: both of the training
    std: Level                      # images, as is usual for these sets; `normalise` in a scenario says otherwise


BUILT_IN = {"digits": BuiltInData((1, 8, 8), 10, _DIGITS_TRAIN, 16.0, 0.3053, 0.3763),
            "mnist": BuiltInData((1, 28, 28), 10, 60_000, 255.0, 0.1307, 0.3081),
            "fashion-mnist": BuiltInData((1, 28, 28), 10, 60_000, 255.0, 0.2860, 0.3530),
            "cifar10": BuiltInData((3, 32, 32), 10, 50_000, 255.0, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
            "cinic10": BuiltInData((3, 32, 32), 10, 90_000, 255.0, (0.4789, 0.4723, 0.4305), (0.2421, 0.2383, 0.2587))}
FOLDER = "images"                   # any image folder: shape and classes are known once it is read
ARRAYS = "arrays"                   # arrays in files of NumPy
BY_KIND = (FOLDER, ARRAYS, csv_data.CSV, text.TEXT, *libraries.KEYS)    # sets of users that need no code, but files

DIRECTORY = "EMUL_DATA"             # environment variable: where the files are, if the task does not say
NEED_FILES = ("mnist", "fashion-mnist", "cifar10", "cinic10", FOLDER)

_IDX_FILES = {"train_x": ("train-images-idx3-ubyte", 3), "train_y": ("train-labels-idx1-ubyte", 1),
              "test_x": ("t10k-images-idx3-ubyte", 3), "test_y": ("t10k-labels-idx1-ubyte", 1)}


def names(plugins: Sequence[str] = ()) -> list[str]:
    """Every data set that can be asked for."""
    return names_of(DATA, (*BUILT_IN, *BY_KIND), plugins)


def load(spec: PlainDict, plugins: Sequence[str] = ()) -> DataSet:
    """The data set of `spec`: {"set": name, "directory": path or None, "normalise": {"mean": m, "std": s} or None}.

    Its inputs are (stored value / scale - mean) / std. Without `normalise`, mean and std are those of the training
    images for a built-in set (`BuiltInData`), 0 and 1 for others; {"mean": 0, "std": 1} gives pixels in [0, 1], a list
    has one number for each channel. Raises DataError if it is unknown, missing or garbled.
    """
    name = spec["set"]
    if name == ARRAYS:
        return own_data.made(name, spec, own_data.read_arrays(spec.get("directory")))
    if name in libraries.KEYS:
        arrays, class_names = libraries.read(spec)
        return own_data.made(name, spec, arrays, class_names=class_names)
    if name == csv_data.CSV:
        notes: list[str] = []
        return own_data.made(name, spec, csv_data.read(spec, notes), notes)
    if name == text.TEXT:
        return text.load(spec)
    if name != FOLDER and name not in BUILT_IN:
        found = own_data.load(name, spec, plugins)
        if found is None:
            raise DataError(unknown("data set", names(plugins), name))
        return found
    arrays = _cached(name, *_source(spec))
    known = BUILT_IN.get(name) or BuiltInData((), int(arrays["train_y"].max()) + 1, len(arrays["train_y"]), 255.0, 0.0,
                                              1.0)
    _check(name, arrays, known.classes)
    mean, std = levels_of(name, spec, arrays, known.mean, known.std)
    return DataSet(name, **views(arrays), classes=known.classes, scale=known.scale, mean=mean, std=std,
                   class_names=_class_names(name, spec))


def _class_names(name: str, spec: PlainDict) -> tuple[str, ...]:
    if name == "cifar10":
        return images.CIFAR_CLASSES
    return tuple(images.folder_classes(_folder(name, spec.get("directory")))) if name in ("cinic10", FOLDER) else ()


def missing(spec: PlainDict) -> str | None:
    """The reason why the files of a data set cannot be found, or None; reads no file."""
    name, directory = spec["set"], spec.get("directory")
    try:
        if name in ("mnist", "fashion-mnist"):
            _idx_paths(name, directory)
        elif name == "cifar10":
            images.cifar_files(_folder(name, directory))
        elif name in ("cinic10", FOLDER):
            images.folder_classes(_folder(name, directory))
        elif name == ARRAYS:
            own_data.array_files(directory)
        elif name in libraries.KEYS:
            return libraries.missing(spec)
        elif name == csv_data.CSV:
            return csv_data.missing(spec)
    except DataError as error:
        return str(error)
    return None


def _source(spec: PlainDict) -> tuple[str, Callable[[], Arrays]]:
    """The inputs of the decoded arrays, as a text, and the function that decodes them."""
    name, directory = spec["set"], spec.get("directory")
    if name == "digits":
        return f"as shipped, numpy {np.__version__}", _digits      # NumPy draws the order
    if name == "cifar10":
        files = images.cifar_files(_folder(name, directory))
        return _stats(files), lambda: images.read_cifar(files)
    if name in ("cinic10", FOLDER):
        folder = _folder(name, directory)
        classes = images.folder_classes(folder)
        every = [path for kind in ("train", "test") for path, _ in images.folder_files(folder, kind, classes)]
        if name in BUILT_IN:
            channels, *size = BUILT_IN[name].input_shape
            return _stats(every), lambda: images.read_folder(folder, channels, (size[0], size[1]))
        return f"{spec.get('channels')} {_stats(every)}", lambda: images.read_folder(folder, spec.get("channels"))
    paths = _idx_paths(name, directory)
    return _stats(list(paths.values())), lambda: _read_idx_set(paths)


def _stats(paths: list[Path]) -> str:
    """Names, sizes and times: a text that changes when the files do."""
    return repr([(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths])


def _folder(name: str, directory: str | None) -> Path:
    """The folder of a set's files: `directory` or $EMUL_DATA, or its folder `name`. Raises DataError."""
    given = directory or os.environ.get(DIRECTORY)
    if not given:
        raise DataError(f'data set "{name}": expected a directory with its files, in the task or in $EMUL_DATA')
    folder = Path(given).expanduser()
    return folder / name if (folder / name).is_dir() else folder


def _digits() -> Arrays:
    """1,797 images of 8 x 8 pixels, 0 to 16, in one fixed order: 1,500 for training, 297 for test.

    digits.npz has them in scikit-learn's order; digits.txt says where they come from.
    """
    with np.load(Path(__file__).with_name("digits.npz"), allow_pickle=False) as shipped:
        images, labels = shipped["images"], shipped["labels"]               # (1797, 8, 8), (1797,) uint8
    order = generator(0, "data", "digits").permutation(len(labels))         # seed 0: the same split in every run
    x, y = images[order, None], labels[order]                               # (1797, 1, 8, 8), (1797,)
    return {"train_x": x[:_DIGITS_TRAIN], "train_y": y[:_DIGITS_TRAIN],
            "test_x": x[_DIGITS_TRAIN:], "test_y": y[_DIGITS_TRAIN:]}


def _check(name: str, arrays: Mapping[str, Any], classes: int) -> None:
    """Raise DataError unless images and labels fit each other and the number of classes."""
    for kind in ("train", "test"):
        x, y = arrays[f"{kind}_x"], arrays[f"{kind}_y"]
        if y.ndim != 1 or (not isinstance(x, dict) and len(x) != len(y)):
            raise DataError(f'data set "{name}": expected one label per {kind} sample, '
                            f"found {len(x)} samples and labels of shape {y.shape}")
        if y.dtype.kind not in "iu":
            raise DataError(f'data set "{name}": expected integer labels for {kind}, found {y.dtype}')
        if len(y) and not 0 <= int(y.min()) <= int(y.max()) < classes:
            raise DataError(f'data set "{name}": expected {kind} labels in 0..{classes - 1}, '
                            f"found {int(y.min())}..{int(y.max())}")
        if not isinstance(x, dict) and x.shape[1:] != arrays["train_x"].shape[1:]:
            raise DataError(f'data set "{name}": expected {kind} samples of shape {arrays["train_x"].shape[1:]}, '
                            f"found {x.shape[1:]}")


# --- IDX files ---------------------------------------------------------------------------------------------------

def _idx_paths(name: str, directory: str | None) -> dict[str, Path]:
    """The four files of a set, from `directory` or $EMUL_DATA: the folder itself, or its folder `name`."""
    given = directory or os.environ.get(DIRECTORY)
    if not given:
        raise DataError(f'data set "{name}": expected a directory with its IDX files, in the task or in $EMUL_DATA')
    folder = Path(given).expanduser()
    if (folder / name).is_dir():
        folder = folder / name
    elif folder.name in BUILT_IN and folder.name != name:       # the two sets have the same file names
        raise DataError(f'{folder}: expected the folder of data set "{name}", found that of "{folder.name}"')
    return {part: _idx_path(folder, stem) for part, (stem, _) in _IDX_FILES.items()}


def _idx_path(folder: Path, stem: str) -> Path:
    for path in (folder / f"{stem}.gz", folder / stem):
        if path.is_file():
            return path
    raise DataError(f"{folder / stem}: expected this IDX file, plain or as {stem}.gz; it does not exist")


def _read_idx_set(paths: dict[str, Path]) -> Arrays:
    arrays = {part: read_idx(paths[part], _IDX_FILES[part][1]) for part in PARTS}
    for kind in ("train", "test"):
        images, labels = arrays[f"{kind}_x"], arrays[f"{kind}_y"]
        if len(images) != len(labels):
            raise DataError(f"{paths[f'{kind}_y']}: expected {len(images)} labels, as many as images in "
                            f"{paths[f'{kind}_x'].name}, found {len(labels)}")
        if len(labels) and labels.max() > 9:
            raise DataError(f"{paths[f'{kind}_y']}: expected labels in 0..9, found {labels.max()}")
        arrays[f"{kind}_x"] = images[:, None]                   # (n, 1, 28, 28): one channel
    return arrays


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """Read an IDX file of unsigned bytes with that many dimensions, plain or (by its name) gzip-compressed.

    Raises DataError if the file is of another kind, shorter or longer than its header says, or no complete gzip.
    """
    try:
        if path.exists() and not path.is_file():        # to open a pipe would wait for ever
            raise OSError("is no regular file")
        with (gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")) as file:
            return _read_idx(file, path, dimensions)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: expected a readable{' gzip' if path.suffix == '.gz' else ''} IDX file: {error}"
                        ) from error


def _read_idx(file: IO[bytes] | gzip.GzipFile, path: Path, dimensions: int) -> np.ndarray:
    expected_magic = bytes([0, 0, _UNSIGNED_BYTE, dimensions])
    magic = file.read(4)
    if magic != expected_magic:
        raise DataError(f"{path}: expected an IDX file of unsigned bytes in {dimensions} dimensions "
                        f"(it starts with {expected_magic.hex()}), found {magic.hex() or 'an empty file'}")
    header = file.read(4 * dimensions)
    if len(header) != 4 * dimensions:
        raise DataError(f"{path}: expected {dimensions} dimensions of 4 bytes after the magic number, "
                        f"found {len(header)} bytes")
    shape = tuple(int(size) for size in np.frombuffer(header, ">u4"))
    size = prod(shape)
    # one more: what is too long is refused too; no more than that: 2 MB may hold 2 GB, compressed
    raw = _read_at_most(file, min(size, _MOST_BYTES) + 1)
    if len(raw) != size:
        if len(raw) > _MOST_BYTES:
            raise DataError(f"{path}: holds more than {_MOST_BYTES:,} values")
        found = f"{len(raw)} bytes" if len(raw) < size else "more"
        raise DataError(f"{path}: expected {size} bytes for {' x '.join(map(str, shape))} values, found {found}")
    return np.frombuffer(raw, np.uint8).reshape(shape)


def _read_at_most(file: IO[bytes] | gzip.GzipFile, size: int) -> bytes:
    """Up to `size` bytes, piece by piece: a garbled header must not make us ask for 2**96 bytes at once."""
    pieces: list[bytes] = []
    while size > 0 and (piece := file.read(min(size, 1 << 24))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


# --- cache -------------------------------------------------------------------------------------------------------

def cache_directory() -> Path:
    """The folder of decoded arrays: `$XDG_CACHE_HOME/emul/data`, else `~/.cache/emul/data`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "emul" / "data"


def _cached(name: str, source: str, decode: Callable[[], Arrays]) -> Arrays:
    """The arrays of `source`, mapped from the cache; decoded and written there first if absent or broken."""
    # To decode in each worker would take time and memory for each of them; mapped pages are shared. Processes may race
    # for the cache, so a file is written under a temporary name and renamed
    # (`test_arrays_are_decoded_once_and_then_mapped_read_only`).
    key = blake2b(f"{_FORMAT} {name} {source}".encode(), digest_size=12).hexdigest()
    paths = {part: cache_directory() / f"{name}-{key}-{part}.npy" for part in PARTS}
    arrays = _map_all(name, paths)
    if arrays is not None:
        return arrays
    decoded = decode()
    try:
        for part, path in paths.items():
            _write(path, decoded[part])
    except OSError as error:
        _log.warning("%s: cannot cache data set %s, every process keeps its own copy: %s", paths["train_x"].parent,
                     name, error)
        return decoded
    return _map_all(name, paths) or decoded


def _map_all(name: str, paths: dict[str, Path]) -> Arrays | None:
    """Map the four cached arrays read-only; None if one is absent, cut short or garbled."""
    try:
        arrays = {part: np.load(path, mmap_mode="r", allow_pickle=False) for part, path in paths.items()}
        if any(array.dtype != np.uint8 for array in arrays.values()):
            return None
        _check(name, arrays, BUILT_IN[name].classes if name in BUILT_IN else int(arrays["train_y"].max()) + 1)
    except Exception:               # NumPy lets out what its parser makes of a garbled .npy header
        return None
    return arrays


def _write(path: Path, array: np.ndarray) -> None:
    """Write under a temporary name, then rename: no process ever sees half a file, and writers may race."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            np.save(file, np.ascontiguousarray(array), allow_pickle=False)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
