"""A stream of bytes as data: the Python sources of an installed package, cut into windows of tokens.

    data: {set: text, package: networkx, window: 128}

A byte is a token. Files are those whose names end with .py, but for folders called `tests`, in the order of their
paths; every 20th is a test file. A sample is `window` bytes of one file, and its targets are the bytes after each of
them, so that the cross entropy is in nats a byte. The windows of a file stand side by side, and what is left at its end
is not used. The column `file` has the number of each sample's file: `partition: {by: file}` deals out whole files.

Files are read as bytes; nothing of the package is imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from emul.base.plain import PlainDict, is_count
from emul.base.streams import generator
from emul.learning import own_data
from emul.learning.dataset import DataError, DataSet

TEXT = "text"
KEYS = ("package", "window", "test", "sha256")
TOKENS = 256
_TEST_EVERY = 20
_LEFT_OUT = "tests"


def mistakes(spec: Mapping[str, object]) -> Iterator[tuple[str, object, str]]:
    """(key, found, expected) of what is wrong in `{"set": "text", ...}`; reads no file."""
    package, digest = spec.get("package"), spec.get("sha256")
    if not isinstance(package, str) or not package.isidentifier():
        yield "package", package, "expected the name of an installed package, such as networkx"
    elif _folder(package) is None:
        yield "package", package, f"no package of this name is installed: pip install {package}"
    if not is_count(spec.get("window")):
        yield "window", spec.get("window"), "expected the bytes of a sample, 1 or more, such as 128"
    if spec.get("test") is not None and not is_count(spec["test"]):
        yield "test", spec["test"], "expected a number of test windows, 1 or more"
    if digest is not None and not (isinstance(digest, str) and len(digest) == 64 and set(digest) <= set(_HEX)):
        yield "sha256", digest, "expected 64 digits 0-9a-f"


_HEX = "0123456789abcdef"


def load(spec: PlainDict) -> DataSet:
    """The data of `{"set": "text", "package": name, "window": bytes, "test": windows or None, "sha256": hex or None}`.

    test: so many of the test windows, drawn once and for all; None: all. sha256: what `digest_of` must give. Raises
    DataError.
    """
    for key, found, expected in mistakes(spec):
        raise DataError(f'data set "{TEXT}": {key}: {expected}, found {found!r}')
    train, test = corpus(spec["package"])
    if spec.get("sha256") not in (None, found := digest_of(train, test)):
        raise DataError(f'data set "{TEXT}": expected sources of {spec["package"]} with the digest {spec["sha256"]}, '
                        f"version {_version(spec['package'])} is installed and has {found}")
    arrays = {f"{part}_{name}": array for part, texts in (("train", train), ("test", test))
              for name, array in _windows(texts, spec["window"]).items()}
    if spec.get("test") is not None:
        n, count = len(arrays["test_y"]), spec["test"]
        if count > n:
            raise DataError(f'data set "{TEXT}": test: expected at most the {n} test windows, found {count}')
        chosen = np.sort(generator(0, "data", TEXT).permutation(n)[:count])     # seed 0: the same in every run
        arrays |= {name: array[chosen] for name, array in arrays.items() if name.startswith("test_")}
    # without it, the number of classes would follow from the bytes that occur
    return replace(own_data.made(TEXT, {}, arrays), classes=TOKENS)


def corpus(package: str) -> tuple[list[bytes], list[bytes]]:
    """The contents of the training files and of the test files. Raises DataError where they cannot be read, or where
    there are too few files for a test file."""
    folder = _folder(package)
    if folder is None:
        raise DataError(f'data set "{TEXT}": no package "{package}" is installed')
    # as texts, for paths compare folder by folder, which is another order
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.py")
                   if _LEFT_OUT not in path.relative_to(folder).parts[:-1])
    if len(files) < _TEST_EVERY:
        raise DataError(f"{folder}: expected {_TEST_EVERY} files of Python or more, found {len(files)}")
    try:
        texts = [(folder / name).read_bytes() for name in files]
    except OSError as error:
        raise DataError(f"{error.filename}: {error.strerror}") from error
    test = texts[_TEST_EVERY - 1::_TEST_EVERY]
    del texts[_TEST_EVERY - 1::_TEST_EVERY]
    return texts, test


def digest_of(train: list[bytes], test: list[bytes]) -> str:
    """SHA-256 of all training files in their order, then all test files: 64 hexadecimal digits."""
    return sha256(b"".join([*train, *test])).hexdigest()


def _windows(texts: list[bytes], window: int) -> dict[str, np.ndarray]:
    """{"x", "y": (n, window) uint16, "file": (n,)} of all texts."""
    x, y, files = [], [], []
    for number, text in enumerate(texts):
        tokens = np.frombuffer(text, np.uint8).astype(np.uint16)    # not uint8, which would be pixels
        n = max(0, len(tokens) - 1) // window
        x.append(tokens[:n * window].reshape(n, window))
        y.append(tokens[1:n * window + 1].reshape(n, window))
        files.append(np.full(n, number))
    return {"x": np.concatenate(x), "y": np.concatenate(y), "file": np.concatenate(files)}


def _folder(package: str) -> Path | None:
    """The folder of an installed package; None: it is not there, or is one file."""
    try:
        found = find_spec(package)
    except (ImportError, ValueError):
        return None
    places = None if found is None else found.submodule_search_locations
    return Path(next(iter(places))) if places else None


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "without a number"
