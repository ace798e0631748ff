"""The one place that joins scenario, network, kernel, workers and record into a run.

    with Workers(2) as pool:
        results = run(load("scenarios/quickstart.yaml"), workers=pool, out=Path("runs"))
"""

from typing import TYPE_CHECKING

from emul.base.lazy import lazily

if TYPE_CHECKING:
    from emul.engine.costs import CostSource, load_costs, read_profile
    from emul.engine.findings import analysis, drawn, facts, header, observed, timed
    from emul.engine.keeping import Keeping
    from emul.engine.profiling import fit, profile
    from emul.engine.resuming import ResumeMismatch, on_network_of, replay, resume
    from emul.engine.running import pool_of, run
    from emul.engine.session import Finished, Result, Session, Watch, execute
    from emul.engine.wiring import Wiring, wire
else:
    __getattr__ = lazily(__name__, {
        "costs": ("CostSource", "load_costs", "read_profile"),
        "findings": ("analysis", "drawn", "facts", "header", "observed", "timed"),
        "keeping": ("Keeping",), "profiling": ("fit", "profile"),
        "resuming": ("ResumeMismatch", "on_network_of", "replay", "resume"),
        "running": ("pool_of", "run"), "session": ("Finished", "Result", "Session", "Watch", "execute"),
        "wiring": ("Wiring", "wire")})

__all__ = ["CostSource", "Finished", "Keeping", "Result", "ResumeMismatch", "Session", "Watch", "Wiring", "analysis",
           "drawn", "execute", "facts", "fit", "header", "load_costs", "observed", "on_network_of", "pool_of",
           "profile", "read_profile", "replay", "resume", "run", "timed", "wire"]
