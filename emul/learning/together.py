"""Functions that run side by side, so that what they ask for can be done for all of them at once.

A computation of a scheme is any function; in the middle of it, it may train a model. To train many as one, each runs on
a stack of its own (a greenlet) up to where it asks; then all that was asked is done together, and each goes on with its
own answer. Nothing runs at the same time as anything else, and the order is that of the list.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

from greenlet import getcurrent, greenlet

from emul.base.clock import cpu_ns

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Together(Generic[Asked, Answer]):
    """`many` answers what is asked for by pieces that run together; what has the same `key` in one call."""

    # Each piece runs on a greenlet up to what it asks for, so schemes that train twice in one computation, or on copies
    # of others' data, are fused without a line of theirs. A switch of threads costs a hundred times as much, and their
    # order would have to be forced (`test_local_updates_side_by_side_are_those_of_each_alone`).

    def __init__(self, key: Callable[[Asked], Hashable], many: Callable[[Sequence[Asked]], Sequence[Answer]],
                 busy_ns: Callable[[], int] = int):
        """busy_ns: what a GPU has computed so far."""
        self._key, self._many, self._busy_ns = key, many, busy_ns
        self._hub: greenlet | None = None

    @property
    def running(self) -> bool:
        """True if the caller is a piece, which may ask."""
        return self._hub is not None and getcurrent() is not self._hub

    def ask(self, what: Asked) -> Answer:
        """Called by a piece: wait until all have asked or ended; the answer, or what `many` raised."""
        assert self._hub is not None
        answer: Answer = self._hub.switch(what)
        return answer

    def run(self, pieces: Sequence[Callable[[], None]]) -> list[int]:
        """Run them all to their ends. CPU ns of each: its own code, and its share of what was done together; or a GPU's
        time of these, where that is more: the CPU launches while the GPU computes."""
        self._hub = getcurrent()
        try:
            return self._run([greenlet(piece) for piece in pieces])
        finally:
            self._hub = None

    def _run(self, pieces: list[greenlet]) -> list[int]:
        spent, busy = [0] * len(pieces), [0] * len(pieces)
        mark, busy_mark = cpu_ns(), self._busy_ns()

        def charge(*whom: int) -> None:
            nonlocal mark, busy_mark
            now, busy_now = cpu_ns(), self._busy_ns()
            for i in whom:
                spent[i] += (now - mark) // len(whom)
                busy[i] += (busy_now - busy_mark) // len(whom)
            mark, busy_mark = now, busy_now

        waiting: dict[Hashable, list[tuple[int, Asked]]] = {}

        def go_on(i: int, resume: Callable[..., Any], *answer: object) -> None:
            asked = resume(*answer)
            charge(i)
            if not pieces[i].dead:
                waiting.setdefault(self._key(asked), []).append((i, asked))

        for i, piece in enumerate(pieces):
            go_on(i, piece.switch)
        while waiting:
            now, waiting = waiting, {}
            for asking in now.values():
                whom = [i for i, _ in asking]
                try:
                    answers = self._many([what for _, what in asking])
                except Exception as error:
                    charge(*whom)
                    for i in whom:
                        go_on(i, pieces[i].throw, error)
                    continue
                charge(*whom)
                for i, answer in zip(whom, answers, strict=True):
                    go_on(i, pieces[i].switch, answer)
        return list(map(max, spent, busy))
