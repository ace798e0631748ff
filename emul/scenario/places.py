"""`topology`: its model, the specification it stands for, and back to YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field

from emul.network import GENERATORS, RoleRule, TopologySpec
from emul.scenario.sections import MISSING, Section, absolute, exactly_one, given, without_none
from emul.scenario.values import Count, Finding, Text, one_of, whole

ROLE_RULES = ("nodes", "attribute", "highest_betweenness", "leaves", "all", "random")


class Role(Section):
    rule: Annotated[str, one_of(*ROLE_RULES, what="rule")]
    nodes: Annotated[list[Text], Field(min_length=1)] | None = None
    count: Count | None = None
    attribute: Text | None = None
    value: Text | None = None

    def wrong(self) -> list[Finding]:
        uses = {"nodes": ("nodes",), "attribute": ("attribute", "value"), "leaves": ("count",), "random": ("count",),
                "highest_betweenness": ("count",), "all": ()}[self.rule]
        needs = {"nodes": "nodes", "attribute": "attribute", "random": "count"}.get(self.rule)
        found: list[Finding] = [((name,), "", f'is not used by the rule "{self.rule}"')
                                for name in given(self, "nodes", "count", "attribute", "value") if name not in uses]
        if needs and getattr(self, needs) is None:
            found.append(((needs,), MISSING, f'is needed by the rule "{self.rule}"'))
        return found


def _names_as_rule(value: Any) -> Any:
    return {"rule": "nodes", "nodes": value} if isinstance(value, list) else value


class Topology(Section):
    generator: Annotated[str, one_of(*GENERATORS, what="generator")] | None = None
    clients: Annotated[int, whole(1, 10**6)] | None = None
    servers: Annotated[int, whole(1, 10**4)] | None = None
    peers: Annotated[int, whole(1, 10**6)] | None = None
    file: Text | None = None
    roles: dict[str, Annotated[Role, BeforeValidator(_names_as_rule)]] | None = None

    def wrong(self) -> list[Finding]:
        found = exactly_one(self, "generator", "file")
        if found:
            return found
        kind = f'the generator "{self.generator}"' if self.generator else "a topology from a file"
        needs, uses = (("peers", ("peers",)) if self.generator == "complete" else
                       ("clients", ("clients", "servers")) if self.generator else (None, ("roles",)))
        if needs and getattr(self, needs) is None:
            found.append(((needs,), MISSING, f"is needed by {kind}: a whole number, 1 or more"))
        found += [((name,), "", f"is not used by {kind}")
                  for name in given(self, "clients", "servers", "peers", "roles") if name not in uses]
        return found


def topology_spec(t: Topology, base: Path) -> TopologySpec:
    roles = {role: RoleRule(rule=cast(Any, r.rule), nodes=tuple(r.nodes or ()), count=r.count, attribute=r.attribute,
                            value=r.value)
             for role, r in (t.roles or {}).items()}
    return TopologySpec(generator=t.generator, clients=t.clients, servers=t.servers or 1, peers=t.peers,
                        file=absolute(t.file, base), roles=roles)


def topology_document(spec: TopologySpec) -> dict[str, Any]:
    if spec.file is not None:
        roles = {role: _role(rule) for role, rule in spec.roles.items()}
        return without_none(file=str(spec.file), roles=roles or None)
    servers = spec.servers if spec.clients is not None else None
    return without_none(generator=spec.generator, clients=spec.clients, servers=servers, peers=spec.peers)


def _role(rule: RoleRule) -> dict[str, Any]:
    return without_none(rule=rule.rule, nodes=list(rule.nodes) or None, count=rule.count, attribute=rule.attribute,
                  value=rule.value)
