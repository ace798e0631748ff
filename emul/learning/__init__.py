"""The learning of nodes: data, their partition, models, local training, evaluation.

Names here are loaded on first use, so that a process which only checks a scenario imports neither torch nor sklearn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emul.learning.node_task import NodeTask
    from emul.learning.task import Task, Untrained
    from emul.learning.task_parts import TaskError

__all__ = ["NodeTask", "Task", "TaskError", "Untrained", "gpus"]

_HOME = {"NodeTask": "node_task", "Task": "task", "TaskError": "task_parts", "Untrained": "task"}


def gpus() -> int:
    """The number of GPUs that torch can use. Imports torch."""
    import torch

    return int(torch.cuda.device_count())


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
