"""Parts of Flower that lie at other places in other versions, from 1.27 on. Imported only where an app runs."""

from __future__ import annotations

from typing import Any

try:
    from flwr.supercore.run import Run
except ImportError:                 # up to 1.30
    from flwr.common.typing import Run
try:
    from flwr.compat.common import recorddict_compat
except ImportError:                 # up to 1.30
    from flwr.common import recorddict_compat
try:
    from flwr.supercore.task_identity import TaskIdentity
except ImportError:                 # before messages took their sender from the process
    TaskIdentity = None

__all__ = ["Run", "be", "recorddict_compat", "sent_by"]


def be(run_id: int, node_id: int) -> None:
    """Messages that are made from now on are of this node and run: Flower keeps its identity in the process."""
    if TaskIdentity is not None:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = run_id, run_id, node_id


def sent_by(message: Any, run_id: int, node_id: int) -> None:
    """Write run and sender into a message that is sent: in older versions it is made without them."""
    message.metadata.__dict__.update(_run_id=run_id, _src_node_id=node_id)
