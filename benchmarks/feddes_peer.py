"""FedDES's server and clients (padsys/FedDES, 5aa2057) on SimGrid: seconds of each of so many rounds.

    /usr/bin/python3 benchmarks/feddes_peer.py SCHEME ROUNDS [LOADING CONTROL]

SCHEME is `fedavg` or `fedasync`, whose rounds are of as many updates as there are clients. Written after its C++
programs and configurations: 16 hosts of 64 clients, the server on the first. LOADING, seconds to load data, is
1.2e8 in them, and CONTROL 2 for FedAvg; here both are 0 by default. Runs on SimGrid 3.32 (Debian: python3-simgrid) and
4.1, without `emul`.
"""

import os
import random
import sys
import tempfile

from simgrid import Actor, Engine, Host, Mailbox, this_actor

HOSTS, EACH, TRAINING_S, MODEL_B = 16, 64, 30.0, 38_123_587
CLIENTS = HOSTS * EACH - 1
STRAGGLERS = {0: 1.5, 3: 2.0, 9: 2.0, 27: 2.0} | dict.fromkeys(range(40, 64), 0.7)


def platform() -> str:
    """Hosts of 128 cores, a link of 200 GB/s and 5 us for each pair, one of 1 us within a host."""
    names = range(1, HOSTS + 1)
    pairs = [(a, b) for a in names for b in names if a < b]
    return "\n".join([
        '<?xml version="1.0"?>', '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">',
        '<platform version="4.1"><zone id="all" routing="Full">',
        *(f'<host id="{a}" speed="2445Mf" core="128"/>' for a in names),
        *(f'<link id="{a}-{b}" bandwidth="200GBps" latency="5us"/>' for a, b in pairs),
        '<link id="within" bandwidth="200GBps" latency="1us" sharing_policy="FATPIPE"/>',
        *(f'<route src="{a}" dst="{a}"><link_ctn id="within"/></route>' for a in names),
        *(f'<route src="{a}" dst="{b}"><link_ctn id="{a}-{b}"/></route>' for a, b in pairs), "</zone></platform>"])


def work(seconds: float) -> None:
    """Keep a core of this host busy for so long."""
    this_actor.execute(seconds * Host.current().speed)


def server(scheme: str, rounds: int, loading: float) -> None:
    """Print the seconds of each round and of all."""
    inbox, boxes = Mailbox.by_name("server"), [Mailbox.by_name(str(k)) for k in range(CLIENTS)]
    work(loading)
    began = Engine.clock
    if scheme == "fedasync":
        for box in boxes:
            box.put(True, MODEL_B * 8)
            work(0.05)
    for _ in range(rounds):
        if scheme == "fedavg":
            for box in boxes:
                box.put(True, MODEL_B * 8)
                work(0.05)
        for _ in boxes:
            client = inbox.get()
            if scheme == "fedavg":
                work(0.17)
            else:
                work(0.05 + 0.0113)
                boxes[client].put(True, MODEL_B * 8)
                work(0.15)
        print(round(Engine.clock - began, 3), flush=True)
        began = Engine.clock
    print("all", round(Engine.clock, 3), flush=True)
    os._exit(0)                                     # the clients wait for ever


def client(k: int, scheme: str, loading: float, control: int) -> None:
    """Load data, then train and answer again and again."""
    def noise() -> float:
        return random.gauss(1.0 if scheme == "fedasync" else 0.0, 0.12)     # a mean of 0, as its FedAvg has it
    slower = STRAGGLERS.get(k, 1.0)
    work(loading * slower * (noise() if control == 2 else 1.0))
    box, out = Mailbox.by_name(str(k)), Mailbox.by_name("server")
    while box.get():
        work(TRAINING_S * slower * (0.8 if k < EACH - 1 else 1.0) * (noise() if control else 1.0))
        out.put(k, MODEL_B * (32 if scheme == "fedavg" else 8))


def main(scheme: str, rounds: int, loading: float = 0.0, control: int = 0) -> None:
    """Simulate."""
    engine = Engine([sys.argv[0], "--log=root.thres:critical"])
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(platform())
        file.flush()
        engine.load_platform(file.name)
    Actor.create("server", Host.by_name("1"), server, scheme, rounds, loading)
    for k in range(CLIENTS):
        Actor.create(f"client{k}", Host.by_name(str(1 + (k + 1) // EACH)), client, k, scheme, loading, control)
    engine.run()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *(kind(text) for kind, text in zip((float, int), sys.argv[3:], strict=False)))
