"""FoolsGold: clients whose histories are too much alike count as one attacker. Fung, Yoon, Beschastnikh, RAID 2020.

FedAvg with `aggregate: foolsgold`; the rule, and where it differs from the authors' code, stand in
`emul.primitives.robust.foolsgold`. The server keeps a sum of updates for every client: it knows who sends what.

Protects: the model from clients that send much alike (sybils). Not: updates from the server.
"""

from emul.roles import Variant
from emul.roles.example import example

EXAMPLE = example("foolsgold", "deadline: 1 s")

SCHEME = Variant(of="fedavg", fixed={"aggregate": "foolsgold", "weights": "uniform"}, example=EXAMPLE)
