"""Parameters that schemes of encrypted sums share: how many parties are honest, and what makes a sum."""

from __future__ import annotations

from dataclasses import dataclass

from emul.roles import checks


@dataclass(frozen=True)
class Encrypted:
    """Parameters of such a scheme. K: all clients, who all take part in each round."""

    t: int | None = None                # of K clients so many are honest at least; None: all
    least: int | None = None            # uploads without which there is no sum; None: K - t + 2, so 2 of honest ones
    real_up_to: int = 300               # coordinates that are encrypted for real; beyond it is declared
    deadline_s: float | None = None     # of the uploads; None: until the fate of each is known
    answer_s: float | None = None       # of whoever helps to decrypt; None: likewise

    def honest(self, clients: int) -> int:
        """t, of K clients."""
        return clients if self.t is None else self.t

    def fewest(self, clients: int) -> int:
        """`least`, of K clients."""
        return min(clients, clients - self.honest(clients) + 2) if self.least is None else self.least


def wrong_cohort(p: Encrypted, clients: int) -> list[str]:
    """Mistakes in these parameters for K clients, for a scheme's `check`."""
    errors = checks.times(deadline=p.deadline_s, answer=p.answer_s) + checks.not_negative(real_up_to=p.real_up_to)
    return errors + [f"{name} = {value}: expected 1 to {clients}, the number of clients"
                     for name, value in (("t", p.t), ("least", p.least))
                     if value is not None and not 1 <= value <= clients]
