"""A small run, written by hand: server (0) at vertex 0, clients 1 and 2 at vertices 2 and 3, a router (vertex 1).

    server -- router -- client1, client2       latency 10 ns a link, 1 ns for each 100 B
"""

from __future__ import annotations

from typing import Any

from emul.base import rows as R
from emul.base.rows import Row

HEADER: dict[str, Any] = {
    "scheme": "fedavg", "seed": 7, "names": ["server", "client1", "client2"],
    "roles": ["server", "client", "client"], "vertices": [0, 2, 3], "deciders": [0],
    "network": ["server", "router", "client1", "client2"]}

LATENCIES = {(0, 1): 10, (1, 0): 10, (1, 2): 10, (1, 3): 10, (2, 1): 10, (3, 1): 10}

ROWS: list[Row] = [
    (R.START, 0, 0, 0),
    (R.START, 0, 1, 0),
    (R.START, 0, 2, 0),
    (R.ENTER, 0, 0, 1),
    (R.SEND, 0, 0, 0, 1, "Model", 84, 100, 1, 0, 1),            # server -> client1
    (R.SEND, 0, 0, 1, 2, "Model", 84, 100, 1, 0, 1),            # server -> client2
    (R.SEND, 0, 0, 2, 0, "Note", 5, 0, 1, -1, -1),              # server -> itself
    (R.DELIVER, 0, 0, 2, R.INBOX),
    (R.HOP, 11, 0, 0, 110, 1, 2),
    (R.HOP, 12, 0, 1, 110, 1, 3),
    (R.DELIVER, 22, 0, 0, R.INBOX),
    (R.ENTER, 22, 1, 1),
    (R.RESUME, 22, 1, 0, 1),
    (R.COMPUTE, 22, 1, "train", 100, 5.0, 1),
    (R.DELIVER, 23, 0, 1, R.INBOX),
    (R.ENTER, 23, 2, 1),
    (R.RESUME, 23, 2, 0, 1),
    (R.COMPUTE, 23, 2, "train", 400, 5.0, 1),
    (R.CRASH, 50, 2),
    (R.COMPUTED, 122, 1),
    (R.SEND, 122, 1, 0, 0, "Update", 184, 200, 1, 2, 1),        # client1 -> server
    (R.LEAVE, 122, 1, 1, ""),
    (R.HOP, 134, 1, 0, 200, 1, 0),
    (R.DELIVER, 146, 1, 0, R.INBOX),
    (R.RESUME, 146, 0, 1, 1),
    (R.COMPUTE, 146, 0, "aggregate", 0, 0.0, 1),
    (R.COMPUTED, 146, 0),
    (R.REPORT, 146, 0, 1, {"received": 1}, "aa"),
    (R.LEAVE, 146, 0, 1, ""),
    (R.ENTER, 146, 0, 2),
    (R.SEND, 146, 0, 3, 1, "Model", 84, 100, 2, 0, 1),          # lost on the second hop
    (R.SEND, 146, 0, 4, 2, "Model", 84, 100, 2, 0, 1),          # to a node that is down
    (R.HOP, 157, 0, 3, 110, 1, 2),
    (R.HOP, 158, 0, 4, 110, 1, 3),
    (R.LOST, 168, 0, 3, 1, 2),
    (R.DELIVER, 169, 0, 4, R.TO_ENDED),
    (R.RETURN, 170, 2),
    (R.START, 170, 2, 1),
    (R.SEND, 170, 2, 0, 0, "Hello", 34, 50, 0, 3, 1),           # client2 -> server
    (R.ABSTAIN, 170, 2, 1, [0], ["Update"]),
    (R.LINK, 175, 1, 2, {"down": True}),
    (R.HOP, 181, 2, 0, 50, 1, 0),
    (R.DELIVER, 192, 2, 0, R.INBOX),
    (R.RESUME, 200, 0, 2, 0),
    (R.REPORT, 200, 0, 2, {"received": 0, "note": "none"}, ""),
    (R.LEAVE, 200, 0, 2, "TimedOut: nobody answered"),
    (R.ENTER, 200, 0, 3),
    (R.SEND, 200, 0, 5, 1, "Model", 84, 100, 3, 0, 1),          # in flight when the run ends
    (R.RESUME, 210, 0, 2, 0),
    (R.FINISH, 210, 0, ""),
    (R.UNREAD, 210, 2, 0),
]
