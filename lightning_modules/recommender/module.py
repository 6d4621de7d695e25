"""Trains sequential recommenders (SASRec, TiSASRec, HSTU and others): the family's LightningModule."""

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from datamodules.recommender.batch import TrainBatch
from engine.base_options import TrainingOptions, Unpack
from engine.lightning_internals.training_loop import is_attached
from engine.number_check import check_number, check_numbers
from engine.optim.global_loss_mean import LossSum
from lightning_modules.recommender.attention_kernel import check_attention_kernel, set_attention_kernel
from lightning_modules.recommender.checkpoint_compatibility import ModelIdentity
from lightning_modules.recommender.compiled_step.compile_checks import check_compiled_step, check_compiler
from lightning_modules.recommender.compiled_step.compiled_loss import CompiledTrainingLoss
from lightning_modules.recommender.evaluation import REQUEST_TIME, Baseline, RankingEvaluation
from lightning_modules.recommender.features.feature_encoder import check_strategy_of_features, feature_encoder
from lightning_modules.recommender.features.next_item_scores import NextItemScores
from lightning_modules.recommender.features.training_vectors import TrainingVectors
from lightning_modules.recommender.item_to_item import ItemBaselines
from lightning_modules.recommender.losses.next_item import LossName, NextItemLoss, check_other_negatives
from lightning_modules.recommender.networks.architecture import (
    ArchitectureSettings,
    FeedForwardKind,
    Norm,
    Residual,
    check_architecture,
)
from lightning_modules.recommender.networks.attention.kinds import Attention, reads_times
from lightning_modules.recommender.networks.attention.time_interval import AttentionKernel
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder
from lightning_modules.recommender.networks.time_buckets import TimeBuckets
from lightning_modules.recommender.ranking_module import RankingModule
from lightning_modules.recommender.sparse_item_rows import (
    ItemOptimizer,
    check_item_optimizer,
    check_saved_item_optimizer,
    check_strategy_of_rows,
    sparse_item_tables,
)
from lightning_modules.recommender.training_loss import TrainingLoss


class SequentialRecommender(RankingModule):
    """Predicts the next item of a sequence. It is evaluated by the rank of the held-out item among all items.

    Args:
        attention: `standard` (SASRec), `time_interval` (TiSASRec: attention also depends on the time between events),
            `hstu` (HSTU, arXiv 2402.17152: attention without a softmax, depends on it, too) or `fuxi` (FuXi-alpha,
            arXiv 2502.03036: likewise, with contents, positions and times apart); or `gru` (GRU4Rec, arXiv 1706.03847:
            GRU layers alone, without positions, residuals and norms; it needs `feed_forward` none).
        residual: `plain`; `gated` (each sublayer's output times sigmoid(W x), as in LiGR's layers, arXiv 2502.03417);
            `mhc` (manifold-constrained hyper-connections, arXiv 2512.24880); `gated_mhc` is both.
        norm: layer norm before (`pre`) or after (`post`) each sublayer.
        hidden_size: width C of the states.
        num_blocks: number of blocks of attention and feed-forward layers, or of GRU layers.
        num_heads: number of attention heads.
        feed_forward: `relu` (SASRec), `swiglu` (LiGR's layers, with half as many weights again) or `none` (HSTU).
        feed_forward_size: inner width of the feed-forward layers; null is `hidden_size`.
        dropout: share of activations dropped in training.
        time_span: largest distinct `linear` time interval, in units of the user's smallest gap (TiSASRec's T).
        time_buckets: `linear` time intervals in units of the user's smallest gap, as in the paper, or `log`: 65 buckets
            of seconds, each 1.35 times as wide as the previous bucket, up to 7 years.
        request_time: count the intervals of each position from the time of the event that it predicts: the time of the
            target or of the request. The metrics are named `request_time/...`, as they are not comparable with
            metrics of models that know the past alone.
        streams: number of residual streams of `mhc` and `gated_mhc`.
        sinkhorn_iterations: Sinkhorn-Knopp iterations that make the stream mixing doubly stochastic.
        tie_output: score items with their input embeddings.
        activation_checkpointing: recompute activations in the backward pass: less memory, more time.
        attention_kernel: implementation of `time_interval` on CUDA: `torch`, or `triton` without matrices of L x L in
            memory, whose sums have no fixed order.
        compile_step: compile the forward and backward pass of a training step into one graph, on CUDA a CUDA graph that
            one launch replays: for small models. Micro-batches are padded to `data.max_length` and their full size.
        loss: `cross_entropy` over all items, `sampled_softmax`, `bce` (with one negative as in the papers) or `gbce`;
            all but the first need `data.init_args.num_negatives` (or, for `sampled_softmax`, `batch_negatives`).
        gbce_calibration: t of `gbce`, from 0 (plain) to 1 (calibrated).
        item_optimizer: how item vectors are trained. `dense`: as all other weights; every step goes over all items.
            `rowwise_adagrad` (one number of state per item) and `lazy_adamw` (two tensors of the size of the table):
            a step goes over its own items only, see engine/optim/row_updates.py. They need a loss with negatives.
        item_learning_rate: peak rate of the item vectors if `item_optimizer` is not `dense`; null is `learning_rate`,
            too small for `rowwise_adagrad`: start with 0.05.
        item_dropout: with `data.init_args.item_features`, probability that an item has no vector of its own in a
            training step, so that the network learns to score items by their features alone.
        remove_seen: exclude the items of a user's history from the ranking.
        baselines: also evaluate baselines, once per run: true is `[popularity, last-item-transition]`; `item-knn` and
            `ease` can be listed, too.
        item_baselines: settings of `item-knn` and `ease`; null is the defaults.
        beyond_accuracy: also evaluate coverage, novelty and popularity of each user's `top_k` recommendations. `test`
            and `validate` keep these items beside the ranks for `report`.
        save_ranks: `test` and `validate` write the rank of each user to ranks-test.npz or ranks-val.npz in the run's
            folder, for intervals, groups and the paired test of `report`.
        top_k: number of recommendations that `predict` writes for a history.
        export_vectors: `export` also writes the vectors of all users and items, whose dot products are the scores.
        export_index: `export` also writes these vectors and a FAISS index of the items, and logs its recall: a factory
            string such as `HNSW32`, with parameters of the search after a space (`IVF1024,Flat nprobe=32`).
        training: see LockstepModule.
    """

    micro_batch_loss: TrainingLoss

    def __init__(
        self,
        attention: Attention = "standard",
        residual: Residual = "plain",
        norm: Norm = "pre",
        hidden_size: int = 64,
        num_blocks: int = 2,
        num_heads: int = 1,
        feed_forward: FeedForwardKind = "relu",
        feed_forward_size: int | None = None,
        dropout: float = 0.2,
        time_span: int = 256,
        time_buckets: TimeBuckets = "linear",
        request_time: bool = False,
        streams: int = 4,
        sinkhorn_iterations: int = 20,
        tie_output: bool = True,
        activation_checkpointing: bool = False,
        attention_kernel: AttentionKernel = "torch",
        compile_step: bool = False,
        loss: LossName = "cross_entropy",
        gbce_calibration: float = 0.75,
        item_optimizer: ItemOptimizer = "dense",
        item_learning_rate: float | None = None,
        item_dropout: float = 0.2,
        remove_seen: bool = True,
        baselines: bool | list[Baseline] = True,
        item_baselines: ItemBaselines | None = None,
        beyond_accuracy: bool = False,
        save_ranks: bool = True,
        top_k: int = 10,
        export_vectors: bool = False,
        export_index: str | None = None,
        **training: Unpack[TrainingOptions],
    ) -> None:
        super().__init__(**training)
        counts = {"streams": streams, "sinkhorn_iterations": sinkhorn_iterations, "top_k": top_k}
        check_numbers("model.init_args.", counts, at_least=1)  # `check_architecture` checks the sizes
        check_number("model.init_args.dropout", dropout, at_least=0, below=1)
        check_number("model.init_args.item_dropout", item_dropout, at_least=0, below=1)
        check_number("model.init_args.gbce_calibration", gbce_calibration, at_least=0, at_most=1)
        check_numbers("model.init_args.", {"item_learning_rate": item_learning_rate}, at_least=0)
        check_item_optimizer(item_optimizer, item_learning_rate, loss, tie_output, self.optimizer_name)
        self.architecture = ArchitectureSettings(
            attention=attention,
            residual=residual,
            norm=norm,
            hidden_size=hidden_size,
            num_blocks=num_blocks,
            num_heads=num_heads,
            feed_forward=feed_forward,
            feed_forward_size=feed_forward_size,
            dropout=dropout,
            time_span=time_span,
            time_buckets=time_buckets,
            request_time=request_time,
            streams=streams,
            sinkhorn_iterations=sinkhorn_iterations,
            tie_output=tie_output,
            activation_checkpointing=activation_checkpointing,
        )
        check_architecture(self.architecture, "model.init_args.")
        self.attention_kernel: AttentionKernel = attention_kernel
        self.compile_step = compile_step
        self.loss = NextItemLoss(loss, gbce_calibration)
        self.item_optimizer: ItemOptimizer = item_optimizer
        self.item_learning_rate, self.item_dropout = item_learning_rate, item_dropout
        self.remove_seen, self.save_ranks, self.top_k = remove_seen, save_ranks, top_k
        self.export_vectors, self.export_index = export_vectors or export_index is not None, export_index
        protocol, beyond = REQUEST_TIME if request_time else "", top_k if beyond_accuracy else 0
        self.evaluation = RankingEvaluation(remove_seen, baselines, item_baselines, protocol, beyond)

    @override
    def setup(self, stage: str) -> None:
        self.terms_per_sample = self.data.catalog.max_length  # before super().setup, which reads it
        super().setup(stage)
        if stage == "fit":
            check_strategy_of_rows(self.item_optimizer, self.trainer.strategy)
            device = self.trainer.strategy.root_device
            check_attention_kernel(self.attention_kernel, self.architecture.attention, device)
            if self.loss.name != "cross_entropy":
                self.data.require_negatives(f"model.init_args.loss {self.loss.name}")
            check_other_negatives(self.loss.name, self.data.other_negatives)
            if self.compile_step:
                strategy = self.trainer.strategy
                check_compiled_step(self.architecture, self.attention_kernel, self.item_optimizer, self.data, strategy)
                check_compiler(device)
        check_strategy_of_features(self.data.item_features, self.trainer.strategy)
        if reads_times(self.architecture.attention):
            self.data.require_times(f"model.init_args.attention {self.architecture.attention}")
        if self.architecture.request_time:
            self.data.require_request_times("model.init_args.request_time")

    @override
    def configure_model(self) -> None:
        if not hasattr(self, "encoder"):
            catalog = self.data.catalog
            self.encoder = SequenceEncoder(catalog.num_items, catalog.max_length, self._encoder_settings)
            set_attention_kernel(self.encoder, self.attention_kernel)
            self.row_tables = sparse_item_tables(self.encoder, self.item_optimizer, self.item_learning_rate)
            self.item_features = feature_encoder(self.data.item_features, self.encoder)
            all_items = self.loss.name == "cross_entropy"
            vectors = TrainingVectors(self.encoder, self.item_features, self.row_tables, all_items, self.item_dropout)
            parts = self.encoder, vectors, self.loss, self.architecture.dropout > 0
            self.micro_batch_loss = TrainingLoss(*parts)
            if self.compile_step:
                self.micro_batch_loss = CompiledTrainingLoss(*parts, lambda: self.data.plan.micro_batch_size)
            self.next_item_scores = NextItemScores(self.encoder, self.item_features, self.row_tables)
            identities = self.data.item_features_identity, self.data.event_features_identity
            self._identity = ModelIdentity.of(catalog.item_ids, self.architecture, catalog.max_length, *identities)

    @override
    def memory_saving_options(self) -> list[tuple[str, str]]:
        if self.architecture.activation_checkpointing or self.architecture.attention == "gru":
            return []
        return [("--model.init_args.activation_checkpointing true", "a third more time")]

    # -- training ----------------------------------------------------------------------------------------------------

    def training_loss(self, batch: Sequence[TrainBatch]) -> LossSum:
        """Return the loss of a micro-batch, given in parts of similar length."""
        loss = self.micro_batch_loss(batch, self.trainer.global_step if is_attached(self) else None)
        for name, value in loss.metrics.items():
            self.log(name, value, on_step=True, batch_size=1)
        return LossSum(loss.total, loss.real)

    @override
    def on_train_batch_start(self, batch: Sequence[TrainBatch], batch_idx: int) -> None:
        super().on_train_batch_start(batch, batch_idx)
        self.encoder.collect_diagnostics = self.is_log_step

    # -- checkpoints -------------------------------------------------------------------------------------------------

    @override
    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        self._identity.save(checkpoint)

    @override
    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._identity.check(checkpoint)  # before the weights load: item numbers may have another meaning
        self._loaded_step = int(checkpoint.get("global_step", 0))
        if is_attached(self) and self.trainer.state.fn == "fit":
            check_saved_item_optimizer(checkpoint, self.item_optimizer)
        super().on_load_checkpoint(checkpoint)
