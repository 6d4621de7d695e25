"""Encodes histories: SASRec, TiSASRec, HSTU and GRU4Rec, with LiGR layers and hyper-connections as options."""

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from datamodules.recommender.batch import History
from engine.number_check import check_numbers
from lightning_modules.recommender.networks.architecture import (
    ArchitectureSettings,
    check_architecture,
    feed_forward_layer,
    has_own_dropout,
    initialize_weights,
)
from lightning_modules.recommender.networks.attention.kinds import ATTENTION_KINDS, attention_layer
from lightning_modules.recommender.networks.attention.time_interval import TimeTables
from lightning_modules.recommender.networks.blocks import Context, EncoderBlock, Sublayer
from lightning_modules.recommender.networks.counter_dropout import Dropout
from lightning_modules.recommender.networks.dropout_keys import (
    DropoutKeys,
    keyed_dropout_layers,
    number_layers,
    set_keys,
)
from lightning_modules.recommender.networks.gru import GRULayers
from lightning_modules.recommender.networks.hyper_connections import ManifoldHyperConnection, PlainResidual, diagnose
from lightning_modules.recommender.networks.inputs.event_features import EventFeatureEncoder
from lightning_modules.recommender.networks.inputs.request_time import request_times
from lightning_modules.recommender.networks.time_buckets import time_buckets


class SequenceEncoder(nn.Module):
    """Encodes each position of a history from the events up to it. Scores are products with item vectors.

    SASRec (Kang and McAuley, ICDM 2018) with `attention="standard"`, TiSASRec (Li, Wang and McAuley, WSDM 2020) with
    `"time_interval"`, where positions enter keys and values instead of the input, HSTU (Zhai et al., ICML 2024) with
    `"hstu"` and no feed-forward networks, FuXi-alpha (Ye et al., arXiv 2502.03036) with `"fuxi"` and SwiGLU, and
    GRU4Rec (Hidasi and Karatzoglou, CIKM 2018) with `"gru"`, whose layers replace the blocks and the final norm.
    Residuals are plain, gated as in LiGR (Borisyuk et al., arXiv 2502.03417) or mixed as in mHC (Xie et al., arXiv
    2512.24880).

    Args:
        num_items: number of items V; ids are 1 to V, 0 is padding.
        max_length: longest history. Positions are counted from its end, so trimming a batch changes nothing.
        settings: kinds and sizes of the layers; None: those of SASRec.
    """

    def __init__(self, num_items: int, max_length: int, settings: ArchitectureSettings | None = None) -> None:
        super().__init__()
        settings = settings or ArchitectureSettings()
        check_numbers("", {"num_items": num_items, "max_length": max_length}, at_least=1)
        check_architecture(settings)
        hidden_size, num_heads, dropout = settings.hidden_size, settings.num_heads, settings.dropout
        attention, num_blocks = settings.attention, settings.num_blocks
        hyper = settings.residual in ("mhc", "gated_mhc")
        self.num_items, self.max_length, self.streams = num_items, max_length, settings.streams if hyper else None
        self.activation_checkpointing, self.request_time = settings.activation_checkpointing, settings.request_time
        self._real: Tensor | None = None
        self.items = nn.Embedding(num_items + 1, hidden_size, padding_idx=0)
        kind = ATTENTION_KINDS.get(attention)
        self.positions = nn.Embedding(max_length, hidden_size) if kind is not None and kind.adds_positions else None
        self.time_input = None if kind is None else kind.time_input
        self.time_tables = None
        if self.time_input == "tables":
            sizes = max_length, settings.time_span, hidden_size, num_heads
            self.time_tables = TimeTables(*sizes, dropout, settings.time_buckets)
        self.dropout = Dropout(dropout)
        self.blocks = nn.ModuleList()
        self.recurrent = GRULayers(hidden_size, num_blocks, dropout) if kind is None else None
        for _ in range(num_blocks if self.recurrent is None else 0):
            functions = [attention_layer(attention, hidden_size, num_heads, dropout, max_length)]
            functions += feed_forward_layer(settings.feed_forward, hidden_size, settings.inner_size, dropout)
            sublayers = (
                Sublayer(
                    function,
                    ManifoldHyperConnection(hidden_size, settings.streams, settings.sinkhorn_iterations)
                    if hyper
                    else PlainResidual(),
                    hidden_size,
                    0.0 if has_own_dropout(function) else dropout,
                    settings.norm == "pre",
                    settings.residual in ("gated", "gated_mhc"),
                )
                for function in functions
            )
            self.blocks.append(EncoderBlock(*sublayers))
        self.norm = nn.LayerNorm(hidden_size) if self.recurrent is None else nn.Identity()
        self.output = None if settings.tie_output else nn.Parameter(torch.empty(num_items, hidden_size))
        features = settings.event_features
        self.event_features = None if features is None else EventFeatureEncoder(features, hidden_size)
        self._initialize()
        self._masked = number_layers(self)

    @property
    def output_weight(self) -> Tensor:
        """Item vectors [V, C] for scores; row i - 1 belongs to item i."""
        return self.items.weight[1:] if self.output is None else self.output

    @property
    def collect_diagnostics(self) -> bool:
        """Whether forward passes keep what `diagnostics` needs; free if off."""
        return any(connection.collect for connection in self._connections())

    @collect_diagnostics.setter
    def collect_diagnostics(self, collect: bool) -> None:
        for connection in self._connections():
            connection.collect = collect

    def diagnostics(self) -> dict[str, Tensor]:
        """Return diagnostics of the hyper-connections in the last collecting forward pass, see `diagnose`; or {}."""
        return {} if self._real is None else diagnose(self._connections(), self._real)

    def forward(
        self,
        history: History,
        last_only: bool = False,
        item_vectors: Tensor | None = None,
        keys: DropoutKeys | None = None,
    ) -> Tensor:
        """Return the states [B, L, C] after the final norm. Those of padded positions are finite but meaningless.

        With `last_only`, return the states [B, 1, C] of the last events; the last block then computes only these. A
        row without events has the state of its first position.

        With `item_vectors` [U, C], `history.items` are rows of them; row 0 is padding.

        The features of events are read from `history`, if the encoder has them.

        With `keys`, dropout depends on them alone, otherwise on torch's generator.
        """
        set_keys(self._masked, keys)
        length = history.items.shape[1]
        if length > self.max_length:
            raise ValueError(
                f"a history of {length} events is longer than max_length {self.max_length}: keep the last ones"
            )
        steps = torch.arange(length, device=history.items.device)
        if self.collect_diagnostics:
            self._real = None if last_only else (steps < history.lengths.unsqueeze(1)).flatten()
        # Positions count back from the last event, which always has max_length - 1, so a history has the same positions
        # whatever the batch pads it to. Padding is on the right; clamp keeps its index inside the table.
        positions = ((self.max_length - history.lengths).unsqueeze(1) + steps).clamp_max(self.max_length - 1)
        # Item vectors are small, which keeps the scores small; as inputs they get the scale of a layer's output.
        x = self._event_vectors(history, item_vectors) * math.sqrt(self.items.embedding_dim)
        if self.positions is not None:
            x = x + self.positions(positions)
        context: Context = None
        query_times = request_times(history) if self.request_time else history.times
        if self.time_tables is not None:
            context = self.time_tables(positions, history.times, history.time_scale, query_times)
        elif self.time_input == "buckets":
            context = time_buckets(query_times.unsqueeze(2) - history.times.unsqueeze(1))
        state = self.dropout(x)
        if self.streams is not None:
            state = state.unsqueeze(-2).repeat(1, 1, self.streams, 1)  # [B, L, n, C]: n equal streams of mHC
        last = (history.lengths - 1).clamp_min(0) if last_only else None
        if self.recurrent is not None:
            return self.norm(self.recurrent(state, last))
        for number, block in enumerate(self.blocks, 1):
            # The last block may compute the last event only. Its keys are all positions, which the others must compute.
            if last is not None and number == len(self.blocks):
                state = block(state, context, last)
            elif self.activation_checkpointing and self.training:
                part = partial(_run_with_keys, block, keys)
                state = checkpoint(part, state, context, use_reentrant=False, preserve_rng_state=True)
            else:
                state = block(state, context)
        return self.norm(state if self.streams is None else state.mean(-2))

    def scores(self, states: Tensor, item_vectors: Tensor | None = None) -> Tensor:
        """Return the scores [N, V + 1] float32 of states [N, C]; column j is item j, column 0 is -inf.

        With `item_vectors` [U, C], the scores [N, U] are of these items; row 0 is padding.
        """
        weight = self.output_weight if item_vectors is None else item_vectors[1:]
        with torch.autocast(states.device.type, enabled=False):
            return F.pad(states.float() @ weight.float().T, (1, 0), value=-torch.inf)

    def _event_vectors(self, history: History, item_vectors: Tensor | None) -> Tensor:
        """Return the vectors [B, L, C] of a history's events: those of their items and of their own features, added."""
        vectors = self.items(history.items) if item_vectors is None else F.embedding(history.items, item_vectors, 0)
        if isinstance(self.norm, nn.LayerNorm):  # FSDP gathers it in bf16; a table that is trained by rows is float32
            vectors = vectors.to(self.norm.weight.dtype)
        if self.event_features is None:
            return vectors
        if history.event_codes is None or history.event_numbers is None:
            raise ValueError("event_features: found a history without `event_codes` and `event_numbers`")
        return vectors + self.event_features(history.event_codes, history.event_numbers).to(vectors.dtype)

    def _connections(self) -> list[ManifoldHyperConnection]:
        return [module for module in self.modules() if isinstance(module, ManifoldHyperConnection)]

    def _initialize(self) -> None:
        initialize_weights(self)
        # A normed state has length sqrt(C), so the initial scores have a standard deviation of 0.02 sqrt(C), and the
        # initial probabilities are nearly equal.
        for weight in (self.items.weight, self.output):
            if weight is not None:
                nn.init.normal_(weight, std=0.02)
        with torch.no_grad():
            self.items.weight[0] = 0


def _run_with_keys(block: nn.Module, keys: DropoutKeys | None, state: Tensor, context: Context) -> Tensor:
    """Compute a block, in the backward pass again, when the encoder has the keys of other rows."""
    set_keys(keyed_dropout_layers(block), keys)
    result: Tensor = block(state, context)
    return result
