"""The naive form does the same as the project's: only then is its cost worth comparing."""

import pytest
import torch

from benchmarks.recommender.naive_time_attention import NaiveTimeAttention, NaiveTimeTables, with_naive_attention
from benchmarks.recommender.training_steps import ModuleAlone, full_batch
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.attention.time_interval import TimeIntervalAttention, TimeTables
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder


@pytest.mark.parametrize("heads", [1, 2])
def test_the_layers_have_the_same_outputs_and_gradients(heads: int) -> None:
    torch.manual_seed(0)
    history = full_batch(length=30, batch_size=3).history
    tables, attention = TimeTables(30, 20, 8, heads, 0.0), TimeIntervalAttention(8, heads, 0.0)
    positions, x = torch.arange(30).expand(3, 30), torch.randn(3, 30, 8, requires_grad=True)
    weights = [x, *tables.parameters(), *attention.parameters()]
    found = []
    for form in ((tables, attention), (NaiveTimeTables(tables), NaiveTimeAttention(attention))):
        mixed = form[1](x, form[0](positions, history.times, history.time_scale))
        found.append((mixed, torch.autograd.grad(mixed.square().sum(), weights)))
    (ours, our_gradients), (naive, naive_gradients) = found
    torch.testing.assert_close(naive, ours, rtol=1e-5, atol=1e-5)
    for theirs, mine in zip(naive_gradients, our_gradients, strict=True):
        torch.testing.assert_close(theirs, mine, rtol=1e-4, atol=1e-5)


def test_the_whole_models_have_the_same_loss() -> None:
    torch.manual_seed(0)
    batch = (full_batch(length=30, batch_size=3),)
    encoder = SequenceEncoder(
        3416, 30, ArchitectureSettings(hidden_size=8, dropout=0.0, attention="time_interval", time_span=20)
    )
    ours = ModuleAlone(encoder).batch_loss(batch)
    naive = with_naive_attention(encoder)
    assert isinstance(naive.blocks[1].attention.function, NaiveTimeAttention)
    torch.testing.assert_close(ModuleAlone(naive).batch_loss(batch), ours, rtol=1e-5, atol=1e-6)


def test_the_naive_form_drops_elements_of_every_pair() -> None:
    tables = NaiveTimeTables(TimeTables(30, 20, 8, 1, 0.5))
    history = full_batch(length=30, batch_size=3).history
    context = tables(torch.arange(30).expand(3, 30), history.times, history.time_scale)
    assert context.interval_keys.shape == (3, 30, 30, 8)
    assert 0.45 < (context.interval_keys == 0).float().mean() < 0.55
