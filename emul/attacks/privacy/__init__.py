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
from typing import TYPE_CHECKING, Any

from emul.attacks.privacy.evidence import Evidence, Needs, NotKept, Rows
from emul.attacks.privacy.pixels import Findings, Picture
from emul.base.lazy import lazily

if TYPE_CHECKING:
    from emul.attacks.privacy.client_membership import ClientMembership
    from emul.attacks.privacy.extraction import Extraction
    from emul.attacks.privacy.gradient_inversion import GradientInversion
    from emul.attacks.privacy.leaks import ClearBlocks
    from emul.attacks.privacy.masking import Unmask
    from emul.attacks.privacy.membership import Membership
    from emul.attacks.privacy.pefl import Pefl
    from emul.attacks.privacy.shared_mask import SharedMask
    from emul.attacks.privacy.slot_leak import SlotLeak
else:
    # who trains or checks a scenario needs none of them, nor the protocols that they know
    __getattr__ = lazily(__name__, {
        "client_membership": ["ClientMembership"], "extraction": ["Extraction"],
        "gradient_inversion": ["GradientInversion"], "leaks": ["ClearBlocks"], "masking": ["Unmask"],
        "membership": ["Membership"], "pefl": ["Pefl"], "shared_mask": ["SharedMask"], "slot_leak": ["SlotLeak"]})

__all__ = ["ClearBlocks", "ClientMembership", "Evidence", "Extraction", "Findings", "GradientInversion",
           "Membership", "Needs", "NotKept", "Pefl", "Picture", "Rows", "SharedMask", "SlotLeak", "Unmask", "observers"]

_OURS = {"clear_blocks": "ClearBlocks", "client_membership": "ClientMembership", "extraction": "Extraction",
         "gradient_inversion": "GradientInversion", "membership": "Membership", "pefl": "Pefl",
         "shared_mask": "SharedMask", "slot_leak": "SlotLeak", "unmask": "Unmask"}


def observers() -> dict[str, Any]:
    """Name -> attack of those of emul."""
    here = sys.modules[__name__]
    return {name: getattr(here, kind) for name, kind in _OURS.items()}
