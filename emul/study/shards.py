"""A sweep in parts, on machines that share nothing but a checkout or a wheel: run by shard, collected afterwards."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from emul.study.cells import Cell
from emul.study.directory import StudyError, finished
from emul.study.job import CELLS


@dataclass(frozen=True)
class Shard:
    """Part `number` of `of`, from 1 on."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def part(self, cells: Sequence[Cell]) -> list[Cell]:
        """Its cells. All shards together have each once, in numbers that differ by one at most; cells of one scheme
        and seed, whose trainings may be the same, stay together as far as that lets them."""
        ordered = sorted(cells, key=lambda cell: (cell.scheme, cell.seed))      # stable: values as the grid has them
        begin, end = (len(ordered) * k // self.of for k in (self.number - 1, self.number))
        mine = {cell.key for cell in ordered[begin:end]}
        return [cell for cell in cells if cell.key in mine]


def shard(text: str) -> Shard:
    """
    >>> shard("3/16")
    Shard(number=3, of=16)

    Raises ValueError.
    """
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise ValueError("expected a part and their number, such as 3/16")
    return Shard(int(found[1]), int(found[2]))


def collect(path: Path, cells: Sequence[Cell], studies: Sequence[Path]) -> int:
    """Copy into the study at `path`, which is opened, the finished runs of its cells that others have; how many.

    A copy is there whole or not at all. Raises StudyError for a folder that is no study.
    """
    for other in studies:
        if not (other / CELLS).is_dir():
            raise StudyError(f"{other}: no directory of a study, such as `emul sweep --shard` makes")
    copied = 0
    for cell in cells:
        source = next((other for other in studies if finished(other, cell)), None)
        if source is None or finished(path, cell):
            continue
        target, temporary = (path / CELLS / name for name in (cell.key, f".{cell.key}.tmp"))
        shutil.rmtree(target, ignore_errors=True)           # an unfinished run
        shutil.copytree(source / CELLS / cell.key, temporary)
        temporary.rename(target)
        copied += 1
    return copied
