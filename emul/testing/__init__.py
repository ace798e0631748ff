"""Public helpers for the tests of a scheme, and of emul itself.

    role = drive(server, Params(), clients=[1, 2, 3])       one role alone, no network: feed messages, read actions
    ran = run_world({"server": server, "client": client}, clients=3, stop=Stop(rounds=2))     roles over a network
    run_text(fedavg.EXAMPLE, "stop.rounds=1")               a scenario of one scheme, with some of its values set
    check_scheme("fedavg")                                  what must hold of every scheme
    check_task({"data": ..., "model": ..., "solver": ...})  what must hold of every learning task

Everything runs in this process, but for the pools that `check_scheme` is given.
"""

from emul.testing.conformance import SMALL, check_scheme, check_task
from emul.testing.drive import Driven, drive
from emul.testing.shuffled import Shuffled
from emul.testing.world import MS, NoParams, Ran, run_text, run_world, scheme_of

__all__ = ["MS", "SMALL", "Driven", "NoParams", "Ran", "Shuffled", "check_scheme", "check_task", "drive",
           "run_text", "run_world", "scheme_of"]
