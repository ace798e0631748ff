"""Connections of TCP against ns-3.37: 60 held-out flows, with the same losses for both.

A flow is one message over one connection through one drop-tail queue: 1 to 1000 Mbit/s, a round trip of 5 to 200 ms,
10 kB to 10 MB, cubic or reno. 24 flows lose nothing and have a buffer of 0.1, 1 or 10 bandwidth-delay products; 36 lose
0.2, 0.5 or 1 % of their packets and have an endless one. Of a flow with losses eight realisations are drawn: lists of
the transmissions that are lost. Nothing of the model was fitted to these flows. First the 15 printed cases of the
model's specification are run again, which shows that ns-3 is set up as it was there.

Needs ns-3's headers and libraries (Debian: libns3-dev, without recommended packages) and g++, and says so where they
are missing. `--write` puts the transfers into docs/studies/data, and the table of docs/studies/connections.md.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log, log1p
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import document
from benchmarks.common import ROOT, Figure, Options, main
from benchmarks.document import replaced
from emul.base.streams import generator
from emul.network.links.connections import TcpStack
from emul.network.links.flows import FlowLink, Flows
from emul.network.models.packetfates import LinkFates

PAGE = ROOT / "docs" / "studies" / "connections.md"
ROWS = ROOT / "docs" / "studies" / "data" / "connections_ns3.csv"
PEER = Path(__file__).with_name("fidelity_ns3_peer.cc")
LIBRARIES = ("point-to-point", "internet", "traffic-control", "network", "core")
MSS, HEADERS = 1448, 54
ENDLESS = 100_000                   # packets
REALISATIONS = 8
COLUMNS = ("flow", "congestion", "bit_s", "rtt_s", "buffer_packets", "bytes", "loss", "realisation", "lost", "ns3_s",
           "tcp_fifo_s", "connections_s")


@dataclass(frozen=True)
class Case:
    """One transfer. lost: transmissions, from 0; buffer: packets that wait."""

    congestion: str
    bps: int
    rtt_ns: int
    buffer: int
    size: int
    lost: tuple[int, ...] = ()


@dataclass(frozen=True)
class Row:
    """Seconds from the write to the last byte. number: of the flow; loss: the probability."""

    number: int
    loss: float
    realisation: int
    case: Case
    theirs: float
    fifo: float
    fair: float

    def cells(self) -> list[Any]:
        case = self.case
        return [self.number, case.congestion, case.bps, case.rtt_ns / 1e9, case.buffer, case.size, self.loss,
                self.realisation, " ".join(map(str, case.lost)), f"{self.theirs:.6f}", f"{self.fifo:.6f}",
                f"{self.fair:.6f}"]


# the specification's section 6: the case, and the time in ns-3
PRINTED = [
    (Case("cubic", 10**7, 50 * 10**6, 42, 10_000), 0.033303),
    (Case("cubic", 10**7, 50 * 10**6, 416, 400_000), 0.426460),
    (Case("cubic", 10**8, 50 * 10**6, 4161, 2_000_000), 0.415992),
    (Case("cubic", 10**9, 200 * 10**6, 166445, 10_000_000), 1.921693),
    (Case("cubic", 10**6, 50 * 10**6, 42, 400_000), 3.344664),
    (Case("reno", 10**8, 20 * 10**6, 166, 10_000_000), 0.903472),
    (Case("cubic", 10**7, 20 * 10**6, 17, 2_000_000), 1.678888),
    (Case("cubic", 10**8, 5 * 10**6, 42, 2_000_000), 0.175420),
    (Case("cubic", 10**8, 200 * 10**6, 166, 10_000_000), 3.141112),
    (Case("cubic", 10**9, 5 * 10**6, 42, 10_000_000), 0.218630),
    (Case("cubic", 10**7, 50 * 10**6, 5000, 101_360, (0,)), 0.440623),
    (Case("cubic", 10**7, 50 * 10**6, 5000, 101_360, (69,)), 0.475468),
    (Case("reno", 10**7, 50 * 10**6, 5000, 401_096, (100,)), 0.428539),
    (Case("cubic", 10**8, 200 * 10**6, 5000, 401_096, (75, 76)), 1.301564),
    (Case("reno", 10**8, 50 * 10**6, 5000, 401_096, (275,)), 0.540622),
]


def stack(congestion: Any, buffer: int) -> TcpStack:
    """The host of ns-3.37: an acknowledgement a packet, no probe, RACK or idle restart, cubic without friendliness."""
    return TcpStack(congestion, buffer_bytes=buffer * (MSS + HEADERS), idle_restart=False, tlp=False, delayed_ack=1,
                    rack=False, friendly=False, hystart_train=1.0, hystart_delay=1.0, hystart_most_ns=10**9)


class Given:
    """In the place of a link's draws: the transmissions that are lost."""

    name = "link a -> b"

    def __init__(self, lost: Sequence[int]):
        self._lost = lost

    def message(self, *message: Any) -> LinkFates:
        return LinkFates(iter(self._lost), [], None)


def ours(case: Case, sharing: Any) -> float:
    """Seconds, the queue behind a link of infinite bandwidth: the sender's own one would drop nothing."""
    flows, tcp = Flows(sharing), stack(case.congestion, case.buffer)
    own = FlowLink(flows, flows.link(None), 0, 1, case.rtt_ns // 2, None, None, HEADERS, MSS, tcp)
    fates: Any = Given(case.lost)
    line = FlowLink(flows, flows.link(case.bps), 1, 2, 0, case.bps, None, HEADERS, MSS, tcp, fates)
    flows.start(0, "message", case.size, True, [own, line], case.rtt_ns // 2, (0, 2))
    while (due := flows.next_change()) is not None:
        if flows.advance(due):
            return (due + case.rtt_ns // 2) / 1e9
    raise RuntimeError(f"{case} never ends")


def theirs(program: Path, cases: Sequence[Case]) -> list[float]:
    """Seconds of each in ns-3."""
    names = {"cubic": "TcpCubic", "reno": "TcpLinuxReno"}
    lines = "".join(f"{names[case.congestion]} {case.bps} {case.rtt_ns} {case.buffer} {case.size} "
                    f"{','.join(map(str, case.lost))}\n" for case in cases)
    done = subprocess.run([str(program)], input=lines, capture_output=True, text=True, check=False, timeout=3600)
    if done.returncode:
        raise RuntimeError(f"ns-3 ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return [float(line) for line in done.stdout.split()]


def build(folder: Path) -> Path:
    """The program of `PEER`. Raises CalledProcessError, FileNotFoundError."""
    program = folder / "transfers"
    subprocess.run(["g++", "-std=c++17", "-O1", str(PEER), "-o", str(program),
                    *(f"-lns3-{name}" for name in LIBRARIES)], check=True, capture_output=True, text=True, timeout=600)
    return program


def draw() -> Iterator[tuple[int, float, int, Case]]:
    """(number of the flow, loss, realisation, case) of all held-out transfers."""
    for number in range(60):
        rng = generator(30, "fidelity/ns3", "held out", number)
        bps = int(10 ** rng.uniform(6, 9))
        rtt_ns = int(10 ** rng.uniform(0.7, 2.3) * 10**6)
        congestion = ("cubic", "reno")[int(rng.integers(2))]
        product = bps * rtt_ns / 8e9 / (MSS + HEADERS)
        if number < 24:
            size, times = int(10 ** rng.uniform(4, 7)), (0.1, 1, 10)[number % 3]
            yield number, 0.0, 0, Case(congestion, bps, rtt_ns, max(10, round(times * product)), size)
            continue
        size, loss = int(10 ** rng.uniform(4, 6.6)), (0.002, 0.005, 0.01)[number % 3]
        for realisation in range(REALISATIONS):
            lost, place = [], -1
            while (place := place + 1 + int(log(1 - rng.random()) / log1p(-loss))) < 3 * size // MSS + 200:
                lost.append(place)
            yield number, loss, realisation, Case(congestion, bps, rtt_ns, ENDLESS, size, tuple(lost))


def rows(program: Path) -> list[Row]:
    drawn = list(draw())
    found = theirs(program, [case for _, _, _, case in drawn])
    return [Row(number, loss, realisation, case, seconds, ours(case, "tcp_fifo"), ours(case, "connections"))
            for (number, loss, realisation, case), seconds in zip(drawn, found, strict=True)]


def errors(table: Sequence[Row], lossy: bool, sharing: str = "tcp_fifo") -> list[float]:
    """Of each flow, ascending: how far the model is off; with losses, in the median of the realisations."""
    flows: dict[int, list[Row]] = {}
    for row in table:
        if (row.loss > 0) is lossy:
            flows.setdefault(row.number, []).append(row)
    return sorted(abs(median(row.fifo if sharing == "tcp_fifo" else row.fair for row in some)
                      / median(row.theirs for row in some) - 1) for some in flows.values())


def ninth(ordered: Sequence[float]) -> float:
    """The 90th percentile."""
    return ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]


def write(table: Sequence[Row]) -> None:
    """The rows, and the table of the page."""
    with ROWS.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *(row.cells() for row in table)])
    document.save(PAGE, replaced(document.read(PAGE), "ns3", markdown(table)))


def read() -> list[Row]:
    """The committed rows."""
    found = []
    with ROWS.open(newline="", encoding="utf-8") as file:
        for cells in csv.DictReader(file):
            case = Case(cells["congestion"], int(cells["bit_s"]), round(float(cells["rtt_s"]) * 1e9),
                        int(cells["buffer_packets"]), int(cells["bytes"]), tuple(map(int, cells["lost"].split())))
            found.append(Row(int(cells["flow"]), float(cells["loss"]), int(cells["realisation"]), case,
                             float(cells["ns3_s"]), float(cells["tcp_fifo_s"]), float(cells["connections_s"])))
    return found


def markdown(table: Sequence[Row]) -> str:
    """Errors by loss: of flows, and of single transfers."""
    lines = ["| loss | flows | transfers | `tcp_fifo`: median, p90 | `connections`: median, p90 | a transfer: median, "
             "p90 |", "|---|---|---|---|---|---|"]
    for name, rates in (("none", {0.0}), ("0.2 %", {0.002}), ("0.5 %", {0.005}), ("1 %", {0.01}),
                        ("0.2 to 1 %", {0.002, 0.005, 0.01})):
        some = [row for row in table if row.loss in rates]
        each = [errors(some, 0.0 not in rates, sharing) for sharing in ("tcp_fifo", "connections")]
        each.append(sorted(abs(row.fifo / row.theirs - 1) for row in some))
        cells = [f"{median(off):.2%}, {ninth(off):.1%}" for off in each]
        lines.append(f"| {name} | {len({row.number for row in some})} | {len(some)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def figures(table: Sequence[Row]) -> Iterator[Figure]:
    for lossy, name, most, far in ((False, "without loss", 0.1, 5.0), (True, "0.2 to 1 % loss", 1.0, 10.0)):
        for sharing in ("tcp_fifo", "connections"):
            off = [100 * error for error in errors(table, lossy, sharing)]
            note = f"{len(off)} flows; {sharing}"
            yield Figure(f"{name}, {sharing}: median error", median(off), "%", at_most=most, note=note)
            yield Figure(f"{name}, {sharing}: 90th percentile", ninth(off), "%", at_most=far, note=note)
    single = sorted(100 * abs(row.fifo / row.theirs - 1) for row in table if row.loss)
    yield Figure("a transfer with losses: median error", median(single), "%",
                 note=f"{len(single)} transfers; 90th percentile {ninth(single):.1f} %")


def ns3(options: Options) -> Iterable[Figure]:
    """The errors of the held-out flows, and that ns-3 repeats the printed times."""
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        again = theirs(program, [case for case, _ in PRINTED])
        off = [100 * abs(a / b - 1) for a, (_, b) in zip(again, PRINTED, strict=True)]
        yield Figure("printed cases: the largest difference from ns-3's printed times", max(off), "%", at_most=0.3,
                     note=f"median {median(off):.4f} %; acknowledgements take no time here")
        table = rows(program)
    if "--write" in WISHES:
        write(table)
    yield from figures(table)


def missing() -> str | None:
    """The reason why ns-3 cannot be asked, if there is one."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            build(Path(folder))
    except FileNotFoundError as error:
        return str(error)
    except subprocess.CalledProcessError as error:
        return str(error.stderr).strip().splitlines()[0]
    return None


WISHES: set[str] = set()            # words of the command line that are this benchmark's own

if __name__ == "__main__":
    if "--write" in sys.argv:
        sys.argv.remove("--write")
        WISHES.add("--write")
    reason = missing()
    if reason is None:
        main(ns3, text=__doc__)
    else:
        print(f"skipped: there is no ns-3 to build against ({reason}); "
              "Debian: apt-get install --no-install-recommends ns3 libns3-dev")
