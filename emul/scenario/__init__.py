"""Scenario files in, checked plain data out. All that is wrong with a file is reported at once, with its lines."""

from emul.scenario.attacks import AttackSpec, NamedAttack
from emul.scenario.churn import Availability, Churn, Days, ShockGroup
from emul.scenario.edits import Edit
from emul.scenario.faults import (
    Behaviour,
    Crash,
    DropOut,
    Fault,
    Leave,
    LinkDown,
    LinkSet,
    LinkUp,
    NetworkPartition,
    NodeSpeed,
    Slow,
)
from emul.scenario.load import Given, load, loads, named
from emul.scenario.params import build_params, check_params
from emul.scenario.running import (
    NO_EVALUATION,
    ComputeTime,
    Evaluation,
    FusedTraining,
    Limits,
    Stop,
    Sweep,
    WorkerTimeout,
    parse_seeds,
)
from emul.scenario.scenario import Scenario
from emul.scenario.schemes import chosen, label_of

__all__ = ["NO_EVALUATION", "AttackSpec", "Availability", "Behaviour", "Churn", "ComputeTime", "Crash", "Days",
           "DropOut", "Edit", "Evaluation", "Fault", "FusedTraining", "Given", "Leave", "Limits", "LinkDown", "LinkSet",
           "LinkUp", "NamedAttack", "NetworkPartition", "NodeSpeed", "Scenario", "ShockGroup", "Slow", "Stop", "Sweep",
           "WorkerTimeout", "build_params", "check_params", "chosen", "label_of", "load", "loads", "named",
           "parse_seeds"]
