"""The price of a message of a Flower app by parts, in CPU microseconds: python -m benchmarks.flower_parts

The app is benchmarks/peers/digits_app with EPOCHS=0: a model of eight arrays and 3,658 parameters. Each part is
measured alone, the fastest of several series, with Flower's own conversions of arrays and with those of
`emul.schemes.flower.arrays`. Then a whole round in process, per client: what it costs above its parts is the mechanism
(kernel, events, calls, journal), the rest of the server app, and caches that are not warm.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

os.environ["EPOCHS"] = "0"
from benchmarks.bench_rounds import PEERS, SCENARIO

sys.path[:0] = [str(PEERS), str(PEERS / "digits_app")]

if TYPE_CHECKING:
    from emul.kernel.state import Kernel

CLIENTS, ROUNDS = 100, 20


def fastest_us(action: Callable[[], object], times: int = 200) -> float:
    """CPU us of one call, in the fastest of seven series."""
    found = []
    for _ in range(7):
        begin = time.process_time()
        for _ in range(times):
            action()
        found.append(1e6 * (time.process_time() - begin) / times)
    return min(found)


def parts() -> dict[str, float]:
    """CPU us of each part of what one client's message costs, as the methods of Flower's classes are now."""
    from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords

    from emul.schemes.flower import encoding
    from emul.schemes.flower.messages import TrainReply

    ct: Any = importlib.import_module("common_task")
    encoding.be(1, 1)
    net = ct.make_net()
    state = net.state_dict()
    record = ArrayRecord(state)
    content = RecordDict({"arrays": record, "config": ConfigRecord({"server-round": 1})})
    new: Any = Message
    call = encoding.call_of(new(content, 2, "train"), "1", encoding.records(content), floating=False)
    broadcast = encoding.SharedCall()
    message = broadcast.message_of(call, 2)

    def reply() -> Any:
        metrics = MetricRecord({"loss": 0.0, "num-examples": 15})
        return new(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)

    def own() -> None:
        mine = ct.Net()
        mine.load_state_dict(state)
        ct.local_train(mine, *ct.shard(3, CLIENTS), rnd=1, cid=3)
        mine.state_dict()

    made = reply()
    answer = TrainReply(encoding.reply_bytes(made), 0.0)
    replies = [encoding.reply_of(answer).content for _ in range(CLIENTS)]
    return {
        "client: a message is read, by Flower alone": fastest_us(lambda: encoding.SharedCall().message_of(call, 2)),
        "client: a copy of a message that was read": fastest_us(lambda: broadcast.message_of(call, 2)),
        "client: arrays to tensors": fastest_us(record.to_torch_state_dict),
        "client: the app's own work": fastest_us(own),
        "client: tensors to arrays": fastest_us(lambda: ArrayRecord(state)),
        "client: a reply is made": fastest_us(reply),
        "client: are all its numbers finite": fastest_us(lambda: encoding.unsound(made.content)),
        "client: a reply to bytes": fastest_us(lambda: encoding.reply_bytes(made)),
        "server: a reply is read": fastest_us(lambda: encoding.reply_of(answer)),
        "server: the average, a reply":
            fastest_us(lambda: aggregate_arrayrecords(replies, "num-examples"), 2) / CLIENTS}


def round_us() -> float:
    """CPU us a client of a whole round in this process, the median of those after the third."""
    from benchmarks.flower_app import APP
    from emul.engine import execute, header, pool_of, wire
    from emul.record.journal import Journal
    from emul.scenario import load

    marks: list[float] = []

    def mark(kernel: Kernel) -> None:
        if kernel.round_ended:
            marks.append(time.process_time())

    with tempfile.TemporaryDirectory() as folder, pool_of(0) as pool:
        config = {"clients": CLIENTS, "num-server-rounds": ROUNDS, "results": str(Path(folder, "said"))}
        scheme = json.dumps([{"name": "flower", "app": str(APP), "config": config}])
        scenario = load(SCENARIO, sets=[f"topology.clients={CLIENTS}", f"schemes={scheme}", f"stop.rounds={ROUNDS}"])
        wired = wire(scenario, *scenario.schemes[0], workers=1)
        journal = Journal(Path(folder, "journal"), header(wired))
        execute(wired, pool, journal, mark)
        journal.close()
    return 1e6 * median(b - a for a, b in pairwise(marks[2:])) / CLIENTS


def main() -> None:
    import torch

    torch.set_num_threads(1)
    before = parts()
    from emul.schemes.flower import arrays

    arrays.install()
    after = parts()
    for name, us in after.items():
        print(f"{name:45s} {before[name]:8.1f} -> {us:8.1f} us")
    print(f"{'a whole round in process, a client':45s} {'':8s}    {round_us():8.1f} us")


if __name__ == "__main__":
    main()
