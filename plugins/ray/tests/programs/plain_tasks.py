"""Tasks and actors of a program for PyTorch, which knows Ray alone."""

import logging

import ray
import torch

ray.init(num_cpus=2, include_dashboard=False, logging_level=logging.ERROR)


@ray.remote
def squared(x):
    return torch.square(x).tolist(), str(torch.__version__)


@ray.remote
class Layer:
    def __init__(self):
        self.layer = torch.nn.Linear(2, 3)

    def shape(self, x):
        return tuple(self.layer(x).shape)


print(ray.get(squared.remote(torch.tensor([1.0, 2.0]))), ray.get(Layer.remote().shape.remote(torch.ones(4, 2))))
ray.shutdown()
