"""Models of a chosen size, to see what secure aggregation costs as d grows: one hidden layer over the digits.

`cd scenarios/secure_aggregation && emul sweep home.yaml --plugin wide --grid "task.model=d3,d4,d5,d6"`.
"""

from __future__ import annotations

from math import prod
from typing import Any

from torch import nn


def of_about(parameters: int) -> Any:
    """A model of about so many parameters: (inputs + 1 + outputs) h + outputs."""
    def make(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        inputs = prod(input_shape)
        hidden = max(1, round((parameters - outputs) / (inputs + 1 + outputs)))
        return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))

    return make


MODELS = {f"d{power}": of_about(10**power) for power in range(3, 7)}            # 985, 9,985, 99,985, 999,985
