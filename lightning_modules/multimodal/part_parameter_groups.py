"""Groups a model's parameters by part (encoder, projector, ...) for the optimizer, and tabulates them."""

import io
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from engine.distributed.logical_shape import logical_ndim, logical_numel


def parameter_groups(
    parts: Mapping[str, nn.Module],
    rates: Mapping[str, float],
    weight_decay: float,
    module: nn.Module | None = None,
) -> list[dict[str, Any]]:
    """Return the optimizer groups `PART/matrices`, with weight decay, and `PART/vectors` (norms, biases), without.

    Args:
        parts: parts of a model by name. A weight that two parts share belongs to the first.
        rates: peak learning rate of each part.
        weight_decay: weight decay of matrices.
        module: whole model, to check that the parts contain all its trainable weights.

    Raises:
        ValueError: a trainable part has no rate, or a trainable weight of the module belongs to no part.
    """
    groups: list[dict[str, Any]] = []
    grouped: set[nn.Parameter] = set()
    for name, parameters in _own_parameters(parts):
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        grouped.update(trained)
        if trained and name not in rates:
            raise ValueError(f"{name} is trainable, but has no learning rate")
        # Decay would pull the gains of norms to 0, where 1 is neutral, and biases do not overfit.
        for kind, decay in (("matrices", weight_decay), ("vectors", 0.0)):
            group_parameters = [
                parameter for parameter in trained if (logical_ndim(parameter) >= 2) == (kind == "matrices")
            ]
            if group_parameters:
                group = {"params": group_parameters, "lr": rates[name], "weight_decay": decay, "name": f"{name}/{kind}"}
                groups.append(group)
    named_parameters = [] if module is None else module.named_parameters()
    # A weight in no group would never be updated, without an error.
    stray = [name for name, parameter in named_parameters if parameter.requires_grad and parameter not in grouped]
    if stray:
        raise ValueError(f"trainable weights belong to none of the parts {', '.join(parts)}: {stray[:3]}")
    return groups


def parameter_table(parts: Mapping[str, nn.Module], groups: list[dict[str, Any]]) -> str:
    """Return a plain-text table of the parts: parameters, trainable parameters, dtypes and peak learning rate.

    Args:
        parts: parts of a model by name.
        groups: optimizer groups of the parts.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table("part")
    for column in ("parameters", "trainable", "dtype", "rate"):
        table.add_column(column, justify="left" if column == "dtype" else "right")
    # A scheduler keeps the peak in `initial_lr`, and `lr` may be that of the first step of a warm-up.
    rates = {group["name"].split("/")[0]: group.get("initial_lr", group["lr"]) for group in groups}
    totals = [0, 0]
    for name, parameters in _own_parameters(parts):
        counts = [
            sum(logical_numel(p) for p in parameters),
            sum(logical_numel(p) for p in parameters if p.requires_grad),
        ]
        formats = sorted({str(p.dtype).removeprefix("torch.") for p in parameters})
        rate = f"{rates[name]:g}" if name in rates else "-"
        table.add_row(name, *(f"{count:,}" for count in counts), ", ".join(formats) or "-", rate)
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
    table.add_section()
    table.add_row("all", *(f"{total:,}" for total in totals))
    text = io.StringIO()
    Console(file=text, width=100).print(table)
    return text.getvalue().rstrip()


def _own_parameters(parts: Mapping[str, nn.Module]) -> Iterator[tuple[str, list[nn.Parameter]]]:
    """Yield each part with the parameters that no earlier part contains."""
    # By identity: tied weights, as an output layer's and the embeddings', count once and train once.
    seen: set[nn.Parameter] = set()
    for name, part in parts.items():
        part_parameters = [parameter for parameter in part.parameters() if parameter not in seen]
        seen.update(part_parameters)
        yield name, part_parameters
