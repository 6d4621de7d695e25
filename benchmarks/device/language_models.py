"""Measures training steps of a language model of the size of Qwen2-0.5B, random weights: tokens per second and MFU.

The model trains fully, with adapters, or is frozen behind a trained layer, whose gradient passes through it. Each row
is a chat of full length, all of it supervised.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.device.measures.reference import Format, Outcome, Variant, compared
from benchmarks.device.part import NEEDS_CUDA, Check, ResultTable, Setting
from benchmarks.device.rates import HEADINGS, WHOLE_ROWS, rate_rows
from benchmarks.device.training_step import TrainingStep
from datamodules.multimodal.batch import Counts, TokenRows
from lightning_modules.multimodal.flops import language_model_flops, product_flops
from lightning_modules.multimodal.language.adapters import freeze_and_add_adapters
from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.language.precision import precision_of
from lightning_modules.multimodal.language.settings import AttentionKind, LanguageModelSettings, Trainable


class Sizes(NamedTuple):
    """Sizes of the model and of a step's rows, and of the shorter rows that are compared with float64."""

    config: dict[str, Any]
    vocabulary: int
    rows: tuple[int, int]
    checked: tuple[int, int]


_QWEN2 = {"model_type": "qwen2", "tie_word_embeddings": True, "initializer_range": 0.02}
REALISTIC = Sizes(
    {
        **_QWEN2,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
    151_936,
    (4, 2048),
    (2, 256),
)
TINY = Sizes(
    {
        **_QWEN2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
    },
    97,
    (2, 24),
    (2, 12),
)

KINDS: dict[Trainable, str] = {"full": "all of it trains", "lora": "with adapters (LoRA)", "none": "frozen"}


def measure(setting: Setting) -> Iterator[list[Check] | ResultTable]:
    """Measure a table per kind; fp32 and TF32 for the fully trained model."""
    sizes, device = TINY if setting.tiny else REALISTIC, setting.device
    measured, checked = (_tokens(shape, sizes.vocabulary, device) for shape in (sizes.rows, sizes.checked))
    rows, length = sizes.rows
    for trainable, title in KINDS.items():
        networks = [_Reader(sizes, trainable, "bf16-mixed", device)]
        steps = [_Step(networks[0], measured, checked, device)]
        variants = [steps[0].variant("bf16", "bf16")]
        if setting.compiled:
            networks.append(_Reader(sizes, trainable, "bf16-mixed", device, compiled=True))
            # The same weights, so that both are compared with one reference.
            networks[1].load_state_dict(networks[0].state_dict())
            variants.append(_Step(networks[1], measured, checked, device).variant("bf16 compiled", "bf16"))
        if trainable == "full":
            formats: tuple[Format, ...] = ("tf32", "fp32") if setting.cuda else ("fp32",)
            variants += [steps[0].variant(format, format) for format in formats]
        checks, failures = compared(variants, _reference(networks[0], sizes, trainable, checked, device))
        yield [check._replace(name=f"{trainable} {check.name}") for check in checks]
        absent = {"tf32": NEEDS_CUDA} if trainable == "full" and not setting.cuda else {}
        name = "tiny language model" if setting.tiny else "language model of the sizes of Qwen2-0.5B"
        yield ResultTable(
            f"training step of a {name}, {title}, {rows} rows of {length} tokens",
            ("ms per step", "tokens/s", *HEADINGS),
            rate_rows(
                [variant for variant in variants if variant.name not in failures],
                rows * length,
                networks[0].flops(measured),
                setting,
                absent,
            ),
            failures,
            WHOLE_ROWS,
        )
        # The model is freed before the next kind is built: two with optimizer states may not fit the device.
        del networks, steps, variants, checks
        if setting.cuda:
            torch.cuda.empty_cache()


class _Reader(nn.Module):
    """Mean loss of rows. A frozen model gets its embeddings through a trained layer."""

    def __init__(
        self,
        sizes: Sizes,
        trainable: Trainable,
        precision: str,
        device: str,
        compiled: bool = False,
        attention: AttentionKind = "sdpa",
    ) -> None:
        super().__init__()
        torch.manual_seed(1)
        # Settings refuse a frozen model with random weights, because it learns nothing. Here it does not need to.
        settings = LanguageModelSettings(
            config=sizes.config,
            trainable="full" if trainable == "none" else trainable,
            compile=compiled,
            attention=attention,
        )
        with torch.device(device):
            self.model = model = LanguageModel(settings, sizes.vocabulary, precision_of(precision, has_bf16=True))
            self.before = nn.Linear(model.hidden_size, model.hidden_size) if trainable == "none" else None
        if self.before is not None:
            model.settings = replace(settings, trainable="none")
            model.network = freeze_and_add_adapters(model.causal_lm, model.settings, model.precision)
            self.before.to(model.precision.trained)
        for name, weight in model.named_parameters():
            if "lora_B" in name:  # it is initialized with zeros, which would make the gradient of the other factor zero
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the loss of tokens [R, L]; each row is a completely supervised chat."""
        embeddings = self.model.embed(tokens)
        if self.before is not None:
            embeddings = self.before(embeddings.detach().to(self.before.weight.dtype))
        positions = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape)
        total, count = self.model.loss(self.model.hidden_states(embeddings, positions), tokens)
        return total / count

    def flops(self, tokens: Tensor) -> int:
        """Return the FLOPs of forward and backward, by flops.py."""
        counted = language_model_flops(self.model.causal_lm, behind_trained=self.before is not None)
        if counted is None:
            raise ValueError("a language model with weights outside of layers, whose operations cannot be counted")
        rows, length = tokens.shape
        # Only shape and counts are read; a row's last token predicts none.
        whole = TokenRows(tokens, tokens, tokens, tokens, tokens, Counts(supervised=rows * (length - 1)))
        before = 0 if self.before is None else tokens.numel() * product_flops(self.before, back=False)
        return before + counted.total(whole, attention_within_chats=False)


class _Step:
    """Training steps of a network in several formats, which share weights and optimizer state."""

    def __init__(self, network: _Reader, measured: Tensor, checked: Tensor, device: str) -> None:
        self.network, self.measured, self.checked, self.tokens = network, measured, checked, measured
        self.step = TrainingStep(network, lambda: network(self.tokens), "bf16", device)

    def variant(self, name: str, format: Format) -> Variant:
        def work() -> None:
            self._set(format, self.measured)
            self.step()

        def outcome() -> Outcome:
            self._set(format, self.checked)
            return self.step.outcome()

        return Variant(name, format, work, outcome)

    def _set(self, format: Format, tokens: Tensor) -> None:
        self.step.format, self.tokens = format, tokens
        self.network.model.precision = precision_of("bf16-mixed" if format == "bf16" else "32-true", has_bf16=True)


def _tokens(shape: tuple[int, int], vocabulary: int, device: str) -> Tensor:
    return torch.randint(0, vocabulary, shape, generator=torch.Generator().manual_seed(1)).to(device)


def _reference(network: _Reader, sizes: Sizes, trainable: Trainable, tokens: Tensor, device: str) -> Outcome:
    """Return the same weights, rounded the same, with plain attention; norms and softmax stay in float32."""
    exact = _Reader(sizes, trainable, "64-true", device, attention="eager")
    exact.load_state_dict(network.state_dict())
    return TrainingStep(exact, lambda: exact(tokens), "fp32", device).outcome()
