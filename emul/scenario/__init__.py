"""Scenario files in, checked plain data out. All that is wrong with a file is reported at once, with its lines."""

from emul.scenario.attacks import Attack, Chosen
from emul.scenario.churn import Availability, Churn, Days, Group
from emul.scenario.faults import (
    Behaviour,
    Crash,
    DropOut,
    Fault,
    Leave,
    LinkDown,
    LinkSet,
    LinkUp,
    NodeSpeed,
    Partition,
    Slow,
)
from emul.scenario.labels import chosen, label_of
from emul.scenario.limits import Limits
from emul.scenario.load import Edit, Given, load, loads, named
from emul.scenario.params import build_params, check_params
from emul.scenario.scenario import NEVER, Compute, Evaluation, Fuse, Scenario, Stop, Workers
from emul.scenario.sweep import Sweep, parse_seeds

__all__ = ["NEVER", "Attack", "Availability", "Behaviour", "Chosen", "Churn", "Compute", "Crash", "Days", "DropOut",
           "Edit", "Evaluation", "Fault", "Fuse", "Given", "Group", "Leave", "Limits", "LinkDown", "LinkSet", "LinkUp",
           "NodeSpeed", "Partition", "Scenario", "Slow", "Stop", "Sweep", "Workers", "build_params", "check_params",
           "chosen", "label_of", "load", "loads", "named", "parse_seeds"]
