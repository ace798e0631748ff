"""The files that the nodes of one worker leave in the run directory: arrays as they are kept, models every so many
rounds, last models at the end."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from msgspec import Struct

from emul.base import kept
from emul.base.errors import RoleError
from emul.base.files import recorded
from emul.message.wire import Vector


class KeptValue(Struct, array_like=True, gc=False):
    """One thing that a node has left: an array by its name, or, under the name "", its last model, or, of `each` of
    some rounds, its model."""

    node: int
    name: str
    round: int
    digest: str
    now_ns: int = 0                 # of a model: when it was reported
    each: bool = False
    by: str = ""                    # of a model: how it is evaluated (`emul.workers.evaluations.how`)


class Keeper:
    """Writes below `directory` ("": nowhere, but says what it would have been). Holds one model a node that reports.

    names: of nodes. tensors: a model's vector by the names of its parts; None: the run has no task. every: rounds
    between two models of a node that are written at once; 0: none are.
    """

    # The worker writes and not the coordinator, because models are as large as payloads, and it writes at the end: 100
    # clients with models of their own would write a file a round for longer than they train
    # (`test_files_are_the_same_to_the_byte_for_any_number_of_workers`).

    def __init__(self, directory: str, names: list[str], tensors: Callable[[Vector], Mapping[str, np.ndarray]] | None,
                 every: int = 0):
        self._home = Path(directory) if directory else None
        self._names, self._tensors, self._every = names, tensors, every
        self._kept: dict[tuple[int, str], KeptValue] = {}
        self._each: dict[tuple[int, int], KeptValue] = {}
        self._models: dict[int, Vector] = {}
        self.sizes: dict[int, int] = {}             # node -> bytes of its last model, held until the end

    def array(self, node: int, name: str, round_: int, array: object) -> None:
        """Leave an array, in place of an earlier one of that name. Raises RoleError, and NotRecorded."""
        if not isinstance(name, str) or not name:
            raise RoleError(f"keep({name!r}): expected a name")
        try:
            content = kept.array_bytes(array)
        except kept.KeptError as e:
            raise RoleError(f"keep({name!r}): {e}") from None
        self._kept[node, name] = KeptValue(node, name, round_, hashlib.blake2b(content, digest_size=16).hexdigest())
        if self._home is not None:
            with recorded(self._home):
                kept.write_array(self._home, self._names[node], name, content)

    def model(self, node: int, round_: int, vector: Vector, digest: str, now_ns: int = 0, by: str = "") -> None:
        """The node has reported parameters: the last ones so far. `vector` must not be changed any more. Raises
        NotRecorded."""
        self._kept[node, ""] = KeptValue(node, "", round_, digest, now_ns, by=by)
        self.sizes[node] = vector.nbytes
        if self._home is None:
            return
        self._models[node] = vector
        if self._every and round_ and round_ % self._every == 0:
            self._each[node, round_] = found = KeptValue(node, "", round_, digest, now_ns, True, by)
            with recorded(self._home):
                kept.write_model(self._home, self._model(found, vector), round_)

    def _model(self, found: KeptValue, vector: Vector) -> kept.KeptModel:
        parts = {"parameters": vector} if self._tensors is None else self._tensors(vector)
        return kept.KeptModel(self._names[found.node], found.round, found.digest, parts, found.by)

    def finish(self) -> list[KeptValue]:
        """The run has ended: write the models. All that was left, by node and name. Raises NotRecorded."""
        for node, vector in self._models.items():
            assert self._home is not None
            with recorded(self._home):
                kept.write_model(self._home, self._model(self._kept[node, ""], vector))
        self._models.clear()
        return [found for _, found in [*sorted(self._kept.items()), *sorted(self._each.items())]]
