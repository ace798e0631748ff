"""SimGrid's side of the test of cells: one Wi-Fi cell as JSON on stdin, completion times in seconds on stdout.

{"rates": [bit/s of each station], "sizes": [bytes that each sends at 0 s to a node on a wire]}. For the interpreter
that has SimGrid (Debian: /usr/bin/python3), without anything of emul. Its Wi-Fi links share throughput (hal-03777726).
"""

import json
import sys
import tempfile

from simgrid import Actor, Comm, Engine, Host, Link

cell = json.load(sys.stdin)
levels = ",".join(f"{rate}bps" for rate in cell["rates"])
stations = "".join(f'<host id="station{i}" speed="1Gf"/>' for i in range(len(cell["rates"])))
platform = f"""<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <zone id="all" routing="Full">
    <zone id="cell" routing="Wifi">
      <prop id="access_point" value="router"/>
      <link id="air" sharing_policy="WIFI" bandwidth="{levels}" latency="0s"/>
      {stations}
      <router id="router"/>
    </zone>
    <zone id="wired" routing="Full"><host id="sink" speed="1Gf"/></zone>
    <link id="wire" bandwidth="1000000Gbps" latency="0s"/>
    <zoneRoute src="cell" dst="wired" gw_src="router" gw_dst="sink"><link_ctn id="wire"/></zoneRoute>
  </zone>
</platform>
"""
engine = Engine(["peer", "--log=root.thres:critical", "--cfg=network/model:CM02", "--cfg=network/crosstraffic:0",
                 "--cfg=network/TCP-gamma:0"])
with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
    file.write(platform)
    file.flush()
    engine.load_platform(file.name)
ends = {}


def flow(i, source, size_bytes):
    Comm.sendto(source, Host.by_name("sink"), size_bytes)
    ends[i] = Engine.clock


for i, size in enumerate(cell["sizes"]):
    station = Host.by_name(f"station{i}")
    Link.by_name("air").set_host_wifi_rate(station, i)
    Actor.create(f"flow{i}", station, flow, i, station, size)
engine.run()
json.dump([ends[i] for i in range(len(cell["sizes"]))], sys.stdout)
