"""What nodes learn: data, their partition, models, local training, evaluation.

Names here are loaded on first use, so that a process which only checks a scenario imports neither torch nor sklearn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emul.learning.task import NodeTask, Task, TaskError, cannot_fuse, gpus, validate

__all__ = ["NodeTask", "Task", "TaskError", "cannot_fuse", "gpus", "validate"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from emul.learning import task

        return getattr(task, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
