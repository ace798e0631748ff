"""SimGrid's side of `fidelity_simgrid`: one network as JSON on stdin, completion times in seconds on stdout.

For the interpreter that has SimGrid (Debian: /usr/bin/python3), without anything of emul.
"""

import json
import sys

from simgrid import Actor, Comm, Engine, LinkInRoute, NetZone, this_actor

network = json.load(sys.stdin)
engine = Engine(["peer", "--log=root.thres:critical", "--cfg=network/model:CM02", "--cfg=network/crosstraffic:0",
                 "--cfg=network/TCP-gamma:0"])
zone = NetZone.create_full_zone("all")
links = [zone.create_link(f"link{i}", bps / 8).set_latency(latency_s).seal()
         for i, (bps, latency_s) in enumerate(network["links"])]
ends = {}


def flow(i, source, target, start_s, size_bytes):
    this_actor.sleep_until(start_s)
    Comm.sendto(source, target, size_bytes)
    ends[i] = Engine.clock


def change(at_s, link, bps):
    this_actor.sleep_until(at_s)
    links[link].set_bandwidth(bps / 8)


flows = []
for i, (start_s, size_bytes, route) in enumerate(network["flows"]):
    source, target = (zone.create_host(f"{side}{i}", 1e9).seal() for side in ("source", "target"))
    zone.add_route(source.netpoint, target.netpoint, None, None, [LinkInRoute(links[j]) for j in route], False)
    flows.append((source, target, start_s, size_bytes))
zone.seal()
for i, (source, *rest) in enumerate(flows):
    Actor.create(f"flow{i}", source, flow, i, source, *rest)
for at_s, link, bps in network["changes"]:
    Actor.create("change", flows[0][0], change, at_s, link, bps)
engine.run()
json.dump([ends[i] for i in range(len(flows))], sys.stdout)
