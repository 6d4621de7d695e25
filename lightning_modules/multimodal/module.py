"""What the multimodal families share: features of another modality, read by a language model.

    batch -> encoder -> projector -> features in their placeholders -> language model -> loss on what it has to say
"""

import logging
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from torch import Tensor, nn
from torch.optim import Optimizer

from datamodules.multimodal.batch import Examples, Prompts, Questions, Rows
from engine.checkpoint_file import head
from engine.exact_mean import LossSum
from engine.frozen_weights import frozen_fingerprints
from engine.gather import gathered_objects
from engine.module import LockstepModule
from lightning_modules.multimodal.base_identity import base_identity, check_base, folder_of, weights_identity
from lightning_modules.multimodal.earlier_stage import Origin, take_over
from lightning_modules.multimodal.export import export
from lightning_modules.multimodal.flops import LanguageModelFlops, language_model_flops, trains
from lightning_modules.multimodal.language_model import LanguageModel, LanguageModelSettings
from lightning_modules.multimodal.left_out import LeftOutOfEvaluation, LeftOutSamples, require_few
from lightning_modules.multimodal.own_tokens import require_own_tokens
from lightning_modules.multimodal.parameter_groups import parameter_groups, parameter_table
from lightning_modules.multimodal.precision import Precision, device_has_bf16, precision_of
from lightning_modules.multimodal.projector import Projector, ProjectorSettings
from lightning_modules.multimodal.splice import splice
from lightning_modules.multimodal.tally import Tally

MODEL, BLIND = "", "blind"

log = logging.getLogger("lockstep")


class Features(NamedTuple):
    """What stands in the placeholders."""

    vectors: Tensor  # [F, C]
    counts: Tensor  # [S] int64, how many of them each sample has


class Answer(NamedTuple):
    """What the model says to a sample, and what it says without the modality."""

    sample: int
    text: str
    blind: str


class MultimodalModule(LockstepModule):
    """Learns to answer. A family says what its features are made of, and what it looks like when there is nothing.

    Every evaluation is done twice, with the modality and `blind`, without it: what a model says without having looked
    is often right, and its perplexity good.

    Args:
        language_model: the language model that reads the features.
        projector: from the encoder's features to the language model's.
        learning_rates: peak rates of the parts encoder, projector and language_model that have another one than `learning_rate`.
        max_new_tokens: where an answer that is written in an evaluation ends at the latest.
        init_from: what a fit begins with the weights of, and nothing but the weights: a checkpoint, a run (its name or folder: its best checkpoint, else its last), or a config (its newest run). Not needed any more when the fit is resumed.
        training: see LockstepModule.
    """  # noqa: E501

    terms_per_sample = 32  # tokens of an answer

    may_be_new: tuple[str, ...] = ()
    """Beginnings of the names of weights that an earlier stage need not have had."""

    shown_answers = 0
    """See `show`."""

    features_name = "feature_tokens"
    """What Throughput calls the tokens in which features stand."""

    encoder: nn.Module
    projector: Projector
    language_model: LanguageModel

    def __init__(
        self,
        language_model: LanguageModelSettings,
        projector: ProjectorSettings | None = None,
        learning_rates: dict[str, float] | None = None,
        max_new_tokens: int = 64,
        init_from: str | None = None,
        **training: Any,
    ) -> None:
        super().__init__(**training)
        if max_new_tokens < 1:
            raise ValueError(f"model.init_args.max_new_tokens must be at least 1, got {max_new_tokens}")
        self.language_model_settings = language_model
        self.projector_settings = projector or ProjectorSettings()
        self.learning_rates = learning_rates or {}
        self.max_new_tokens = max_new_tokens
        self.init_from = init_from
        self._base_has_changed = False
        self.left_out, self.left_out_of_evaluation = LeftOutSamples(self.votes), LeftOutOfEvaluation()
        self.tallies = nn.ModuleDict()
        self.answers: list[Answer] = []

    # -- what a family says ------------------------------------------------------------------------------------------

    @abstractmethod
    def build_encoder(self) -> nn.Module:
        """The network that makes features; it has an `output_size`."""

    @abstractmethod
    def feature_counts(self, modality: Any) -> Tensor:
        """[S] int64: how many features the projector makes of each sample."""

    @abstractmethod
    def blinded(self, modality: Any) -> Any:
        """The same samples with nothing in them, with as many features."""

    def feature_flops(self, examples: Examples) -> int | None:
        """What encoder and projector take of a part, forward and backward, see flops.py; None: nobody has counted."""
        return None

    def encoder_description(self) -> dict[str, Any]:
        """Its settings, for an export: numbers, strings and lists alone."""
        return {}

    def baseline_answers(self, sample: int) -> dict[str, str]:
        """{name: what somebody else answers}, to be graded beside the model."""
        return {}

    def show(self, answers: list[Answer]) -> None:
        """Called on the first process after a validation, with the answers to its first `shown_answers` samples."""

    def report(self, answers: list[Answer]) -> None:
        """Called on the first process after a test, with the answers of all processes in the order of the samples."""

    # -- building ----------------------------------------------------------------------------------------------------

    def configure_model(self) -> None:
        if hasattr(self, "encoder"):
            return
        self.build()
        if self.init_from is not None and self.trainer.state.fn == "fit" and self.trainer.ckpt_path is None:
            self._take_over(Path(self.init_from))

    def build(self) -> None:
        """Makes the networks. A family that has others overrides this and calls it."""
        tokenizer = self.data.tokenizer
        self.encoder = self.build_encoder()
        self.language_model = LanguageModel(self.language_model_settings, tokenizer.vocabulary_size, self.formats)
        path = self.language_model_settings.path
        if path is not None:
            require_own_tokens(path, folder_of(path), self.data.tokenizer_source, tokenizer.tokenizer.get_vocab())
        sizes = self.encoder.output_size, self.language_model.hidden_size
        self.projector = Projector(self.projector_settings, *sizes)
        outcomes = ["loss", *(f"{kind}/loss" for kind in self.data.kinds), *self.data.outcomes]
        systems = [MODEL, BLIND, *self.data.baselines]
        # Apple's GPUs have no double precision.
        precise = torch.float32 if self.trainer.strategy.root_device.type == "mps" else torch.float64
        self.tallies = nn.ModuleDict({_key(system): Tally(outcomes, precise) for system in systems})

    def _take_over(self, path: Path) -> None:
        if path.is_dir():
            raise ValueError(
                f"model.init_args.init_from: {path} is a sharded checkpoint; only a file can be begun with: train the "
                "earlier stage with trainer.strategy.init_args.state_dict_type full"
            )
        earlier = head(path)
        if self._leaves_out_frozen():  # what is frozen and was trained earlier must be saved
            self._frozen_as_built = frozen_fingerprints(self)
        try:
            weights = take_over(self, earlier, self.origins(earlier), self.may_be_new)
        except ValueError as error:
            raise ValueError(f"model.init_args.init_from: {path} does not fit this model: {error}") from error
        log.info("begun with %d weights of %s (step %s)", len(weights.taken), path, earlier.get("global_step"))
        if weights.new:
            log.info("not in it, new here: %s", ", ".join(weights.new))

    def origins(self, earlier: Mapping[str, Any]) -> dict[str, Origin]:
        """What this model and that of a checkpoint are built from, by the beginnings of their weights' names."""
        saved, settings = earlier.get("base") or {}, self.language_model_settings
        alike = ["architecture", "tokenizer"]
        if saved.get("lora") and self.base["lora"]:
            alike.append("lora")
        weights = partial(weights_identity, settings.path)
        return {"language_model": Origin(saved, self.base, tuple(alike), weights)}

    @property
    def formats(self) -> Precision:
        """Of pretrained weights, and what is computed with them."""
        return precision_of(self.trainer.precision, device_has_bf16(self.trainer.strategy.root_device))

    @property
    def parts(self) -> dict[str, nn.Module]:
        return {"encoder": self.encoder, "projector": self.projector, "language_model": self.language_model}

    def optimizer_groups(self) -> list[dict[str, Any]]:
        rates = {part: self.learning_rates.get(part, self.learning_rate) for part in self.parts}
        unknown = self.learning_rates.keys() - self.parts.keys()
        if unknown:
            raise ValueError(f"model.learning_rates names {sorted(unknown)}; the parts are {list(self.parts)}")
        return parameter_groups(self.parts, rates, self.weight_decay, module=self)

    def on_fit_start(self) -> None:
        super().on_fit_start()
        log.info("%s", parameter_table(self.parts, self._configured))

    # -- training ----------------------------------------------------------------------------------------------------

    def setup(self, stage: str) -> None:
        super().setup(stage)
        if stage == "fit":
            self.left_out.open()

    def on_train_batch_start(self, batch: Sequence[Examples], batch_idx: int) -> None:
        super().on_train_batch_start(batch, batch_idx)
        self.left_out.cast(one for part in batch for one in part.left_out)

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        super().on_before_optimizer_step(optimizer)
        if self.is_log_step:  # in others the counts are not waited for
            for reason, total in self._require_few_left_out().items():
                if self._may_leave_out[reason]:
                    self.log(f"train/{reason}_samples", float(total), on_step=True, on_epoch=False, batch_size=1)

    def on_train_epoch_end(self) -> None:
        self._require_few_left_out()

    def _require_few_left_out(self) -> dict[str, int]:
        totals = self.left_out.totals
        require_few(totals["unusable"], self.data.max_unusable, "the training")
        return totals

    @property
    def _may_leave_out(self) -> dict[str, bool]:
        return {"unusable": self.data.max_unusable > 0, "too_long": self.data.too_long == "drop"}

    def training_loss(self, batch: Sequence[Examples]) -> LossSum:
        """Of a micro-batch in parts."""
        scores = [self._score(part.rows, self.features(part.modality)) for part in batch]
        total, count = (torch.stack(figures).sum() for figures in zip(*scores, strict=True))
        return LossSum(total, count)

    def amounts(self, batch: Sequence[Examples]) -> dict[str, float]:
        counts, flops = [part.rows.counts for part in batch], [self._flops(part) for part in batch]
        return {
            "tokens": sum(count.real for count in counts),
            "positions": sum(part.rows.tokens.numel() for part in batch),
            "supervised_tokens": sum(count.supervised for count in counts),
            self.features_name: sum(count.features for count in counts),
            **({} if None in flops else {"flops": sum(flops)}),
        }

    @cached_property
    def _language_model_flops(self) -> LanguageModelFlops | None:
        before = (part for name, part in self.parts.items() if name != "language_model")
        return language_model_flops(self.language_model.causal, behind_trained=any(map(trains, before)))

    def _flops(self, examples: Examples) -> int | None:
        features = self.feature_flops(examples)
        if features is None or self._language_model_flops is None:
            return None
        apart = self.language_model_settings.attention == "flash_attention_2"
        return features + self._language_model_flops.of(examples.rows, apart)

    def features(self, modality: Any) -> Features:
        return Features(self.projector(self.encoder(modality)), self.feature_counts(modality))

    def _score(self, rows: Rows, features: Features) -> tuple[Tensor, Tensor]:
        """Sum and number of the loss terms of the supervised tokens."""
        return self.language_model.loss(self._states(rows, features), rows.labels)

    def _states(self, rows: Rows, features: Features) -> Tensor:
        return self.language_model.hidden_states(self._embed(rows, features), rows.positions)

    def _embed(self, chats: Rows | Prompts, features: Features) -> Tensor:
        embeddings = self.language_model.embed(chats.tokens)
        return splice(embeddings, chats, *features, self.data.tokenizer.placeholder)

    # -- evaluation --------------------------------------------------------------------------------------------------

    def on_validation_epoch_start(self) -> None:
        self._begin_evaluation()

    def validation_step(self, batch: Questions, batch_idx: int) -> None:
        self._evaluate(batch)

    def on_validation_epoch_end(self) -> None:
        self._end_evaluation("val")
        if self.shown_answers and not self.trainer.sanity_checking:
            answers = _gathered([answer for answer in self.answers if answer.sample < self.shown_answers])
            if self.trainer.is_global_zero:
                self.show(answers)

    def on_test_epoch_start(self) -> None:
        self._begin_evaluation()

    def test_step(self, batch: Questions, batch_idx: int) -> None:
        self._evaluate(batch)

    def on_test_epoch_end(self) -> None:
        self._end_evaluation("test")
        answers = _gathered(self.answers)
        if self.trainer.is_global_zero:
            self.report(answers)

    def _begin_evaluation(self) -> None:
        self.answers = []
        self.left_out_of_evaluation.begin()
        for tally in self.tallies.values():
            tally.reset()
            tally.update({})  # a process may have no sample to count

    def _evaluate(self, batch: Questions) -> None:
        self.left_out_of_evaluation.take(batch.left_out)
        texts = {}
        kinds: dict[str, list[int]] = {}
        for row, sample in enumerate(batch.rows.samples.tolist()):
            kinds.setdefault(self.data.kind(sample), []).append(row)
        for system, modality in ((MODEL, batch.modality), (BLIND, self.blinded(batch.modality))):
            features = self.features(modality)
            states = self._states(batch.rows, features)
            for kind, rows in kinds.items():
                loss, count = self.language_model.loss(states[rows], batch.rows.labels[rows])
                figures = float(loss), float(count)
                self._count(system, {"loss": figures, **({f"{kind}/loss": figures} if kind else {})})
            texts[system] = self._write(batch.prompts, features)
        for sample, text, blind in zip(batch.prompts.samples.tolist(), texts[MODEL], texts[BLIND], strict=True):
            if sample >= 0:
                said = {MODEL: text, BLIND: blind, **self.baseline_answers(sample)}
                for system, answer in said.items():
                    self._count(system, self.data.grade(sample, answer))
                self.answers.append(Answer(sample, text, blind))

    def _count(self, system: str, outcomes: dict[str, tuple[float, float]]) -> None:
        self.tallies[_key(system)].update(outcomes)

    def _write(self, prompts: Prompts, features: Features) -> list[str]:
        tokenizer = self.data.tokenizer
        # Where processes hold parts of the weights, none may stop before the others.
        together = isinstance(self.trainer.strategy, (FSDPStrategy, ModelParallelStrategy))
        answers = self.language_model.generate(
            self._embed(prompts, features), prompts.mask, self.max_new_tokens, [tokenizer.end_of_turn], together
        )
        return [tokenizer.decode(answer) for answer in answers]

    def _end_evaluation(self, stage: str) -> None:
        if self.data.max_unusable:
            unusable = self.left_out_of_evaluation.totals(self.device)["unusable"]
            self.log(f"{stage}/unusable_samples", float(unusable), batch_size=1)
            require_few(unusable, self.data.max_unusable, "the evaluation")
        for system in (MODEL, BLIND, *self.data.baselines):
            figures = self.tallies[_key(system)].compute()
            losses = {name: value for name, value in figures.items() if name.split("/")[-1] == "loss"}
            for name, value in losses.items():
                figures[name.removesuffix("loss") + "perplexity"] = math.exp(min(value, 700.0))
            prefix = f"{stage}/" if system == MODEL else f"{stage}/baseline/{system}/"
            for name, value in figures.items():
                shown = stage == "val" and system == MODEL and name == self.data.outcomes[0]
                value = torch.tensor(value, dtype=torch.float32, device=self.device)
                self.log(prefix + name, value, prog_bar=shown, batch_size=1)

    # -- prediction --------------------------------------------------------------------------------------------------

    def on_predict_epoch_start(self) -> None:
        self.left_out_of_evaluation.begin()

    def on_predict_epoch_end(self) -> None:
        if self.data.max_unusable:
            unusable = self.left_out_of_evaluation.totals(self.device)["unusable"]
            require_few(unusable, self.data.max_unusable, "the questions")

    def predict_step(self, batch: Questions, batch_idx: int) -> list[tuple[int, dict[str, Any]]]:
        self.left_out_of_evaluation.take(batch.left_out)
        texts = self._write(batch.prompts, self.features(batch.modality))
        answers = zip(batch.prompts.samples.tolist(), texts, strict=True)
        said = [(row, {**self.data.describe(row), "answer": text}) for row, text in answers if row >= 0]
        # Nobody must wonder which line an answer is to.
        unanswered = ((row, {**self.data.describe(row), "answer": None, "why": why}) for _, why, row in batch.left_out)
        return sorted([*said, *unanswered], key=lambda line: line[0])

    # -- checkpoints and other forms ---------------------------------------------------------------------------------

    @cached_property
    def base(self) -> dict[str, Any]:
        """What identifies the language model that this one is built on."""
        return base_identity(self.language_model_settings, self.data.tokenizer.identity)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["base"] = self.base
        if self._trainer is not None and self.trainer.state.fn == "fit":
            checkpoint["left_out"] = self.left_out.totals

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        check_base(checkpoint.get("base"), self.base)
        if self.trainer.state.fn is None:  # an export
            self._base_has_changed = self._holds_another_base(checkpoint)
        self.left_out.go_on_from(checkpoint.get("left_out", {}))
        super().on_load_checkpoint(checkpoint)

    def _holds_another_base(self, checkpoint: Mapping[str, Any]) -> bool:
        """Whether an earlier stage has trained what is frozen now, so that its files are not what is meant."""
        frozen = (name for name, weight in self.named_parameters() if not weight.requires_grad)
        saved, own = checkpoint.get("state_dict", {}), self.state_dict()
        names = [name for name in frozen if name in saved and name.startswith("language_model.")]
        return any(saved[name].shape == own[name].shape and (saved[name] != own[name]).any() for name in names)

    def export(self, folder: Path, merge: bool) -> None:
        if self._base_has_changed and not merge and self.language_model_settings.trainable in ("none", "lora"):
            raise ValueError(
                f"the language model has been trained in an earlier stage, so what was trained since does not belong "
                f"to {self.base['name']} as its files have it: export the whole model with --merge"
            )
        tokenizer = self.data.tokenizer
        settings = {
            "language_model": {**self.base, "trainable": self.language_model_settings.trainable},
            "placeholder": tokenizer.placeholder,
            "encoder": {"class": type(self.encoder).__name__, **self.encoder_description()},
            "projector": {**asdict(self.projector_settings), "input_size": self.projector.input_size},
        }
        end = tokenizer.end_of_turn
        export(folder, self.language_model, tokenizer.tokenizer, end, self.own_networks, settings, merge)

    @property
    def own_networks(self) -> dict[str, nn.Module]:
        """What makes features, by name, for an export."""
        return {"encoder": self.encoder, "projector": self.projector}


def _gathered(answers: list[Answer]) -> list[Answer]:
    """Of all processes, in the order of the samples."""
    return sorted(answer for process in gathered_objects(answers) for answer in process)


def _key(system: str) -> str:
    return system or "model"
