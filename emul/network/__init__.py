"""The virtual network: topologies, links, routes, losses. No calendar here: links are plain state machines."""

from emul.network.graph.geo import Distance
from emul.network.graph.topology import (
    DIALECTS,
    GENERATORS,
    SHAPES,
    Access,
    Capacity,
    Measured,
    RoleRule,
    TopologyError,
    TopologySpec,
)
from emul.network.links.connections import TcpStack
from emul.network.links.features import Queue, Switching
from emul.network.links.flows import FlowLink
from emul.network.links.fluid import Fluid
from emul.network.links.full_link import FullLink
from emul.network.links.link import GIVEN_BACK, HERE, Link, Tail
from emul.network.links.transport import Arq
from emul.network.models.outages import OutageSpec, lost_at
from emul.network.models.profiles import NEVER
from emul.network.network import Network, build
from emul.network.rules import LinkParameters, LinkRule, parse_match

__all__ = [
    "DIALECTS",
    "GENERATORS",
    "GIVEN_BACK",
    "HERE",
    "NEVER",
    "SHAPES",
    "Access",
    "Arq",
    "Capacity",
    "Distance",
    "FlowLink",
    "Fluid",
    "FullLink",
    "Link",
    "LinkParameters",
    "LinkRule",
    "Measured",
    "Network",
    "OutageSpec",
    "Queue",
    "RoleRule",
    "Switching",
    "Tail",
    "TcpStack",
    "TopologyError",
    "TopologySpec",
    "build",
    "lost_at",
    "parse_match",
]
