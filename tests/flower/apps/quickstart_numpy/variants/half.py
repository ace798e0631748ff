"""Updates in half precision, by a mod of the app's own, between the mods of Flower that say how large messages are."""

import numpy as np
from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import arrays_size_mod, message_size_mod
from quickstart_numpy.client_app import evaluate, train


def half_mod(msg: Message, context: Context, call_next) -> Message:
    """Sends what the client answers as float16."""
    reply = call_next(msg, context)
    for name, arrays in reply.content.array_records.items():
        reply.content[name] = ArrayRecord([array.astype(np.float16) for array in arrays.to_numpy_ndarrays()])
    return reply


client = ClientApp(mods=[message_size_mod, arrays_size_mod, half_mod])
client.train()(train)
client.evaluate()(evaluate)
