"""Results of attacks on a run's privacy: tables beside its record, which they are no part of.

    attacks/<label>.csv             a row each thing that was attacked
    attacks/<label>.json            which attack, with which parameters, on which digest; captions of pictures
    attacks/<label>.pictures/1.png  what was there beside what was found, of attacks that find images
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from emul.base.files import as_file_name, from_file_name, write_atomically
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
    _write_pictures(file.with_suffix(PICTURES), [content for _, content in pictures])
    with write_atomically(file) as path:
        pd.DataFrame(list(rows)).to_csv(path, index=False, lineterminator="\n")
    write_json(file.with_suffix(".json"), dict(about) | {"pictures": [caption for caption, _ in pictures]})
    return file


def _write_pictures(folder: Path, found: Sequence[bytes]) -> None:
    """1.png, 2.png, ... in place of what was there; no folder without pictures."""
    if folder.is_dir():
        shutil.rmtree(folder)
    for number, content in enumerate(found, 1):
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.png").write_bytes(content)


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
        rows = csv.read_csv(file).to_pandas()
    except (OSError, ValueError, pa.ArrowException) as error:
        raise RecordError(f"{file}: no table: {' '.join(str(error).split())[:200]}") from None
    about = read_json(file.with_suffix(".json"))
    if not isinstance(about.get("parameters"), dict) or not isinstance(about.get("attack"), str):
        raise RecordError(f"{file.with_suffix('.json')}: expected an attack and its parameters")
    return Attacked(label, about, rows, _pictures(file.with_suffix(PICTURES), about.get("pictures", [])))


def _pictures(folder: Path, captions: object) -> list[tuple[str, Path]]:
    """Those that are there still."""
    if not isinstance(captions, list):
        raise RecordError(f"{folder.with_suffix('.json')}: pictures: expected a list of captions")
    found = [(str(caption), folder / f"{number}.png") for number, caption in enumerate(captions, 1)]
    return [(caption, file) for caption, file in found if file.is_file()]
