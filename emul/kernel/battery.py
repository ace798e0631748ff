"""Batteries: what is left in them while nodes compute, send and receive. One that runs out is a crash for good.

A node draws `idle_w`, or `compute_w` while it computes, and for every message that its link carries `send_w` or
`receive_w` for bytes over rate. The time when that will have emptied the battery is an entry of the calendar, which is
made anew whenever it changes; an entry of an older reckoning counts for nothing.
"""

from __future__ import annotations

from math import ceil, inf

from emul.kernel.calendar import EMPTY, FAULT
from emul.kernel.parts import Charge, KNode
from emul.kernel.state import Kernel

_FIRST = 1 << 56                    # sequence numbers of these entries, beyond those of faults and their streams


def begin(kernel: Kernel) -> None:
    """Batteries are as full as the plan says, and all nodes idle."""
    for number, battery in sorted(kernel.plan.batteries.items()):
        node = kernel.nodes[number]
        node.charge = Charge(battery, battery.joules)
        draw(kernel, node, 0, battery.idle_w)


def draw(kernel: Kernel, node: KNode, time: int, watts: float) -> None:
    """From now on the node draws so much; 0: it is down."""
    charge = node.charge
    assert charge is not None
    charge.left_j -= charge.watts * (time - charge.since_ns) / 1e9
    charge.since_ns, charge.watts = time, watts
    charge.version += 1
    if node.alive and (watts or charge.left_j <= 0):
        at = time + (ceil(charge.left_j / watts * 1e9) if charge.left_j > 0 else 0)
        kernel.calendar.add(at, (FAULT, node.id, _FIRST + charge.version, EMPTY, (node, charge.version), node))


def computes(kernel: Kernel, node: KNode, time: int) -> None:
    """A computation has begun, or ended. Several at a time draw no more than one."""
    assert node.charge is not None
    battery = node.charge.battery
    yes = node.computing or any(activity.computing for activity in node.activities.values())
    draw(kernel, node, time, battery.compute_w if yes else battery.idle_w)


def carried(kernel: Kernel, node: KNode, time: int, wire: int, src: int, dst: int, watts: float) -> None:
    """The link between two vertices carries so many bytes from the node, or to it."""
    assert node.charge is not None
    rate = kernel.network.parameters(src, dst).bandwidth_bps
    node.charge.left_j -= watts * 8 * wire / (inf if rate is None else float(rate))
    draw(kernel, node, time, node.charge.watts)
