"""semi: the server. It looks each second whether m replies are there, then all nodes evaluate."""

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Rounds of training and evaluation; `out`: none, or a file for their seconds and who has answered, how stale."""
    c = context.run_config
    while len(list(grid.get_node_ids())) < int(c["n"]):
        time.sleep(1)
    arrays = ArrayRecord({"w": Array(np.zeros(int(c["size"]), np.float32))})
    log: list[dict[str, object]] = []
    busy: dict[str, int] = {}
    if c["out"]:
        Path(f"{c['out']}.begun").write_text("")
    for number in range(1, int(c["rounds"]) + 1):
        begun, nodes = time.monotonic(), sorted(grid.get_node_ids())
        content = RecordDict({"arrays": arrays, "config": ConfigRecord({"round": number})})
        free = [node for node in nodes if node not in busy.values()]
        asked = [Message(content, node, MessageType.TRAIN, group_id=str(number)) for node in free]
        busy |= dict(zip(grid.push_messages(asked), free, strict=True))
        got: list[tuple[int, int]] = []
        starts: list[float] = []
        while len(got) < int(c["m"]):
            for reply in grid.pull_messages(list(busy)):
                busy.pop(reply.metadata.reply_to_message_id)
                said = reply.content["metrics"]
                got.append((int(said["part"]), number - int(said["round"])))
                starts.append(float(said["start"]))
            if len(got) < int(c["m"]):
                time.sleep(float(c["poll"]))
        grid.send_and_receive([Message(RecordDict({"arrays": arrays}), node, MessageType.EVALUATE,
                                       group_id=str(number)) for node in nodes])
        log.append({"seconds": time.monotonic() - begun, "got": sorted(got), "start": starts})
    if c["out"]:
        Path(str(c["out"])).write_text(json.dumps(log))
