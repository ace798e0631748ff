"""`devices` and `compute: {trace}`: who has which, what is wrong with tables, what computations then cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import emul
from emul.base import rows as R
from emul.base.errors import RunError, ScenarioError
from emul.preview import explain as preview
from emul.scenario import load, loads
from emul.scenario.devices import (
    BASES,
    NUMBERS,
    SHIPPED,
    SHIPPED_LINKS,
    DeviceRule,
    Devices,
    read_devices,
    read_links,
)
from emul.scenario.running import read_trace
from emul.testing import run_text

TEXT = """
emul: 1
name: devices
seed: 3
topology: {generator: star, clients: 4}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
task: {data: {set: digits}, partition: iid, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: COMPUTE
DEVICES
schemes: [fedavg]
stop: {rounds: 3}
"""
TABLE = ("device,kind,speed,memory_mb,idle_w,compute_w,send_w,receive_w,source\n"
         "slow,phone,0.5,100,1,3,0.5,0.25,mine\nfast,laptop,2,100,5,20,1,0.5,mine\n")


def text(compute: str = "{mode: zero}", devices: str = "") -> str:
    return TEXT.replace("COMPUTE", compute).replace("DEVICES", devices)


def costs(rows: Any) -> dict[int, list[float]]:
    """Node -> seconds of its trainings."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if row[0] == R.COMPUTE and row[3] == "train":
            found.setdefault(row[2], []).append(row[4] / 1e9)
    return found


def file(tmp_path: Path, content: str, name: str = "file.csv") -> Path:
    path = tmp_path / name
    path.write_text(content)
    return path


def test_the_table_that_comes_along_says_of_each_device_where_its_figures_come_from() -> None:
    found = read_devices(SHIPPED)
    assert {one.kind for one in found.values()} == {"phone", "board", "laptop", "server", "gpu", "cpu"}
    for one in found.values():
        said = {number for number in NUMBERS if getattr(one, number) is not None}
        assert set(one.origins) == said
        assert all(origin.basis in BASES and origin.source for origin in one.origins.values())
    assert found["laptop"].assumed(NUMBERS) == [number for number in NUMBERS if number in found["laptop"].origins]
    assert (found["raspberry_pi_4"].idle_w, found["raspberry_pi_4"].compute_w) == (2.7, 6.4)


def test_devices_are_drawn_by_weight_and_by_name() -> None:
    devices = Devices((DeviceRule("client*", {"phone_low": 3.0, "laptop": 1.0}),
                       DeviceRule("client1", {"laptop": 1.0})))
    names = ["server", *(f"client{k}" for k in range(1, 1001))]
    found = devices.of(names, 1)
    assert found[0] is None
    assert found[1] is not None
    assert found[1].name == "laptop"
    share = sum(one.name == "phone_low" for one in found[2:] if one is not None) / 999
    assert 0.71 < share < 0.79                              # 3 / 4, within three standard deviations
    assert devices.of(names[500:], 1) == found[500:]
    assert devices.of(names, 2) != found


def test_the_speed_of_a_device_divides_costs_and_a_rule_of_nodes_goes_before_it(tmp_path: Path) -> None:
    table = file(tmp_path, TABLE)
    profile = file(tmp_path, '{"emul_profile": 1, "costs": {"fedavg/client/train": [1.0, 0.0], '
                             '"fedavg/server/aggregate": [0.0, 0.0]}}', "p.json")
    written = text(f"{{mode: profile, file: {profile}}}",
                   f"devices: {{table: {table}, nodes: [{{match: 'client*', device: slow}}, "
                   "{match: client2, device: fast}]}\nnodes: [{match: client3, speed: 4}]")
    found = costs(run_text(written).rows)
    assert [found[k][0] for k in (1, 2, 3, 4)] == [2.0, 0.5, 0.25, 2.0]


def test_costs_of_a_trace_in_order_begin_anew_and_go_before_the_mode(tmp_path: Path) -> None:
    trace = file(tmp_path, "node,label,seconds\nclient1,train,0.5\nclient1,train,0.25\nclient*,*,1.5\nserver,x,9\n")
    found = costs(run_text(text(f"{{trace: {trace}, take: in order, default: zero}}")).rows)
    assert found == {1: [0.5, 0.25, 0.5], 2: [1.5] * 3, 3: [1.5] * 3, 4: [1.5] * 3}


def test_costs_of_a_trace_are_drawn_from_those_of_the_device_by_the_seed(tmp_path: Path) -> None:
    trace = file(tmp_path, "device,label,seconds\n" + "".join(f"laptop,train,{k / 8}\n" for k in range(1, 41)))
    written = text(f"{{trace: {trace}, default: zero}}", "devices: {nodes: [{match: 'client[12]', device: laptop}]}")
    found, again = costs(run_text(written).rows), costs(run_text(written).rows)
    assert found == again
    assert (set(found[3]), set(found[4])) == ({0.0}, {0.0})         # they have no device: the default decides
    drawn = found[1] + found[2]
    assert set(drawn) <= {k / 8 for k in range(1, 41)}
    assert len(set(drawn)) >= 4
    assert costs(run_text(written, "seed=4").rows) != found


def test_what_neither_trace_nor_profile_prices_is_an_error_unless_a_default_is_written(tmp_path: Path) -> None:
    """The server has no row, and its average cost nothing: a scheme with other labels was free, and won."""
    trace = file(tmp_path, "node,label,seconds\nclient*,train,2\n")
    profile = file(tmp_path, '{"emul_profile": 1, "costs": {"fedavg/client/train": [1.0, 0.0]}}', "p.json")
    for compute, place in ((f"{{trace: {trace}}}", "trace"), (f"{{mode: zero, trace: {trace}}}", "trace"),
                           (f"{{mode: profile, file: {profile}}}", "file")):
        with pytest.raises(ScenarioError) as wrong:
            emul.check(file(tmp_path, text(compute), "s.yaml"))
        problem, = wrong.value.problems
        assert (problem.place, problem.found) == (f"compute.{place}", "fedavg/server/aggregate")
        with pytest.raises(RunError, match=r"has no price of 'fedavg/server/aggregate': .*compute.default"):
            run_text(text(compute))
    for default, speed, seconds in (("zero", 1, 0.0), ("500 ms", 2, 0.25)):
        for prices in (f"trace: {trace}", f"mode: profile, file: {profile}"):
            compute = f"{{{prices}, default: {default}}}"
            written = text(compute, f"nodes: [{{match: server, speed: {speed}}}]")
            assert emul.check(file(tmp_path, written, "s.yaml")).schemes == ["fedavg"]
            assert speed == 1 or loads(written).warnings == []          # such as that speed has no effect
            assert loads(loads(written).resolved()).compute == loads(written).compute
            rows = [(row[3], row[4]) for row in run_text(written).rows if row[0] == R.COMPUTE]
            assert {cost / 1e9 for label, cost in rows if label == "aggregate"} == {seconds}
    one, = preview.explain(loads(written))["schemes"]
    assert [(row["role"], row["label"], row["times"], row["priced_by"], row["seconds"]["max"])
            for row in one["computations"]] == [("client", "train", 4, ["profile"], 1.0),
                                                ("server", "aggregate", 1, ["default"], 0.25)]


def test_a_scenario_with_devices_and_a_trace_says_what_it_has_read(tmp_path: Path) -> None:
    trace = file(tmp_path, "node,label,seconds\n*,train,1\n")
    path = file(tmp_path, text("{trace: file.csv, mode: zero}", "devices: {nodes: [{match: '*', device: laptop}]}"),
                "s.yaml")
    scenario = load(path)
    assert scenario.compute.trace == trace
    assert loads(scenario.resolved()) == scenario
    assert loads(text()).devices is None


@pytest.mark.parametrize(("content", "said"), [
    ("device,speed\na,1\n", "expected a header with the columns device, kind or device, kind, quantity, value"),
    ("device,kind,quantity,value,basis,source\na,b,flops,1,guessed,x\n", "line 2 +basis +\"guessed\" +expected one of"),
    ("device,kind,quantity,value,basis,source\na,b,flops,1,assumed,\n", "line 2 +basis .* and a source"),
    ("device,kind,quantity,value,basis,source\na,b,flop,1,assumed,x\n", 'line 2 +quantity .* did you mean "flops"'),
    ("device,kind,quantity,value,basis,source\na,b,flops,1,assumed,x\na,b,flops,2,assumed,x\n",
     "line 3 +quantity .* there already"),
    (TABLE + "slow,phone,1,1,1,1,1,1,x\n", r'line 4 +device +"slow" +there already'),
    (TABLE.replace("0.5,100", "0,100"), "line 2 +speed +0 +expected a number above 0"),
    (TABLE.replace("laptop,2", "laptop,-2"), "line 3 +speed .* expected a number, 0 or above")])
def test_what_is_wrong_with_a_table_is_said_with_its_line(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        read_devices(file(tmp_path, content))


@pytest.mark.parametrize(("content", "said"), [
    ("node,seconds\na,1\n", "expected a header with the columns node, label, seconds or device, label, seconds"),
    ("node,label,seconds\na,train,-1\n", "line 2 +seconds .* expected seconds, 0 or above"),
    ("node,label,seconds\n,train,1\n", "line 2 +node .* expected a name")])
def test_what_is_wrong_with_a_trace_is_said_with_its_line(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        read_trace(file(tmp_path, content))


@pytest.mark.parametrize(("compute", "devices", "said"), [
    ("{mode: zero}", "devices: {nodes: [{match: '*', device: labtop}]}", r'devices.nodes\[0\].device .* "laptop"'),
    ("{mode: zero}", "devices: {nodes: [{match: '*', device: {laptop: 0}}]}", "several by weight"),
    ("{mode: zero}", "devices: {nodes: [{match: '*', device: {laptop: 1e308, phone: 1e308}}]}", "several by weight"),
    ("{mode: zero}", "devices: {table: none.csv, nodes: [{match: '*', device: laptop}]}", "devices.table"),
    ("{}", "", "compute.mode +missing +is required, or trace"),
    ("{mode: zero, take: drawn}", "", "compute.take +drawn +is used with trace alone"),
    ("{trace: absent.csv}", "", "compute.trace"),
    ("{trace: absent.csv, default: 5}", "", "compute.default +5 +expected a duration"),
    ("{mode: zero, default: zero}", "", "compute.default .* is the price of what a trace or a profile lacks"),
    ("{mode: measured, trace: absent.csv, default: zero}", "", "compute.default .* used with mode: profile, or"),
    ("{mode: recorded, file: x, trace: y.csv}", "", "is not used by mode: recorded")])
def test_what_makes_no_sense_is_refused_where_it_is_written(compute: str, devices: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        loads(text(compute, devices))


def test_a_trace_by_device_needs_devices(tmp_path: Path) -> None:
    trace = file(tmp_path, "device,label,seconds\nlaptop,train,1\n")
    with pytest.raises(ScenarioError, match=r"compute.trace +device +a file by device needs devices: who has which"):
        loads(text(f"{{trace: {trace}}}"))


def test_a_trace_of_a_device_that_nobody_can_have_is_refused(tmp_path: Path) -> None:
    trace = file(tmp_path, "device,label,seconds\nlaptop,train,1\nlabtop,train,1\n")
    with pytest.raises(ScenarioError, match=r'compute.trace +"labtop" +a device that the table lacks'):
        loads(text(f"{{trace: {trace}}}", "devices: {nodes: [{match: '*', device: laptop}]}"))


def test_lines_of_nodes_that_nobody_is_are_passed_over_with_a_warning_unless_all_are(tmp_path: Path) -> None:
    trace = file(tmp_path, "node,label,seconds\nclient1,train,1\ncleint2,train,1\nserver*,*,1\nedge*,train,1\n")
    assert list(loads(text(f"{{trace: {trace}}}")).warnings) == [
        'compute.trace: lines of 2 nodes are passed over: "cleint2" (unknown node; did you mean "client2"?), "edge*" '
        "(a pattern that matches no node)"]
    trace = file(tmp_path, "node,label,seconds\nphone,train,1\n")
    with pytest.raises(ScenarioError, match=r'"phone" +unknown node; there are: .* expected lines of a node of the'):
        loads(text(f"{{trace: {trace}}}"))


# --- links ----------------------------------------------------------------------------------------------------------

LINKS = "link,down_mbps,up_mbps,rtt_ms,loss,source\nslow,1,0.5,100,0.01,mine\nfast,100,50,10,0,mine\n"


def test_the_table_of_links_says_what_it_assumes() -> None:
    found = read_links(SHIPPED_LINKS)
    assert {"fibre", "dsl", "lte", "5g", "wifi", "3g", "datacentre"} <= set(found)
    assert (found["lte"].down_bps, found["lte"].up_bps, found["lte"].latency_ns) == (13_000_000, 6_000_000, 35 * 10**6)
    rows = [line for line in SHIPPED_LINKS.read_text().splitlines()[3:] if line]
    assert all("assumed" in row for row in rows)            # losses are, everywhere


def test_nodes_have_links_of_their_classes_whatever_device_they_have(tmp_path: Path) -> None:
    table = file(tmp_path, LINKS, "links.csv")
    found = run_text(text(devices=f"devices: {{links: {table}, nodes: [{{match: 'client*', link: slow}}, "
                                  "{match: client2, device: laptop}, {match: client3, link: fast}]}").replace(
        "latency: 20 ms, bandwidth: 20 Mbit/s", "transport: reliable"))
    network = found.finished.wiring.network
    assert network.classes == [None, "slow", "slow", "fast", "slow"]
    sent = next(row for row in found.rows if row[0] == R.SEND and row[2] == 0)
    size = sent[6] + 16                                     # and the envelope
    arrivals = sorted(row[1] for row in found.rows if row[0] == R.DELIVER)[:4]
    slow, fast = (latency + size * 8 * 10**9 // rate for latency, rate in ((50 * 10**6, 10**6), (5 * 10**6, 10**8)))
    assert arrivals[0] == pytest.approx(fast, abs=2)
    assert slow in [pytest.approx(t, abs=2) for t in arrivals]


def test_a_scenario_with_links_is_the_same_when_it_is_read_again(tmp_path: Path) -> None:
    table = file(tmp_path, LINKS, "links.csv")
    said = loads(text(devices=f"devices: {{links: {table}, nodes: [{{match: '*', link: {{slow: 1, fast: 3}}}}]}}"))
    again = loads(said.resolved())
    assert again.devices == said.devices
    assert again.devices is not None
    drawn = again.devices.links_of([f"client{k}" for k in range(400)], 1)
    assert 250 < drawn.count("fast") < 350                  # 3 / 4, within five standard deviations


@pytest.mark.parametrize(("devices", "said"), [
    ("{nodes: [{match: '*', link: fiber}]}", r'devices.nodes\[0\].link .* "fiber" .* did you mean "fibre"'),
    ("{nodes: [{match: '*'}]}", r"devices.nodes\[0\] +missing +expected device, link, or both"),
    ("{nodes: [{match: '*', link: lte, battery: 3}]}", r"devices.nodes\[0\].battery .* is used only with device"),
    ("{links: none.csv, nodes: [{match: '*', link: lte}]}", "devices.links")])
def test_links_that_make_no_sense_are_refused_where_they_are_written(devices: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        loads(text(devices=f"devices: {devices}"))


@pytest.mark.parametrize(("row", "said"), [
    ("a,0,1,1,0,x", "line 2 +down_mbps .* expected a rate above 0"),
    ("a,1,1,-1,0,x", "line 2 +rtt_ms .* expected a duration of 0 or more"),
    ("a,1,1,1,1,x", "line 2 +loss .* expected a probability below 1"),
    ("a->b,1,1,1,0,x", "line 2 +link .* expected a name without blanks"),
    ("a,1,1,1,0,x\na,1,1,1,0,x", "line 3 +link .* there already")])
def test_what_is_wrong_with_a_table_of_links_is_said_with_its_line(tmp_path: Path, row: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        read_links(file(tmp_path, f"link,down_mbps,up_mbps,rtt_ms,loss,source\n{row}\n"))


def test_classes_of_links_may_have_other_units_and_a_loss_in_percent(tmp_path: Path) -> None:
    whole = read_links(file(tmp_path, LINKS))
    assert read_links(file(tmp_path, "link;down_kbps;up [MB/s];rtt;loss_%\nslow;1000;0,0625;100 ms;1\n"
                                     "fast;1e5;6,25;0,01 s;0\n", "other.csv")) == whole


def test_tables_that_were_edited_are_read_again_in_the_same_process(tmp_path: Path) -> None:
    devices, links = file(tmp_path, TABLE), file(tmp_path, LINKS, "links.csv")
    chosen = f"devices: {{table: {devices}, links: {links}, nodes: [{{match: '*', device: slow, link: slow}}]}}"

    def made() -> tuple[float, int]:
        scenario = loads(text("{mode: profile, file: none.json}", chosen), check=False)
        assert scenario.devices is not None
        device, = scenario.devices.of(["client1"], scenario.seed)
        assert device is not None
        return device.speed, scenario.devices.link_classes()[0].down_bps

    assert made() == (0.5, 10**6)
    file(tmp_path, TABLE.replace("slow,phone,0.5", "slow,phone,0.125"))
    assert made() == (0.125, 10**6)
    file(tmp_path, LINKS.replace("slow,1,", "slow,16,"), "links.csv")
    assert made() == (0.125, 16 * 10**6)


def test_a_loss_of_packets_that_is_one_of_messages_is_warned_of_with_the_figure(tmp_path: Path) -> None:
    def warnings(links: str) -> list[str]:
        chosen = "devices: {nodes: [{match: 'client*', link: {3g: 1, lte: 1}}, {match: server, link: datacentre}]}"
        return loads(text(devices=chosen).replace("latency: 20 ms, bandwidth: 20 Mbit/s", links)).warnings

    assert warnings("queue: unlimited") == [
        "devices: links of lte, 3g lose a message of any size with the loss of a packet, 0.005, 0.01, since no "
        "overhead of theirs has an mtu; with overhead: {preset: ipv4_tcp} one of 1 MB is lost with 0.969, 0.999"]
    assert warnings("overhead: {preset: ipv4_tcp}") == warnings("transport: reliable") == warnings("outage: none") == []
