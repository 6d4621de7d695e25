"""Tests the recommender's module: losses over groups of rows, weight decay, logging, and checkpoints."""

import pytest
import torch

from lightning_modules.recommender.losses import next_item
from tests.conftest import TINY
from tests.support.recommender.bare_module import ROWS, Recommender, loss_and_gradients, make_batch


@pytest.mark.parametrize(
    ("loss", "negatives", "shared"),
    [("cross_entropy", 0, False), ("sampled_softmax", 3, False), ("bce", 1, False), ("gbce", 3, True)],
)
@pytest.mark.parametrize(
    "network",
    [
        {"attention": "standard"},
        {"attention": "time_interval"},
        {"attention": "hstu"},
        {"attention": "gru", "feed_forward": "none", "num_heads": 1},
        {"attention": "time_interval", "time_buckets": "log", "request_time": True},
        {"attention": "hstu", "request_time": True},
    ],
    ids=["standard", "time_interval", "hstu", "gru", "time_interval at", "hstu at"],
)
def test_groups_change_neither_loss_nor_gradients(loss, negatives, shared, network):
    module = Recommender(loss=loss, **network)
    whole, parts = (make_batch(groups, negatives, shared) for groups in (1, 4))
    assert (len(whole), len(parts)) == (1, 4)
    assert len({part.targets.shape[1] for part in parts}) == 4
    (total, count, gradients), other = loss_and_gradients(module, whole), loss_and_gradients(module, parts)
    assert count == other[1] == sum(range(1, ROWS + 1))
    torch.testing.assert_close(other[0], total, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(other[2], gradients, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shared", [False, True])
def test_groups_change_nothing_with_negatives_of_the_batch(shared):
    module = Recommender(loss="sampled_softmax")
    whole, parts = (make_batch(groups, 3, shared, kind="mixed", batch_targets=5) for groups in (1, 4))
    (total, count, gradients), other = loss_and_gradients(module, whole), loss_and_gradients(module, parts)
    assert count == other[1] == sum(range(1, ROWS + 1))
    torch.testing.assert_close(other[0], total, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(other[2], gradients, rtol=1e-5, atol=1e-5)


def test_cross_entropy_is_called_once_for_all_groups(monkeypatch):
    calls = []
    cross_entropy = next_item.cross_entropy
    monkeypatch.setattr(next_item, "cross_entropy", lambda *args: (calls.append(args), cross_entropy(*args))[1])
    Recommender().training_loss(make_batch(4))
    assert len(calls) == 1


def test_weights_decay_and_norms_biases_and_gates_do_not():
    module = Recommender(residual="mhc", attention="time_interval", weight_decay=0.1)
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    decays = {names[id(p)]: group["weight_decay"] for group in module.optimizer_groups() for p in group["params"]}
    assert decays.keys() == set(names.values())
    for name, decay in decays.items():
        spared = "norm" in name or name.endswith(("bias", "alpha"))
        assert decay == (0.0 if spared else 0.1), name
    gates = [name for name in decays if ".residual." in name]
    assert sorted({name.rsplit(".", 1)[1] for name in gates}) == ["alpha", "bias", "phi"]


def test_hyper_connections_are_logged_on_demand():
    module = Recommender(residual="mhc")
    module.training_loss(make_batch(4))
    assert module.logged.keys() == {"train/real_positions"}
    module.encoder.collect_diagnostics = True
    *_, longest = batch = make_batch(4)
    module.training_loss(batch)
    assert module.logged["mhc/gain"] == pytest.approx(1, abs=0.01)
    assert module.logged["mhc/pre"] == pytest.approx(1 / 4, abs=0.02)
    assert module.logged["mhc/post"] == pytest.approx(1, abs=0.02)
    assert module.logged["mhc/sum_error"] < 0.01
    of_all = module.logged["mhc/stream_spread"]
    module.training_loss([longest])
    assert of_all == module.logged["mhc/stream_spread"] > 0


@pytest.mark.parametrize(("interval", "steps"), [(0, []), (2, [2, 4])])
def test_hyper_connections_are_logged_at_the_interval_of_the_trainer(lockstep, interval, steps):
    limits = ["--trainer.max_steps", "4", "--trainer.limit_val_batches", "0"]
    logged = ["--trainer.log_every_n_steps", str(interval), "--model.init_args.residual", "mhc"]
    assert sorted(lockstep("fit", *TINY, *limits, *logged, name="a").series("mhc/gain")) == steps


@pytest.mark.parametrize("residual", ["plain", "mhc", "gated"])
def test_bfloat16_parameters_give_the_loss_of_float32(residual):
    module, batch = Recommender(residual=residual, attention="time_interval"), make_batch(4)
    expected, *_ = loss_and_gradients(module, batch)
    torch.set_default_dtype(torch.bfloat16)  # as Lightning does with bf16-true
    try:
        actual, _, gradients = loss_and_gradients(module.bfloat16(), batch)
    finally:
        torch.set_default_dtype(torch.float32)
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, expected, rtol=0.01, atol=0)
    assert all(gradient.isfinite().all() for gradient in gradients)


def saved_by(**settings):
    checkpoint = {}
    Recommender(**settings).on_save_checkpoint(checkpoint)
    return checkpoint


def test_a_checkpoint_loads_into_its_own_architecture(tmp_path):
    torch.save(saved_by(), tmp_path / "it.ckpt")
    checkpoint = torch.load(tmp_path / "it.ckpt", weights_only=True)
    assert checkpoint["architecture"]
    assert all(isinstance(value, int | float | str) for value in checkpoint["architecture"].values())
    Recommender(dropout=0.4, activation_checkpointing=True, feed_forward_size=8).on_load_checkpoint(checkpoint)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 16, "feed_forward_size": 8}, "hidden_size is 8 in the checkpoint and 16 in the config"),
        ({"max_length": 20}, "max_length is 10 in the checkpoint and 20 in the config"),
        (
            {"num_blocks": 1, "num_heads": 1},
            "num_blocks is 2 .* and 1 in the config; num_heads is 2 .* and 1 in the config",
        ),
        ({"norm": "post"}, "norm is 'pre' in the checkpoint and 'post' in the config"),
        ({"time_buckets": "log"}, "time_buckets is 'linear' in the checkpoint and 'log' in the config"),
        ({"tie_output": False}, "tie_output is True in the checkpoint and False in the config"),
        ({"feed_forward": "swiglu"}, "feed_forward is 'relu' in the checkpoint and 'swiglu' in the config"),
    ],
)
def test_another_architecture_is_refused_with_both_values(changes, message):
    with pytest.raises(ValueError, match=f"another network: {message}. Give model.init_args"):
        Recommender(**changes).on_load_checkpoint(saved_by())


def test_only_a_checkpoint_that_names_its_architecture_is_held_to_it():
    checkpoint, other = saved_by(), Recommender(norm="post")
    with pytest.raises(ValueError, match="another network"):
        other.on_load_checkpoint(checkpoint)
    del checkpoint["architecture"]
    other.on_load_checkpoint(checkpoint)


@pytest.mark.parametrize(
    ("setting", "default", "changed"),
    [("time_buckets", "linear", "log"), ("feed_forward", "relu", "swiglu"), ("request_time", False, True)],
)
def test_a_checkpoint_from_before_a_setting_was_added_has_its_default(setting, default, changed):
    checkpoint = saved_by(attention="time_interval")
    del checkpoint["architecture"][setting]
    Recommender(attention="time_interval").on_load_checkpoint(checkpoint)
    message = f"another network: {setting} is {default!r} in the checkpoint and {changed!r} in the config"
    with pytest.raises(ValueError, match=message):
        Recommender(attention="time_interval", **{setting: changed}).on_load_checkpoint(checkpoint)


def test_other_items_are_refused():
    with pytest.raises(ValueError, match=r"trained with 12 items \(sha256 \w{12}\), the data have 13"):
        Recommender().on_load_checkpoint(saved_by(items=12))
    with pytest.raises(ValueError, match="no list of items"):
        Recommender().on_load_checkpoint({})
