"""Computes GRU4Rec's recurrent layers, in place of attention.

Hidasi et al., "Session-based Recommendations with Recurrent Neural Networks", ICLR 2016 (arXiv 1511.06939), and Hidasi
and Karatzoglou, "Recurrent Neural Networks with Top-k Gains for Session-based Recommendations", CIKM 2018 (arXiv
1706.03847).
"""

from collections.abc import Mapping

from torch import Tensor, nn

from lightning_modules.recommender.networks.counter_dropout import Dropout
from lightning_modules.recommender.networks.last_position import select_position

NAME = "gru"
"""Value of `attention` for these layers."""

_REQUIRED: Mapping[str, object] = {
    "residual": "plain",
    "feed_forward": "none",
    "norm": "pre",
    "num_heads": 1,
    "activation_checkpointing": False,
    "request_time": False,
}
"""Settings of the encoder that GRU layers have no use for, with the value that changes nothing."""


class GRULayers(nn.Module):
    """Stacked GRU layers, each with dropout after it.

    The layers read no positions and times: the recurrence itself follows the order of the events. Padding is on the
    right, so no state of an event depends on it. As in the authors' code, input and hidden matrices start uniform
    within sqrt(6 / (inputs + outputs)) for each gate, and biases at zero.

    Args:
        hidden_size: width C of items and states.
        num_layers: number of layers.
        dropout: rate of dropout after each layer.
    """

    def __init__(self, hidden_size: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        # Separate nn.GRU layers: the dropout between layers inside nn.GRU would not use the keys of counter_dropout.py.
        self.layers = nn.ModuleList(nn.GRU(hidden_size, hidden_size, batch_first=True) for _ in range(num_layers))
        self.dropout = Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the initial weights."""
        for name, parameter in self.named_parameters():
            if "bias" in name:
                nn.init.zeros_(parameter)
            else:
                # nn.GRU stacks its three gates in one matrix, whose fan-out would be three times too large for Xavier.
                for gate in parameter.chunk(3):
                    nn.init.xavier_uniform_(gate)

    def forward(self, x: Tensor, last: Tensor | None = None) -> Tensor:
        """Map [B, L, C] to [B, L, C], or to [B, 1, C] at the positions `last`, [B]."""
        for number, layer in enumerate(self.layers):
            x = self.dropout(layer(x)[0], number)
        return x if last is None else select_position(x, last)


def check_gru_settings(settings: Mapping[str, object], prefix: str = "") -> None:
    """Check that no setting of the encoder is without effect.

    Args:
        settings: arguments of SequenceEncoder.
        prefix: begins the names of the settings in the message.

    Raises:
        ValueError: a setting is for attention or feed-forward layers, which a GRU does not have.
    """
    for key, value in _REQUIRED.items():
        if settings[key] != value:
            found, expected = (str(setting).lower() for setting in (settings[key], value))
            raise ValueError(
                f"{prefix}{key}: found {found}, and attention {NAME} is GRU4Rec's layers alone, which have no use for "
                f"it: set {key} {expected}"
            )
