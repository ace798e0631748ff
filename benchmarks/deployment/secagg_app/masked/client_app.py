"""masked: the client."""

from typing import Any

from flwr.client import Client, ClientApp, NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.common import Context


class Masked(NumPyClient):
    """Gives another model back."""

    def fit(self, parameters: Any, config: Any) -> Any:
        return [parameters[0] + 1], 1, {}


def client_fn(context: Context) -> Client:
    """The client of a node."""
    return Masked().to_client()


app = ClientApp(client_fn, mods=[secaggplus_mod])
