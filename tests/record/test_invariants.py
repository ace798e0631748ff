"""Each invariant must be able to fail: a sound journal is broken in one way, and the report names that way."""

import pytest

from emul.base import rows as R
from emul.record.invariants import check

FATE, ROUTES, BYTES, LATENCY, ORDER, BACK, ACTIONS, SILENCE, LIVING, DROPPED, REASON, ROUNDS, LANES = (
    "every message has one fate", "routes are unbroken", "bytes are conserved on every link",
    "nothing is faster than its links", "links keep the order", "no node goes back in time",
    "nodes act at their activations", "the dead are silent", "only the living receive",
    "who drops out of a round is out of it", "rejections have a reason", "rounds grow", "lanes take turns")


def replace(rows, old, new):
    assert rows.count(old) == 1
    at = rows.index(old)
    return [*rows[:at], new, *rows[at + 1:]]


def insert(rows, after, new):
    at = rows.index(after) + 1
    return [*rows[:at], new, *rows[at:]]


def test_a_sound_run_holds(rows, header, latencies):
    report = check(rows, header, latencies)
    assert [one.name for one in report] == [FATE, ROUTES, BYTES, LATENCY, ORDER, BACK, ACTIONS, SILENCE, LIVING,
                                            DROPPED, REASON, ROUNDS, LANES]
    assert not report.violations, report.text()
    assert report[0].detail == "8 sent = 6 delivered, late or to ended + 1 lost + 1 in flight"
    assert report[2].detail == ("1440 B offered to 6 links = 1230 passed + 110 lost + 100 in flight")


def test_an_empty_run_holds(header):
    assert not check([], header).violations


BROKEN = {
    "two computations on a lane": (
        lambda r: insert(insert(r, (R.COMPUTE, 22, 1, "train", 100, 5.0, 1), (R.COMPUTE, 22, 1, "add", 9, 0.0, 1)),
                         (R.COMPUTE, 22, 1, "add", 9, 0.0, 1), (R.BESIDE, 22, 1, 1, 0)),
        {LANES: "client1 begins add at 22 ns, while train is on its lane"}),
    "delivered twice": (
        lambda r: insert(r, (R.DELIVER, 22, 0, 0, R.INBOX), (R.DELIVER, 22, 0, 0, R.INBOX)),
        {FATE: "message 0:0 has more than one outcome"}),
    "delivered and lost": (
        lambda r: insert(r, (R.DELIVER, 22, 0, 0, R.INBOX), (R.LOST, 22, 0, 0, 1, 2)),
        {FATE: "message 0:0 has more than one outcome",
         BYTES: "router->client1: 220 B offered, 110 B passed + 220 B lost + 0 B in flight"}),
    "sent twice": (
        lambda r: insert(r, (R.SEND, 0, 0, 0, 1, "Model", 84, 100, 1, 0, 1),
                         (R.SEND, 0, 0, 0, 1, "Model", 84, 100, 1, 0, 1)),
        {FATE: "message 0:0 is sent twice"}),
    "never sent": (
        lambda r: insert(r, (R.DELIVER, 22, 0, 0, R.INBOX), (R.DELIVER, 22, 1, 9, R.INBOX)),
        {FATE: "message 1:9 has a deliver row but was never sent"}),
    "a hop of nothing": (
        lambda r: insert(r, (R.DELIVER, 22, 0, 0, R.INBOX), (R.HOP, 22, 1, 9, 50, 1, 2)),
        {FATE: "message 1:9 has a hop row but was never sent"}),
    "discarded twice": (
        lambda r: [*r, (R.LATE, 210, 2, 0)],
        {FATE: "message 2:0 is discarded twice"}),
    "discarded without a delivery": (
        lambda r: [*r, (R.UNREAD, 210, 0, 5)],
        {FATE: "message 0:5 is discarded but never came to an inbox"}),
    "a gap in the route": (
        lambda r: replace(r, (R.HOP, 11, 0, 0, 110, 1, 2), (R.HOP, 11, 0, 0, 110, 3, 2)),
        {ROUTES: "message 0:0 did not come to where it takes client2->client1"}),
    "a route from elsewhere": (
        lambda r: replace(r, (R.SEND, 170, 2, 0, 0, "Hello", 34, 50, 0, 3, 1),
                          (R.SEND, 170, 2, 0, 0, "Hello", 34, 50, 0, 2, 1)),
        {ROUTES: "message 2:0 did not come to where it takes client1->router"}),
    "arrives elsewhere": (
        lambda r: replace(r, (R.HOP, 11, 0, 0, 110, 1, 2), (R.HOP, 11, 0, 0, 110, 1, 3)),
        {ROUTES: "message 0:0 is delivered, but not at the end of router->client2"}),
    "lost elsewhere": (
        lambda r: replace(r, (R.LOST, 168, 0, 3, 1, 2), (R.LOST, 168, 0, 3, 0, 1)),
        {ROUTES: "message 0:3 is lost on another link than router->client1",
         BYTES: "server->router: 500 B offered, 400 B passed + 100 B lost + 100 B in flight"}),
    "fewer bytes than the frames": (
        lambda r: replace(r, (R.HOP, 11, 0, 0, 110, 1, 2), (R.HOP, 11, 0, 0, 99, 1, 2)),
        {BYTES: "message 0:0 took 99 B over router->client1, its frames and envelope have 100 B"}),
    "bytes to oneself": (
        lambda r: replace(r, (R.SEND, 0, 0, 2, 0, "Note", 5, 0, 1, -1, -1),
                          (R.SEND, 0, 0, 2, 0, "Note", 5, 21, 1, -1, -1)),
        {BYTES: "message 0:2 has no link but crosses one"}),
    "faster than light": (
        lambda r: replace(r, (R.DELIVER, 22, 0, 0, R.INBOX), (R.DELIVER, 20, 0, 0, R.INBOX)),
        {LATENCY: "message 0:0 left router->client1 9 ns after it was offered, the latency is 10 ns"}),
    "delivered before it was sent": (
        lambda r: replace(r, (R.DELIVER, 146, 1, 0, R.INBOX), (R.DELIVER, 121, 1, 0, R.INBOX)),
        {LATENCY: "message 1:0 left router->server -13 ns after it was offered, the latency is 10 ns"}),
    "overtaking": (
        lambda r: replace(r, (R.HOP, 12, 0, 1, 110, 1, 3), (R.HOP, 10, 0, 1, 110, 1, 3)),
        {ORDER: "message 0:1 overtook message 0:0 on server->router"}),
    "overtaking what is in flight": (
        lambda r: [row for row in r if row != (R.LOST, 168, 0, 3, 1, 2)
                   and row != (R.HOP, 157, 0, 3, 110, 1, 2)],
        {ORDER: "message 0:4 overtook message 0:3 on server->router"}),
    "back in time": (
        lambda r: replace(replace(r, (R.RESUME, 210, 0, 2, 0), (R.RESUME, 199, 0, 2, 0)), (R.FINISH, 210, 0, ""),
                          (R.FINISH, 199, 0, "")),
        {BACK: "server: resume at 199 ns, after 200 ns"}),
    "before the activation": (
        lambda r: replace(r, (R.LEAVE, 122, 1, 1, ""), (R.LEAVE, 121, 1, 1, "")),
        {ACTIONS: "client1: leave at 121 ns, its activation was at 122 ns"}),
    "after the activation": (
        lambda r: replace(r, (R.LEAVE, 122, 1, 1, ""), (R.LEAVE, 123, 1, 1, "")),
        {ACTIONS: "client1: leave at 123 ns, its activation was at 122 ns"}),
    "before the start": (
        lambda r: [row for row in r if row not in ((R.START, 0, 0, 0), (R.ENTER, 0, 0, 1))],
        {ACTIONS: "server: send at 0 ns, before its start",
         ROUNDS: "server: leave at 146 ns, round 1, the round before was 0"}),
    "speaks while down": (
        lambda r: insert(r, (R.CRASH, 50, 2), (R.SEND, 50, 2, 0, 0, "Hello", 34, 50, 0, 3, 1)),
        {SILENCE: "client2: send at 50 ns, after its crash", FATE: "message 2:0 is sent twice"}),
    "speaks after its end": (
        lambda r: insert(r, (R.FINISH, 210, 0, ""), (R.REPORT, 210, 0, 3, {}, "")),
        {SILENCE: "server: report at 210 ns, after its finish"}),
    "delivered to the dead": (
        lambda r: replace(r, (R.DELIVER, 169, 0, 4, R.TO_ENDED), (R.DELIVER, 169, 0, 4, R.INBOX)),
        {LIVING: "message 0:4 to client2 is delivered to the dead"}),
    "the living taken for dead": (
        lambda r: replace(r, (R.DELIVER, 22, 0, 0, R.INBOX), (R.DELIVER, 22, 0, 0, R.TO_ENDED)),
        {LIVING: "message 0:0 to client1 is delivered as if its receiver had ended"}),
    "speaks of a round that it dropped out of": (
        lambda r: insert(r, (R.COMPUTE, 22, 1, "train", 100, 5.0, 1), (R.DROP, 22, 1, 1)),
        {DROPPED: "message 1:0 is sent by a node that has dropped out of its round"}),
    "hears of a round that it dropped out of": (
        lambda r: insert(r, (R.HOP, 12, 0, 1, 110, 1, 3), (R.DROP, 12, 2, 1)),
        {DROPPED: "message 0:1 reaches a node that has dropped out of its round"}),
    "rejected by a sleeper": (
        lambda r: insert(r, (R.CRASH, 50, 2), (R.REJECT, 50, 0, 0, "not finite")),
        {REASON: "message 0:0 is rejected by client1 while it does nothing"}),
    "rejected without a reason": (
        lambda r: replace(r, (R.DELIVER, 22, 0, 0, R.INBOX), (R.REJECT, 22, 0, 0, "")),
        {REASON: "message 0:0 is rejected by client1 without a reason"}),
    "rejected and delivered late": (
        lambda r: insert(r, (R.DELIVER, 169, 0, 4, R.TO_ENDED), (R.REJECT, 169, 0, 4, "not finite")),
        {FATE: "message 0:4 has more than one outcome"}),
    "a round again": (
        lambda r: replace(r, (R.ENTER, 200, 0, 3), (R.ENTER, 200, 0, 2)),
        {ROUNDS: "server: enter at 200 ns, round 2, the round before was 2"}),
    "leaves another round": (
        lambda r: replace(r, (R.LEAVE, 122, 1, 1, ""), (R.LEAVE, 122, 1, 2, "")),
        {ROUNDS: "client1: leave at 122 ns, round 2, the round before was 1"}),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_run_is_found_out(case, rows, header, latencies):
    breaking, wanted = BROKEN[case]
    report = check(breaking(rows), header, latencies)
    found = {one.name: one.detail for one in report.violations}
    assert {name: found.get(name) for name in wanted} == wanted
    assert all(one.count > 0 for one in report.violations)


def test_every_invariant_has_a_case_that_breaks_it(rows, header):
    assert {name for _, wanted in BROKEN.values() for name in wanted} == {one.name for one in check(rows, header)}


def test_a_link_whose_latency_a_fault_changes_is_held_to_none(rows, header, latencies):
    rows = replace(rows, (R.DELIVER, 22, 0, 0, R.INBOX), (R.DELIVER, 20, 0, 0, R.INBOX))
    assert check(rows, header, latencies).violations
    changed = insert(rows, (R.CRASH, 50, 2), (R.LINK, 50, 1, 2, {"latency_ns": 30}))
    assert not check(changed, header, latencies).violations


def test_the_report_reads_line_by_line(rows, header, latencies):
    rows = replace(rows, (R.ENTER, 200, 0, 3), (R.ENTER, 200, 0, 2))
    lines = check(rows, header, latencies).text().splitlines()
    assert len(lines) == 13
    assert lines[0].startswith("holds   every message has one fate             8 sent = ")
    assert lines[-2] == ("BROKEN  rounds grow                            "
                         "server: enter at 200 ns, round 2, the round before was 2")
