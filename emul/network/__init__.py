"""The virtual network: topologies, links, routes, losses. No calendar here: links are plain state machines."""

from emul.network.flows import FlowLink
from emul.network.fluid import Fluid
from emul.network.full_link import FullLink, Queue, Switching
from emul.network.geo import Distance
from emul.network.link import Link
from emul.network.loss import OutageSpec, lost_at
from emul.network.network import NEVER, Network, build
from emul.network.rules import LinkParameters, LinkRule, parse_match
from emul.network.topology import (
    DIALECTS,
    GENERATORS,
    SHAPES,
    Access,
    Capacity,
    RoleRule,
    TopologyError,
    TopologySpec,
)
from emul.network.transport import Arq, TcpCap

__all__ = ["DIALECTS", "GENERATORS", "NEVER", "SHAPES", "Access", "Arq", "Capacity", "Distance", "FlowLink", "Fluid",
           "FullLink", "Link", "LinkParameters", "LinkRule", "Network", "OutageSpec", "Queue", "RoleRule", "Switching",
           "TcpCap", "TopologyError", "TopologySpec", "build", "lost_at", "parse_match"]
