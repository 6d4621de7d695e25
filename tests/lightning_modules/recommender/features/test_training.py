"""Tests loss and gradients with item features against a plain encoder with summed item vectors."""

from types import SimpleNamespace

import pytest
import torch

from datamodules.recommender.batch import FeaturesIdentity
from engine.optim.global_loss_mean import LossSum
from lightning_modules.recommender.checkpoint_compatibility import check_features
from lightning_modules.recommender.features.exported_encoder import encoder_to_export
from lightning_modules.recommender.features.item_dropout import keeps_own_vector
from lightning_modules.recommender.losses.next_item import LOSSES
from lightning_modules.recommender.networks.last_position import encode_last_position
from tests.support.recommender.bare_module import Recommender, V, loss_and_gradients, make_batch
from tests.support.recommender.random_features import random_features

ALL = set(range(1, V + 1))
STEP = 5


class WithFeatures(Recommender):
    def __init__(self, trained=ALL, cold=2, **settings):
        self.arrays = random_features(V, trained, cold)
        super().__init__(**settings)

    @property
    def data(self):
        identity = FeaturesIdentity("categories genre", "0")
        return SimpleNamespace(
            catalog=self.catalog,
            item_features=self.arrays,
            item_features_identity=identity,
            event_features=None,
            event_features_identity=None,
        )

    def training_loss(self, batch):
        loss = self.micro_batch_loss(batch, STEP)
        return LossSum(loss.total, loss.real)


def plain_loss(module, batch, name):
    """The loss of a table of all item vectors, as an ordinary weight."""
    items = torch.arange(V + 1)
    keeps = keeps_own_vector(items, module.item_dropout, 0, STEP).unsqueeze(1)
    table = module.encoder.items.weight * keeps + module.item_features(items)
    weight = table[1:]
    if name == "cross_entropy":
        weight = torch.where(module.item_features.trained[1 : V + 1, None], weight, torch.nan)
    losses = []
    for part in batch:
        states = module.encoder(part.history, item_vectors=table)
        if name == "cross_entropy":
            kept = module.item_features.training_items[1:] - 1
            logits = states @ weight[kept].T
            indices = module.item_features.training_index[part.targets] - 1
            losses.append(
                torch.nn.functional.cross_entropy(
                    logits.flatten(0, 1), indices.flatten(), ignore_index=-1, reduction="sum"
                )
            )
        else:
            options = {"num_items": int(module.item_features.trained.sum())} if name == "gbce" else {}
            losses.append(LOSSES[name](states, weight, part.targets, part.negatives, **options))
    return torch.stack(losses).sum()


@pytest.mark.parametrize("attention", ["standard", "time_interval"])
@pytest.mark.parametrize("item_dropout", [0.0, 0.4])
@pytest.mark.parametrize(
    ("loss", "negatives", "shared"),
    [("cross_entropy", 0, False), ("sampled_softmax", 3, False), ("bce", 1, False), ("gbce", 3, True)],
)
def test_loss_and_gradients_equal_those_of_a_plain_table(loss, negatives, shared, item_dropout, attention, monkeypatch):
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
    batch = make_batch(4, negatives, shared)
    used = {
        item
        for part in batch
        for column in (part.history.items, part.targets, part.negatives)
        for item in column.flatten().tolist()
    } - {0}
    module = WithFeatures(used, loss=loss, item_dropout=item_dropout, attention=attention)
    assert loss != "cross_entropy" or used <= ALL
    actual, _, gradients = loss_and_gradients(module, batch)
    module.zero_grad()
    expected = plain_loss(module, batch, loss)
    expected.backward()
    torch.testing.assert_close(actual, expected.detach(), rtol=1e-5, atol=1e-5)
    for (name, parameter), ours in zip(module.named_parameters(), gradients, strict=True):
        torch.testing.assert_close(
            ours, parameter.grad, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
        )
    assert module.item_features.categories.weight.grad.abs().sum() > 0
    if item_dropout:
        dropped = ~keeps_own_vector(torch.arange(V + 1), item_dropout, 0, STEP)
        assert (module.encoder.items.weight.grad[dropped] == 0).all()
        assert dropped.any()


def test_items_that_are_not_trained_do_not_compete():
    (part,) = make_batch(1)
    history = part.history._replace(items=part.history.items.clamp_max(V - 2))
    module = WithFeatures(ALL - {V - 1, V}, item_dropout=0.0)
    loss, _, gradients = loss_and_gradients(
        module, [part._replace(history=history, targets=part.targets.clamp_max(V - 2))]
    )
    grads = dict(zip(dict(module.named_parameters()), gradients, strict=True))["encoder.items.weight"]
    assert (grads[V - 1 :] == 0).all()
    assert (grads[1 : V - 1] != 0).any(1).all()


@pytest.mark.parametrize("kind", ["rowwise_adagrad", "lazy_adamw"])
@pytest.mark.parametrize(("loss", "negatives"), [("sampled_softmax", 3), ("bce", 1), ("gbce", 3)])
def test_training_by_rows_has_the_gradients_of_the_whole_table(kind, loss, negatives):
    batch = make_batch(4, negatives)
    dense, by_rows = (WithFeatures(loss=loss, item_dropout=0.3, item_optimizer=name) for name in ("dense", kind))
    expected, _, _ = loss_and_gradients(dense, batch)
    actual, _, _ = loss_and_gradients(by_rows, batch)
    assert torch.equal(actual, expected)
    (table,) = by_rows.row_tables
    table.collect_gradients()
    items = torch.zeros(V + 1, 8).index_copy_(0, table.indices, table.touched.grad)
    ours = {name: parameter.grad for name, parameter in by_rows.named_parameters() if parameter.requires_grad}
    assert {name.split(".")[0] for name in ours} == {"encoder", "item_features"}
    for name, parameter in dense.named_parameters():
        torch.testing.assert_close(ours.get(name, items), parameter.grad, rtol=1e-5, atol=1e-6)


def whole(scores):
    """Scores [B, V + 1] of all blocks."""
    blocks = [block.scores for block in scores.blocks()]
    return torch.nn.functional.pad(torch.cat(blocks, 1), (1, 0), value=-torch.inf)


def test_the_exported_encoder_scores_as_the_evaluation_does():
    module = WithFeatures({1, 2, 5, 9}, cold=3).eval()
    (part,) = make_batch(1)
    encoder = encoder_to_export(module.encoder, module.item_features, module.architecture)
    assert encoder.num_items == V + 3
    assert not encoder.training
    with torch.no_grad():
        expected = encoder.scores(encode_last_position(encoder, part.history))
        torch.testing.assert_close(whole(module.next_item_scores(part.history)), expected, rtol=0, atol=0)
        torch.testing.assert_close(
            whole(module.next_item_scores(part.history, V)), expected[:, : V + 1], rtol=1e-6, atol=1e-6
        )
        module.item_features.categories.weight.mul_(2)
        stale = whole(module.next_item_scores(part.history))
        module.next_item_scores.forget()
        assert not torch.allclose(whole(module.next_item_scores(part.history)), stale)


def test_a_checkpoint_with_other_features_is_refused():
    ours, saved = FeaturesIdentity("number a", "1" * 64), {"columns": "number a", "sha256": "1" * 64}
    check_features(None, None)
    check_features(saved, ours)
    for checkpoint, features, message in (
        (None, ours, "was trained without item features, and the config has data.init_args.item_features. Remove"),
        (saved, None, "was trained with item features, and the config has no data.init_args.item_features. Give it"),
        (saved | {"columns": "number b"}, ours, "was trained with the item features number b, the config has number a"),
        (
            saved | {"sha256": "2" * 64},
            ours,
            "or in which items are trained .sha256 111111111111 instead of 2222222222",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            check_features(checkpoint, features)


def test_a_wrong_share_is_refused():
    with pytest.raises(ValueError, match=r"model.init_args.item_dropout"):
        Recommender(item_dropout=1.0)
