"""The side that a scheme sees: nodes, messages, and how a role runs.

    from emul.roles import Message, Node, Vector, weighted_mean
"""

from emul.base.errors import RoundOver
from emul.message.wire import Declared, Holds, Matrix, Message, OctetRows, Octets, Vector, Words
from emul.primitives.means import weighted_mean
from emul.roles import checks
from emul.roles.analysis import Analysis, Realised, Setting
from emul.roles.node import Node, Received, Round
from emul.roles.scheme import Scheme, Variant
from emul.roles.world import Contact, World

__all__ = ["Analysis", "Contact", "Declared", "Holds", "Matrix", "Message", "Node", "OctetRows", "Octets", "Realised",
           "Received", "Round", "RoundOver", "Scheme", "Setting", "Variant", "Vector", "Words", "World", "checks",
           "weighted_mean"]
