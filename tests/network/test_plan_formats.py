"""Contact plans in the format of another tool: what they say, and every mistake with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from emul.base.errors import ScenarioError
from emul.network.models.contacts import ContactSpec, Plan, PlanFormat, read_plan

S = 10**9


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
