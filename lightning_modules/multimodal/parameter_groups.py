"""What trains at which rate: a model's parts (encoder, projector, ...) as optimizer groups and as a table."""

import io
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from engine.whole_shape import dimensions, elements


def parameter_groups(
    parts: Mapping[str, nn.Module],
    rates: Mapping[str, float],
    weight_decay: float,
    module: nn.Module | None = None,
) -> list[dict[str, Any]]:
    """Optimizer groups `PART/matrices`, with weight decay, and `PART/vectors` (norms, biases, scalars), without.

    Args:
        parts: a model's parts by name; a weight that two of them share belongs to the first.
        rates: peak learning rate of each part, as the optimizer is to take it.
        weight_decay: on matrices.
        module: the whole model, to make sure that the parts are all of it.

    Raises:
        ValueError: a part that is to train has no rate, or a weight of the module that is to is in none of the parts.
    """
    groups: list[dict[str, Any]] = []
    grouped: set[nn.Parameter] = set()
    for name, parameters in _owned(parts):
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        grouped.update(trained)
        if trained and name not in rates:
            raise ValueError(f"{name} is to train, but there is no learning rate for it")
        for kind, decay in (("matrices", weight_decay), ("vectors", 0.0)):
            chosen = [parameter for parameter in trained if (dimensions(parameter) >= 2) == (kind == "matrices")]
            if chosen:
                group = {"params": chosen, "lr": rates[name], "weight_decay": decay, "name": f"{name}/{kind}"}
                groups.append(group)
    named = [] if module is None else module.named_parameters()
    stray = [name for name, parameter in named if parameter.requires_grad and parameter not in grouped]
    if stray:
        raise ValueError(f"weights that are to train belong to none of the parts {', '.join(parts)}: {stray[:3]}")
    return groups


def parameter_table(parts: Mapping[str, nn.Module], groups: list[dict[str, Any]]) -> str:
    """Part, parameters, trainable ones, dtypes and learning rate, as plain text.

    The rates are those of the groups, of an optimizer's with a schedule the peak ones.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table("part")
    for column in ("parameters", "trainable", "dtype", "rate"):
        table.add_column(column, justify="left" if column == "dtype" else "right")
    rates = {group["name"].split("/")[0]: group.get("initial_lr", group["lr"]) for group in groups}
    totals = [0, 0]
    for name, parameters in _owned(parts):
        counts = [sum(elements(p) for p in parameters), sum(elements(p) for p in parameters if p.requires_grad)]
        formats = sorted({str(p.dtype).removeprefix("torch.") for p in parameters})
        rate = f"{rates[name]:g}" if name in rates else "-"
        table.add_row(name, *(f"{count:,}" for count in counts), ", ".join(formats) or "-", rate)
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
    table.add_section()
    table.add_row("all", *(f"{total:,}" for total in totals))
    text = io.StringIO()
    Console(file=text, width=100).print(table)
    return text.getvalue().rstrip()


def _owned(parts: Mapping[str, nn.Module]) -> Iterator[tuple[str, list[nn.Parameter]]]:
    """Each part with the parameters that no part before it has."""
    seen: set[nn.Parameter] = set()
    for name, part in parts.items():
        own = [parameter for parameter in part.parameters() if parameter not in seen]
        seen.update(own)
        yield name, own
