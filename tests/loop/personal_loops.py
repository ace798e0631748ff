"""A miniature of a library for personalised federated learning: a base server and client, and ten algorithms on them.

It knows nothing of emul. `docs/own-loop.md` has the lines that change, and `test_own_loop_page.py` applies them.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch.nn import functional as F

Arrays = dict[str, Tensor]
HEAD = ("w2", "b2")                     # the last layer
LR, STEPS = 0.1, 5


def new_model() -> Arrays:
    g = torch.Generator().manual_seed(0)
    return {"w1": 0.3 * torch.randn(20, 16, generator=g), "b1": torch.zeros(16),
            "w2": 0.3 * torch.randn(16, 4, generator=g), "b2": torch.zeros(4)}


def features(model: Arrays, x: Tensor) -> Tensor:
    return torch.relu(x @ model["w1"] + model["b1"])


def logits(model: Arrays, x: Tensor) -> Tensor:
    return features(model, x) @ model["w2"] + model["b2"]


def minus(a: Arrays, b: Arrays) -> Arrays:
    return {name: a[name] - b[name] for name in a}


def squared(a: Arrays, b: Arrays) -> Tensor:
    return torch.stack([((a[name] - b[name]) ** 2).sum() for name in a]).sum()


def data_of(number: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Samples of one client, whose labels are skewed."""
    g = torch.Generator().manual_seed(100 + number)
    centres = torch.randn(4, 20, generator=torch.Generator().manual_seed(1))
    share = torch.tensor([3.0 if label == number % 4 else 1.0 for label in range(4)])
    y = torch.multinomial(share, 60, replacement=True, generator=g)
    x = centres[y] + 1.5 * torch.randn(60, 20, generator=g)
    return x[:40], y[:40], x[40:], y[40:]


class Client:
    def __init__(self, number: int):
        self.name = f"client{number + 1}"
        self.x, self.y, self.test_x, self.test_y = data_of(number)
        self.samples = len(self.y)
        self.model = new_model()

    def set_model(self, model: Arrays) -> None:
        self.model = copy.deepcopy(model)

    def loss(self, model: Arrays) -> Tensor:
        return F.cross_entropy(logits(model, self.x), self.y)

    def descend(self, model: Arrays, names: tuple[str, ...] = (), steps: int = STEPS) -> Arrays:
        for _ in range(steps):
            model = {name: value.detach().requires_grad_() for name, value in model.items()}
            loss = self.loss(model)
            gradients = torch.autograd.grad(loss, list(model.values()), allow_unused=True)
            model = {name: (value - LR * g if g is not None and name in (names or model) else value).detach()
                     for (name, value), g in zip(model.items(), gradients, strict=True)}
        return model

    def train(self) -> None:
        self.model = self.descend(self.model)

    def correct(self) -> int:
        return int((logits(self.model, self.test_x).argmax(1) == self.test_y).sum())


class Server:
    client_class: type[Client] = Client

    def __init__(self, rounds: int = 6, clients: int = 6, chosen: int = 4):
        self.clients = [self.client_class(number) for number in range(clients)]
        self.rounds, self.chosen = rounds, chosen
        self.model = new_model()
        self.accuracies: list[float] = []

    def select(self, round_: int) -> list[Client]:
        g = torch.Generator().manual_seed(round_)
        return [self.clients[k] for k in sorted(torch.randperm(len(self.clients), generator=g)[:self.chosen].tolist())]

    def send_models(self) -> None:
        for client in self.selected:
            client.set_model(self.model)

    def receive_models(self) -> None:
        self.received = [(client.samples, client.model) for client in self.selected]

    def aggregate(self) -> None:
        total = sum(samples for samples, _ in self.received)
        for name in self.received[0][1] if self.received else ():
            self.model[name] = sum(samples / total * model[name] for samples, model in self.received)

    def test(self) -> float:
        return sum(client.correct() for client in self.clients) / sum(len(client.test_y) for client in self.clients)

    def train(self) -> None:
        for round_ in range(self.rounds):
            self.selected = self.select(round_)
            self.send_models()
            for client in self.selected:
                client.train()
            self.receive_models()
            self.aggregate()
            self.accuracies.append(self.test())


class FedAvg(Server):
    pass


class ProxClient(Client):
    def train(self) -> None:
        self.start = self.model
        self.model = self.descend(self.model)

    def loss(self, model: Arrays) -> Tensor:
        return super().loss(model) + 0.05 * squared(model, self.start)


class FedProx(Server):
    client_class = ProxClient


class ScaffoldClient(Client):
    def __init__(self, number: int):
        super().__init__(number)
        self.control = {name: torch.zeros_like(value) for name, value in self.model.items()}

    def set_control(self, control: Arrays) -> None:
        self.server_control = copy.deepcopy(control)

    def train(self) -> None:
        start, before = self.model, self.control
        for _ in range(STEPS):
            step = self.descend(self.model, steps=1)
            self.model = {name: step[name] - LR * (self.server_control[name] - before[name]) for name in step}
        self.control = {name: before[name] - self.server_control[name] + (start[name] - self.model[name]) / (STEPS * LR)
                        for name in start}
        self.model_change, self.control_change = minus(self.model, start), minus(self.control, before)


class Scaffold(Server):
    client_class = ScaffoldClient

    def __init__(self, **more: int):
        super().__init__(**more)
        self.control = {name: torch.zeros_like(value) for name, value in self.model.items()}

    def send_models(self) -> None:
        super().send_models()
        for client in self.selected:
            client.set_control(self.control)

    def receive_models(self) -> None:
        self.received = [(client.model_change, client.control_change) for client in self.selected]

    def aggregate(self) -> None:
        for model_change, control_change in self.received:
            for name in self.model:
                self.model[name] = self.model[name] + model_change[name] / len(self.received)
                self.control[name] = self.control[name] + control_change[name] / len(self.clients)


class DittoClient(Client):
    def __init__(self, number: int):
        super().__init__(number)
        self.personal = new_model()

    def train(self) -> None:
        self.towards = self.model
        self.held = True
        self.personal = self.descend(self.personal)
        self.held = False
        self.model = self.descend(self.model)

    def loss(self, model: Arrays) -> Tensor:
        return super().loss(model) + (0.1 * squared(model, self.towards) if self.held else 0)

    def correct(self) -> int:
        return int((logits(self.personal, self.test_x).argmax(1) == self.test_y).sum())


class Ditto(Server):
    client_class = DittoClient


class RepClient(Client):
    def set_model(self, model: Arrays) -> None:
        self.model = {**self.model, **copy.deepcopy({name: model[name] for name in model if name not in HEAD})}

    def train(self) -> None:
        self.model = self.descend(self.model, HEAD)
        self.model = self.descend(self.model, ("w1", "b1"))


class FedRep(Server):
    client_class = RepClient

    def receive_models(self) -> None:
        self.received = [(client.samples, {name: value for name, value in client.model.items() if name not in HEAD})
                         for client in self.selected]


class ProtoClient(Client):
    prototypes: Tensor | None = None

    def set_prototypes(self, prototypes: Tensor | None) -> None:
        self.prototypes = None if prototypes is None else prototypes.clone()

    def loss(self, model: Arrays) -> Tensor:
        found = super().loss(model)
        if self.prototypes is not None:
            found = found + 0.1 * ((features(model, self.x) - self.prototypes[self.y]) ** 2).mean()
        return found

    def own_prototypes(self) -> Tensor:
        z = features(self.model, self.x)
        return torch.stack([z[self.y == label].mean(0) for label in range(4)])


class FedProto(Server):
    client_class = ProtoClient
    prototypes: Tensor | None = None

    def send_models(self) -> None:
        for client in self.selected:
            client.set_prototypes(self.prototypes)

    def receive_models(self) -> None:
        self.received = [client.own_prototypes() for client in self.selected]

    def aggregate(self) -> None:
        if self.received:
            self.prototypes = torch.stack(self.received).mean(0)


class MoonClient(Client):
    def __init__(self, number: int):
        super().__init__(number)
        self.previous = new_model()

    def train(self) -> None:
        self.start = self.model
        self.model = self.descend(self.model)
        self.previous = self.model

    def loss(self, model: Arrays) -> Tensor:
        z, near, far = (features(one, self.x) for one in (model, self.start, self.previous))
        pairs = torch.stack([F.cosine_similarity(z, near), F.cosine_similarity(z, far)], 1) / 0.5
        return super().loss(model) + 0.5 * F.cross_entropy(pairs, torch.zeros(len(z), dtype=torch.long))


class Moon(Server):
    client_class = MoonClient


class BabuClient(RepClient):
    def train(self) -> None:
        self.model = self.descend(self.model, ("w1", "b1"))


class FedBabu(FedRep):
    client_class = BabuClient


class MeClient(Client):
    def train(self) -> None:
        self.personal = self.model
        for _ in range(3):
            self.near = self.model
            self.personal = self.descend(self.personal, steps=3)
            self.model = {name: value - LR * 2 * (value - self.personal[name]) for name, value in self.model.items()}

    def loss(self, model: Arrays) -> Tensor:
        return super().loss(model) + 1.0 * squared(model, self.near)

    def correct(self) -> int:
        model = getattr(self, "personal", self.model)
        return int((logits(model, self.test_x).argmax(1) == self.test_y).sum())


class PFedMe(Server):
    client_class = MeClient

    def aggregate(self) -> None:
        before = self.model.copy()
        super().aggregate()
        self.model = {name: 0.1 * before[name] + 0.9 * value for name, value in self.model.items()}


class DynClient(Client):
    def __init__(self, number: int):
        super().__init__(number)
        self.drift = {name: torch.zeros_like(value) for name, value in self.model.items()}

    def train(self) -> None:
        self.start = self.model
        self.model = self.descend(self.model)
        self.drift = {name: self.drift[name] - 0.1 * (self.model[name] - self.start[name]) for name in self.drift}

    def loss(self, model: Arrays) -> Tensor:
        linear = torch.stack([(self.drift[name] * value).sum() for name, value in model.items()]).sum()
        return super().loss(model) - linear + 0.05 * squared(model, self.start)


class FedDyn(Server):
    client_class = DynClient

    def __init__(self, **more: int):
        super().__init__(**more)
        self.state = {name: torch.zeros_like(value) for name, value in self.model.items()}

    def aggregate(self) -> None:
        before = self.model.copy()
        super().aggregate()
        for name in self.state:
            self.state[name] = self.state[name] - 0.1 * (self.model[name] - before[name])
            self.model[name] = self.model[name] - self.state[name] / 0.1


ALGORITHMS = (FedAvg, FedProx, Scaffold, Ditto, FedRep, FedProto, Moon, FedBabu, PFedMe, FedDyn)
