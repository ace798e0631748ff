"""Contact plans in the formats of other tools: what they say, and every mistake with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from emul.base.errors import ScenarioError
from emul.network.models.contacts import ContactSpec, Plan, PlanFormat, read_plan
from emul.network.models.profiles import NEVER

S, MS = 10**9, 10**6


def plan(tmp_path: Path, form: PlanFormat, text: str) -> Plan:
    (tmp_path / "plan").write_text(text)
    return read_plan(ContactSpec(tmp_path / "plan", format=form))


def told(tmp_path: Path, form: PlanFormat, text: str) -> list[tuple[int | None, str, str]]:
    with pytest.raises(ScenarioError) as error:
        plan(tmp_path, form, text)
    return [(one.line, one.place, one.found) for one in error.value.problems]


def rows(found: Plan) -> dict[tuple[str, str], list[tuple[int, int, int, int]]]:
    return {ends: list(zip(one.begins, one.ends, one.rates_bps, one.latencies_ns, strict=True))
            for ends, one in found.items()}


def test_contacts_and_ranges_of_ion(tmp_path):
    found = plan(tmp_path, "ion", """
# a node's file, as ionadmin takes it
1 1 ''
s
m horizon +0
a contact +100 +160 1 2 125000
a contact +0 +60 1 2 125000 0.9
a contact +0 +60 2 1 250000
a range +0 +30 1 2 1
a range +30 +3600 1 2 0.5
a range +0 +3600 2 1 2
""")
    assert rows(found) == {
        ("1", "2"): [(0, 30 * S, 10**6, S), (30 * S, 60 * S, 10**6, S // 2), (100 * S, 160 * S, 10**6, S // 2)],
        ("2", "1"): [(0, 60 * S, 2 * 10**6, 2 * S)]}
    assert found["1", "2"].line == 7
    around = plan(tmp_path, "ion", """## begin ionadmin
a contact +0 +60 1 1 125000
a range +0 +60 1 1 0
a contact +0 +60 1 2 12500000000
a range +0 +60 1 2 1
## begin bpadmin
1
a scheme ipn 'ipnfw' 'ipnadminep'
a endpoint ipn:10.1 q
a protocol ltp 1400 100
a span 2 10 10 1400 10000 1 'udplso localhost:1113'
r 'udpcounter'
w 1
## end bpadmin
""")
    assert rows(around) == {("1", "2"): [(0, 60 * S, 10**11, S)]}      # 100 Gbit/s; and nothing with itself
    one_range = plan(tmp_path, "ion", "a contact +0 +60 2 1 250000\na range +0 +60 1 2 3\n")
    assert rows(one_range) == {("2", "1"): [(0, 60 * S, 2 * 10**6, 3 * S)]}        # a range is of both directions


def test_every_mistake_of_ion_is_told_with_its_line(tmp_path):
    assert told(tmp_path, "ion", """a contact +0 +60 1 2
a contact 2024/06/01-12:00:00 +60 1 2 1000
a contact +60 +60 1 2 1000
a contact +0 +60 1 2 0
d contact +0 1 2
a range +0 +60 1 2 x
a range +0 +60 3 4 1
a range +50 +70 3 4 1
a contact +0 +80 3 4 1000
a contact +0 +60 5 6 1000
a contact +10 +20 4 3 1000
a contact +15 +30 4 3 1000
""") == [(1, "contact", "6 words"), (2, "start", '"2024/06/01-12:00:00"'), (3, "end", "+60"), (4, "rate", '"0"'),
         (5, "", "d contact +0 1 2"), (6, "delay", '"x"'), (8, "range", "+50"), (9, "contact", "3 -> 4"),
         (10, "contact", "5 -> 6"), (12, "start_s", "15")]
    assert told(tmp_path, "ion", "# nothing\n") == [(None, "", "no contacts")]
    assert told(tmp_path, "ion", f"a contakt +0 +60 1 2 1000\na contact +0 +60 1 2 {'9' * 5000}\n") == [
        (1, "", "a contakt +0 +60 1 2 1000"), (2, "rate", f'"{"9" * 40}"')]
    assert [where for where, *_ in told(tmp_path, "netsatbench", "[" * 100_000)] == [None]


EPOCHS = """[
 {"time": "2024-06-01T12:02:00Z",
  "links-add": [
   {"endpoint1": "usr1", "endpoint2": "sat2", "rate": "50mbit", "loss": 0, "delay": "5ms"},
   {"endpoint1": "grd1", "endpoint2": "usr1", "rate": "1.5 Gbit"}],
  "run": {"grd1": ["iperf3 -s"]}},
 {"time": "2024-06-01T12:02:30.5Z",
  "links-update": [{"endpoint1": "sat2", "endpoint2": "usr1", "delay": "6500us"}],
  "links-del": [{"endpoint1": "usr1", "endpoint2": "grd1", "rate": "9mbit"}]},
 {"time": "2024-06-01T12:04:00Z",
  "links-add": [{"endpoint1": "grd1", "endpoint2": "usr1", "rate": "100kbps", "delay": "1ms"}]}
]"""
SAT2 = [(0, 30_500 * MS, 50 * 10**6, 5 * MS), (30_500 * MS, NEVER, 50 * 10**6, 6_500_000)]
GRD1 = [(0, 30_500 * MS, 1_500 * 10**6, 0), (120 * S, NEVER, 800_000, MS)]


@pytest.mark.parametrize("text", [EPOCHS, EPOCHS[1:-1].replace("},\n {", "}\n {")])
def test_epochs_of_netsatbench(tmp_path, text):
    assert rows(plan(tmp_path, "netsatbench", text)) == {
        ("sat2", "usr1"): SAT2, ("usr1", "sat2"): SAT2, ("grd1", "usr1"): GRD1, ("usr1", "grd1"): GRD1}


def test_every_mistake_of_epochs_is_told_with_its_line(tmp_path):
    assert told(tmp_path, "netsatbench", """[
{"time": "noon", "links-add": [{"endpoint1": "a", "endpoint2": "b", "rate": "1mbit"}]},
{"time": "2024-06-01T12:00:00Z",
 "links-add": [
  {"endpoint1": "a", "endpoint2": "b", "rate": "1mbit"},
  {"endpoint1": "b", "endpoint2": "a", "rate": "1mbit"},
  {"endpoint1": "a", "endpoint2": "c"},
  {"endpoint1": "a"},
  {"endpoint1": "a", "endpoint2": "d", "rate": "1 parsec"},
  {"endpoint1": "a", "endpoint2": "e", "rate": "1mbit", "loss": 3}
 ],
 "links-del": [{"endpoint1": "x", "endpoint2": "y"}],
 "links-update": [
  {"endpoint1": "x", "endpoint2": "y", "rate": "1mbit"},
  {"endpoint1": "a", "endpoint2": "b", "delay": "5 parsec"}]
}]""") == [(2, "time", "'noon'"), (6, "links-add", "b - a"), (7, "links-add.rate", "None"),
           (8, "links-add", "{'endpoint1': 'a'}"), (9, "links-add.rate", "'1 parsec'"), (10, "links-add.loss", "3"),
           (12, "links-del", "x - y"), (14, "links-update", "x - y"), (15, "links-update.delay", "'5 parsec'")]
    assert told(tmp_path, "netsatbench", '[{"time": \n"2024"') == [(2, "", "Expecting ',' delimiter")]
    assert told(tmp_path, "netsatbench", "[]") == [(None, "", "no contacts")]
