"""An exponential moving average of a network's weights, which is often better than the last of them."""

import torch
from torch import Tensor, nn
from torch.func import functional_call


class MovingAverage(nn.Module):
    """The average of what a network's state (weights, and statistics of its norms) has been.

    Its tensors are buffers: a checkpoint has them, an optimizer does not see them. All processes of a run have the same
    weights, so each averages by itself and comes to the same.

    Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992.

    Args:
        network: whose state the average starts with.
        decay: what is left of the average's earlier value after a step. In the first steps less: the average would
            long keep the weights that nothing was learned by.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        super().__init__()
        self.decay = decay
        self._names = list(network.state_dict())
        for name, value in network.state_dict().items():
            self.register_buffer(_own(name), value.clone())

    @property
    def state(self) -> dict[str, Tensor]:
        """{name in the network: its average}"""
        return {name: self.get_buffer(_own(name)) for name in self._names}

    @torch.no_grad()
    def update(self, network: nn.Module, step: int) -> None:
        """After an optimizer step. `step`: how many there were before it; the first makes the average the weights."""
        decay = min(self.decay, step / (9 + step))
        values = network.state_dict()
        floating = [name for name in self._names if values[name].is_floating_point()]
        state = self.state
        torch._foreach_lerp_([state[name] for name in floating], [values[name] for name in floating], 1 - decay)
        for name in set(self._names).difference(floating):
            state[name].copy_(values[name])

    def of(self, network: nn.Module, *inputs: Tensor) -> Tensor:
        """What the network would give for `inputs` with the averaged state."""
        return functional_call(network, self.state, inputs)


def _own(name: str) -> str:
    """A buffer's name has no dots."""
    return name.replace(".", "/")
