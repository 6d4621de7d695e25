"""Tests sparse item vectors: loss and gradients equal the whole table's; unsuitable options are refused."""

import pytest
import torch
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy

from engine.strategies.fsdp import VerifiedFSDPStrategy
from lightning_modules.recommender.sparse_item_rows import check_saved_item_optimizer, check_strategy_of_rows
from tests.support.recommender.bare_module import Recommender, V, loss_and_gradients, make_batch

WIDTH = 8
LOSSES = [("sampled_softmax", 3, {}), ("bce", 1, {}), ("gbce", 3, {"shared": True})]
LOSSES += [("sampled_softmax", 3, {"kind": "mixed", "batch_targets": 5}), ("sampled_softmax", 0, {"batch_targets": 5})]


def trained(module):
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


@pytest.mark.parametrize("attention", ["standard", "time_interval"])
@pytest.mark.parametrize(("loss", "negatives", "options"), LOSSES)
def test_loss_and_gradients_are_those_of_the_whole_table(loss, negatives, options, attention):
    batch = make_batch(4, negatives, **options)
    dense, by_rows = (
        Recommender(loss=loss, attention=attention, item_optimizer=kind) for kind in ("dense", "lazy_adamw")
    )
    expected, terms, _ = loss_and_gradients(dense, batch)
    actual, count, _ = loss_and_gradients(by_rows, batch)
    assert torch.equal(actual, expected)
    assert count == terms
    (table,) = by_rows.row_tables
    table.collect_gradients()
    gradients = {name: parameter.grad for name, parameter in trained(by_rows).items()}
    items = torch.zeros(V + 1, WIDTH).index_copy_(0, table.indices, table.touched.grad)
    assert gradients.keys() | {"encoder.items.weight"} == trained(dense).keys()
    for name, parameter in trained(dense).items():
        torch.testing.assert_close(gradients.get(name, items), parameter.grad, rtol=1e-5, atol=1e-6)
    assert by_rows.encoder.items.weight.grad is None


def test_padding_is_never_touched():
    module = Recommender(loss="bce", item_optimizer="rowwise_adagrad")
    (part,) = make_batch(1, 1)
    nothing = part._replace(
        history=part.history._replace(items=part.history.items * 0),
        targets=part.targets * 0,
        negatives=part.negatives * 0,
    )
    for batch, number in (([part], 8), ([nothing], 0)):
        total, _, gradients = loss_and_gradients(module, batch)
        assert total.isfinite()
        assert all(gradient.isfinite().all() for gradient in gradients if gradient is not None)
        module.row_tables[0].collect_gradients()
        assert 0 not in module.row_tables[0].indices
        assert len(module.row_tables[0].indices) >= number
    assert len(module.row_tables[0].indices) == 0


def test_a_trained_table_needs_no_gradient_and_the_groups_omit_it():
    module = Recommender(loss="bce", item_optimizer="rowwise_adagrad", item_learning_rate=0.1)
    grouped = {id(parameter) for group in module.optimizer_groups() for parameter in group["params"]}
    assert grouped == {id(parameter) for parameter in trained(module).values()}
    (group,) = (table.optimizer_group(module.weight_decay) for table in module.row_tables)
    assert (group["lr"], group["row_update"], group["weight_decay"]) == (0.1, "rowwise_adagrad", 0.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "cross_entropy"}, "loss cross_entropy, whose gradient has every item's row"),
        ({"loss": "bce", "tie_output": False}, "tie_output false"),
        ({"loss": "bce", "optimizer": "muon"}, "optimizer muon: use optimizer adamw or adam"),
        ({"loss": "bce", "item_learning_rate": -1.0}, "item_learning_rate"),
    ],
)
def test_settings_that_exclude_updates_of_single_rows_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Recommender(item_optimizer="lazy_adamw", **options)


def test_an_item_learning_rate_without_effect_is_refused():
    with pytest.raises(ValueError, match="item_learning_rate 0.1 with item_optimizer dense, which trains all weights"):
        Recommender(item_learning_rate=0.1)


def test_strategies_that_do_not_divide_tables_are_refused():
    for strategy in (DDPStrategy(), VerifiedFSDPStrategy()):
        check_strategy_of_rows("lazy_adamw", strategy)
    for strategy in (VerifiedFSDPStrategy(cpu_offload=True), ModelParallelStrategy()):
        check_strategy_of_rows("dense", strategy)
    with pytest.raises(ValueError, match="item_optimizer lazy_adamw with trainer.strategy.init_args.cpu_offload true"):
        check_strategy_of_rows("lazy_adamw", VerifiedFSDPStrategy(cpu_offload=True))
    with pytest.raises(ValueError, match="item_optimizer lazy_adamw with trainer.strategy ModelParallelStrategy"):
        check_strategy_of_rows("lazy_adamw", ModelParallelStrategy())


def test_the_state_of_another_item_optimizer_is_refused():
    def saved(*groups):
        return {"optimizer_states": [{"param_groups": [{"params": [0]}, *groups]}]}

    check_saved_item_optimizer({}, "dense")
    check_saved_item_optimizer(saved(), "dense")
    check_saved_item_optimizer(saved({"params": [1], "row_update": "lazy_adamw"}), "lazy_adamw")
    shards = {"optimizer_groups": [[{"params": ["a"]}, {"params": ["b"], "row_update": "lazy_adamw"}]]}
    check_saved_item_optimizer(shards, "lazy_adamw")
    for checkpoint, configured in (
        (saved(), "lazy_adamw"),
        (saved({"row_update": "lazy_adamw"}), "rowwise_adagrad"),
        (shards, "dense"),
    ):
        with pytest.raises(ValueError, match=f"and {configured} cannot resume from it: use --model.init_args.item_opt"):
            check_saved_item_optimizer(checkpoint, configured)
