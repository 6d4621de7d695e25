"""The plain SASRec does the same as the project's on rows of any length."""

import numpy as np
import pytest
import torch

from benchmarks.recommender.movielens_like import movielens_like
from benchmarks.recommender.plain_sasrec import PlainSASRec
from benchmarks.recommender.training_steps import ModuleAlone, left_padded, train_sequences
from datamodules.recommender.length_groups import LengthGroups
from datamodules.recommender.negatives.negative_mixture import NegativeOptions
from engine.data.samplers import MicroBatchRequest
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder


@pytest.mark.parametrize(("heads", "groups"), [(1, 1), (1, 4), (2, 3)])
def test_loss_and_gradients_equal_those_of_the_encoder(heads: int, groups: int) -> None:
    torch.manual_seed(0)
    sequences = train_sequences(movielens_like(6, 2300), length=60)
    draw = MicroBatchRequest(0, np.arange(6))
    batch, parts = sequences[draw], LengthGroups(sequences, groups)[draw]
    assert len(set(batch.history.lengths.tolist())) > 1, "a case without padding proves little"
    encoder = SequenceEncoder(2300, 60, ArchitectureSettings(hidden_size=8, num_heads=heads, dropout=0.0))
    plain = PlainSASRec(encoder)
    weights = list(encoder.parameters())
    ours, theirs = ModuleAlone(encoder).batch_loss(parts), plain.loss(*left_padded(batch, 60))
    torch.testing.assert_close(theirs, ours, rtol=1e-5, atol=1e-6)
    pairs = zip(torch.autograd.grad(theirs, weights), torch.autograd.grad(ours, weights), strict=True)
    for their_gradient, our_gradient in pairs:
        torch.testing.assert_close(their_gradient, our_gradient, rtol=1e-4, atol=1e-6)


def test_the_same_negatives_give_the_same_binary_loss() -> None:
    torch.manual_seed(0)
    sequences = train_sequences(movielens_like(6, 2300), length=60, negatives=NegativeOptions(1))
    batch = sequences[MicroBatchRequest(0, np.arange(6))]
    encoder = SequenceEncoder(2300, 60, ArchitectureSettings(hidden_size=8, dropout=0.0))
    negatives, _ = left_padded(batch._replace(history=batch.history._replace(items=batch.negatives[..., 0])), 60)
    theirs = PlainSASRec(encoder).binary_loss(*left_padded(batch, 60), negatives)
    torch.testing.assert_close(theirs, ModuleAlone(encoder, "bce").batch_loss([batch]), rtol=1e-5, atol=1e-6)


def test_the_plain_form_trains_the_same_weights() -> None:
    encoder = SequenceEncoder(50, 10, ArchitectureSettings(hidden_size=8))
    assert {id(weight) for weight in PlainSASRec(encoder).parameters()} == {
        id(weight) for weight in encoder.parameters()
    }


def test_left_padding_keeps_every_event_in_order() -> None:
    batch = train_sequences(movielens_like(5, 2300), length=60)[MicroBatchRequest(0, np.arange(5))]
    items, targets = left_padded(batch, 64)
    assert items.shape == targets.shape == (5, 64)
    for row, count in enumerate(batch.history.lengths.tolist()):
        assert items[row, :-count].sum() == targets[row, :-count].sum() == 0
        assert items[row, -count:].equal(batch.history.items[row, :count])
        assert targets[row, -count:].equal(batch.targets[row, :count])
