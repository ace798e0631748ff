"""The rows of a journal: the plain values that the kernel writes and the record reads.

A row is a tuple whose first item is its kind. Times are integers of nanoseconds of virtual time. Nodes, vertices,
rounds and sequence numbers are integers; (source, seq) names one copy of a message. Rows stand in the order of time,
those of one time in the order of their steps.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Row: TypeAlias = tuple[Any, ...]

START = 0           # time, node, round                                         a role begins (anew)
RESUME = 1          # time, node, outcome, messages                             a wait is over
ENTER = 2           # time, node, round                                         0: no more rounds
COMPUTED = 3        # time, node
SEND = 4            # time, source, seq, target, type, size, wire, round, vertex, next vertex    first hop; -1: none
HOP = 5             # time, source, seq, wire, vertex, next vertex              a further hop begins
DELIVER = 6         # time, source, seq, fate                                   INBOX, LATE or ENDED
LOST = 7            # time, source, seq, vertex, next vertex                    known now to the receiver; -1: away
COMPUTE = 8         # time, node, label, cost, work, round
LEAVE = 9           # time, node, round, why                                    "": completed
REPORT = 10         # time, node, round, values, digest
FINISH = 11         # time, node, why
CRASH = 12          # time, node
RETURN = 13         # time, node
LINK = 14           # time, vertex, next vertex, changes
ABSTAIN = 15        # time, node, round, targets, types
LATE = 16           # time, source, seq                                         delivered before, its round ended unread
UNREAD = 17         # time, source, seq                                         delivered before, its receiver crashed
AWAY = 18           # time, node                                                it left: unreachable, its state kept
BACK = 19           # time, node
RESENT = 20         # time, source, seq, bytes, vertex, next vertex             what a reliable link sent again
DECLARED = 21       # time, source, seq, bytes                                  of a copy: counted, but not carried
STATED = 22         # time, node                 the cost of the computation in the row before was stated by the scheme
REJECT = 23         # time, source, seq, reason                                 at its arrival, or when it was read
DROP = 24           # time, node, round         it drops out: nothing more of this round is heard of it, or reaches it

ACTIVITY = 25       # time, node, activity, label                               it begins beside the role itself
DONE = 26           # time, node, activity, why                                 "": returned; else why not
BESIDE = 27         # time, node, activity, lane    whose the COMPUTE (or its STATED), COMPUTED or RESUME before it is

INBOX, DELIVERED_LATE, TO_ENDED = 0, 1, 2       # fates in a DELIVER row

NAMES = {
    START: ("start", "time_ns", "node", "round"),
    RESUME: ("resume", "time_ns", "node", "outcome", "messages"),
    ENTER: ("enter", "time_ns", "node", "round"),
    COMPUTED: ("computed", "time_ns", "node"),
    SEND: ("send", "time_ns", "source", "seq", "target", "type", "size", "wire", "round", "vertex", "next"),
    HOP: ("hop", "time_ns", "source", "seq", "wire", "vertex", "next"),
    DELIVER: ("deliver", "time_ns", "source", "seq", "fate"),
    LOST: ("lost", "time_ns", "source", "seq", "vertex", "next"),
    COMPUTE: ("compute", "time_ns", "node", "label", "cost_ns", "work", "round"),
    LEAVE: ("leave", "time_ns", "node", "round", "why"),
    REPORT: ("report", "time_ns", "node", "round", "values", "digest"),
    FINISH: ("finish", "time_ns", "node", "why"),
    CRASH: ("crash", "time_ns", "node"),
    RETURN: ("return", "time_ns", "node"),
    LINK: ("link", "time_ns", "vertex", "next", "changes"),
    ABSTAIN: ("abstain", "time_ns", "node", "round", "targets", "types"),
    LATE: ("late", "time_ns", "source", "seq"),
    UNREAD: ("unread", "time_ns", "source", "seq"),
    AWAY: ("away", "time_ns", "node"),
    BACK: ("back", "time_ns", "node"),
    RESENT: ("resent", "time_ns", "source", "seq", "bytes", "vertex", "next"),
    DECLARED: ("declared", "time_ns", "source", "seq", "bytes"),
    STATED: ("stated", "time_ns", "node"),
    REJECT: ("reject", "time_ns", "source", "seq", "reason"),
    DROP: ("drop", "time_ns", "node", "round"),
    ACTIVITY: ("activity", "time_ns", "node", "activity", "label"),
    DONE: ("done", "time_ns", "node", "activity", "why"),
    BESIDE: ("beside", "time_ns", "node", "activity", "lane"),
}
