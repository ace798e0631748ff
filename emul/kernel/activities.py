"""Activities of a node beside its role: begun, ended, and looked at. A node that has none comes here for nothing.

A *strand* of a node waits or computes: the role itself, which is the `KNode`, or an activity. A node has one open
activation at a time whatever its strands are, so what is safe and in order does not depend on them.
"""

from __future__ import annotations

from emul.base import rows
from emul.kernel.battery import computes
from emul.kernel.calendar import LOOK
from emul.kernel.fates import take_from_inbox
from emul.kernel.parts import KActivity, KNode, Strand
from emul.kernel.state import Kernel
from emul.kernel.waits import resume
from emul.roles.events import BeginActivity, EndActivity, WaitEnd


def begin_activity(kernel: Kernel, node: KNode, action: BeginActivity) -> None:
    """The role has begun an activity."""
    if not node.activities:
        node.activities = {}
    node.activities[action.activity] = KActivity(action.activity, action.label)
    kernel.log((rows.ACTIVITY, node.time, node.id, action.activity, action.label))


def end_activity(kernel: Kernel, node: KNode, action: EndActivity) -> None:
    """It has ended or was cancelled: messages that it has got and not read lie in the inbox again."""
    activity = node.activities.pop(action.activity)
    activity.epoch += 1
    kernel.log((rows.DONE, node.time, node.id, action.activity, action.why))
    if activity.computing:
        activity.computing = False
        if node.charge is not None:
            computes(kernel, node, node.time)
    if activity.patience is not None and activity.patience.got:
        node.put_back(activity.patience.unread())
        offer_inbox(kernel, node)


def offer_inbox(kernel: Kernel, node: KNode) -> None:
    """Look in the inbox again for messages that a wait may take now: a wait of another strand, or in another round."""
    for patience in node.waits():
        if node.inbox and take_from_inbox(node, patience):
            kernel.later(node, node.time, LOOK, node)


def look_at_activities(kernel: Kernel, time: int, node: KNode) -> None:
    """Is the wait of an activity over? One is ended at a time. While the node has not answered, none is: then it is
    looked at again."""
    if not node.open_index:
        for activity in node.activities.values():
            outcome = _outcome(activity)
            if outcome is not None:
                if outcome == WaitEnd.SETTLED:
                    assert activity.patience is not None
                    kernel.oracle_waits[node.role, activity.patience.wait.where] += 1
                resume(kernel, time, node, activity, outcome)
                break
    if node.open_index:
        kernel.later(node, time, LOOK, node)


def _outcome(strand: Strand) -> WaitEnd | None:
    patience = strand.patience
    if patience is None:
        return None
    if len(patience.got) >= patience.need:
        return WaitEnd.COMPLETE
    return WaitEnd.SETTLED if patience.fates and not patience.open else None
