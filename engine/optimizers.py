"""The optimizers by name."""

import logging
from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args

import torch
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy, Strategy
from torch import nn
from torch.optim import Optimizer

from engine.muon import MOMENTUM, Muon
from engine.whole_shape import elements

log = logging.getLogger("lockstep")

OptimizerName = Literal["adamw", "adam", "adamw_8bit", "muon"]

_QUANTISED = "__bnb_optimizer_quant_state__"
"""Where bitsandbytes keeps a parameter's state in a checkpoint."""


def make_optimizer(
    name: OptimizerName,
    groups: list[dict[str, Any]],
    learning_rate: float,
    betas: tuple[float, float],
    embeddings: Collection[nn.Parameter] = (),
    hidden: Collection[nn.Parameter] = (),
) -> Optimizer:
    """
    Args:
        groups: of parameters, with what they have of their own.
        embeddings: parameters whose state `adamw_8bit` keeps in 32 bits: few of their rows have a gradient in a step,
            and large ones (Dettmers et al., "8-bit Optimizers via Block-wise Quantization", 2022, section 2.3).
        hidden: the matrices that `muon` trains in its own way; the rest it trains as `adamw` does.

    Raises:
        ValueError: there is no such optimizer, bitsandbytes is not installed, or there is nothing for `muon`.
    """
    if name == "adamw":
        return torch.optim.AdamW(groups, lr=learning_rate, betas=betas)
    if name == "adam":
        return torch.optim.Adam(groups, lr=learning_rate, betas=betas)
    if name == "adamw_8bit":
        return _eight_bit(groups, learning_rate, betas, embeddings)
    if name == "muon":
        return _muon(groups, learning_rate, betas, hidden)
    raise ValueError(f"model.init_args.optimizer is {name!r}; there are {', '.join(get_args(OptimizerName))}")


def _muon(
    groups: list[dict[str, Any]], learning_rate: float, betas: tuple[float, float], hidden: Collection[nn.Parameter]
) -> Optimizer:
    trained = [parameter for group in groups for parameter in group["params"]]
    turned = [parameter for parameter in trained if parameter in set(hidden)]
    if not turned:
        raise ValueError(
            "model.init_args.optimizer muon: nothing that trains here is a matrix between the network's ends, which is "
            "what it is for; take adamw"
        )
    log.info(
        "muon: %d matrices with %s of %s trained parameters; AdamW has the rest", len(turned),
        f"{sum(map(elements, turned)):,}", f"{sum(map(elements, trained)):,}",
    )  # fmt: skip
    return Muon(groups, turned, learning_rate, betas)


def _eight_bit(
    groups: list[dict[str, Any]], learning_rate: float, betas: tuple[float, float], embeddings: Collection[nn.Parameter]
) -> Optimizer:
    try:
        # The first import says on stderr that a kernel for 4-bit weights, which nobody asks for, is not there.
        logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
        import bitsandbytes
    except ModuleNotFoundError as error:
        if error.name != "bitsandbytes":
            raise
        raise ValueError(
            "model.init_args.optimizer adamw_8bit needs bitsandbytes, which is not installed: pip install -e '.[bits]'"
        ) from error
    precise = set(embeddings)

    class EightBitAdamW(bitsandbytes.optim.AdamW8bit):
        def get_config(self, gindex: int, pindex: int, group: dict[str, Any]) -> dict[str, Any]:
            # Not by bitsandbytes' own register of exceptions, which outlives the model in its process.
            config = super().get_config(gindex, pindex, group)
            return {**config, "optim_bits": 32} if group["params"][pindex] in precise else config

    optimizer = EightBitAdamW(groups, lr=learning_rate, betas=betas)
    smallest = optimizer.args.min_8bit_size
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    coarse = sum(elements(p) for p in trained if p not in precise and elements(p) >= smallest)
    log.info(
        "adamw_8bit: the state of %s of %s trained parameters in 8 bits; embeddings and tensors of fewer than %s "
        "numbers keep 32", f"{coarse:,}", f"{sum(map(elements, trained)):,}", f"{smallest:,}",
    )  # fmt: skip
    return optimizer


def require_whole_tensors(name: OptimizerName, strategy: Strategy) -> None:
    """
    Raises:
        ValueError: `adamw_8bit` or `muon` where processes hold shards of the weights.
    """
    reasons = {
        "adamw_8bit": (
            "its state comes in blocks of 256 numbers, which shards cut elsewhere on another number of GPUs, so that a "
            "checkpoint would not fit"
        ),
        "muon": "it turns a matrix as a whole, of which each GPU would hold a part",
    }
    if name in reasons and isinstance(strategy, (FSDPStrategy, ModelParallelStrategy)):
        raise ValueError(
            f"model.init_args.optimizer {name} with trainer.strategy {type(strategy).__name__}: {reasons[name]}. Take "
            "strategy ddp (configs/overlays/gpu.yaml), or optimizer adamw, whose state FSDP divides "
            "among the GPUs (and --trainer.strategy.init_args.cpu_offload true keeps in the machine's memory)"
        )


def require_own_state(name: OptimizerName, saved: Mapping[str, Any]) -> None:
    """
    Args:
        saved: state of an optimizer, from a checkpoint.

    Raises:
        ValueError: it is another optimizer's, which this one cannot go on with.
    """
    kinds = {_kind_of(state) for state in saved["state"].values()}
    for kind in ("adamw_8bit", "muon", "adamw or adam"):  # muon's has AdamW's beside its own
        if kind in kinds:
            break
    else:
        return  # nothing yet
    if name not in kind.split(" or "):
        raise ValueError(
            f"the checkpoint's optimizer state is that of {kind}, which {name} cannot go on with: give "
            f"--model.init_args.optimizer {kind.partition(' ')[0]}, or train anew under another --run_name"
        )


def _kind_of(state: Mapping[str, Any]) -> str:
    if _QUANTISED in state:
        return "adamw_8bit"
    return "muon" if MOMENTUM in state else "adamw or adam"
