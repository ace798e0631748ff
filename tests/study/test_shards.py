"""Sweeps in parts: every cell in one of them, and a study of all that equals the one that was run at once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emul.study.cells import Cell
from emul.study.directory import StudyError
from emul.study.runs import Where
from emul.study.sweep import Shard, shard, sweep

Inside = Callable[..., Where]
GRID = {"links[1].outage.p": [0.1, 0.6]}


@given(st.integers(0, 60), st.integers(1, 20))
def test_the_parts_have_each_cell_once_in_their_order_and_in_like_numbers(count: int, of: int) -> None:
    cells = [Cell(f"{i:x}", "ab"[i % 2], i % 5, {}, None) for i in range(count)]        # type: ignore[arg-type]
    parts = [Shard(k, of).part(cells) for k in range(1, of + 1)]
    assert sorted(cell.key for part in parts for cell in part) == sorted(cell.key for cell in cells)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert all(part == [cell for cell in cells if cell in part] for part in parts)


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", "-1/2"])
def test_a_wrong_part_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="such as 3/16"):
        shard(text)


def test_parts_that_are_collected_are_the_whole_sweep(small: Path, inside: Inside, tmp_path: Path) -> None:
    whole = sweep(small, inside(), grid=GRID, seeds=[1, 2], schemes=["fedavg"], out=tmp_path / "whole")
    parts = [sweep(small, inside(), grid=GRID, seeds=[1, 2], schemes=["fedavg"], shard=Shard(k, 3)) for k in (1, 2, 3)]
    assert [part.path.name for part in parts] == ["small-sweep-1of3", "small-sweep-2of3", "small-sweep-3of3"]
    assert sorted(len(part.runs) for part in parts) == [1, 1, 2]

    some = sweep(small, inside(), grid=GRID, seeds=[1, 2], schemes=["fedavg"],
                 collected=[part.path for part in parts[:2]])
    assert len(some.runs) == len(parts[0].runs) + len(parts[1].runs)
    assert f"{4 - len(some.runs)} of 4 cells are in none of these studies" in some.warnings[-1]
    shutil.rmtree(parts[0].path)                        # what was collected is a copy
    found = sweep(small, inside(), grid=GRID, seeds=[1, 2], schemes=["fedavg"], collected=[parts[2].path])
    assert not found.warnings
    tables = [pd.read_csv(study.path / "results.csv").drop(columns="real_s") for study in (whole, found)]
    pd.testing.assert_frame_equal(*tables)


def test_what_is_no_study_cannot_be_collected(small: Path, inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(StudyError, match=r"other: no directory of a study"):
        sweep(small, inside(), schemes=["fedavg"], collected=[tmp_path / "other"])
