"""Applies the option `split`, and disables the evaluation of commands and callbacks if it holds out no events."""

import logging
from typing import Literal, NamedTuple

from lightning.pytorch import Trainer

from datamodules.recommender.splits import Splits, leave_one_out, no_holdout, temporal_split
from datamodules.recommender.store.interaction_store import InteractionStore

log = logging.getLogger("lockstep")

SplitName = Literal["leave_one_out", "temporal", "none"]


class InteractionSplitSettings(NamedTuple):
    """The options `split`, `validation_from` and `test_from` of InteractionSequences."""

    name: SplitName
    validation_from: float
    test_from: float

    def apply(self, events: InteractionStore) -> Splits:
        """Return the events for training, validation and test.

        Raises:
            ValueError: a part would be empty.
        """
        if self.name == "temporal":
            return temporal_split(events, self.validation_from, self.test_from)
        return no_holdout(events) if self.name == "none" else leave_one_out(events)

    def disable_evaluation(self, stage: str, trainer: Trainer | None) -> None:
        """With `none`, let a fit run without validations, and refuse what needs held-out events.

        Raises:
            ValueError: the command evaluates, or EarlyStopping waits for a metric of the validation.
        """
        if self.name != "none":
            return
        if stage in ("validate", "test"):
            command = "test" if stage == "test" else "validate"  # a member of Lightning's enum prints its class, too
            raise ValueError(
                f"data.init_args.split is none: all events train, so there is none to {command} with. To evaluate, "
                "train with leave_one_out or temporal"
            )
        if stage != "fit" or trainer is None:
            return
        monitors = [str(getattr(stop, "monitor", "")) for stop in trainer.early_stopping_callbacks]
        if missing := next((monitor for monitor in monitors if monitor.startswith("val/")), None):
            raise ValueError(
                f"data.init_args.split is none, so EarlyStopping has no {missing}. Remove it with "
                "--trainer.callbacks null, and set --trainer.max_epochs to the best epoch of a run with a split"
            )
        # Lightning runs `setup` before it creates its loops, so the fit has no validation loop.
        trainer.limit_val_batches = 0
        log.info("data.init_args.split is none: no validation and no best.ckpt; the model is last.ckpt")

    def way_to_more(self, min_user_interactions: int) -> str:
        """Return what gives an evaluation more users and more trained targets."""
        if self.name == "temporal":
            return (
                f"Try --data.init_args.split leave_one_out, or lower validation_from ({self.validation_from:.10g}) and "
                f"test_from ({self.test_from:.10g})"
            )
        return f"More data, or a lower data.init_args.min_user_interactions ({min_user_interactions}), give more"
