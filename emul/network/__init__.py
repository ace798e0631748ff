"""The virtual network: topologies, links, routes, losses. No calendar here: links are plain state machines."""

from emul.network.link import Link
from emul.network.loss import OutageSpec, lost_at
from emul.network.network import NEVER, Network, build
from emul.network.rules import LinkParameters, LinkRule, parse_match
from emul.network.topology import GENERATORS, RoleRule, TopologySpec

__all__ = ["GENERATORS", "NEVER", "Link", "LinkParameters", "LinkRule", "Network", "OutageSpec", "RoleRule",
           "TopologySpec", "build", "lost_at", "parse_match"]
