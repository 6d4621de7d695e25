"""Provides interaction sequences: the DataModule from files of (user, item, time) to batches of histories."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typing_extensions import override

from datamodules.recommender.dataset import RankingDataset, TrainDataset, Windows
from datamodules.recommender.evaluation_size import evaluation_warnings
from datamodules.recommender.features.event_feature_settings import EventFeatures
from datamodules.recommender.features.item_feature_settings import ItemFeatures
from datamodules.recommender.interaction_data import InteractionData
from datamodules.recommender.length_groups import LengthGroups
from datamodules.recommender.negatives.negative_mixture import NegativeKind, NegativeOptions, check_negative_options
from datamodules.recommender.prediction_input import PredictionInput
from datamodules.recommender.reading.item_lists import ItemLists
from datamodules.recommender.sampled_candidates import prepare_candidates, stored_candidates
from datamodules.recommender.sources.dataset_card import dataset_card
from datamodules.recommender.sources.interaction_source import Dataset, InteractionSource
from datamodules.recommender.sources.synthetic_marketplace import Marketplace
from datamodules.recommender.split_settings import InteractionSplitSettings, SplitName
from datamodules.recommender.store.prepare import Conversion
from datamodules.recommender.user_histories import personal_time_scale
from engine.base_options import LoadingOptions, Unpack
from engine.determinism.stateless_rng import global_seed
from engine.export.artifacts import DatasetCard
from engine.number_check import check_number, check_numbers

log = logging.getLogger("lockstep")


class InteractionSequences(InteractionData):
    """Histories of users, oldest event first, and the next item.

    Args:
        dataset: `synthetic` (the embedded marketplace), a MovieLens data set that `prepare` can download, or `files`
            for your own.
        root: folder or file with the interactions: MovieLens folders, RecBole `.inter`, CSV, TSV or Parquet, detected
            by content. Default for MovieLens: data/NAME.
        user_column: column of the user in a CSV, TSV or Parquet file; null to detect it by its usual names.
        item_column: column of the item, likewise.
        time_column: column of the time (seconds since 1970, or ISO 8601 dates), likewise. A table needs none for models
            that read no times: the rows of a user are in order. `""` ignores columns that look like a time.
        rating_column: column of the rating, likewise; it is read with `min_rating` only.
        min_item_interactions: items with fewer interactions are dropped (5 in the SASRec papers).
        min_user_interactions: users with fewer interactions are dropped, after the items.
        k_core: repeat these two filters until every item and every user has its minimum (an iterated k-core).
        min_rating: interactions with a lower rating are dropped before these filters; null keeps all.
        conversion_memory: memory of the conversion in GB. A Parquet table that needs more, at 47 bytes per row, is
            converted on disk with DuckDB (extra `large`), with the same result.
        split: `leave_one_out` (the last event is the test, the second last the validation), `temporal` (the data set
            is cut at two points in time) or `none` (all events train and nothing is evaluated, for a final model).
        validation_from: start of the validation period of `temporal`, in seconds since 1970 or as the share of older
            interactions.
        test_from: start of the test period of `temporal`, likewise.
        max_length: maximum number of events of a history; the last events are used.
        windows: what trains of a longer history: its `last` events, or in each epoch a `random` window of `max_length`
            events, so that all events train over the epochs. Evaluation and prediction use the last events.
        length_groups: number of parts of similar length that a batch is computed in, which reduces padding without
            changing the batch.
        num_negatives: negatives per position (or per row); 0 for the loss `cross_entropy`.
        shared_negatives: draw negatives once per row instead of once per position.
        negatives: how they are drawn: `uniform`, or `mixed`, of which `popularity_share` are drawn by popularity.
        popularity_share: share of the negatives of `mixed` that are drawn by popularity, above 0; the others are
            uniform.
        popularity_power: exponent of how often an item is a target in training, for the probability of `mixed`: 1 is
            popularity, 0 is uniform.
        batch_negatives: further negatives that all positions of a global batch share: this number of its targets.
            Items of a sequence are not negatives of it.
        log_q: subtract from the scores of `sampled_softmax` the logarithm of how often an item is expected among the
            negatives, so that popular items are not penalized for being drawn more often.
        sampled_100: also evaluate against 100 fixed negatives, for comparison with the papers; these metrics have names
            of their own.
        predict_histories: JSONL file of histories to predict for; null predicts for every user of the data.
        predict_request_time: time of the request for users of the data, for models with `request_time`: seconds since
            1970 or an ISO 8601 date; null is the latest time of the data.
        allow_items: text file with an item id on each line: `predict` recommends these items only; null is all.
        deny_items: likewise, items that `predict` does not recommend.
        item_features: table with categories, numbers or a vector of each item, see `ItemFeatures`; null reads none.
        event_features: columns of the interactions with categories or numbers of each event, see `EventFeatures`; null
            reads none.
        marketplace: size and rule of the `synthetic` data set.
        loading: see LockstepDataModule.
    """

    is_in_memory = True
    train_set: LengthGroups
    validation_set: RankingDataset
    test_set: RankingDataset

    def __init__(
        self,
        dataset: Dataset = "files",
        root: str | None = None,
        user_column: str | None = None,
        item_column: str | None = None,
        time_column: str | None = None,
        rating_column: str | None = None,
        min_item_interactions: int = 5,
        min_user_interactions: int = 1,
        k_core: bool = False,
        min_rating: float | None = None,
        conversion_memory: float = 2.0,
        split: SplitName = "leave_one_out",
        validation_from: float = 0.8,
        test_from: float = 0.9,
        max_length: int = 200,
        windows: Windows = "last",
        length_groups: int = 8,
        num_negatives: int = 0,
        shared_negatives: bool = False,
        negatives: NegativeKind = "uniform",
        popularity_share: float = 0.5,
        popularity_power: float = 0.75,
        batch_negatives: int = 0,
        log_q: bool = True,
        sampled_100: bool = False,
        predict_histories: str | None = None,
        predict_request_time: float | str | None = None,
        allow_items: str | None = None,
        deny_items: str | None = None,
        item_features: ItemFeatures | None = None,
        event_features: EventFeatures | None = None,
        marketplace: Marketplace | None = None,
        **loading: Unpack[LoadingOptions],
    ) -> None:
        super().__init__(**loading)
        if dataset == "files" and root is None:
            raise ValueError("data.init_args.root: found null, expected the folder or file with the interactions")
        key = "data.init_args."
        filters = {"min_item_interactions": min_item_interactions, "min_user_interactions": min_user_interactions}
        check_numbers(key, filters | {"num_negatives": num_negatives, "batch_negatives": batch_negatives}, at_least=0)
        check_number(f"{key}popularity_share", popularity_share, above=0, at_most=1)
        check_number(f"{key}popularity_power", popularity_power, at_least=0)
        check_numbers(key, {"validation_from": validation_from, "test_from": test_from}, above=0)
        check_numbers(key, {"conversion_memory": conversion_memory}, at_least=0.5)
        check_numbers(key, {"max_length": max_length, "length_groups": length_groups}, at_least=1)
        conversion = Conversion(
            user_column=user_column,
            item_column=item_column,
            time_column=time_column,
            rating_column=rating_column,
            min_item_interactions=min_item_interactions,
            min_user_interactions=min_user_interactions,
            k_core=k_core,
            min_rating=min_rating,
            conversion_memory=conversion_memory,
            event_features=event_features,
        )
        folder = Path(root or f"data/{dataset}")
        self.source = InteractionSource(dataset, folder, conversion, marketplace or Marketplace())
        self.min_user_interactions = min_user_interactions
        self.split = InteractionSplitSettings(split, validation_from, test_from)
        self.max_length, self.windows, self.length_groups = max_length, windows, length_groups
        self.negatives = NegativeOptions(
            number=num_negatives,
            shared=shared_negatives,
            kind=negatives,
            popularity_share=popularity_share,
            popularity_power=popularity_power,
            batch_targets=batch_negatives,
            log_q=log_q,
        )
        check_negative_options(self.negatives)
        self.sampled_100 = sampled_100
        self.prediction_input = PredictionInput(
            predict_histories, predict_request_time, ItemLists(allow_items, deny_items)
        )
        self.item_feature_settings, self.event_feature_settings = item_features, event_features
        if item_features is not None:
            self.source.require_item_table(item_features)

    @classmethod
    @override
    def extra_for(cls, settings: Mapping[str, Any]) -> str | None:
        return None if settings.get("dataset") == "synthetic" else "recommender"

    # -- once per node -----------------------------------------------------------------------------------------------

    @override
    def prepare(self) -> None:
        self.source.download()
        self.prepare_data()
        log.info("%s: %s", self.source.dataset, self.events.summary)

    def prepare_data(self) -> None:
        """Convert the files to the memory-mapped store and draw the candidates, unless that is done.

        Verifies the checksums of what exists, and replaces what is corrupt.
        """
        self.source.open(verify=True)
        if self.sampled_100:
            prepare_candidates(self._candidate_file, self.events)

    @override
    def pending_conversion(self) -> str | None:
        return None if self.source.is_converted() else f"{self.source.root} must be converted to a store of sequences"

    # -- on every rank -----------------------------------------------------------------------------------------------

    @override
    def setup(self, stage: str) -> None:
        self.split.disable_evaluation(stage, self.trainer)
        # Lightning calls `setup` for each stage; the splits are the same in all of them.
        if not hasattr(self, "train_set"):
            self._setup_splits()
            if stage in ("fit", "validate", "test"):
                for text in evaluation_warnings(self.events, self.splits, self._features is not None):
                    log.warning("%s. %s", text, self.split.way_to_more(self.min_user_interactions))
        if stage == "predict":
            histories = self.prediction_input.read(
                self.events, self.recommendable.item_ids, self.event_feature_settings
            )
            self.predict_set = self._prediction_set(histories)

    def _setup_splits(self) -> None:
        events, splits = self.events, self.splits
        rows = TrainDataset(
            events,
            splits.train,
            max_length=self.max_length,
            time_scale=personal_time_scale(events, splits.train_end),
            seed=global_seed(),
            windows=self.windows,
            negatives=self.negatives,
            negatives_among=None if self._features is None else self._features.trained_items,
            features=self.event_features,
        )
        self.train_set = LengthGroups(rows, self.length_groups)
        candidates = stored_candidates(self._candidate_file, events) if self.sampled_100 else None
        self.validation_set = self._ranking_set(events, splits.validation, candidates=candidates)
        self.test_set = self._ranking_set(events, splits.test, candidates=candidates)
        log.info("%s; %d training rows, %d to validate, %d to test", events.summary, len(self.train_set),
                 len(self.validation_set), len(self.test_set))  # fmt: skip
        if self._features is not None:
            log.info("%s", self._features.report)
        if any(splits.without_history.values()):
            log.info("users without a history before the period, skipped: %s", splits.without_history)

    @property
    def _candidate_file(self) -> Path:
        """Path beside the store, so that all models are compared on the same candidates, whatever their seed."""
        return self.events.root / "sampled_100.npy"

    @property
    @override
    def predict_input(self) -> str | None:
        return self.prediction_input.path

    @override
    def dataset_card(self) -> DatasetCard:
        content = f"{self.events.summary}; of a history the last {self.max_length} events; split: {self.split.name}."
        return dataset_card(self.source.dataset, self.source.root.name, content)
