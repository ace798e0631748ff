"""pfl's simulation of the workload. Usage: pfl_digits.py CLIENTS ROUNDS

In two processes: torchrun --nproc_per_node=2 --master_addr=127.0.0.1 pfl_digits.py CLIENTS ROUNDS
"""

from __future__ import annotations

import os
import sys

import common_task as ct
import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel

CLIENTS, ROUNDS = int(sys.argv[1]), int(sys.argv[2])


class PNet(ct.Net):
    """With what pfl wants of a model."""

    def loss(self, x, y):
        return torch.nn.functional.cross_entropy(self(x), y)

    def metrics(self, x, y):
        return {"loss": Weighted(float(self.loss(x, y)) * len(x), len(x))}


class SameLocal(FederatedAveraging):
    """FedAvg whose local training is that of everybody."""

    def train_one_user(self, initial_model_state, model, user_dataset, central_context):
        x, y = user_dataset.raw_data
        ct.local_train(model.pytorch_model, x, y, rnd=self._current_central_iteration + 1,
                       cid=int(user_dataset.user_id))
        return model.get_model_difference(initial_model_state), Metrics()


class Watch(TrainingProcessCallback):
    def __init__(self):
        # torchrun is the parent of both processes
        self.clock, self.accuracies = ct.Clock(ROUNDS, os.getppid() if "RANK" in os.environ else None), []

    def on_train_begin(self, *, model):
        self.clock.mark()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.clock.mark()
        self.accuracies.append(ct.test_acc(model.pytorch_model))
        return False, Metrics()


def dataset(user: int) -> Dataset:
    return Dataset(raw_data=list(ct.shard(int(user), CLIENTS)), user_id=str(user))


if __name__ == "__main__":
    np.random.seed(0)       # noqa: NPY002, pfl draws from it
    torch.manual_seed(ct.SEED)
    net = PNet()
    data = FederatedDataset(dataset, get_user_sampler("minimize_reuse", list(range(CLIENTS))))
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), 1.0))
    watch = Watch()
    SameLocal().run(
        algorithm_params=NNAlgorithmParams(central_num_iterations=ROUNDS, evaluation_frequency=10**9,
                                           train_cohort_size=CLIENTS, val_cohort_size=0),
        backend=SimulatedBackend(training_data=data, val_data=data, postprocessors=[WeightByDatapoints()]),
        model=model, callbacks=[watch],
        model_train_params=NNTrainHyperParams(local_learning_rate=0.2, local_num_epochs=1, local_batch_size=10))
    if int(os.environ.get("RANK", "0")) == 0:
        print(ct.line("PFL", CLIENTS, watch.clock, watch.accuracies, net))
