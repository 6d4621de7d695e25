"""Measures start-up, training and evaluation of SASRec by number of users, on the stores of `train.py prepare`."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path

import numpy as np
import polars as pl
import torch

from benchmarks.recommender.measure import Done, Maker, Work
from benchmarks.recommender.training_steps import HIDDEN_SIZE, ModuleAlone, optimizer_step
from datamodules.recommender.datamodule import InteractionSequences
from engine.data.samplers import EvaluationSampler, TrainSampler
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.last_position import encode_last_position
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder
from lightning_modules.recommender.ranking_metrics import ranks

USERS = (6_000, 60_000, 1_000_000)
_EVENTS, _ITEMS, _BATCH_SIZE = 20, 3416, 128


@contextmanager
def user_makers(sizes: tuple[int, ...] = USERS) -> Iterator[dict[str, Maker]]:
    """Yield variants for every size. Their stores are created before the measurement and removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="lockstep-growth-") as folder:
        makers: dict[str, Maker] = {}
        # A file per size for all three parts; making a million users takes longer than measuring them.
        files = {users: write_users(Path(folder) / f"{users}" / "interactions.parquet", users) for users in sizes}
        for name, make in (("start-up", start_up), ("training", training), ("evaluation", evaluation)):
            makers |= {f"{name}, {users:,} users": partial(make, file) for users, file in files.items()}
        yield makers


def start_up(file: Path) -> Work:
    """Measure from the converted file to the first batch of an epoch; counts the users."""

    def work() -> Done:
        data = _data(file)
        order = TrainSampler(len(data.train_set), _BATCH_SIZE, seed=1, sample_costs=data.train_set.sample_costs)
        # The first batch includes the order of the whole epoch, which grows with the users.
        data.train_set[next(iter(order))]
        return Done(data.events.num_users)

    return work


def training(file: Path, batches: int = 8) -> Work:
    """Measure the next steps of the current or the next epoch; counts the users in them."""
    data, module = _data(file), ModuleAlone(_encoder(dropout=0.2))
    order = TrainSampler(len(data.train_set), _BATCH_SIZE, seed=1, sample_costs=data.train_set.sample_costs)
    # The epoch continues from turn to turn: a few steps do not amortize the order of all users.
    draws = chain.from_iterable(repeat(order))
    step = optimizer_step(module, module.batch_loss)

    def work() -> Done:
        users = 0
        for draw in islice(draws, batches):
            step(data.train_set[draw])
            users += len(draw.indices)
        return Done(users)

    return work


def evaluation(file: Path, batches: int = 8, batch_size: int = 256) -> Work:
    """Measure the full ranking of the first validation items; counts the users."""
    data, encoder = _data(file), _encoder().eval()
    # Starts at the first item in every turn, so all turns measure the same users.
    order = EvaluationSampler(len(data.validation_set), batch_size)

    @torch.no_grad()
    def work() -> Done:
        users = 0
        for draw in islice(order, batches):
            batch = data.validation_set[draw]
            ranks(encoder.scores(encode_last_position(encoder, batch.history)), batch.target, batch.seen)
            users += len(draw.indices)
        return Done(users)

    return work


def write_users(file: Path, users: int) -> Path:
    """Write users with an equal number of events, and their store beside the file."""
    random = np.random.default_rng(1)
    rows = users * _EVENTS
    columns = {
        "user_id": np.repeat(np.arange(users), _EVENTS),
        "item_id": random.integers(1, _ITEMS + 1, rows),
        "timestamp": 956_703_932 + np.sort(random.integers(0, 10**8, (users, _EVENTS))).ravel(),
    }
    file.parent.mkdir()
    pl.DataFrame(columns).write_parquet(file)
    _data(file)
    return file


def _data(file: Path) -> InteractionSequences:
    # No filter is set, so that no user is dropped. This reads the store beside the file if it exists.
    data = InteractionSequences(root=str(file), min_item_interactions=1, max_length=_EVENTS)
    data.setup("fit")
    return data


def _encoder(dropout: float = 0.0) -> SequenceEncoder:
    torch.manual_seed(1)
    return SequenceEncoder(_ITEMS, _EVENTS, ArchitectureSettings(hidden_size=HIDDEN_SIZE, dropout=dropout))
