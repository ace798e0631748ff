"""The rows of a journal: the plain values that the kernel writes and the record reads.

A row is a tuple whose first item is its kind. Times are integers of nanoseconds of virtual time. Nodes, vertices,
rounds and sequence numbers are integers; (source, seq) names one copy of a message. Rows stand in the order of time,
those of one time in the order of their steps.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Row: TypeAlias = tuple[Any, ...]

START = 0
RESUME = 1
ENTER = 2
COMPUTED = 3
SEND = 4
HOP = 5
DELIVER = 6
LOST = 7
COMPUTE = 8
LEAVE = 9
REPORT = 10
FINISH = 11
CRASH = 12
RETURN = 13
LINK = 14
ABSTAIN = 15
LATE = 16
UNREAD = 17
AWAY = 18
BACK = 19
RESENT = 20
DECLARED = 21
STATED = 22
REJECT = 23
DROP = 24

ACTIVITY = 25
DONE = 26
BESIDE = 27

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

# kind -> its meaning, beside the names of its fields
MEANS = {
    START: "A role begins, or begins anew.",
    RESUME: "A wait is over: 0 complete, 1 settled, 2 timeout, 3 round over; with how many messages.",
    ENTER: "0: there are no more rounds.",
    COMPUTED: "A computation's cost has passed.",
    SEND: "A copy and its first hop, -1 if there is none; `size` of the frames, `wire` with all overhead.",
    HOP:
        "A further hop begins. It begins where the one before began if a contact has ended and its link gave the "
        "copy back (routes over contacts).",
    DELIVER: "0 to the inbox, 1 late, 2 the receiver had ended.",
    LOST: "The receiver knows of the loss, on this link; -1: somebody was away.",
    COMPUTE: "A computation begins.",
    LEAVE: "A round is left; `why` is empty if it was completed.",
    REPORT: "The values that the role reported, and the digest of the parameters.",
    FINISH: "The role has ended; `why` is empty if it returned.",
    CRASH: "The node crashes.",
    RETURN: "It is there again.",
    LINK: "A fault changes a link.",
    ABSTAIN: "The role says that no message of these types goes there in this round.",
    LATE: "Delivered before; its round ended unread.",
    UNREAD: "Delivered before; its receiver crashed or ended.",
    AWAY: "It left: unreachable, its role goes on.",
    BACK: "It can be reached again.",
    RESENT:
        "A reliable link, or one with contacts and `gap: again`, sent so many bytes of the copy again; the row is "
        "written when the copy leaves the link, or when its flow begins.",
    DECLARED: "The declared bytes of the copy; the row stands behind its `send`.",
    STATED: "The scheme has stated the cost in the `compute` row before.",
    REJECT: "The copy is refused at its arrival, or by its receiver's `accept`; then it was delivered before.",
    DROP: "It drops out: of this round nothing more is heard of it, and nothing reaches it.",
    ACTIVITY: "The role begins an activity; numbers of a node ascend from 1.",
    DONE:
        "It has ended; `why` is empty if it returned, and `cancelled` if it was cut. A crash ends all without this "
        "row.",
    BESIDE:
        "The `compute` (with its `stated`), `computed` or `resume` before was of this activity, or on another lane "
        "than the first.",
}
