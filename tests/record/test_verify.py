"""A record that was replaced, cut or edited anywhere is reported with its file and place."""

from __future__ import annotations

import json
import random
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from emul import engine
from emul.base import rows as R
from emul.base.errors import ReplayMismatch, ScenarioError
from emul.record import rundir, verify
from emul.record.journal import Journal, RecordError, read
from emul.scenario import loads

TEXT = """
emul: 1
name: small
seed: 7
topology: {generator: star, clients: 3}
links: [{match: "*", latency: 20 ms, bandwidth: 20 Mbit/s, outage: {model: bernoulli, p: 0.2, per: message}}]
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: zero}
schemes: [{name: fedavg, deadline: 1 s}]
stop: {rounds: 3}
"""
FILES = ("command.json", "journal", "scenario.resolved.yaml", "summary.json", "rounds.parquet", "messages.parquet",
         "computations.parquet", "timings.parquet", "network.parquet", "samples.parquet", "models/server.safetensors")


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    return engine.run(loads(TEXT), workers=0, out=tmp_path_factory.mktemp("runs"))[0].directory


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "run")


def said(run: Path) -> str:
    with pytest.raises(ReplayMismatch) as caught:
        engine.replay(run, workers=0)
    return str(caught.value)


def told(run: Path) -> str:
    """What reading alone says of a record."""
    try:
        return " ".join(verify.open_record(run).changed)
    except ReplayMismatch as error:
        return str(error)


def reseal(run: Path) -> None:
    """As somebody would who edits a record and knows of the seal."""
    rundir.write_json(run / "seal.json", {"files": rundir.fingerprints(run)})


def test_every_file_of_a_run_is_sealed_and_the_record_comes_out_again(run: Path) -> None:
    assert set(json.loads((run / "seal.json").read_text())["files"]) == set(FILES)
    assert engine.replay(run, workers=0) == json.loads((run / "summary.json").read_text())["digest"]


def test_a_journal_of_random_bytes_and_a_table_of_text_are_both_reported(run: Path) -> None:
    (run / "journal").write_bytes(random.Random(1).randbytes(5000))
    (run / "messages.parquet").write_text("no table\n")
    text = said(run)
    assert text.splitlines()[0] == f"{run}: 2 differences"
    assert "\n  journal, byte 0: " in text
    assert "\n  messages.parquet: 9 bytes, " in text


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_gone_or_replaced_by_text_is_named(run: Path, name: str) -> None:
    (run / name).write_text("hello\n")
    with pytest.raises((ReplayMismatch, ScenarioError), match=re.escape(name)):
        engine.replay(run, workers=0)
    (run / name).unlink()
    if name == "summary.json":
        with pytest.raises(RecordError, match="no directory of a run that ended"):
            engine.replay(run, workers=0)
    else:
        assert f"{name}: missing" in said(run) or f"{name}: No such file" in said(run)


@pytest.mark.parametrize("name", [*FILES, "seal.json"])
def test_a_flipped_bit_anywhere_is_found_by_reading_alone(run: Path, name: str) -> None:
    blob = (run / name).read_bytes()
    chance = random.Random(name)
    for place in [0, 1, 4, 8, len(blob) // 2, len(blob) - 5, len(blob) - 1, *chance.choices(range(len(blob)), k=40)]:
        (run / name).write_bytes(blob[:place] + bytes([blob[place] ^ 1 << chance.randrange(8)]) + blob[place + 1:])
        found = told(run)
        assert name in found or (name == "seal.json" and found), place


def test_a_journal_that_is_cut_is_reported_at_its_end(run: Path) -> None:
    blob = (run / "journal").read_bytes()
    *_, last = (offset for offset, _ in read(run / "journal")._whole_frames())
    (run / "journal").write_bytes(blob[:last])
    assert "journal: ends after row " in said(run)
    (run / "journal").write_bytes(blob[:-3])
    assert "journal: ends after row " in said(run)
    (run / "journal").write_bytes(blob + b"more")
    assert "journal: 4 bytes stand after the end of the journal" in said(run)


def rewritten(run: Path, change: Callable[[list], list], **header) -> None:
    """The journal with other rows, written as emul would: every checksum is right."""
    source = read(run / "journal")
    rows = list(source)
    (run / "journal").unlink()
    journal = Journal(run / "journal", {**{k: v for k, v in source.header.items() if k != "format"}, **header})
    for row in change(rows):
        journal.append(row)
    journal.close()


def test_an_edited_row_is_named_even_if_every_checksum_is_right(run: Path) -> None:
    def later(rows: list) -> list:
        at = next(i for i, row in enumerate(rows) if row[0] == R.DELIVER)
        return [*rows[:at], (R.DELIVER, rows[at][1] + 1, *rows[at][2:]), *rows[at + 1:]]
    rewritten(run, later)
    reseal(run)
    text = said(run)
    assert text.startswith(f"{run}: journal, row ")
    assert text.endswith("differ in time_ns")


def test_a_row_too_few_and_another_header_are_named(run: Path) -> None:
    rewritten(run, lambda rows: rows[:-1], seed=8)
    reseal(run)
    text = said(run)
    assert "journal, header, seed: 8, computed again 7" in text
    assert "recorded  (ends before)" in text


def test_a_digest_that_the_rows_do_not_have_is_reported(run: Path) -> None:
    frames = list(read(run / "journal")._whole_frames())
    offset, end = frames[-1]
    blob = msgspec.msgpack.encode({**msgspec.msgpack.decode(end), "digest": "0" * 32})
    whole = (run / "journal").read_bytes()[:offset]
    (run / "journal").write_bytes(whole + len(blob).to_bytes(4, "little") + zlib.crc32(blob).to_bytes(4, "little")
                                  + blob)
    reseal(run)
    assert "journal: the end frame states the digest 00000000000000000000000000000000" in said(run)


@pytest.mark.parametrize(("name", "column"), [("messages", "wire_bytes"), ("rounds", "accuracy"),
                                              ("computations", "cost_ns"), ("network", "value")])
def test_an_edited_cell_is_named_even_if_it_was_sealed_again(run: Path, name: str, column: str) -> None:
    file = run / f"{name}.parquet"
    table = pq.read_table(file)
    cells = table[column].to_pylist()
    cells[1] += 1
    place = table.column_names.index(column)
    pq.write_table(table.set_column(place, column, pa.array(cells, table[column].type)), file)
    reseal(run)
    assert f"{run}: {name}.parquet, row 1, column {column}: {cells[1]!r}, computed again " in said(run)


def test_rows_and_columns_that_are_missing_are_named(run: Path) -> None:
    table = pq.read_table(run / "messages.parquet")
    pq.write_table(table.slice(1), run / "messages.parquet")
    pq.write_table(pq.read_table(run / "rounds.parquet").drop_columns(["loss"]), run / "rounds.parquet")
    reseal(run)
    text = said(run)
    assert f"messages.parquet: {len(table) - 1} rows, computed again {len(table)}" in text
    assert "rounds.parquet: columns round, node" in text


def test_an_edited_summary_is_named_by_its_key(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    summary["bytes_by_type"]["Model"] += 1
    summary["accuracy"] = 1.0
    rundir.write_json(run / "summary.json", summary)
    reseal(run)
    text = said(run)
    assert "summary.json, accuracy: 1.0, computed again 0." in text
    assert "summary.json, bytes_by_type.Model: " in text


def test_real_times_may_differ_unless_the_seal_knows_them(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    rundir.write_json(run / "summary.json", {**summary, "real_seconds": 99.0})
    assert said(run).endswith("summary.json: its bytes are not those that were written") or "bytes, " in said(run)
    reseal(run)
    assert engine.replay(run, workers=0) == summary["digest"]
