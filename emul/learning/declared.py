"""A declared model: one that is too large to be made. A small model stands for it, and is trained or not.

    task: {data: ..., model: ..., solver: ..., declared: {parameters: 10e9, tokens: 1048576, layers: 36}}

Messages with vectors are as large as if the small model had so many parameters, and a step of a node takes the time in
which its GPUs see so many tokens: 6 N tokens floating-point operations, forward and backward pass together (Kaplan et
al., arXiv 2001.08361, section 2.1). Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

from emul.base.plain import PlainMapping

DECLARED = "declared"                   # the key of a task
_MOST = 1e15                            # parameters, tokens


@dataclass(frozen=True)
class DeclaredModel:
    """The sizes of a declared model."""

    parameters: float                   # N
    tokens: float                       # of a step of one node
    layers: int | None = None           # parts of equal size; None: those of the small model

    @property
    def step(self) -> float:
        """Floating-point operations of a step of one node."""
        return 6 * self.parameters * self.tokens


def declared(task: PlainMapping) -> DeclaredModel | None:
    """The declared model of a sound task; None: it has none.

    >>> declared({"declared": {"parameters": 10e9, "tokens": 2e6}}).step
    1.2e+17
    """
    said = task.get(DECLARED)
    return None if said is None else DeclaredModel(**said)


def mistakes(said: object) -> Iterator[tuple[tuple[str, ...], object, str]]:
    """(path, found, expected) of what is wrong in the value of `declared`."""
    if not isinstance(said, Mapping):
        yield (), said, "expected such as {parameters: 10e9, tokens: 1048576}"
        return
    known = [field.name for field in fields(DeclaredModel)]
    yield from (((str(key),), value, f"unknown key; known are {', '.join(known)}")
                for key, value in said.items() if key not in known)
    for key in ("parameters", "tokens"):
        value: object = said.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 1 <= value <= _MOST:
            yield (key,), value, "expected a number, 1 or more"
    layers: object = said.get("layers")
    if layers is not None and (not isinstance(layers, int) or isinstance(layers, bool) or not 1 <= layers <= 10_000):
        yield ("layers",), layers, "expected a whole number in 1..10000"
