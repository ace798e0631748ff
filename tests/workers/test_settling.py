"""Roles whose computations are done go on later, several at a time: the run is the same."""

from __future__ import annotations

from small_run import digest

from emul.roles.events import Reply
from emul.workers.twin import Twin


class Holding(Twin):
    """Once it has to compute for an answer, it does all that is awaited before any of the roles goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.at_once: list[int] = []            # answers that one `settle` gave

    def reply(self, node: int, worker: int) -> Reply:
        core = self.core
        self._collect(core)
        while core.awaited and node not in self._replies:
            while core.awaited:
                core.work(settle=False)
                assert not core.replies
                assert not core.idle
            core.settle()
            self.at_once.append(len(core.replies))
            self._collect(core)
        return super().reply(node, worker)


def test_roles_go_on_together_once_all_that_is_awaited_is_done() -> None:
    with Twin() as twin, Holding() as holding:
        assert digest(holding) == digest(twin)
    assert max(holding.at_once) == 4            # all clients
