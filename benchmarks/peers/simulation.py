"""A Flower app in Flower's own simulation, as `flwr run` starts it, but bound to 127.0.0.1 and reporting to nobody."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
SERVER_ID, TASK_ID = 1, 1


def quiet(*apps: Path) -> None:
    """To be called before flwr is imported: no reports, and Ray's actors find the apps."""
    paths = [str(path) for path in (*apps, HERE)]
    sys.path[:0] = paths
    os.environ.update(FLWR_TELEMETRY_ENABLED="0", RAY_USAGE_STATS_ENABLED="0", RAY_DISABLE_METRICS_COLLECTION="1",
                      OMP_NUM_THREADS="1", RAY_worker_niceness="0",     # as everybody's workers
                      PYTHONPATH=os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]))


def simulate(app: Path, clients: int, cpus: int, config: Mapping[str, bool | int | float | str],
             components: tuple[str, str] | None = None) -> None:
    """Runs `app` to its end. `config` overrides its own; `components` (server, client) take the place of the app's.

    `cpus` is how many actors Ray starts. The entry point is that of `flwr run`, without the SuperLink, which would
    install the app's dependencies first.
    """
    from flwr.app import Context, RecordDict
    from flwr.common.config import get_fused_config_from_dir, get_project_config
    from flwr.simulation.run_simulation import _run_simulation
    from flwr.supercore.constant import NOOP_FEDERATION_ID
    from flwr.supercore.run import Run
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.supercore.telemetry import EventType

    named = get_project_config(app)["tool"]["flwr"]["app"]["components"]
    server, client = components or (named["serverapp"], named["clientapp"])
    run = Run.create_empty(run_id=1)
    run.primary_task_id, run.federation_id, run.override_config = TASK_ID, NOOP_FEDERATION_ID, dict(config)
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = TASK_ID, run.run_id, SERVER_ID
    context = Context(run_id=run.run_id, node_id=0, node_config={}, state=RecordDict(),
                      run_config=get_fused_config_from_dir(app, dict(config)))
    _run_simulation(
        num_supernodes=clients, server_app_attr=server, client_app_attr=client, app_dir=str(app), run=run, is_app=True,
        server_app_context=context, exit_event=EventType.PYTHON_API_RUN_SIMULATION_LEAVE,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                        "init_args": {"num_cpus": cpus, "include_dashboard": False, "log_to_driver": False,
                                      "_node_ip_address": "127.0.0.1"}})
