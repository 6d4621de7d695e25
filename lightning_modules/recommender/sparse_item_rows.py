"""Updates only the item vectors that a step uses (sparse gradients), for large catalogs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from datamodules.recommender.batch import TrainBatch
from engine.optim.optimizers import OPTIMIZERS, OptimizerName
from engine.optim.row_table import RowTable
from engine.strategies.fsdp import VerifiedFSDPStrategy, has_sharded_weights
from lightning_modules.recommender.losses.next_item import LossName
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder

ItemOptimizer = Literal["dense", "rowwise_adagrad", "lazy_adamw"]

_OPTION = "model.init_args.item_optimizer"


def check_item_optimizer(
    item_optimizer: ItemOptimizer,
    item_learning_rate: float | None,
    loss: LossName,
    tie_output: bool,
    optimizer: OptimizerName,
) -> None:
    """Check that the other options suit the item optimizer.

    Raises:
        ValueError: each step would need the whole table, no optimizer updates it by rows, or the rate has no effect.
    """
    if item_optimizer == "dense":
        if item_learning_rate is not None:
            raise ValueError(
                f"model.init_args.item_learning_rate {item_learning_rate:g} with item_optimizer dense, which trains all"
                " weights at learning_rate: remove it, or set item_optimizer rowwise_adagrad or lazy_adamw"
            )
        return
    refused = f"{_OPTION} {item_optimizer}"
    if loss == "cross_entropy":
        raise ValueError(
            f"{refused} with model.init_args.loss cross_entropy, whose gradient has every item's row in each step: use "
            "item_optimizer dense, or sampled_softmax or gbce with data.init_args.num_negatives"
        )
    if not tie_output:
        raise ValueError(
            f"{refused} with model.init_args.tie_output false: the separate vectors of the scores would be trained "
            "densely. Use tie_output true or item_optimizer dense"
        )
    if OPTIMIZERS[optimizer].by_rows is None:
        raise ValueError(f"{refused} with model.init_args.optimizer {optimizer}: use optimizer adamw or adam")


def check_strategy_of_rows(item_optimizer: ItemOptimizer, strategy: object) -> None:
    """Check that a strategy leaves a table that is trained by rows whole, or divides its rows.

    Raises:
        ValueError: the strategy shards the weights in another way, or keeps them in host memory.
    """
    if item_optimizer == "dense" or not has_sharded_weights(strategy):
        return
    if not isinstance(strategy, VerifiedFSDPStrategy):
        raise ValueError(
            f"{_OPTION} {item_optimizer} with trainer.strategy {type(strategy).__name__}, which does not divide tables "
            "by rows. Use --config configs/overlays/fsdp.yaml, strategy ddp or item_optimizer dense"
        )
    if strategy.cpu_offload:
        raise ValueError(
            f"{_OPTION} {item_optimizer} with trainer.strategy.init_args.cpu_offload true: the rows of a table stay on "
            "the devices. Use cpu_offload false or item_optimizer dense"
        )


def check_saved_item_optimizer(checkpoint: Mapping[str, Any], item_optimizer: ItemOptimizer) -> None:
    """Check that a checkpoint's optimizer state belongs to the item optimizer of the config.

    Raises:
        ValueError: the state is of another item optimizer.
    """
    from engine.checkpointing.sharded.sharded_state import GROUPS

    states = checkpoint.get("optimizer_states", [])
    # Whole checkpoints have the groups in the optimizer's state, sharded checkpoints under a key of their own.
    for groups in (*(state["param_groups"] for state in states), *checkpoint.get(GROUPS, [])):
        names = [group["row_update"] for group in groups if "row_update" in group]
        saved = names[0] if names else "dense"
        if saved != item_optimizer:
            raise ValueError(
                f"the checkpoint's optimizer state is of {_OPTION} {saved}, and {item_optimizer} cannot resume from "
                f"it: use --{_OPTION} {saved}, or start from scratch with another --run_name"
            )


def gather_item_rows(table: RowTable, batch: Sequence[TrainBatch]) -> tuple[list[TrainBatch], Tensor]:
    """Gather the item vectors that a micro-batch uses, and renumber its items accordingly.

    Args:
        table: item vectors [V + 1, C].
        batch: parts of the micro-batch.

    Returns:
        The parts, with indices of rows instead of items, and the rows [U, C]. Row 0 is padding, as in the table, and
        there is at least one other row.
    """
    renumbered, items = used_items(batch)
    return renumbered, table.read(items)


def used_items(batch: Sequence[TrainBatch]) -> tuple[list[TrainBatch], Tensor]:
    """Return the parts of a micro-batch with indices into its distinct items, and these items, ascending.

    Items are [U] int64. Item 0 (padding) has index 0, and there is at least one other item.
    """
    columns = [column for part in batch for column in _item_columns(part)]
    # Item 1 is always included: losses look up some item at padded positions. Its gradient is 0, so it is not updated.
    always = torch.arange(2, device=columns[0].device)
    numbers = torch.cat([always, *(column.flatten() for column in columns)])
    items, positions = torch.unique(numbers, return_inverse=True)
    # `positions` are indices into `items`, for all columns one after the other; the first two are of `always`.
    parts = iter(positions[len(always) :].split([column.numel() for column in columns]))
    return renumber_items(batch, lambda column: next(parts).view_as(column)), items


def renumber_items(batch: Sequence[TrainBatch], number: Callable[[Tensor], Tensor]) -> list[TrainBatch]:
    """Return the parts of a micro-batch with renumbered items.

    Args:
        batch: parts of the micro-batch.
        number: function of a tensor of items. It is called for items, targets and negatives of each part, and for the
            negatives of the global batch if there are any, in this order.
    """
    renumbered = []
    for part in batch:
        columns = [number(column) for column in _item_columns(part)]
        history = part.history._replace(items=columns[0])
        sampled = part.sampled and part.sampled._replace(batch_negatives=columns[3])
        renumbered.append(part._replace(history=history, targets=columns[1], negatives=columns[2], sampled=sampled))
    return renumbered


def _item_columns(part: TrainBatch) -> list[Tensor]:
    columns = [part.history.items, part.targets, part.negatives]
    return columns if part.sampled is None else [*columns, part.sampled.batch_negatives]


def sparse_item_tables(
    encoder: SequenceEncoder, item_optimizer: ItemOptimizer, learning_rate: float | None
) -> list[RowTable]:
    """Return the tables of an encoder that are trained by rows: its item vectors, or none for `dense`.

    Args:
        encoder: scores with the input's item vectors.
        item_optimizer: see SequentialRecommender.
        learning_rate: peak rate of the item vectors; None is the module's rate.
    """
    if item_optimizer == "dense":
        return []
    weight = encoder.items.weight
    assert isinstance(weight, nn.Parameter), "an embedding has one"
    return [RowTable(weight, "encoder.items.weight", item_optimizer, learning_rate)]
