"""Without a strategy: the server pushes, sleeps, pulls, and averages whatever half of the clients sent first."""

import time

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp
from quickstart_numpy.server_app import central_evaluate
from quickstart_numpy.task import get_model, save

server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """As many rounds as are asked for, of the first half of the replies each; late ones count for the next round."""
    model, accuracies, waiting = get_model(), {}, set()
    accuracies[0] = float(central_evaluate(0, ArrayRecord(model))["accuracy"])
    replies = []
    for server_round in range(1, context.run_config["num-server-rounds"] + 1):
        nodes = sorted(grid.get_node_ids())
        config = ConfigRecord({"lr": context.run_config["learning-rate"], "server-round": server_round})
        content = RecordDict({"arrays": ArrayRecord(model), "config": config})
        waiting |= set(grid.push_messages([Message(content, node, MessageType.TRAIN) for node in nodes]))
        while len(replies) < len(nodes) // 2:
            time.sleep(0.25)
            arrived = [message for message in grid.pull_messages(waiting) if not message.has_error()]
            waiting -= {message.metadata.reply_to_message_id for message in arrived}
            replies += arrived
        models = [message.content["arrays"].to_numpy_ndarrays() for message in replies]
        model = [np.mean(arrays, axis=0) for arrays in zip(*models, strict=True)]
        accuracies[server_round] = float(central_evaluate(server_round, ArrayRecord(model))["accuracy"])
        replies = []
    save(context.run_config["results"], accuracies)
