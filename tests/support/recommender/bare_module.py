"""A recommender's module without a trainer, and batches for it."""

from types import SimpleNamespace

import numpy as np
import torch

from datamodules.recommender.batch import Catalog
from datamodules.recommender.dataset import TrainDataset
from datamodules.recommender.events import EventArrays
from datamodules.recommender.length_groups import LengthGroups
from datamodules.recommender.negatives.negative_mixture import NegativeOptions
from engine.data.samplers import MicroBatchRequest
from lightning_modules.recommender import module as recommender

V, LONGEST, ROWS = 13, 10, 9
SMALL = {"hidden_size": 8, "num_heads": 2, "dropout": 0.0, "time_span": 16}


class Recommender(recommender.SequentialRecommender):
    """A module without a trainer, which is given its catalog and keeps what it logs."""

    def __init__(self, max_length=LONGEST, items=V, **settings):
        super().__init__(**{**SMALL, **settings})
        self.catalog = Catalog(items, max_length, [f"item {i}" for i in range(items)], None)
        self.logged = {}
        torch.manual_seed(0)
        self.configure_model()

    @property
    def data(self):
        return SimpleNamespace(
            catalog=self.catalog,
            item_features=None,
            item_features_identity=None,
            event_features=None,
            event_features_identity=None,
        )

    def log(self, name, value, **_):
        self.logged[name] = value


def make_batch(groups, negatives=0, shared=False, **other):
    """Rows of 1 to 9 positions and a filler."""
    generator = np.random.default_rng(0)
    offsets = np.cumsum([0, *range(2, ROWS + 2)])
    items = generator.integers(1, V + 1, offsets[-1]).astype(np.int32)
    events = EventArrays(offsets, items, generator.integers(0, 50, offsets[-1]).cumsum(), V)
    rows = TrainDataset(
        events,
        (np.arange(ROWS), offsets[1:]),
        max_length=LONGEST,
        time_scale=np.ones(ROWS, np.int64),
        seed=1,
        negatives=NegativeOptions(negatives, shared, **other),
    )
    indices = np.array([3, 8, -1, 0, 6, 1, 5, 2, 7, 4])
    return LengthGroups(rows, groups)[MicroBatchRequest(0, indices, 0, np.arange(ROWS))]


def loss_and_gradients(module, batch):
    module.zero_grad()
    loss = module.training_loss(batch)
    loss.total.backward()
    return loss.total.detach(), loss.terms, [parameter.grad for parameter in module.parameters()]
