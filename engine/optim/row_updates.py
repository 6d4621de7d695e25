"""Updates the touched rows of a table: row-wise Adagrad and lazy AdamW.

Both leave the rows that a step does not touch (and their state) as they are, so a step costs as much as its touched
rows, whatever the size of the table. With g_i the gradient of row i, C its width, r the learning rate and w the weight
decay, which is decoupled (Loshchilov and Hutter, ICLR 2019) and applies to touched rows only:

- `rowwise_adagrad`: FBGEMM's `exact_row_wise_adagrad`, the usual optimizer of TorchRec's embedding tables. The state is
  one number per row, the sum over the steps of the mean squared gradient::

      s_i  <-  s_i + sum_c g_ic^2 / C
      x_i  <-  (1 - r w) x_i - r g_i / (sqrt(s_i) + eps)

- `lazy_adamw`: AdamW whose running means change in the steps that touch a row only, like torch.optim.SparseAdam. The
  bias correction uses the step count t of the whole table. If each step touches each row, this is AdamW. The
  state is two tensors of the size of the table::

      m_i  <-  b1 m_i + (1 - b1) g_i
      v_i  <-  b2 v_i + (1 - b2) g_i^2
      x_i  <-  (1 - r w) x_i - r (m_i / (1 - b1^t)) / (sqrt(v_i / (1 - b2^t)) + eps)
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor

RowUpdateName = Literal["rowwise_adagrad", "lazy_adamw"]

_STATE_DIMENSIONS = {"rowwise_adagrad": {"row_sum": 1}, "lazy_adamw": {"exp_avg": 2, "exp_avg_sq": 2}}
"""Keys of an update's state, and how many of the table's two dimensions each tensor has."""


def state_shapes(update: RowUpdateName, table: Tensor) -> dict[str, list[int]]:
    """Return {key: shape} of the state of a table [V, C], without the step count."""
    return {key: list(table.shape[:dimensions]) for key, dimensions in _STATE_DIMENSIONS[update].items()}


def update_rows(
    update: RowUpdateName,
    rows: Tensor,
    gradient: Tensor,
    state: Mapping[str, Tensor],
    step: int,
    settings: Mapping[str, Any],
) -> None:
    """Update rows and their state in place.

    Args:
        update: see the module's docstring.
        rows: [U, C], the touched rows.
        gradient: [U, C].
        state: the state of these rows: [U] or [U, C] by key.
        step: number of the table's steps, including this step.
        settings: `lr`, `weight_decay`, `eps`, and `betas` for `lazy_adamw`.
    """
    rate, eps = settings["lr"], settings["eps"]
    rows.mul_(1 - rate * settings["weight_decay"])
    if update == "rowwise_adagrad":
        # [U] and [U, C]: one denominator for all columns of a row
        total = state["row_sum"].add_(gradient.square().mean(1))
        rows.addcdiv_(gradient, total.sqrt().add_(eps).unsqueeze(1), value=-rate)
        return
    beta1, beta2 = settings["betas"]
    mean = state["exp_avg"].lerp_(gradient, 1 - beta1)
    square = state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    deviation = square.sqrt().div_(math.sqrt(1 - beta2**step)).add_(eps)
    rows.addcdiv_(mean, deviation, value=-rate / (1 - beta1**step))
