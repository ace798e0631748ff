"""A run's model as a module of torch: with frozen parameters, which no message and no vector holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from emul.base.files import write_atomically
from emul.engine.reopening import reopen
from emul.record.journal import RecordError

if TYPE_CHECKING:
    from torch import nn


def whole(directory: Path, node: str | None = None, round_: int | None = None,
          plugins: Sequence[str] | None = None) -> nn.Module:
    """The last model that a node left, or that of a round, on the CPU, as it evaluates. node None: the only one that
    decides. plugins: the modules that the run was made with.

    Raises KeptError: there is none; RecordError: the run has no task, or it is no model of the task's.
    """
    from emul.learning.parameters import ParameterError

    opened = reopen(directory, plugins)
    kept = opened.run.model(node, round_)
    try:
        return opened.task.whole(kept.vector())
    except ParameterError as e:
        raise RecordError(f"{directory}: what {kept.node} left is not one model of the task: {e}") from None


def save(module: nn.Module, file: Path) -> int:
    """Write all its parameters and persistent buffers by their names, as safetensors; how many numbers these are."""
    from safetensors.torch import save_model

    with write_atomically(file) as path:
        save_model(module, str(path))
    return sum(tensor.numel() for tensor in module.state_dict().values())
