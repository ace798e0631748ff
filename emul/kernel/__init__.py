"""Virtual time: the calendar and its total order, the event loop, waits and fates, faults."""

from emul.kernel.deadlock import who_waits
from emul.kernel.loop import run_to_end
from emul.kernel.parts import Crash, DropOut, Fusing, LinkChange, Plan, Port, Recorder, StopRule
from emul.kernel.state import Kernel

__all__ = ["Crash", "DropOut", "Fusing", "Kernel", "LinkChange", "Plan", "Port", "Recorder", "StopRule", "run_to_end",
           "who_waits"]
