"""The ends of `fidelity_kernel` inside a network namespace: `python fidelity_kernel_peer.py MODE` with JSON on stdin.

Standard library only; every answer is JSON on stdout. All clocks are the machine's, so times compare across namespaces.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import json
import os
import select
import socket
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

TCP_CONGESTION = 13
SO_TIMESTAMPNS = 35
SO_RCVBUFFORCE = 33
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
IDLE_S = 1.5                        # a receiver of datagrams ends after so long a silence


def tcp_sink(job: dict[str, Any]) -> dict[str, Any]:
    """Take one connection a port until its end: how many bytes came on each, and when the last."""
    listeners = [_listener(job["address"], flow["port"], job["cc"]) for flow in job["flows"]]
    _ready()
    ends = [0] * len(listeners)
    got = [0] * len(listeners)

    def take(i: int) -> None:
        connection, _ = listeners[i].accept()
        with connection, contextlib.suppress(ConnectionResetError):     # as a source ends whose time is up
            buffer = bytearray(1 << 18)
            while (n := connection.recv_into(buffer)) > 0:
                got[i] += n
                ends[i] = time.monotonic_ns()

    _all([threading.Thread(target=take, args=(i,)) for i in range(len(listeners))])
    return {"ends": ends, "got": got}


def tcp_source(job: dict[str, Any]) -> dict[str, Any]:
    """Connect all, then send all at once, at a time that is `at` or soon, for so many `seconds` at most: when that was.
    """
    connections = []
    for flow in job["flows"]:
        s = socket.socket()
        s.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, job["cc"].encode())
        s.connect((job["address"], flow["port"]))
        connections.append(s)
    time.sleep(max(0.0, job["at"] - time.monotonic()) if "at" in job else 0.3)
    gate = threading.Barrier(len(connections) + 1)

    def send(i: int) -> None:
        block = bytes(1 << 16)
        left = job["flows"][i]["bytes"]
        gate.wait()
        until = time.monotonic() + job.get("seconds", 1e9)
        while left > 0 and time.monotonic() < until:
            left -= connections[i].send(block[:min(left, len(block))])
        if left > 0:                # what is in the buffers does not count
            connections[i].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connections[i].close()

    threads = [threading.Thread(target=send, args=(i,)) for i in range(len(connections))]
    for thread in threads:
        thread.start()
    begin = time.monotonic_ns()
    gate.wait()
    for thread in threads:
        thread.join()
    return {"begin": begin}


def udp_sink(job: dict[str, Any]) -> dict[str, Any]:
    """All numbered datagrams until it is silent: [number, when the kernel had it, by the wall clock]."""
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 27)
    s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    s.bind((job["address"], job["port"]))
    _ready()
    got = []
    while True:
        try:
            data, ancillary, _, _ = s.recvmsg(2048, 128)
        except TimeoutError:
            return {"got": got}
        s.settimeout(IDLE_S)
        seconds, ns = struct.unpack("qq", ancillary[0][2][:16])
        got.append([struct.unpack_from("!I", data)[0], seconds * 10**9 + ns])


def udp_source(job: dict[str, Any]) -> dict[str, Any]:
    """Datagrams of `payload` bytes, numbered, at the given gaps, the first one after `at`: when each was sent, by the
    wall clock."""
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect((job["address"], job["port"]))
    sent = []
    padding = bytes(job["payload"] - 4)
    due = job.get("at", time.monotonic())
    for i, gap_s in enumerate(job["gaps_s"]):
        due += gap_s
        while (wait := due - time.monotonic()) > 0:
            time.sleep(wait)
        sent.append(time.time_ns())
        s.send(struct.pack("!I", i) + padding)
    return {"sent": sent}


def relay(job: dict[str, Any]) -> dict[str, Any]:
    """A link in user space between two namespaces: every packet waits `delay_s`; of those to the second one the ones
    named in `lost` (bits, by number) are dropped. Ends when its standard input does."""
    tuns = [_tun(end) for end in job["ends"]]
    lost, count, dropped, serial = bytes.fromhex(job["lost"]), 0, 0, 0
    waiting: list[tuple[float, int, int, bytes]] = []
    _ready()
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        readable, _, _ = select.select([*tuns, sys.stdin], [], [], timeout)
        if sys.stdin in readable:
            return {"packets": count, "dropped": dropped}
        for i, tun in enumerate(tuns):
            if tun in readable:
                packet = os.read(tun, 2048)
                if packet[0] >> 4 != 4:                     # IPv6 looking for routers
                    continue
                if i == 0 and len(packet) > 100:            # data, not what opens or acknowledges
                    count += 1
                    if lost[count // 8 % len(lost)] >> count % 8 & 1:
                        dropped += 1
                        continue
                serial += 1
                heapq.heappush(waiting, (time.monotonic() + job["delay_s"], serial, tuns[1 - i], packet))
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, _, tun, packet = heapq.heappop(waiting)
            os.write(tun, packet)


def _tun(end: dict[str, str]) -> int:
    """A TUN device inside a namespace; this process goes there to open it."""
    with Path("/var/run/netns", end["namespace"]).open() as place:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(place.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    tun = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH", end["device"].encode(), IFF_TUN | IFF_NO_PI))
    return tun


def _listener(address: str, port: int, cc: str) -> socket.socket:
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, cc.encode())
    s.bind((address, port))
    s.listen()
    return s


def _ready() -> None:
    print("ready", flush=True)


def _all(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    modes = {"tcp_sink": tcp_sink, "tcp_source": tcp_source, "udp_sink": udp_sink, "udp_source": udp_source,
             "relay": relay}
    print(json.dumps(modes[sys.argv[1]](json.loads(sys.stdin.readline()))), flush=True)
