"""An attack for tests, as a module given with `--plugin` has it: that of docs/attacks.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from emul.attacks.privacy import Evidence, Needs, Rows


@dataclass(frozen=True)
class Norms:
    """The norm of every update that came to the server, beside that of the training that the client really did.

    The attacker is the server; it needs `record: {payloads: [Model, Update]}`.
    """

    p: float = 2.0
    NEEDS: ClassVar[Needs] = Needs(payloads=("Model", "Update"), schemes=("fedavg",))

    def __call__(self, evidence: Evidence) -> Rows:
        models = {one.round: one.message.parameters for one in evidence.messages("Model")}
        rows: Rows = []
        for one in evidence.messages("Update", to="server"):
            true, _ = evidence.node(one.source_name, one.round).minimise(models[one.round])
            rows.append({"node": one.source_name, "round": one.round,
                         "seen": np.linalg.norm(one.message.delta, self.p), "true": np.linalg.norm(true, self.p)})
        return rows


ATTACKS = {"privacy": {"norms": Norms}}
