"""A link in user space between two network namespaces: `python relay.py` with a job as JSON on the first line of stdin.

Every packet waits `delay_s`. Of those that carry data from the first end to the second, the ones that `lost` names
(bits, by number) are dropped. Packets that open a connection, and the first bytes
of each (who has connected), are not counted.
Ends with its standard input; then it writes one line of JSON: for each connection, its two addresses and the packets of
data in their order as [first byte's number, bytes, 1 if it was dropped]. Standard library only.
"""

from __future__ import annotations

import collections
import ctypes
import fcntl
import gc
import json
import os
import select
import struct
import sys
import time
from pathlib import Path
from typing import Any

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
HELLO_BYTES = 4
TCP, SYN = 6, 0x02
AT_ONCE = 64                        # packets that are read from one end before the other has its turn
Connection = tuple[str, str, int]   # source, target, source's port


class Watch:
    """The packets of data of each connection, as they pass, and which of them are dropped."""

    def __init__(self, lost: bytes):
        self.seen: dict[Connection, list[tuple[int, int, int]]] = {}
        self._lost, self._count = lost, 0
        self._begin: dict[Connection, int] = {}             # sequence number of the first byte

    def drops(self, packet: bytes) -> bool:
        """True if this one is dropped."""
        if packet[9] != TCP:
            return False
        head = 4 * (packet[0] & 15)
        source_port, _, number = struct.unpack_from("!HHI", packet, head)
        connection = ".".join(map(str, packet[12:16])), ".".join(map(str, packet[16:20])), source_port
        if packet[head + 13] & SYN:
            self._begin[connection] = number + 1
        size = len(packet) - head - 4 * (packet[head + 12] >> 4)
        offset = (number - self._begin.get(connection, number)) % (1 << 32)
        if size <= 0 or offset < HELLO_BYTES:
            return False
        self._count += 1
        dropped = bool(self._lost) and bool(self._lost[self._count // 8 % len(self._lost)] >> self._count % 8 & 1)
        self.seen.setdefault(connection, []).append((offset - HELLO_BYTES, size, int(dropped)))
        return dropped


def relay(job: dict[str, Any]) -> list[Any]:
    """Until the end of standard input; the packets that `Watch` has seen, if any are to be lost."""
    ends = [_tun(end) for end in job["ends"]]
    watch = Watch(bytes.fromhex(job["lost"])) if job["lost"] else None
    waiting: collections.deque[tuple[float, int, bytes]] = collections.deque()     # all wait equally long: in order
    delay_s = job["delay_s"]
    print("ready", flush=True)
    gc.disable()
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        readable, _, _ = select.select([*ends, sys.stdin], [], [], timeout)
        if sys.stdin in readable:
            return [] if watch is None else [[*connection, packets] for connection, packets in watch.seen.items()]
        for i, end in enumerate(ends):
            if end in readable:
                for packet in _packets(end):
                    if packet[0] >> 4 == 4 and not (i == 0 and watch is not None and watch.drops(packet)):
                        waiting.append((time.monotonic() + delay_s, ends[1 - i], packet))
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, end, packet = waiting.popleft()
            os.write(end, packet)


def _packets(end: int) -> Any:
    for _ in range(AT_ONCE):
        try:
            yield os.read(end, 2048)
        except BlockingIOError:
            return


def _tun(end: dict[str, str]) -> int:
    """A TUN device inside a namespace; this process goes there to open it."""
    with Path("/var/run/netns", end["namespace"]).open() as place:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(place.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH", end["device"].encode(), IFF_TUN | IFF_NO_PI))
    return tun


if __name__ == "__main__":
    print(json.dumps(relay(json.loads(sys.stdin.readline()))), flush=True)
