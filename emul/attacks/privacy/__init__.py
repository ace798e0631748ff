"""Attacks on privacy: observers of a run that has ended, on what it kept. They change nothing of it.

An attack is a frozen dataclass whose fields are its parameters, called with an `Evidence`. It gives rows, one each
thing that was attacked; columns `node` and `round` say which. Its docstring says the source, what the attacker holds,
and what it needs; `NEEDS` says the last so that the command can say what to add to a scenario. Instead of rows it may
give `Findings`: rows and pictures.

    @dataclass(frozen=True)
    class Mine:
        '''What it is. Source, section.'''

        tries: int = 10
        NEEDS: ClassVar[Needs] = Needs(payloads=("Masked",), schemes=("secagg",))

        def __call__(self, evidence: Evidence) -> Rows: ...

Those of emul are what `observers` gives; a module given with `--plugin` adds its own by
`ATTACKS = {"privacy": {"mine": Mine}}`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from emul.base.lazy import lazily
from emul.base.plain import PlainDict
from emul.roles.evidence import Evidence, Findings, Needs, NotKept, Picture, Rows

if TYPE_CHECKING:
    from emul.attacks.privacy.client_membership import ClientMembership
    from emul.attacks.privacy.extraction import Extraction
    from emul.attacks.privacy.gradient_inversion import GradientInversion
    from emul.attacks.privacy.label_leakage import LabelLeakage
    from emul.attacks.privacy.leaks import ClearBlocks
    from emul.attacks.privacy.membership import Membership
else:
    # who trains or checks a scenario needs none of them, nor the protocols that they know
    __getattr__ = lazily(__name__, {
        "client_membership": ["ClientMembership"], "extraction": ["Extraction"],
        "gradient_inversion": ["GradientInversion"], "label_leakage": ["LabelLeakage"], "leaks": ["ClearBlocks"],
        "membership": ["Membership"]})

__all__ = ["ClearBlocks", "ClientMembership", "Evidence", "Extraction", "Findings", "GradientInversion",
           "LabelLeakage", "Membership", "Needs", "NotKept", "Picture", "Rows", "observers"]

_OURS = {"clear_blocks": "ClearBlocks", "client_membership": "ClientMembership", "extraction": "Extraction",
         "gradient_inversion": "GradientInversion", "label_leakage": "LabelLeakage", "membership": "Membership"}


def observers() -> PlainDict:
    """Name -> attack of those on several schemes; an attack on one scheme lies in that scheme's folder."""
    here = sys.modules[__name__]
    return {name: getattr(here, kind) for name, kind in _OURS.items()}
