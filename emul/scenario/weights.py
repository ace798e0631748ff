"""Classes by weight, of which each node draws one: `phone_low`, or `{phone_high: 0.2, phone_low: 0.8}`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import PlainValidator

Weights = Mapping[str, float]


def _weights(value: Any) -> dict[str, float]:
    """Of devices or of classes of links."""
    if isinstance(value, str) and value:
        return {value: 1.0}
    sound = isinstance(value, dict) and value and all(
        isinstance(name, str) and isinstance(weight, (int, float)) and not isinstance(weight, bool)
        and math.isfinite(weight) and weight >= 0 for name, weight in value.items())
    if not sound or not sum(value.values()) > 0:
        raise ValueError("expected the name of a class, or several by weight, {phone_high: 0.2, phone_low: 0.8}")
    return {name: float(weight) for name, weight in value.items()}


def plain_weights(weights: Weights | None) -> dict[str, float] | None:
    """As a scenario file says them."""
    return None if weights is None else dict(weights)


AnyWeights = Annotated[dict[str, float], PlainValidator(_weights, json_schema_input_type=str | dict[str, float])]
