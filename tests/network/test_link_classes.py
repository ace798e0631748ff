"""Classes of links: which rate, latency and loss the links of their members have, and what goes before them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

from emul.network import LinkRule, TopologySpec, build
from emul.network.classes import LinkClass, class_rules, whole_message_losses
from emul.network.links.transport import Arq

MS = 10**6
DSL = LinkClass("dsl", 12_000_000, 1_000_000, 22 * MS, 0.002)
LTE = LinkClass("lte", 13_000_000, 6_000_000, 35 * MS, 0.01)


@dataclass(frozen=True)
class Said:
    """Membership by name."""

    of: dict[str, str]

    def link_classes(self) -> Sequence[LinkClass]:
        return [DSL, LTE]

    def groups_of(self, names: Sequence[str], roles: Mapping[str, Sequence[int]], seed: int) -> list[str | None]:
        return []

    def links_of(self, names: Sequence[str], seed: int, groups: Sequence[str | None] = ()) -> list[str | None]:
        return [self.of.get(name) for name in names]


def parameters(source: str, target: str, *rules: LinkRule, generator: str = "star_mesh"):
    network = build(TopologySpec(generator, clients=3), rules, 7, joined=Said({"client1": "dsl", "client2": "lte"}))
    return network.parameters(network.names.index(source), network.names.index(target))


@pytest.mark.parametrize(("source", "target", "rate", "latency"), [
    ("client1", "server", 1_000_000, 22 * MS), ("server", "client1", 12_000_000, 22 * MS),
    ("client1", "client3", 1_000_000, 22 * MS), ("client3", "client2", 13_000_000, 35 * MS),
    ("client1", "client2", 1_000_000, 57 * MS), ("client2", "client1", 6_000_000, 57 * MS)])
def test_a_link_has_the_slower_rate_and_the_sum_of_the_latencies_of_its_ends(source, target, rate, latency) -> None:
    found = parameters(source, target)
    assert (found.bandwidth_bps, found.latency_ns) == (rate, latency)


def test_packets_must_survive_both_ends() -> None:
    both = parameters("client1", "client2").outage
    assert both is not None
    assert (both.p, both.per) == (pytest.approx(1 - 0.998 * 0.99), "packet")
    assert parameters("client3", "server").outage is None


def test_a_scenarios_own_rule_goes_before_a_class_key_by_key() -> None:
    found = parameters("client1", "server", LinkRule("@dsl->server", latency_ns=5), LinkRule("@lte->*", latency_ns=9))
    assert (found.bandwidth_bps, found.latency_ns) == (1_000_000, 5)


def test_a_rule_of_a_class_that_nobody_has_matches_no_link() -> None:
    network = build(TopologySpec("star", clients=3), [LinkRule("@wifi->*", latency_ns=5)], 7,
                    joined=Said({"client1": "dsl"}))
    assert [rule.match for rule in network.unmatched_rules()] == ["@wifi->*"]       # and none of those of classes


def test_a_class_without_loss_loses_nothing_and_says_nothing_of_it() -> None:
    rules = class_rules([LinkClass("wire", 10, 10, 1, 0.0)])
    assert [rule.match for rule in rules] == ["@wire->*", "*->@wire", "@wire->@wire"]
    assert all(rule.outage is None for rule in rules)


def test_nodes_of_one_class_share_what_is_known_of_their_links() -> None:
    members = {f"client{k}": ("dsl", "lte")[k % 2] for k in range(1, 1001)}
    network = build(TopologySpec("star", clients=1000), [], 7, joined=Said(members))
    assert network.out_latency_ns(network.names.index("client4")) == 22 * MS
    assert network.out_latency_ns(network.names.index("client5")) == 35 * MS
    assert len({network.rules_met(v) for v in range(len(network.names))}) == 3


def whole(*rules: LinkRule) -> list[str]:
    joined = Said({"client1": "dsl", "client2": "lte"})
    network = build(TopologySpec("star", clients=3), rules, 7, joined=joined)
    assert network.classes is not None
    links = (({network.classes[u], network.classes[v]}, network.parameters(u, v)) for u, v in network.pairs())
    return [one.name for one in whole_message_losses(joined.link_classes(), links)]


def test_links_whose_loss_of_a_packet_is_that_of_a_message_are_those_without_packets() -> None:
    assert whole() == ["dsl", "lte"]
    assert whole(LinkRule("@dsl->*", mtu=1448), LinkRule("*->@dsl", mtu=1448)) == ["lte"]
    assert whole(LinkRule("*", transport=Arq("stop_and_wait"))) == ["dsl", "lte"]
    assert whole(LinkRule("*", transport=Arq())) == []
    assert whole(LinkRule("*->@lte", outage="none"), LinkRule("@lte->*", outage="none")) == ["dsl"]
