"""TCP under CURVE against Unix sockets: PHOLD of 1,000 nodes on two workers of this machine, and frames of 4 MB.

Runs are interleaved; CPU seconds are those of coordinator and workers. The delay of a network between machines
is not in it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from statistics import median

import zmq

from benchmarks.bench_kernel import _spread, measure, phold_for, wiring
from benchmarks.common import Figure, Options, cpu_seconds, main
from emul.workers.launcher import LocalLauncher
from emul.workers.pool import Workers
from emul.workers.transport import Ipc, Tcp, Transport

NODES = 1_000
FRAME_BYTES, FRAMES = 4_000_000, 100
KINDS: dict[str, Callable[[], Transport]] = {"Unix sockets": Ipc.new, "TCP, CURVE": Tcp.new}


def transport(options: Options) -> Iterable[Figure]:
    runs: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    frames: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    digests = set()
    for _ in range(options.repeats):
        for kind, make in KINDS.items():
            with Workers(2, launcher=LocalLauncher(make())) as pool:
                measure(wiring(*_spread(phold_for, 100, 2)), pool, table=False)         # the first run imports
                before = cpu_seconds(os.getpid())
                run = measure(wiring(*_spread(phold_for, NODES, 2)), pool, table=False)
                cpu = cpu_seconds(os.getpid()) - before
                runs[kind].append((run.activations / run.run_s, cpu / run.activations * 1e6))
                digests.add(run.digest)
            frames[kind].append(carried(make()))
    if len(digests) != 1:
        raise RuntimeError("journals differ with the transport")
    for kind in KINDS:
        rate, cpu = (median(values) for values in zip(*runs[kind], strict=True))
        yield Figure(f"PHOLD, {NODES:,} nodes, 2 workers, {kind}", rate, "activations/s",
                     note=f"CPU of the tree {cpu:.1f} us an activation")
    for kind in KINDS:
        rate, cpu = (median(values) for values in zip(*frames[kind], strict=True))
        yield Figure(f"frames of 4 MB, {kind}", rate, "MB/s", note=f"CPU {cpu:.2f} s a GB, both ends")
    for what, found in (("PHOLD", runs), ("frames of 4 MB", frames)):
        ipc, tcp = (median(cpu for _, cpu in found[kind]) for kind in KINDS)
        yield Figure(f"{what}, CPU by TCP and CURVE over CPU by Unix sockets", tcp / ipc, "x")


def carried(by: Transport) -> tuple[float, float]:
    """(MB/s, CPU seconds a GB) of frames from one socket to another, within this process."""
    context, frame = by.context(), bytes(FRAME_BYTES)
    inbox, outbox = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    try:
        by.connect(outbox, by.bind(inbox, "w0"))
        outbox.send(b"")
        inbox.recv()                                        # they are connected
        begin, cpu = time.perf_counter(), time.process_time()
        for _ in range(FRAMES):
            outbox.send(frame, copy=False)
            inbox.recv(copy=False)
        spent, worked = time.perf_counter() - begin, time.process_time() - cpu
    finally:
        context.destroy(linger=0)
        by.remove()
    return FRAMES * FRAME_BYTES / 1e6 / spent, worked / (FRAMES * FRAME_BYTES / 1e9)


if __name__ == "__main__":
    main(transport, text=__doc__)
