"""Trains a language model on chats: the base of modules that are composed from parts or pretrained as a whole."""

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from datamodules.multimodal.batch import ChatTrainBatch, Prompts, TokenRows
from datamodules.multimodal.interface import ChatDataT
from engine.base_options import TrainingOptions, Unpack
from engine.io.json_records import describe_names
from engine.module import LockstepModule
from engine.number_check import check_numbers
from engine.optim.global_loss_mean import LossSum
from engine.run_trainer import as_run_trainer
from engine.strategies.fsdp import has_sharded_weights
from engine.telemetry.sample_previews import SamplePreview
from lightning_modules.multimodal.checkpoints.base_model_identity import base_identity, check_base, weights_identity
from lightning_modules.multimodal.checkpoints.stage_init import WeightOrigin, base_was_trained, load_stage, read_stage
from lightning_modules.multimodal.evaluation.context_check import check_context, context_length
from lightning_modules.multimodal.evaluation.evaluator import Blinding, Evaluator, PredictionLine
from lightning_modules.multimodal.language.kernels.kernel_checks import require_gpu_kernels
from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.language.precision import Precision, device_has_bf16, precision_of
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.part_parameter_groups import parameter_groups, parameter_table

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle

log = logging.getLogger("lockstep")


class LanguageModuleOptions(TrainingOptions, total=False):
    """Options that every family passes on to LanguageModule, which describes them."""

    learning_rates: dict[str, float] | None
    init_from: str | None


class LanguageModule(LockstepModule[ChatDataT]):
    """A language model that learns what the assistant answers in chats, and that an Evaluator evaluates.

    A subclass builds its networks and defines how it reads a chat.

    Args:
        language_model: the language model.
        learning_rates: peak rates of the parts (vision_tower or encoder, projector or connector, language_model) whose
            rate differs from `learning_rate`.
        init_from: source of the initial weights of a fit: a checkpoint, a run (its name or folder: its best checkpoint,
            else its newest intact one) or a config (its newest run). Only weights are read. A resumed fit does not need
            it.
        training: see LockstepModule.
    """

    extra = "language"
    terms_per_sample = 32  # tokens of an answer
    equal_evaluation_passes = True

    language_model: LanguageModel
    evaluation: Evaluator[Any]
    """Set in `build`, as the language model."""
    modality: Blinding
    """Removes the content of samples, for the blind baseline."""

    optional_weights: tuple[str, ...] = ()
    """Name prefixes of weights that the checkpoint of an earlier stage may lack."""

    def __init__(
        self,
        language_model: LanguageModelSettings,
        learning_rates: dict[str, float] | None = None,
        init_from: str | None = None,
        **training: Unpack[TrainingOptions],
    ) -> None:
        super().__init__(**training)
        check_numbers("model.init_args.learning_rates.", learning_rates or {}, at_least=0)
        language_model.check()
        self.language_model_settings = language_model
        self.learning_rates = learning_rates or {}
        self.init_from = init_from
        self.base_was_trained = False  # known once a checkpoint is read, see on_load_checkpoint

    @override
    def memory_saving_options(self) -> list[tuple[str, str]]:
        if self.language_model_settings.activation_checkpointing:
            return []
        return [("--model.init_args.language_model.activation_checkpointing true", "a third more time")]

    # -- building ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def build(self) -> None:
        """Build the networks and the evaluation."""

    @override
    def configure_model(self) -> None:
        if hasattr(self, "language_model"):  # Lightning calls this hook for each of fit, validate and test
            return
        if self.trainer.state.fn == "fit":
            device, trained = self.trainer.strategy.root_device, self.model_precision.trained
            require_gpu_kernels(self.language_model_settings, device, self.sharded, trained)
        self.build()
        if self.init_from is not None and self.trainer.state.fn == "fit" and self.trainer.ckpt_path is None:
            self._load_stage(Path(self.init_from))

    def _load_stage(self, path: Path) -> None:
        checkpoint = read_stage(path)
        self.frozen_weights.record(self)  # weights that an earlier stage trained must be saved, even if frozen here
        load_stage(self, path, checkpoint, self.origins(checkpoint), self.optional_weights)

    def origins(self, checkpoint: Mapping[str, Any]) -> dict[str, WeightOrigin]:
        """Return the sources of this model's and a checkpoint's parts, by the prefix of their weights' names."""
        saved = checkpoint.get("base") or {}
        lora = ("lora",) if saved.get("lora") and self.base["lora"] else ()
        weights = partial(weights_identity, self.language_model_settings.path)
        return {"language_model": WeightOrigin(saved, self.base, ("architecture", "tokenizer", *lora), weights)}

    @property
    def model_precision(self) -> Precision:
        """Number formats of pretrained weights and of the computations with them."""
        has_bf16 = device_has_bf16(self.trainer.strategy.root_device)
        return precision_of(self.trainer.precision, has_bf16)

    @property
    def sharded(self) -> bool:
        """Whether each rank holds a shard of the weights, so that all must run the same number of forward passes."""
        return has_sharded_weights(self.trainer.strategy)

    @override
    def tensor_parallel_layers(self, size: int) -> "dict[nn.Module, ParallelStyle]":
        from lightning_modules.multimodal.language.tensor_parallel_layers import divided_layers

        return divided_layers(self.language_model, size)

    # -- optimizer ---------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def parts(self) -> Mapping[str, nn.Module]:
        """The networks by their names in `learning_rates`; together they hold all trainable weights."""

    @override
    def optimizer_groups(self) -> list[dict[str, Any]]:
        parts = self.parts
        unknown = self.learning_rates.keys() - parts.keys()
        if unknown:
            raise ValueError(
                f"model.init_args.learning_rates: found {describe_names(sorted(unknown))}, expected some of "
                f"{', '.join(parts)}"
            )
        rates = {part: self.learning_rates.get(part, self.learning_rate) for part in parts}
        return parameter_groups(parts, rates, self.weight_decay, module=self)

    @override
    def hidden_matrices(self) -> set[Tensor]:
        return super().hidden_matrices() - {self.language_model.causal_lm.get_output_embeddings().weight}

    @override
    def on_fit_start(self) -> None:
        super().on_fit_start()
        log.info("%s", parameter_table(self.parts, self._configured))

    # -- training ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def features(self, inputs: Any) -> Any:
        """Return what the language model reads of the samples' other modality."""

    @abstractmethod
    def states(self, rows: TokenRows, features: Any) -> Tensor:
        """Return the language model's hidden states [R, L, C] of chats and their features."""

    @abstractmethod
    def generate(self, prompts: Prompts, features: Any, max_new_tokens: int) -> list[str]:
        """Return the most likely answer to each prompt, at most `max_new_tokens` long."""

    @override
    def training_loss(self, batch: Any) -> LossSum:
        """Return the loss of a micro-batch, a sequence of ChatTrainBatch, each of chats of similar length."""
        losses = [self.part_loss(part) for part in batch]
        total, count = (torch.stack(values).sum() for values in zip(*losses, strict=True))
        return LossSum(total, count)

    def part_loss(self, part: ChatTrainBatch) -> tuple[Tensor, Tensor]:
        """Return the sum of the loss terms of a part of a micro-batch, and their number."""
        states = self.states(part.rows, self.features(part.encoder_input))
        return self.language_model.loss(states, part.rows.labels)

    # -- evaluation --------------------------------------------------------------------------------------------------

    @override
    def on_validation_epoch_start(self) -> None:
        self.evaluation.begin()

    @override
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.evaluation.update(self, batch)

    @override
    def on_validation_epoch_end(self) -> None:
        self._log_metrics("val")

    @override
    def sample_previews(self) -> list[Callable[[], SamplePreview]]:
        return self.evaluation.previews(self)

    on_test_epoch_start = on_validation_epoch_start

    @override
    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.check_context(batch)
        self.evaluation.update(self, batch)

    @override
    def on_test_epoch_end(self) -> None:
        self._log_metrics("test")
        if not as_run_trainer(self.trainer).fast_dev_run:  # a trial keeps the reports of the test before it
            self.evaluation.report(self)

    def _log_metrics(self, stage: str) -> None:
        for name, value in self.evaluation.compute(self).items():
            metric = torch.tensor(value, dtype=torch.float32, device=self.device)
            main = stage == "val" and name == self.evaluation.main_metric
            self.log(f"{stage}/{name}", metric, prog_bar=main, batch_size=1)

    @override
    def predict_step(self, batch: Any, batch_idx: int) -> list[PredictionLine]:
        self.check_context(batch)
        return self.evaluation.predict(self, batch)

    def check_context(self, batch: Any) -> None:
        """Raise ValueError, which names the sample, if a chat of a batch is longer than the model's context."""
        check_context(batch, context_length(self.language_model.causal_lm.config), self.data.sample_name)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def tokenizer_identity(self) -> str:
        """Identity of the tokenizer, or of the processor that has it."""

    @cached_property
    def base(self) -> dict[str, Any]:
        """Identity of the language model, as stored in checkpoints."""
        return base_identity(self.language_model_settings, self.tokenizer_identity)

    @override
    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["base"] = self.base

    @override
    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        check_base(checkpoint.get("base"), self.base)
        if self.trainer.state.fn is None:  # an export
            self.base_was_trained = base_was_trained(self, checkpoint)
        super().on_load_checkpoint(checkpoint)
