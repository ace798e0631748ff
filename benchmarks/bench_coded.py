"""Costs of a round of secure aggregation beyond its arithmetic: 100 clients, 99,985 parameters, no losses, 2 workers.

*Bare* is the same arithmetic in one process without a framework: keys, agreements, masks, codes, sealed shares, sums,
decoding, by the functions that the roles call, with nothing sent and nothing written. Clients do not train, in both:
an update is all zeros, which costs what any other does. CPU seconds of the process tree, rounds after the first.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.common import ROOT, Figure, Options, cpu_seconds, main, python, run
from emul.kernel import Kernel
from emul.primitives.codes.packed import Code, PackedCode
from emul.primitives.crypto.keys import key_pair
from emul.primitives.quantise import SumOfUpdates
from emul.protocols.channels import Channels
from emul.protocols.coded_mask import client as holders
from emul.protocols.coded_mask.messages import Masked
from emul.protocols.coded_mask.server import unmasked_sum
from emul.schemes import fastsecagg, lightsecagg, swiftagg_plus
from emul.schemes.swiftagg_plus import client_role as seats
from emul.schemes.swiftagg_plus.messages import Running, Share
from emul.schemes.swiftagg_plus.rules import seat
from emul.schemes.swiftagg_plus.server_role import decoded

CLIENTS, DIMENSION, ROUNDS, TARGET = 100, 99_985, 4, 1.3
SCENARIO = """
emul: 1
name: secagg
seed: 1
topology: {generator: star_mesh, clients: 100}
links: [{match: "*", latency: 10 ms}]
task: {data: {set: digits}, partition: {bootstrap: 10}, model: d5, solver: {sgd: {lr: 0.1, epochs: 0}}}
compute: {mode: zero}
schemes: [SCHEME]
stop: {rounds: ROUNDS}
evaluation: {every: 1000}
"""


# --- in emul --------------------------------------------------------------------------------------------------------

def probe(scheme: str) -> None:
    """Run the workload once and print CPU seconds of the process tree, a round after the first."""
    from emul.engine import execute, header, pool_of, wire
    from emul.record.journal import Journal
    from emul.scenario import loads

    sys.path.insert(0, str(ROOT / "scenarios" / "secure_aggregation"))
    text = SCENARIO.replace("SCHEME", scheme).replace("ROUNDS", str(ROUNDS))
    scenario = loads(text, "secagg", plugins=["wide"])
    wired = wire(scenario, *scenario.schemes[0], workers=2, plugins=["wide"])
    used: list[float] = []

    def mark(kernel: Kernel) -> None:
        if kernel.round_ended:              # it is told of long rounds in between, too
            used.append(cpu_seconds(os.getpid()))

    with tempfile.TemporaryDirectory() as folder, pool_of(2) as pool:
        journal = Journal(Path(folder, "journal"), header(wired))
        execute(wired, pool, journal, mark)
        journal.close()
        used.append(cpu_seconds(os.getpid()))
    print(f"cpu={(used[-1] - used[0]) / (ROUNDS - 1):.4f}")


# --- bare -----------------------------------------------------------------------------------------------------------

def everybody(round_: int) -> dict[int, Channels]:
    """Fresh keys of all clients."""
    members = list(range(1, CLIENTS + 1))
    own = {i: key_pair(bytes([round_, i, *bytes(30)])) for i in members}
    public = {i: pair.public for i, pair in own.items()}
    return {i: Channels(i, round_, members, own[i], {j: public[j] for j in members if j != i}) for i in members}


def coded_mask(code: Code, codec: SumOfUpdates, round_: int) -> np.ndarray:
    """The sum, as LightSecAgg and FastSecAgg find it."""
    update, channels = np.zeros(DIMENSION, np.float32), everybody(round_)
    hands = {i: holders.coded_mask(c, code, DIMENSION, bytes([round_, i, 1, *bytes(29)]),
                                   bytes([round_, i, 2, *bytes(29)])) for i, c in channels.items()}
    masked = {i: Masked(holders.masked_input(hand.mask, update, 1, codec, code.p)[0]) for i, hand in hands.items()}
    answers = {i: holders.answer(hand, {j: hands[j].boxes[i] for j in hands if j != i}, [j for j in hands if j != i],
                                 holders.all_of_them, code.p) for i, hand in hands.items()}
    enough = dict(list(answers.items())[:code.need])
    return unmasked_sum(masked, enough, list(hands), code, DIMENSION, False)


def coded_input(code: PackedCode, codec: SumOfUpdates, round_: int) -> np.ndarray:
    """The sum, as SwiftAgg+ finds it."""
    update, channels = np.zeros(DIMENSION, np.float32), everybody(round_)
    seating, w = seat(list(channels), code.n), -(-DIMENSION // code.segments)
    hands = {i: seats.coded_input(c, seating.seats(seating.group_of(i)), code, codec, update, 1,
                                  bytes([round_, i, *bytes(30)])) for i, c in channels.items()}
    running: dict[int, tuple[int, np.ndarray]] = {}             # seat -> (who holds it in the last group, its sum)
    for group in seating.groups:
        for s, i in enumerate(group[:code.n]):
            got = {j: Share(hands[j].boxes[i]) for j in group if j != i}
            own = seats.sum_of(seats.opened(hands[i], got, code.p), group, w, code.p)
            if s in running:
                before, so_far = running[s]
                own = seats.passed_on(hands[i], before, Running(hands[before].channels.seal(i, so_far, 1)), own, code.p)
            running[s] = (i, own)
    return decoded({s: total for s, (_, total) in list(running.items())[:code.need]}, code, DIMENSION, False)


BARE: dict[str, Callable[[int], np.ndarray]] = {
    "lightsecagg": lambda r: coded_mask(*light(), r), "fastsecagg": lambda r: coded_mask(*fast(), r),
    "swiftagg_plus": lambda r: coded_input(*swift(), r)}


def light() -> tuple[PackedCode, SumOfUpdates]:
    rules = lightsecagg.rules(lightsecagg.Params(), CLIENTS)
    return lightsecagg.code_of(lightsecagg.Params(), CLIENTS), rules.codec


def fast() -> tuple[Code, SumOfUpdates]:
    rules = fastsecagg.rules(fastsecagg.Params(), CLIENTS)
    return rules.code, rules.codec


def swift() -> tuple[PackedCode, SumOfUpdates]:
    rules = swiftagg_plus.rules(swiftagg_plus.Params(), CLIENTS)
    return swiftagg_plus.code_of(swiftagg_plus.Params(), CLIENTS), rules.codec


def bare(scheme: str) -> None:
    """Do the arithmetic of the rounds and print CPU seconds of a round after the first."""
    total = BARE[scheme](1)
    begin = time.process_time()
    for round_ in range(2, ROUNDS + 1):
        total = BARE[scheme](round_)
    print(f"cpu={(time.process_time() - begin) / (ROUNDS - 1):.4f}")
    if not (total == total[0]).all() or int(total[0]) != CLIENTS * 32768:
        raise RuntimeError(f"{scheme}: the sum of {CLIENTS} updates of zeros is {total[:3]}")


def cpu(call: str) -> float:
    """CPU seconds of a round, by a fresh interpreter."""
    said = run(python(f"from benchmarks import bench_coded; bench_coded.{call}")).output
    return float(re.findall(r"cpu=([\d.]+)", said)[-1])


def coded(options: Options) -> Iterable[Figure]:
    for scheme in BARE:
        pairs = [(cpu(f"probe({scheme!r})"), cpu(f"bare({scheme!r})")) for _ in range(options.repeats)]
        ours, theirs = (median(values) for values in zip(*pairs, strict=True))
        yield Figure(f"round of {scheme}, CPU over bare arithmetic", median(a / b for a, b in pairs), "x",
                     at_most=TARGET, note=f"emul {ours:.2f} s, bare {theirs:.2f} s of CPU a round")


if __name__ == "__main__":
    main(coded, text=__doc__)
