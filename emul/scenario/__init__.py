"""Scenario files in, checked plain data out. All that is wrong with a file is reported at once, with its lines."""

from emul.scenario.checks import World
from emul.scenario.faults import Behaviour, Crash, Fault, LinkDown, NodeSpeed
from emul.scenario.load import load, loads
from emul.scenario.params import build_params, check_params
from emul.scenario.scenario import Attack, Compute, Evaluation, Scenario, Stop, Workers

__all__ = ["Attack", "Behaviour", "Compute", "Crash", "Evaluation", "Fault", "LinkDown", "NodeSpeed", "Scenario",
           "Stop", "Workers", "World", "build_params", "check_params", "load", "loads"]
