import pytest
import torch

from datamodules.recommender.batch import History
from lightning_modules.recommender.losses import cross_entropy
from lightning_modules.recommender.network import SequenceEncoder

V, LONGEST = 13, 10


def make_history(lengths=(4, 7, 1, 0), padded_to=7, seed=0):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor(lengths)
    real = torch.arange(padded_to) < lengths.unsqueeze(1)
    items = torch.randint(1, V + 1, real.shape, generator=generator) * real
    times = torch.randint(0, 50, real.shape, generator=generator).cumsum(1)
    last = times.gather(1, (lengths - 1).clamp_min(0).unsqueeze(1))
    return History(items, torch.where(real, times, last), lengths, torch.tensor([1, 7, 3, 1])[: len(lengths)])


def make_encoder(**changes):
    torch.manual_seed(0)
    return SequenceEncoder(V, LONGEST, **{"hidden_size": 8, "num_heads": 2, **changes})


def real_positions(history):
    return torch.arange(history.items.shape[1]) < history.lengths.unsqueeze(1)


def test_padding_changes_no_real_position():
    encoder = make_encoder().eval()
    history = make_history()
    real = real_positions(history)
    expected = encoder(history)[real]
    wider = History(
        torch.nn.functional.pad(history.items, (0, 3), value=V),  # even items in the padding
        torch.nn.functional.pad(history.times, (0, 3), value=10**12),
        *history[2:],
    )
    torch.testing.assert_close(encoder(wider)[:, :7][real], expected)


def test_the_future_is_hidden():
    encoder = make_encoder().eval()
    history = make_history()
    before = encoder(history)[1]
    history.items[1, 3:] = history.items[1, 3:] % V + 1
    after = encoder(history)[1]
    torch.testing.assert_close(after[:3], before[:3])
    assert (after[3:] - before[3:]).abs().amax(1).min() > 1e-3


def test_training_learns_a_cycle():
    encoder = make_encoder(hidden_size=16, dropout=0.1).train()
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=0.02)
    items = (torch.arange(LONGEST) + torch.arange(V).unsqueeze(1)) % V + 1
    history = History(items, items, torch.full((V,), LONGEST), torch.ones(V, dtype=torch.int64))
    targets = items % V + 1
    losses = []
    for _ in range(80):
        loss = cross_entropy(encoder(history), encoder.output_weight, targets) / targets.numel()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(torch.tensor(V).log().item(), abs=0.2)
    assert losses[-1] < 0.3
    assert (encoder.items.weight[0] == 0).all()
