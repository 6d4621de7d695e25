"""Tests that the states at the last positions, computed in groups, equal the whole encoder's."""

from typing import Any

import pytest
import torch

from datamodules.recommender.batch import History
from lightning_modules.recommender.networks import last_position as grouping
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.attention.fused_causal_attention import Relations, causal_attention
from lightning_modules.recommender.networks.attention.last_query import last_attention
from lightning_modules.recommender.networks.last_position import encode_last_position, select_position
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder
from lightning_modules.recommender.ranking_metrics import ranks

V, LONGEST = 50, 24
VARIANTS = [
    {"attention": attention, "residual": residual, "norm": norm}
    for attention in ("standard", "time_interval")
    for residual in ("plain", "mhc")
    for norm in ("pre", "post")
] + [
    {"attention": "time_interval", "time_buckets": "log"},
    {"attention": "standard", "residual": "gated", "norm": "pre", "feed_forward": "swiglu"},
    {"attention": "time_interval", "residual": "gated_mhc", "norm": "post", "feed_forward": "swiglu"},
    {"attention": "hstu", "residual": "plain", "norm": "pre", "feed_forward": "none"},
    {"attention": "hstu", "residual": "mhc", "norm": "pre", "feed_forward": "none"},
    {"attention": "hstu", "residual": "gated", "norm": "post", "feed_forward": "relu"},
    {"attention": "fuxi", "residual": "plain", "norm": "pre", "feed_forward": "swiglu"},
    {"attention": "time_interval", "time_buckets": "log", "request_time": True},
    {"attention": "hstu", "feed_forward": "none", "request_time": True},
]


def histories(lengths: list[int]) -> History:
    generator = torch.Generator().manual_seed(len(lengths))
    counts = torch.tensor(lengths)
    real = torch.arange(max(counts.max().item(), 1)) < counts.unsqueeze(1)
    items = torch.randint(1, V + 1, real.shape, generator=generator) * real
    times = torch.randint(0, 50, real.shape, generator=generator).cumsum(1)
    scale = torch.randint(1, 9, counts.shape, generator=generator)
    at = times[:, -1] + torch.randint(0, 50, counts.shape, generator=generator)
    return History(items, times, counts, scale, at)


def make_encoder(**changes) -> SequenceEncoder:
    torch.manual_seed(0)
    encoder = SequenceEncoder(
        V, LONGEST, ArchitectureSettings(**{"hidden_size": 8, "num_heads": 2, "time_span": 16, **changes})
    ).eval()
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.3)  # no norm, bias or gate is as simple as it begins
    return encoder


def plain(encoder: SequenceEncoder, history: History) -> torch.Tensor:
    return select_position(encoder(history), (history.lengths - 1).clamp_min(0))[:, 0]


@pytest.fixture
def in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute batches in groups, however small they are."""
    monkeypatch.setattr(grouping, "_POSITIONS_PER_GROUP", 1)


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.usefixtures("in_groups")
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: "-".join(map(str, variant.values())))
@torch.no_grad()
def test_the_last_position_has_the_states_and_ranks_of_the_whole_encoder(variant: dict[str, Any], blocks: int) -> None:
    encoder = make_encoder(**variant, num_blocks=blocks)
    history = histories([24, 3, 17, 0, 24, 9, 1, 5, 12, 20, 2, 7, 24, 0, 11, 4, 6, 19, 22])
    actual, expected = encode_last_position(encoder, history), plain(encoder, history)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
    target = torch.arange(1, len(actual) + 1)
    theirs, ours = (ranks(encoder.scores(states), target, history.items) for states in (expected, actual))
    assert ours.equal(theirs)
    assert len(ours.unique()) > 5

    wide = encoder.double()
    torch.testing.assert_close(encode_last_position(wide, history), plain(wide, history), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("lengths", [[0], [5], [3, 0, 24], [2] * 8, [0] * 11])
@pytest.mark.usefixtures("in_groups")
@torch.no_grad()
def test_there_may_be_fewer_rows_than_groups(lengths: list[int]) -> None:
    encoder, history, passes = make_encoder(), histories(lengths), []
    encoder.register_forward_hook(lambda *_: passes.append(1))
    encoded = encode_last_position(encoder, history)
    assert len(passes) == min(len(lengths), grouping._MAX_GROUPS)
    torch.testing.assert_close(encoded, plain(encoder, history), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("rows", "passes"), [(1, 1), (64, 1), (128, 3), (500, 8)])
@torch.no_grad()
def test_a_batch_takes_the_passes_that_it_is_worth(rows: int, passes: int) -> None:
    encoder, seen = make_encoder(), []
    encoder.register_forward_hook(lambda *_: seen.append(1))
    encode_last_position(encoder, histories([24] * rows))
    assert len(seen) == passes


@pytest.mark.usefixtures("in_groups")
@torch.no_grad()
def test_rows_meet_little_padding() -> None:
    encoder, seen = make_encoder(), []
    encoder.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0].items.numel()))
    encode_last_position(encoder, histories([1] * 56 + [24] * 8))
    assert sum(seen) == 7 * 8 + 8 * 24


@pytest.mark.parametrize("with_relations", [False, True])
def test_attention_of_one_query_has_the_gradients_of_attention_of_all(with_relations: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    last = torch.tensor([0, 4, 6])
    query, key, value = (torch.randn(3, 2, 7, 4, dtype=torch.double, generator=generator) for _ in range(3))
    relations = None
    if with_relations:
        tables = [torch.randn(2, 6, 4, dtype=torch.double, generator=generator) for _ in range(2)]
        relations = Relations(torch.randint(0, 6, (3, 7, 7), generator=generator), *tables)
    leaves = [x.requires_grad_() for x in (query, key, value, *(relations[1:] if relations else ()))]
    whole = select_position(causal_attention(query, key, value, 0.0, relations).transpose(1, 2), last)
    one = last_attention(select_position(query.transpose(1, 2), last).transpose(1, 2), key, value, last, 0.0, relations)
    torch.testing.assert_close(one.transpose(1, 2), whole)
    output_gradient = torch.randn(whole.shape, dtype=torch.double, generator=generator)
    pairs = zip(
        torch.autograd.grad((one.transpose(1, 2) * output_gradient).sum(), leaves),
        torch.autograd.grad((whole * output_gradient).sum(), leaves),
        strict=True,
    )
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs)


@torch.no_grad()
def test_diagnostics_are_of_whole_passes() -> None:
    encoder = make_encoder(residual="mhc")
    encoder.collect_diagnostics = True
    encode_last_position(encoder, histories([3, 4]))
    assert encoder.diagnostics() == {}
    encoder(histories([3, 4]))
    assert encoder.diagnostics()
