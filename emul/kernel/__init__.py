"""Virtual time: the calendar and its total order, the event loop, waits and fates, faults."""

from emul.kernel.kernel import Kernel
from emul.kernel.parts import Crash, Fusing, Journal, LinkChange, Plan, Port, Stop

__all__ = ["Crash", "Fusing", "Journal", "Kernel", "LinkChange", "Plan", "Port", "Stop"]
