"""Averages a network's weights exponentially over the steps."""

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim.swa_utils import get_ema_multi_avg_fn


class MovingAverage(nn.Module):
    """Average of a network's state: its weights and the statistics of its norms.

    Its tensors are buffers, so checkpoints contain them and the optimizer does not. All ranks have the same weights and
    compute the same average without communication.

    Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992.

    Args:
        network: network whose state is the initial average.
        decay: weight of the previous average in a step. It is smaller in the first steps, so that the average soon
            forgets the initial weights.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        super().__init__()
        self.decay = decay
        # The whole state: norms with statistics of other weights than the averaged ones would shift the activations.
        self._names = list(network.state_dict())
        for name, value in network.state_dict().items():
            self.register_buffer(_buffer_name(name), value.clone())

    @property
    def state(self) -> dict[str, Tensor]:
        """Averages by the names of the network's state."""
        return {name: self.get_buffer(_buffer_name(name)) for name in self._names}

    @torch.no_grad()
    def update(self, network: nn.Module, step: int) -> None:
        """Update the average after optimizer step number `step`, counted from 0. Step 0 copies the weights."""
        decay = min(self.decay, step / (9 + step))  # 0, 1/10, 2/11, ...: averages about the last tenth of the steps
        values = network.state_dict()
        floating = [name for name in self._names if values[name].is_floating_point()]
        state = self.state
        get_ema_multi_avg_fn(decay)([state[name] for name in floating], [values[name] for name in floating], step)
        # Counters such as num_batches_tracked have no average.
        for name in set(self._names).difference(floating):
            state[name].copy_(values[name])

    def apply_to(self, network: nn.Module, *inputs: Tensor) -> Tensor:
        """Return the outputs of the network with the averaged state."""
        return functional_call(network, self.state, inputs)


def _buffer_name(name: str) -> str:
    """Return a name without dots, which buffers may not have."""
    return name.replace(".", "/")
