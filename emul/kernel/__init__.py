"""Virtual time: the calendar and its total order, the event loop, waits and fates, faults."""

from typing import TYPE_CHECKING

from emul.base.lazy import lazily

if TYPE_CHECKING:
    from emul.kernel.deadlock import who_waits
    from emul.kernel.loop import run_to_end
    from emul.kernel.parts import Fusing, LinkChange, NodeCrash, NodeDropOut, Plan, Port, Recorder, StopRule
    from emul.kernel.state import Kernel
else:
    __getattr__ = lazily(__name__, {
        "deadlock": ("who_waits",), "loop": ("run_to_end",), "state": ("Kernel",),
        "parts": ("Fusing", "LinkChange", "NodeCrash", "NodeDropOut", "Plan", "Port", "Recorder", "StopRule")})

__all__ = ["Fusing", "Kernel", "LinkChange", "NodeCrash", "NodeDropOut", "Plan", "Port", "Recorder", "StopRule",
           "run_to_end", "who_waits"]
