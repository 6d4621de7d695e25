"""A model with an embedding, a matrix and a vector, for tests of optimizers."""

import torch
from torch import nn

BETAS = (0.9, 0.98)


class Words(nn.Module):
    """An embedding, a matrix and a vector; the first two are large enough for a state in 8 bits."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.embedding, self.linear = nn.Embedding(100, 64), nn.Linear(64, 128)

    def groups(self):
        matrices = [self.embedding.weight, self.linear.weight]
        return [
            {"params": matrices, "weight_decay": 0.1, "lr": 3e-3, "name": "matrices"},
            {"params": [self.linear.bias], "weight_decay": 0.0, "name": "vectors"},
        ]

    def train_with(self, optimizer, steps, begin=0):
        for step in range(begin, begin + steps):
            generator = torch.Generator().manual_seed(step)
            words = torch.randint(100, (16,), generator=generator)
            target = torch.randn(16, 128, generator=generator)
            optimizer.zero_grad()
            (self.linear(self.embedding(words)) - target).square().mean().backward()
            optimizer.step()
