import json
import os
from dataclasses import fields

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from emul.base import files
from emul.base import rows as R
from emul.base.errors import EmulError
from emul.record import rundir
from emul.record.columns import columns
from emul.record.journal import Journal, RecordError, digest_of
from emul.record.load import load_run, opened
from emul.record.side_tables import write_samples
from emul.record.summary import Facts, final_mean, summarise, write_results
from emul.record.tables import (
    COLUMNS,
    computations_from,
    computations_table,
    derive,
    messages_from,
    messages_table,
    read_table,
    recorded_costs,
    rounds_table,
)
from emul.roles.events import WaitEnd

OBSERVED = [(0, 1, {"accuracy": 0.5, "loss": 1.25})]
TIMED = [(0, "aggregate", 0.0, 1000), (1, "train", 5.0, 2000)]


def facts(digest: str = "00" * 16) -> Facts:
    return Facts("fedavg", 210, 1.5, digest, 12, {("server", "fedavg.py:33"): 2}, {"client": 1},
                 {"client": [3_000_000_000, 2_000_000]})


@pytest.fixture
def run(tmp_path, rows, header, latencies):
    directory = rundir.create(tmp_path / "runs", "hand", "fedavg")
    journal = Journal(directory.journal, header)
    for row in rows:
        journal.append(row)
    write_results(directory, facts(journal.close()), OBSERVED, TIMED, latencies)
    return load_run(directory.path)


def listed(frame, *names):
    """The columns as lists of Python values, None for nulls."""
    return [[None if pd.isna(v) else v for v in frame[name].astype(object)] for name in names]


def test_messages_are_exact(run):
    m = run.messages
    assert list(m.columns) == list(COLUMNS["messages"])
    names = "source_name seq target_name type round payload_bytes wire_bytes hops sent_ns arrived_ns fate unread"
    assert list(zip(*listed(m, *names.split()), strict=True)) == [
        ("server", 0, "client1", "Model", 1, 84, 210, 2, 0, 22, "delivered", False),
        ("server", 1, "client2", "Model", 1, 84, 210, 2, 0, 23, "delivered", False),
        ("server", 2, "server", "Note", 1, 5, 0, 0, 0, 0, "delivered", False),
        ("client1", 0, "server", "Update", 1, 184, 400, 2, 122, 146, "delivered", False),
        ("server", 3, "client1", "Model", 2, 84, 210, 2, 146, None, "lost", False),
        ("server", 4, "client2", "Model", 2, 84, 210, 2, 146, 169, "to_ended", False),
        ("client2", 0, "server", "Hello", 0, 34, 100, 2, 170, 192, "delivered", True),
        ("server", 5, "client1", "Model", 3, 84, 100, 1, 200, None, "in_flight", False)]
    assert listed(m, "lost_ns", "lost_vertex", "lost_next") == [
        [None] * 4 + [168] + [None] * 3, [None] * 4 + ["router"] + [None] * 3, [None] * 4 + ["client1"] + [None] * 3]


def test_times_are_exact_beyond_what_a_float_holds(tmp_path, header):
    long = 2**53 + 1
    directory = rundir.create(tmp_path, "hand", "fedavg")
    journal = Journal(directory.journal, header)
    for row in ((R.SEND, long, 0, 0, 1, "Model", 0, 16, 0, 0, 2), (R.SEND, long, 0, 1, 1, "Model", 0, 16, 0, 0, 2),
                (R.DELIVER, long + 2, 0, 0, R.INBOX)):
        journal.append(row)
    write_results(directory, facts(journal.close()))
    m = load_run(directory.path).messages
    assert (m.sent_ns[0], m.arrived_ns[0]) == (long, long + 2)
    assert m.arrived_ns.dtype == "Int64"


def test_late_at_the_delivery_and_late_in_the_inbox_are_both_late(header, rows):
    rows = [(R.DELIVER, 192, 2, 0, R.DELIVERED_LATE) if row == (R.DELIVER, 192, 2, 0, R.INBOX) else row
            for row in rows if row[0] != R.UNREAD]
    rows.append((R.LATE, 210, 0, 2))
    m = derive(columns(rows), header).messages
    assert m.fate.tolist() == [0, 0, 1, 0, 2, 3, 1, 4]
    assert m.arrived_ns.tolist()[2] == 0


def test_computations_tell_what_cut_them(run):
    c = run.computations
    assert list(c.columns) == list(COLUMNS["computations"])
    assert list(zip(*listed(c, *c.columns), strict=True)) == [
        (1, "client1", "client", "train", 1, 22, 100, 122, 5.0, True, False),
        (2, "client2", "client", "train", 1, 23, 400, 50, 5.0, False, False),
        (0, "server", "server", "aggregate", 1, 146, 0, 146, 0.0, True, False)]


def test_computations_abandoned_or_open_at_the_end_and_at_one_instant(header):
    rows = [(R.START, 0, 0, 0), (R.COMPUTE, 0, 0, "a", 10, 0.0, 1), (R.RESUME, 6, 0, 3, 0),
            (R.COMPUTE, 6, 0, "b", 4, 0.0, 2), (R.COMPUTED, 10, 0), (R.COMPUTE, 10, 0, "c", 0, 0.0, 2),
            (R.COMPUTED, 10, 0), (R.COMPUTE, 10, 0, "d", 0, 0.0, 2)]
    c = derive(columns(rows), header).computations
    assert c.end_ns.tolist() == [6, 10, 10, -1]
    assert c.finished.tolist() == [False, True, True, False]


def test_rounds_hold_outcome_reports_observations_and_bytes(run):
    r = run.rounds
    assert list(r.columns) == [*COLUMNS["rounds"], "accuracy", "loss", "received", "note"]
    assert list(zip(*listed(r, *r.columns), strict=True)) == [
        (1, 0, "server", 0, 146, True, "", False, 146, 4, 357, 820, 0.5, 1.25, 1, None),
        (2, 0, "server", 146, 200, False, "TimedOut: nobody answered", True, None, 2, 168, 420, None, None, 0, "none"),
        (3, 0, "server", 200, None, False, "run ended", True, None, 1, 84, 100, None, None, None, None)]


def test_a_reported_name_that_is_taken_is_renamed_and_a_crash_ends_a_round(header):
    rows = [(R.ENTER, 0, 0, 1), (R.REPORT, 3, 0, 1, {"accuracy": 1, "why": "x", "mixed": "a"}, ""),
            (R.CRASH, 5, 0), (R.ENTER, 9, 0, 2), (R.REPORT, 9, 0, 2, {"mixed": 2**80}, "")]
    one, two = derive(columns(rows), header, [(0, 1, {"accuracy": 0.25})]).rounds
    assert (one["accuracy"], one["reported_accuracy"], one["reported_why"]) == (0.25, 1, "x")
    assert (one["why"], one["left_ns"], one["completed"]) == ("crashed", 5, False)
    assert (two["why"], two["left_ns"]) == ("run ended", None)


def test_a_round_that_its_deadline_ended_says_when_the_last_message_would_have_come(header):
    rows = [(R.ENTER, 0, 0, 1), (R.SEND, 1, 1, 0, 0, "Update", 4, 20, 1, 1, 0),
            (R.SEND, 1, 2, 0, 0, "Update", 4, 20, 1, 2, 0), (R.DELIVER, 5, 1, 0, R.INBOX),
            (R.RESUME, 10, 0, WaitEnd.TIMEOUT, 1), (R.LEAVE, 10, 0, 1, ""), (R.ENTER, 10, 0, 2),
            (R.DELIVER, 14, 2, 0, R.DELIVERED_LATE), (R.RESUME, 15, 0, WaitEnd.COMPLETE, 0), (R.LEAVE, 15, 0, 2, "")]
    derived = derive(columns(rows), header)
    found = rounds_table(derived.rounds, derived.messages)
    assert found["deadline_ended"].to_pylist() == [True, False]
    assert found["last_arrival_ns"].to_pylist() == [14, None]


def test_timings_are_apart(run):
    assert listed(run.timings, *COLUMNS["timings"]) == [
        [0, 1], ["server", "client1"], ["server", "client"], ["aggregate", "train"], [0.0, 5.0], [1000, 2000]]


def test_the_summary_is_exact(run, rows):
    s = run.summary
    digest = digest_of(rows)
    wanted = {
        "scheme": "fedavg", "label": "fedavg", "parameters": {}, "parameters_given": [], "seed": 7,
        "rounds": 1, "rounds_failed": 2, "rounds_unanswered": 0, "rounds_missed": {"client": 1},
        "first_failure": "round 2 at server: TimedOut: nobody answered",
        "accuracy": 0.5, "virtual_seconds": 210 / 1e9, "bytes_total": 1440, "bytes_payload": 638,
        "bytes_by_type": {"Hello": 100, "Model": 940, "Note": 0, "Update": 400}, "messages_sent": 8,
        "messages_delivered": 5, "messages_lost": 1, "messages_late": 0, "messages_to_ended": 1,
        "messages_in_flight": 1, "messages_unread": 1,
        "compute_virtual_seconds": {"client": {"train": 127 / 1e9}, "server": {"aggregate": 0.0}},
        "oracle_waits": {"server@fedavg.py:33": 2}, "activations": 12, "journal_rows": len(rows),
        "invariants": "hold", "digest_journal": digest, "real_seconds": 1.5,
        "real_uncharged": {"client": {"total_s": 3.0, "max_ms": 2.0}}}
    assert {key: s[key] for key in wanted} == wanted
    assert s["bytes_by_link"][:2] == [{"link": "server->router", "bytes": 500, "messages": 5, "lost": 0},
                                      {"link": "router->server", "bytes": 250, "messages": 2, "lost": 0}]
    assert sum(link["bytes"] for link in s["bytes_by_link"]) == 1440
    assert [link["lost"] for link in s["bytes_by_link"] if link["link"] == "router->client1"] == [1]
    assert {"python", "emul", "torch", "numpy", "simpy", "platform"} <= set(s["versions"])


def test_the_digest_follows_journal_and_model(header, rows):
    def digests(some):
        s = summarise(derive(columns(some), header), facts(digest_of(some)))
        return s["digest"], s["digest_model"]

    other_model = [(*row[:5], "bb") if row[0] == R.REPORT and row[5] else row for row in rows]
    other_rows = rows[:-1]
    assert digests(rows) == digests(list(rows))
    assert digests(other_model)[1] != digests(rows)[1]
    assert digests(other_rows)[1] == digests(rows)[1]
    assert len({digests(some)[0] for some in (rows, other_model, other_rows)}) == 3


def test_accuracy_is_the_last_observed_over_all_its_nodes():
    assert final_mean([], "accuracy") is None
    assert final_mean([(0, 3, {"loss": 1.0})], "accuracy") is None
    assert final_mean([(1, 2, {"accuracy": 0.5}), (0, 1, {"accuracy": 0.9}), (0, 2, {"accuracy": 1.0})],
                      "accuracy") == 0.75


def test_an_empty_run_has_empty_tables(tmp_path, header):
    directory = rundir.create(tmp_path, "hand", "fedavg")
    journal = Journal(directory.journal, header)
    summary, report = write_results(directory, facts(journal.close()))
    run = load_run(directory.path)
    assert [len(f) for f in (run.rounds, run.messages, run.computations, run.timings)] == [0] * 4
    assert list(run.rounds.columns) == list(COLUMNS["rounds"])
    assert summary["bytes_total"] == 0
    assert not report.violations


def test_a_row_of_an_unknown_message_is_refused(header):
    with pytest.raises(RecordError, match=r"^journal, row 1: a lost row of a message that was never sent$"):
        derive(columns([(R.START, 0, 0, 0), (R.LOST, 5, 1, 7, 0, 1)]), header)


@pytest.mark.parametrize("row", [(99, 0), (R.COMPUTED, 0), (R.COMPUTED, 0, "x"), (R.COMPUTED, 0, 2**70), ()])
def test_rows_that_are_none_are_refused(row):
    with pytest.raises(RecordError, match=r"^journal: among the rows from 0 on is one that is no row of a journal: "):
        columns([row])


def test_recorded_costs_are_those_of_each_node_in_order(tmp_path, rows, header):
    journal = Journal(tmp_path / "journal", header)
    for row in rows:
        journal.append(row)
    journal.close()
    assert recorded_costs(tmp_path) == recorded_costs(tmp_path / "journal") == {0: [0], 1: [100], 2: [400]}


# --- read again -----------------------------------------------------------------------------------------------------

def equal(found, expected):
    """Whether two values have the same arrays, to the type, and the same lists."""
    pairs = [(getattr(found, one.name), getattr(expected, one.name)) for one in fields(expected)]
    return all(a == b if isinstance(b, list) else a.dtype == b.dtype and a.tolist() == b.tolist() for a, b in pairs)


def through_a_file(table, path, rows_at_once):
    pq.write_table(table, path, compression="zstd", row_group_size=rows_at_once)
    return read_table(path)


@pytest.mark.parametrize("rows_at_once", [2, 1000])
def test_arrays_come_back_from_their_tables(tmp_path, header, rows, rows_at_once):
    for some in (rows, [row for row in rows if row[0] == R.ENTER], [*rows, (R.REJECT, 210, 0, 2, "no, \"never\"")]):
        run = derive(columns(some), header)
        m = through_a_file(messages_table(run.messages, header), tmp_path / "messages.parquet", rows_at_once)
        c = through_a_file(computations_table(run.computations, header), tmp_path / "c.parquet", rows_at_once)
        assert equal(messages_from(m, 3, header["network"]), run.messages)
        assert equal(computations_from(c, 3), run.computations)


def test_a_record_reads_its_tables_and_joins_no_rows(run, monkeypatch):
    monkeypatch.setattr("emul.record.load.read", None)
    record = opened(run.path, ())
    assert record.messages.wire_bytes.tolist() == run.messages.wire_bytes.tolist()
    assert record.computations.cost_ns.tolist() == run.computations.cost_ns.tolist()
    assert record.end_ns == 210


def test_a_table_that_is_not_as_a_run_writes_it_is_an_error_with_file_and_place(run):
    file = run.path / "messages.parquet"
    whole = pq.read_table(file)
    at = whole.column_names.index
    for name, column, said in (
            ("target", pa.array([3] * len(whole)), r"column target: nodes 3 to 3; the run has 0 to 2"),
            ("round", pa.nulls(len(whole), pa.int64()), r"column round: 8 nulls"),
            ("fate", pa.array(["eaten"] * len(whole)).dictionary_encode(), r'found "eaten", expected one of deliv')):
        pq.write_table(whole.set_column(at(name), name, column), file)
        with pytest.raises(RecordError, match=rf"messages\.parquet: .*{said}"):
            _ = opened_without_seal(run.path).messages
    pq.write_table(whole.drop_columns(["hops"]), file)
    with pytest.raises(RecordError, match=r"messages\.parquet: no column hops; there are source, source_name, "):
        _ = opened_without_seal(run.path).messages


@pytest.mark.parametrize(("column", "values", "said"), [
    ("source", pa.array(["a"]), "of string, expected int"),
    ("source", pa.array([1.5]), "of double, expected int"),
    ("source", pa.array([[1]]), "of list<.*>, expected int"),
    ("source", pa.array([None], pa.int64()), "1 nulls, expected none"),
    ("sent_ns", pa.array([-1]), "found -1, expected 0 or more"),
    ("type", pa.array([b"\xff"]), "of binary, expected text"),
    ("unread", pa.array([1]), "of int64, expected bool"),
])
def test_a_column_of_another_type_is_named_with_what_was_expected(tmp_path, column, values, said):
    file = tmp_path / "messages.parquet"
    pq.write_table(pa.table({column: values}), file)
    with pytest.raises(RecordError, match=rf"messages\.parquet: column {column}: {said}$"):
        read_table(file)


def test_no_table_is_read_from_a_pipe_a_link_out_or_beyond_its_size(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    file = tmp_path / "run" / "odd.parquet"
    os.mkfifo(file)
    with pytest.raises(RecordError, match=r"odd\.parquet: no table: expected a regular file$"):
        read_table(file)
    file.unlink()
    pq.write_table(pa.table({"n": [0] * 300_000}), tmp_path / "other.parquet", compression="zstd")
    file.symlink_to(tmp_path / "other.parquet")
    with pytest.raises(RecordError, match=r"odd\.parquet: a link that leads out of its folder$"):
        read_table(file)
    monkeypatch.setattr("emul.base.parquet._CELLS", 1000)
    with pytest.raises(RecordError, match=r": 300000 rows of 1 columns, expected at most \d+ values in a file of this"):
        read_table(tmp_path / "other.parquet")
    # a megabyte that is the value of every row, in a file of 2 kB: read as it is, it would take 300 GB
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 300_000, pa.int32()), pa.array(["x" * 2**20]))
    pq.write_table(pa.table({"text": text}), tmp_path / "text.parquet", compression="zstd", store_schema=False)
    monkeypatch.setattr("emul.base.parquet._CELLS", 300_000)
    with pytest.raises(RecordError, match=rf": {300_000 * 2**20} bytes of texts, expected at most \d+ in a file"):
        read_table(tmp_path / "text.parquet")


def test_texts_are_read_in_the_form_in_which_they_were_written(tmp_path):
    coded = pa.array(["c", "c", None]).dictionary_encode()
    table = pa.table({"plain": ["a", None, "b"], "coded": coded, "n": [1, 2, 3]})
    pq.write_table(table, tmp_path / "other.parquet")
    assert read_table(tmp_path / "other.parquet").equals(table)
    assert read_table(tmp_path / "other.parquet", ["n", "plain"], where=("plain", ["b"])).to_pydict() == {
        "n": [3], "plain": ["b"]}


def test_a_column_of_lists_is_refused_before_anything_of_it_is_read(tmp_path, monkeypatch):
    pq.write_table(pa.table({"odd": [[1, 2, 3]]}), tmp_path / "other.parquet")
    monkeypatch.setattr(pq, "read_table", None)
    with pytest.raises(RecordError, match=r": column odd: of list<.*>, expected numbers, texts or truth values$"):
        read_table(tmp_path / "other.parquet")


def test_a_table_that_was_changed_since_it_was_sealed_is_not_read(run, caplog):
    file = run.path / "samples.parquet"
    counts = [(0, "a", 1, 3, None)]
    write_samples(run.path, counts)
    rundir.RunDirectory(run.path).finish()
    assert read_table(file)["samples"].to_pylist() == [3]
    write_samples(run.path, [(0, "a", 1, 4, "cat")])
    with pytest.raises(RecordError, match=r"damaged or changed since the run: samples\.parquet;"):
        _ = run.samples
    (run.path / rundir.SEAL).unlink()
    load_run(run.path)
    load_run(run.path)
    assert [one.getMessage() for one in caplog.records] == [
        f"{run.path}: has no seal.json, so nothing tells whether its files are as the run wrote them"]


def opened_without_seal(path):
    (path / "seal.json").unlink(missing_ok=True)
    return opened(path, ())


# --- directories ----------------------------------------------------------------------------------------------------

def test_directories_are_numbered_and_never_reused(tmp_path):
    made = [rundir.create(tmp_path / "runs", "my run/x", "fedavg").path for _ in range(3)]
    assert [path.name for path in made] == ["my_run_x-fedavg-1", "my_run_x-fedavg-2", "my_run_x-fedavg-3"]
    made[1].joinpath("INCOMPLETE").unlink()
    made[1].rmdir()
    assert rundir.create(tmp_path / "runs", "my run/x", "fedavg").path == made[1]


def test_the_mark_goes_when_everything_is_written(tmp_path, run):
    assert not (run.path / "INCOMPLETE").exists()
    assert sorted(p.name for p in run.path.iterdir()) == [
        "computations.parquet", "journal", "messages.parquet", "network.parquet", "rounds.parquet", "seal.json",
        "summary.json", "timings.parquet"]
    assert not rundir.create(tmp_path, "a", "b").complete


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "f"
    path.write_text("old")
    with pytest.raises(OSError, match="full"), files.write_atomically(path) as temporary:  # noqa: PT012
        temporary.write_text("half")
        raise OSError("full")
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]


def test_json_has_no_nan(tmp_path):
    rundir.write_json(tmp_path / "s", {"accuracy": float("nan"), "x": [float("inf"), 1.5]})
    assert json.loads((tmp_path / "s").read_text()) == {"accuracy": None, "x": [None, 1.5]}


def test_a_run_that_did_not_end_cannot_be_loaded(tmp_path):
    with pytest.raises(EmulError, match=r"missing: no directory of a run that ended$"):
        load_run(tmp_path)
