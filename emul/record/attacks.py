"""Results of attacks on a run's privacy: tables beside its record, which they are no part of.

    attacks/<label>.csv             a row each thing that was attacked
    attacks/<label>.json            which attack, with which parameters, on which digest; captions of pictures
    attacks/<label>.pictures/1.png  what was there beside what was found, of attacks that find images
"""

from __future__ import annotations

import shutil
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from emul.base.files import as_file_name, from_file_name, read_limited, write_atomically
from emul.base.plain import PlainMapping
from emul.record.journal import RecordError
from emul.record.rundir import read_json, require_plain, write_json

if TYPE_CHECKING:
    import pandas as pd


ATTACKS = "attacks"
PICTURES = ".pictures"


@dataclass(frozen=True)
class Attacked:
    """The results of one attack. about: `attack`, its `parameters`, its `text`, the run's `digest`. pictures:
    (caption, PNG) each."""

    label: str
    about: PlainMapping
    rows: pd.DataFrame
    pictures: list[tuple[str, Path]] = field(default_factory=list)


def write_attack(directory: Path, label: str, rows: Sequence[Mapping[str, object]], about: Mapping[str, object],
                 pictures: Sequence[tuple[str, bytes]] = ()) -> Path:
    """Leave what an attack has found, in place of what was there under this label; the table's path. pictures:
    (caption, PNG) each."""
    import pandas as pd

    require_plain(directory)
    folder = directory / ATTACKS
    folder.mkdir(exist_ok=True)
    file = folder / f"{as_file_name(label)}.csv"
    drawn = file.with_suffix(PICTURES)              # 1.png, 2.png, ...; without pictures there is no folder
    if drawn.is_dir():
        shutil.rmtree(drawn)
    for number, (_, content) in enumerate(pictures, 1):
        drawn.mkdir(exist_ok=True)
        (drawn / f"{number}.png").write_bytes(content)
    with write_atomically(file) as path:
        pd.DataFrame(list(rows)).to_csv(path, index=False, lineterminator="\n")
    write_json(file.with_suffix(".json"), dict(about) | {"pictures": [caption for caption, _ in pictures]})
    return file


def attacks(directory: Path) -> list[str]:
    """The labels of the attacks whose results are there, by name."""
    return sorted(from_file_name(path.stem) for path in (directory / ATTACKS).glob("*.csv"))


def read_attack(directory: Path, label: str) -> Attacked:
    """Raises RecordError: there is none, or its files are damaged."""
    import pyarrow as pa
    from pyarrow import csv  # pandas reads some floats an ulp away

    file = directory / ATTACKS / f"{as_file_name(label)}.csv"
    if not file.is_file():
        known = ", ".join(attacks(directory)) or "none"
        raise RecordError(f"{directory}: no attack {label!r} on it; there are: {known}")
    try:
        rows = csv.read_csv(pa.BufferReader(read_limited(file))).to_pandas()
    except (OSError, ValueError, pa.ArrowException) as error:
        raise RecordError(f"{file}: no table: {' '.join(str(error).split())[:200]}") from None
    about = read_json(file.with_suffix(".json"))
    if not isinstance(about.get("parameters"), dict) or not isinstance(about.get("attack"), str):
        raise RecordError(f"{file.with_suffix('.json')}: expected an attack and its parameters")
    captions, drawn = about.get("pictures", []), file.with_suffix(PICTURES)
    if not isinstance(captions, list):
        raise RecordError(f"{file.with_suffix('.json')}: pictures: expected a list of captions")
    pictures = [(str(caption), drawn / f"{number}.png") for number, caption in enumerate(captions, 1)]
    return Attacked(label, about, rows, [(caption, one) for caption, one in pictures if one.is_file()])


# Pictures as PNG by nothing but zlib: a run's directory needs no library of images.
_LEAST = 96                 # pixels of the screen that an image is high, at least
_GAP = 8


def png(image: np.ndarray) -> bytes:
    """A PNG of pixels, uint8, (H, W) grey or (H, W, 3) coloured. W3C PNG, third edition, without filters."""
    height, width = image.shape[:2]
    kind = 0 if image.ndim == 2 else 2
    lines = np.concatenate([np.zeros((height, 1), np.uint8), image.reshape(height, -1)], axis=1)
    return b"\x89PNG\r\n\x1a\n" + b"".join([
        _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)),
        _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)), _chunk(b"IEND", b"")])


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def side_by_side(left: np.ndarray, right: np.ndarray) -> bytes:
    """A PNG of two images (C, H, W) in [0, 1], C 1 or 3, with a white gap; enlarged by a whole factor if small."""
    factor = -(-_LEAST // left.shape[1])
    one, other = (np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8).repeat(factor, 1).repeat(factor, 2)
                  for image in (left, right))
    gap = np.full((*one.shape[:2], _GAP), 255, np.uint8)
    both = np.concatenate([one, gap, other], axis=2)
    return png(both[0] if len(both) == 1 else np.moveaxis(both, 0, 2))
