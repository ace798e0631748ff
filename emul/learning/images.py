"""Readers of image sets: CIFAR-10 as binary batches or as a zip of images, and folders of images. To uint8 arrays.

Images are (n, channels, height, width). Only images that are files need Pillow, which is imported when they are read.
"""

from __future__ import annotations

import importlib
import io
import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from emul.base.files import MOST_BYTES, read_limited, read_text
from emul.learning.dataset import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR_BATCHES = {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]}
CIFAR_ZIP = "cifar-10-images.zip"
SUFFIXES = (".png", ".jpg", ".jpeg", ".jfif", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
CHANNELS = (1, 3)                           # grey, or red, green and blue
_RECORD = 1 + 3 * 32 * 32                   # of a batch: a label, then red, green and blue rows

Arrays = dict[str, np.ndarray]


# --- CIFAR-10 -----------------------------------------------------------------------------------------------------

def cifar_files(folder: Path) -> list[Path]:
    """The files that CIFAR-10 is read from: its six binary batches, in `folder` or below it, else zip and labels.

    Raises DataError naming what is missing.
    """
    for place in (folder, folder / "cifar-10-batches-bin"):
        batches = [place / name for names in CIFAR_BATCHES.values() for name in names]
        if batches[0].is_file():
            return _existing(batches)
    archive = folder / CIFAR_ZIP
    if not archive.is_file():
        raise DataError(f"{folder}: expected the binary batches of CIFAR-10 (data_batch_1.bin, ...) or {CIFAR_ZIP} "
                        "with train-labels.txt and test-labels.txt")
    return _existing([archive, folder / "train-labels.txt", folder / "test-labels.txt"])


def _existing(paths: list[Path]) -> list[Path]:
    for path in paths:
        if not path.is_file():
            raise DataError(f"{path}: expected this file of CIFAR-10; it does not exist")
    return paths


def read_cifar(files: list[Path]) -> Arrays:
    """CIFAR-10 from `cifar_files`, in the original order. Raises DataError."""
    if files[0].name == CIFAR_ZIP:
        return _read_cifar_zip(*files)
    arrays: Arrays = {}
    for kind, names in CIFAR_BATCHES.items():
        records = np.concatenate([_read_batch(path) for path in files if path.name in names])
        arrays[f"{kind}_x"], arrays[f"{kind}_y"] = records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]
    return arrays


def _read_batch(path: Path) -> np.ndarray:
    try:
        raw = np.frombuffer(read_limited(path), np.uint8)
    except OSError as error:
        raise DataError(f"{path}: expected a readable batch: {error}") from error
    if raw.size == 0 or raw.size % _RECORD:
        raise DataError(f"{path}: expected records of {_RECORD} bytes, found {raw.size} bytes")
    records = raw.reshape(-1, _RECORD)
    if records[:, 0].max() > 9:
        raise DataError(f"{path}: expected labels in 0..9, found {records[:, 0].max()}")
    return records


def _read_cifar_zip(archive: Path, train_labels: Path, test_labels: Path) -> Arrays:
    """The n-th occurrence of a label is image n of its folder, `train/frog/0000.jpg`."""
    arrays: Arrays = {}
    try:
        with zipfile.ZipFile(archive) as source:
            for kind, path in (("train", train_labels), ("test", test_labels)):
                labels = _read_labels(path)
                seen = np.zeros(10, np.int64)

                def images(kind: str = kind, labels: np.ndarray = labels, seen: np.ndarray = seen,
                           ) -> Iterator[tuple[str, Callable[[], bytes]]]:
                    for label in labels.tolist():
                        member = f"{kind}/{CIFAR_CLASSES[label]}/{seen[label]:04d}.jpg"
                        seen[label] += 1
                        yield member, partial(_unzipped, source, member)

                arrays[f"{kind}_x"] = _decode(archive, images(), len(labels), (3, 32, 32))
                arrays[f"{kind}_y"] = labels
    except DataError:
        raise
    except Exception as error:          # zipfile and zlib let out what a garbled archive makes of them
        raise DataError(f"{archive}: expected a zip of the images of CIFAR-10: {error}") from error
    return arrays


def _unzipped(archive: zipfile.ZipFile, member: str) -> bytes:
    """A file of an archive. Raises ValueError for one that is larger than any image: 10 MB of zeros make 10 GB."""
    if (size := archive.getinfo(member).file_size) > MOST_BYTES:
        raise ValueError(f"{member} has {size:,} bytes")
    return archive.read(member)


def _read_labels(path: Path) -> np.ndarray:
    try:
        labels = [int(line) for line in read_text(path).split()]
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: expected one label a line: {error}") from error
    if not labels or not 0 <= min(labels) <= max(labels) <= 9:
        raise DataError(f"{path}: expected labels in 0..9, one a line")
    return np.array(labels, np.uint8)


# --- folders ------------------------------------------------------------------------------------------------------

def folder_classes(folder: Path) -> list[str]:
    """The classes of an image folder: names of the folders in `train`, in order. Raises DataError."""
    train = folder / "train"
    if not train.is_dir():
        raise DataError(f"{train}: expected a folder with a folder of images for each class; it does not exist")
    classes = _class_folders(train)
    if not classes:
        raise DataError(f"{train}: expected a folder of images for each class, found none")
    return classes


def folder_files(folder: Path, kind: str, classes: list[str]) -> list[tuple[Path, int]]:
    """(image, label) of every image below `folder/kind`, by class and name; hidden files and folders are passed over.

    Raises DataError, also for a class without images in `train`: a model would have an output that nothing trains.
    """
    place = folder / kind
    if not place.is_dir():
        raise DataError(f"{place}: expected a folder with a folder of images for each class; it does not exist")
    others = sorted({*_class_folders(place)} - set(classes))
    if others:
        raise DataError(f"{place / others[0]}: expected only the classes that {folder / 'train'} has")
    found: list[tuple[Path, int]] = []
    for label, name in enumerate(classes):
        own = [path for path in sorted((place / name).rglob("*")) if path.suffix.lower() in SUFFIXES
               and not any(map(_is_hidden, path.relative_to(place).parts)) and path.is_file()]
        if not own and kind == "train":
            raise DataError(f"{place / name}: expected images ({', '.join(SUFFIXES)}) of this class, found none")
        found += [(path, label) for path in own]
    if not found:
        raise DataError(f"{place}: expected images ({', '.join(SUFFIXES)}), found none")
    return found


def _class_folders(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir() if path.is_dir() and not _is_hidden(path.name))


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"       # macOS leaves such folders in a zip


def read_folder(folder: Path, channels: int | None = None, size: tuple[int, int] | None = None) -> Arrays:
    """The images of `folder/train` and `folder/test`, all of one size; another folder, such as `valid`, is not read.

    channels: 1 (grey) or 3; None: 3 if any image has colours. size: (height, width) that is expected; None: that of the
    first image. Raises DataError.
    """
    classes, arrays = folder_classes(folder), {}
    if len(classes) > 256:
        raise DataError(f"{folder / 'train'}: expected at most 256 classes, found {len(classes)}")
    files = {kind: folder_files(folder, kind, classes) for kind in ("train", "test")}
    if channels is None or size is None:
        channels, size = _common(folder, [path for both in files.values() for path, _ in both], channels)
    for kind, labelled in files.items():
        reads = ((str(path), partial(read_limited, path)) for path, _ in labelled)
        arrays[f"{kind}_x"] = _decode(folder, reads, len(labelled), (channels, *size))
        arrays[f"{kind}_y"] = np.array([label for _, label in labelled], np.uint8)
    return arrays


def _common(folder: Path, files: list[Path], channels: int | None) -> tuple[int, tuple[int, int]]:
    """(channels, (height, width)) of all images, from the heads of their files: the size is the first one's."""
    image_module = _pillow(folder)
    size, coloured = None, False
    for path in files:
        with _opened(image_module, str(path), path) as image:
            coloured = coloured or not set(image.getbands()) <= _GREY
            size = size or _size(image)
        if channels is not None:
            break
    assert size is not None
    return channels or (3 if coloured else 1), size


_ORIENTATION = 0x0112                           # tag of EXIF
_GREY = {"1", "L", "I", "F", "A", "a"}          # bands of Pillow without colours; A is transparency


@contextmanager
def _opened(image_module: ModuleType, name: str, file: Path | io.BytesIO) -> Iterator[Image]:
    """The image, and whatever a garbled one raises as DataError."""
    try:
        with image_module.open(file) as image:
            yield image
    except (OSError, ValueError, SyntaxError, EOFError, struct.error, image_module.DecompressionBombError) as error:
        raise DataError(f"{name}: expected an image: {error}") from error


def _decode(source: Path, images: Iterator[tuple[str, Callable[[], bytes]]], count: int,
            shape: tuple[int, ...]) -> np.ndarray:
    """(count, *shape) uint8 of images given as (name, function that reads the file), grey or RGB as the shape says."""
    image_module = _pillow(source)
    x = np.empty((count, *shape), np.uint8)
    for i, (name, read) in enumerate(images):
        with _opened(image_module, name, io.BytesIO(read())) as image:
            if (size := _size(image)) != shape[1:]:
                raise DataError(f"{name}: expected an image of {shape[2]} x {shape[1]} pixels, found {size[1]} x "
                                f"{size[0]}")
            pixels = np.asarray(_of_8_bits(image_module, name, image).convert("L" if shape[0] == 1 else "RGB"))
            pixels = _upright(pixels, _orientation(image))
        x[i] = pixels[None] if shape[0] == 1 else pixels.transpose(2, 0, 1)
    return x


def _orientation(image: Image) -> int:
    """The way in which a camera was held, 1 (upright) to 8: phones keep the pixels of their sensor and note this."""
    try:
        found = image.getexif().get(_ORIENTATION, 1)
    except Exception:                   # garbled beside good pixels: Pillow raises what its reader of TIFF makes of it
        return 1
    if image.format == "TIFF":          # Pillow turns these as it loads them, and garbles those of rows for columns
        if found in range(5, 9):
            raise ValueError("a TIFF whose rows are columns (orientation 5 to 8); save it upright")
        return 1
    return found if found in range(1, 9) else 1


def _size(image: Image) -> tuple[int, int]:
    """(height, width) as it is looked at."""
    return (image.width, image.height) if _orientation(image) > 4 else (image.height, image.width)


def _upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """(height, width, ...) as it is looked at; EXIF 2.3, table 6: 2 and 4 are mirrored, 3 is upside down, 5 to 8 have
    rows for columns."""
    if orientation > 4:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels[::-1] if orientation in (3, 4, 7, 8) else pixels


def _of_8_bits(image_module: ModuleType, name: str, image: Image) -> Image:
    """The upper 8 of 16 bits, as Pillow itself takes them of colours. Its own `convert` cuts every grey above 255."""
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):     # 16 bits in int32
        return image_module.fromarray((np.asarray(image).astype(np.int32) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise DataError(f"{name}: expected an image of 8 or 16 bits a channel, found "
                        f"{'32 bits' if image.mode == 'I' else 'floats'}, whose white nobody knows; give them as "
                        "arrays (set: arrays), or save them with 16 bits")
    return image


def _pillow(source: Path) -> ModuleType:
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        raise DataError(f"{source}: images are read with Pillow, which is not installed: "
                        "pip install 'emul[images]'") from error
