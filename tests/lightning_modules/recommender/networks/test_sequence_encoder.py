"""Tests the sequence encoder: causality, padding, times, and gradients of every parameter."""

import pytest
import torch
from torch.nn import functional as F

from datamodules.recommender.batch import History
from lightning_modules.recommender.losses.next_item import cross_entropy
from tests.support.recommender.encoders import LONGEST, VARIANTS, V, make_encoder, make_history


def real_positions(history):
    return torch.arange(history.items.shape[1]) < history.lengths.unsqueeze(1)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_trains_every_parameter(variant):
    encoder = make_encoder(**variant, tie_output=False).train()
    history = make_history()
    states = encoder(history)
    assert states.shape == (4, 7, 8)
    cross_entropy(states, encoder.output_weight, history.items).backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0 or name == "blocks.0.attention.residual.phi", name
    assert (encoder.items.weight.grad[0] == 0).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_changes_no_real_position(variant):
    encoder = make_encoder(**variant).eval()
    history = make_history()
    real = real_positions(history)
    expected = encoder(history)[real]
    wider = History(
        F.pad(history.items, (0, 3), value=V),  # even items in the padding
        F.pad(history.times, (0, 3), value=10**12),
        *history[2:],
    )
    torch.testing.assert_close(encoder(wider)[:, :7][real], expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_future_is_hidden(variant):
    encoder = make_encoder(**variant).eval()
    history = make_history()
    before = encoder(history)[1]
    history.items[1, 3:] = history.items[1, 3:] % V + 1
    history.times[1, 3:] += 20
    after = encoder(history)[1]
    torch.testing.assert_close(after[:3], before[:3])
    assert (after[3:] - before[3:]).abs().amax(1).min() > 1e-3


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_causal_states_are_those_of_the_history_cut_there(variant):
    """Up to the positions, which count from the end: so with none of their effect."""
    encoder = make_encoder(**variant).eval()
    for table in (
        encoder.positions,
        *(getattr(encoder.time_tables, f"position_{x}", None) for x in ("keys", "values")),
    ):
        if table is not None:
            torch.nn.init.zeros_(table.weight)
    history = make_history(lengths=(7,))
    cut = History(history.items[:, :4], history.times[:, :4], torch.tensor([4]), history.time_scale)
    torch.testing.assert_close(encoder(cut), encoder(history)[:, :4])


def test_positions_count_from_the_end():
    encoder = make_encoder().eval()
    history = make_history(lengths=(3,), padded_to=3)
    seen = []
    encoder.positions.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].tolist()))
    encoder(history)
    encoder(make_history(lengths=(2, 5), padded_to=5))
    assert seen == [[[7, 8, 9]], [[8, 9, 9, 9, 9], [5, 6, 7, 8, 9]]]


@pytest.mark.parametrize("attention", ["standard", "time_interval", "hstu", "fuxi"])
def test_times_matter_to_all_but_standard_attention(attention):
    encoder = make_encoder(attention=attention).eval()
    history = make_history()
    changed = history._replace(times=history.times * 3)
    same = torch.equal(encoder(history), encoder(changed))
    assert same == (attention == "standard")


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("attention", ["standard", "time_interval", "hstu"])
@pytest.mark.parametrize("streams", [1, 4])
@pytest.mark.parametrize(("without", "with_them"), [("plain", "mhc"), ("gated", "gated_mhc")])
def test_hyper_connections_without_their_dynamic_part_are_the_plain_network(
    norm, attention, streams, without, with_them
):
    plain = make_encoder(norm=norm, attention=attention, residual=without).eval()
    mhc = make_encoder(norm=norm, attention=attention, residual=with_them, streams=streams).eval()
    missing, unexpected = mhc.load_state_dict(plain.state_dict(), strict=False)
    assert unexpected == []
    assert all(".residual." in name for name in missing)
    for name, parameter in mhc.named_parameters():
        if name.endswith("alpha"):
            torch.nn.init.zeros_(parameter)
    history = make_history()
    torch.testing.assert_close(mhc(history), plain(history), atol=1e-5, rtol=1e-5)


def test_the_mixing_has_a_gradient_where_it_acts():
    encoder = make_encoder(residual="mhc", dropout=0.0, sinkhorn_iterations=60).double().train()
    history = make_history()
    connections = [sublayer.residual for block in encoder.blocks for sublayer in (block.attention, block.feed_forward)]
    for connection in connections:
        torch.nn.init.ones_(connection.alpha)
    cross_entropy(encoder(history), encoder.output_weight, history.items).backward()
    first, *middle, last = (connection.phi.grad[:, 8:].abs().max().item() for connection in connections)
    assert first < 1e-12  # the streams are still equal
    assert min(middle) > 1e-7
    assert last < 0.1 * min(middle)  # the mean does not see the last mixing, but for what Sinkhorn leaves


@pytest.mark.parametrize("residual", ["plain", "mhc"])
def test_diagnostics_are_collected_on_demand(residual):
    encoder = make_encoder(residual=residual).train()
    history = make_history()
    encoder(history)
    assert encoder.diagnostics() == {}
    encoder.collect_diagnostics = True
    encoder(history)
    found = encoder.diagnostics()
    if residual == "plain":
        assert found == {}
        return
    assert len(found) == 5 * 4
    assert all(value.shape == () and value.isfinite() for value in found.values())
    assert found["gain/3"] == pytest.approx(1, abs=0.01)
    assert found["pre/0"] == pytest.approx(1 / 4, abs=0.02)
    assert found["post/0"] == pytest.approx(1, abs=0.02)
    assert found["stream_spread/0"] < 1e-6 < found["stream_spread/1"]


@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant.id != "gru"])
def test_activation_checkpointing_changes_no_bit(variant):
    history, results = make_history(), []
    for checkpointing in (False, True):
        encoder = make_encoder(**variant, dropout=0.3, activation_checkpointing=checkpointing).train()
        torch.manual_seed(1)
        loss = cross_entropy(encoder(history), encoder.output_weight, history.items)
        loss.backward()
        results.append([loss.detach(), *(parameter.grad for parameter in encoder.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("variant", VARIANTS)
def test_autocast_to_half_precision_trains(variant, dtype):
    encoder = make_encoder(**variant).train()
    history = make_history()
    with torch.autocast("cpu", dtype):
        loss = cross_entropy(encoder(history), encoder.output_weight, history.items)
    loss.backward()
    assert loss.dtype == torch.float32
    assert all(parameter.grad.isfinite().all() for parameter in encoder.parameters())


@pytest.mark.parametrize("variant", VARIANTS)
def test_bfloat16_parameters_train(variant):
    encoder = make_encoder(**variant).bfloat16().train()
    history = make_history()
    states = encoder(history)
    assert states.dtype == torch.bfloat16
    loss = cross_entropy(states, encoder.output_weight, history.items)
    loss.backward()
    assert loss.dtype == torch.float32
    assert all(parameter.grad.isfinite().all() for parameter in encoder.parameters())


@pytest.mark.parametrize("tied", [True, False])
def test_scores_are_products_with_the_items(tied):
    encoder = make_encoder(tie_output=tied)
    states = torch.randn(3, 8)
    with torch.autocast("cpu", torch.bfloat16):
        scores = encoder.scores(states)
    assert scores.shape == (3, V + 1)
    assert (scores[:, 0] == -torch.inf).all()
    weight = encoder.items.weight[1:] if tied else encoder.output
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores[:, 1:], states @ weight.T)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_heads": 3}, "not a multiple of num_heads"),
        ({"dropout": 1.0}, "dropout must lie in"),
        ({"num_blocks": 0}, "num_blocks must be at least 1"),
        ({"feed_forward_size": 0}, "feed_forward_size must be at least 1"),
        ({"time_span": 0}, "time_span must be at least 1"),
        ({"residual": "mhc", "streams": 0}, "streams .* must be at least 1"),
        ({"attention": "linear"}, "attention must be one of standard, time_interval, hstu, fuxi, gru, got 'linear'"),
        ({"residual": "none"}, "residual must be one of"),
        ({"norm": "both"}, "norm must be one of"),
        ({"feed_forward": "gelu"}, "feed_forward must be one of relu, swiglu, none, got 'gelu'"),
    ],
)
def test_impossible_settings_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        make_encoder(**wrong)


def test_too_long_a_history_is_refused():
    with pytest.raises(ValueError, match="longer than max_length 10"):
        make_encoder()(make_history(lengths=(11,), padded_to=11))


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
