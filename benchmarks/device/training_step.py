"""Defines a training step that can be timed, compared with float64, and captured in a CUDA graph."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.device.measures.reference import Format, Outcome, Variant, autocast, gradients_of, products_in

_BEFORE_CAPTURE = 3  # steps in which libraries and the optimizer allocate what must exist before the capture


class TrainingStep:
    """Forward, backward and AdamW on a batch.

    Args:
        network: trains the parameters that require a gradient.
        loss: returns the loss of a forward pass.
        has_dropout: disable dropout for the comparison. Otherwise the mode is not switched, which would compile twice.
        capturable: the optimizer counts its steps on the device, as a graph needs.
    """

    def __init__(
        self,
        network: nn.Module,
        loss: Callable[[], Tensor],
        format: Format,
        device: str,
        has_dropout: bool = False,
        capturable: bool = False,
    ) -> None:
        self.network, self.loss, self.format, self.device = network, loss, format, device
        self.has_dropout = has_dropout
        self.trained = [weight for weight in network.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trained, lr=1e-4, betas=(0.9, 0.98), capturable=capturable)
        scaled = format == "fp16"
        # Without a scale, small gradients are 0 in fp16. torch's default of 2^16 may overflow in the first steps.
        self.scaler = torch.amp.GradScaler(device, enabled=scaled, init_scale=2.0**12)

    def __call__(self) -> Tensor:
        """Run a step and return the loss on the device. Gradients are freed, because they count in the peak memory."""
        value = self.differentiate()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return value

    def differentiate(self) -> Tensor:
        """Compute loss and gradients; gradients are scaled in fp16."""
        self.optimizer.zero_grad(set_to_none=True)
        with products_in(self.format):
            with autocast(self.format, self.device):
                value = self.loss()
            self.scaler.scale(value).backward()
        return value.detach()

    def outcome(self) -> Outcome:
        """Return the result without dropout; weights do not change."""
        if self.has_dropout:
            self.network.eval()
        value = self.differentiate()
        self.network.train()
        # Gradients of the scaled loss; 1 in other formats
        scale = self.scaler.get_scale()
        return Outcome(value.clone(), [gradient / scale for gradient in gradients_of(self.trained)])

    def variant(self, name: str) -> Variant:
        """Return the step as a variant of a comparison."""
        return Variant(name, self.format, self, self.outcome)


class CapturedStep:
    """The same step as a CUDA graph: a single launch instead of a launch per kernel; shapes and addresses are fixed.

    Two graphs are captured: the training step and, for the comparison, loss and gradients without dropout.
    """

    def __init__(self, step: TrainingStep) -> None:
        self.step = step
        step.network.eval()
        self._checked, self._value = self._captured(step.differentiate)
        # A graph writes to these addresses at each replay.
        self._gradients = gradients_of(step.trained)
        first = [weight.detach().clone() for weight in step.trained]
        step.network.train()
        self._whole, _ = self._captured(step)
        with torch.no_grad():  # the steps before the capture have changed the weights
            for weight, before in zip(step.trained, first, strict=True):
                weight.copy_(before)

    def __call__(self) -> None:
        """Train one step."""
        self._whole.replay()

    def outcome(self) -> Outcome:
        """Return loss and gradients of the captured step without dropout; weights do not change."""
        self._checked.replay()
        return Outcome(self._value.clone(), [gradient.clone() for gradient in self._gradients])

    def variant(self, name: str) -> Variant:
        """Return the step as a variant of a comparison."""
        return Variant(name, self.step.format, self, self.outcome)

    @staticmethod
    def _captured(work: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        # On another stream, as torch.cuda.graph demands of the steps before a capture.
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(_BEFORE_CAPTURE):
                work()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            value = work()
        return graph, value
