"""Serves interactions to the recommender's module: catalog, item features, users, and checks of its requirements."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.batch import (
    Catalog,
    EvaluatedUsers,
    EventEncoding,
    FeaturesIdentity,
    ItemFeatureArrays,
    RankingBatch,
    Scorer,
    TrainingEvents,
)
from datamodules.recommender.dataset import RankingDataset, Windows
from datamodules.recommender.events import Events, Integers
from datamodules.recommender.features.event_encoding import encoding_identity, fit_event_encoding
from datamodules.recommender.features.event_feature_settings import EventFeatures
from datamodules.recommender.features.item_feature_settings import ItemFeatures
from datamodules.recommender.features.item_features import LoadedItemFeatures, load_item_features, with_cold_items
from datamodules.recommender.features.trained_items import items_of_examples
from datamodules.recommender.negatives.negative_mixture import NegativeOptions
from datamodules.recommender.prediction_input import PredictionInput
from datamodules.recommender.reading.predict_histories import Histories
from datamodules.recommender.sources.interaction_source import InteractionSource
from datamodules.recommender.split_settings import InteractionSplitSettings
from datamodules.recommender.splits import Splits
from datamodules.recommender.store.interaction_store import InteractionStore
from datamodules.recommender.user_histories import personal_time_scale
from engine.data.samplers import MicroBatchRequest
from engine.datamodule import LockstepDataModule


class InteractionData(LockstepDataModule):
    """Base of InteractionSequences: what RecommenderData lists, from the store of events and the settings."""

    source: InteractionSource
    split: InteractionSplitSettings
    max_length: int
    windows: Windows
    negatives: NegativeOptions
    prediction_input: PredictionInput
    item_feature_settings: ItemFeatures | None
    event_feature_settings: EventFeatures | None

    validation_set: RankingDataset
    test_set: RankingDataset

    @cached_property
    def events(self) -> InteractionStore:
        """Events of all users, with the ids of users and items."""
        return self.source.open()

    @cached_property
    def splits(self) -> Splits:
        """Events for training, validation and test."""
        return self.split.apply(self.events)

    @property
    def catalog(self) -> Catalog:
        """The items, with their ids and titles in the source."""
        return Catalog(self.events.num_items, self.max_length, self.events.item_ids, self.events.titles)

    @property
    def recommendable(self) -> Catalog:
        """The catalog with the items that have features and no interaction."""
        return with_cold_items(self.catalog, self._features)

    @property
    def item_features(self) -> ItemFeatureArrays | None:
        """Features of the recommendable items; None without the option `item_features`."""
        return None if self._features is None else self._features.arrays

    @property
    def item_features_identity(self) -> FeaturesIdentity | None:
        """What a network with these features depends on; None without them."""
        return None if self._features is None else self._features.identity

    @cached_property
    def event_features(self) -> EventEncoding | None:
        """Vocabularies and statistics of the features of events; None without the option `event_features`."""
        settings = self.event_feature_settings
        # With random windows, every event of a row is an input in some epoch.
        trained = self.max_length if self.windows == "last" else None
        return None if settings is None else fit_event_encoding(settings, self.events, self.splits.train, trained)

    @property
    def event_features_identity(self) -> FeaturesIdentity | None:
        """What a network with these features depends on; None without them."""
        return None if self.event_features is None else encoding_identity(self.event_features)

    @cached_property
    def _features(self) -> LoadedItemFeatures | None:
        settings = self.item_feature_settings
        if settings is None:
            return None
        trained = items_of_examples(self.events, self.splits.train)
        path = self.source.item_table(settings)
        return load_item_features(path, settings, self.events.item_ids, trained)

    @property
    def training_events(self) -> TrainingEvents:
        """Training part of every user."""
        return TrainingEvents(self.events.offsets, self.events.items, self.splits.train_end)

    @property
    def optima(self) -> dict[str, Scorer]:
        """Optimal scorers, if the rule of the data is known; otherwise empty."""
        return self.source.optima

    @property
    def user_ids(self) -> Sequence[str]:
        """[U] original ids of all users."""
        return self.events.user_ids

    def user(self, row: int) -> str:
        """Return the original id of the user in a row of the store."""
        return str(self.events.user_ids[row])

    def evaluated_users(self, stage: str, rows: Integers) -> EvaluatedUsers:
        """Return ids, history lengths and held-out items of users of an evaluation.

        Args:
            stage: `val` or `test`.
            rows: [U] rows of the users in the store.
        """
        ids = self.events.user_ids
        held_out = (self.test_set if stage == "test" else self.validation_set).held_out_of(rows)
        return EvaluatedUsers([str(ids[row]) for row in rows.tolist()], *held_out)

    @property
    def excluded_items(self) -> NDArray[np.bool_] | None:
        """[num_items + 1] true for items that `predict` must not recommend; None if it may recommend all."""
        return self.prediction_input.excluded_items

    def describe(self, row: int) -> dict[str, Any]:
        """Return the fields that `predict` writes besides the recommendations of a row."""
        return {"user": self.prediction_input.users[row]}

    # -- histories -----------------------------------------------------------------------------------------------------

    def some_histories(self, number: int) -> RankingBatch:
        """Return histories of users evenly spread over the data, at most `number`, to compare an export with.

        They are the histories of the validation, or whole histories if nothing is held out for it.
        """
        # This stage needs no held-out events and no file of histories.
        self.setup("export")
        histories = self.validation_set
        if not len(histories):
            histories = self._prediction_set(self.prediction_input.whole_histories(self.events))
        rows = np.linspace(0, len(histories) - 1, min(number, len(histories))).astype(np.int64)
        return histories[MicroBatchRequest(0, rows)]

    def histories_batch(self, histories: Histories) -> RankingBatch:
        """Return a batch of histories that are in memory, as `predict` reads histories of a file."""
        return self._prediction_set(histories)[MicroBatchRequest(0, np.arange(len(histories.users)))]

    def whole_histories(self, batch_size: int) -> Iterator[RankingBatch]:
        """Yield the histories of all users with all their events, in the order of `user_ids`, without a target."""
        histories = self._prediction_set(self.prediction_input.whole_histories(self.events))
        for start in range(0, len(histories), batch_size):
            rows = np.arange(start, min(start + batch_size, len(histories)))
            yield histories[MicroBatchRequest(0, rows)]

    def _ranking_set(
        self,
        events: Events,
        examples: tuple[Integers, Integers],
        candidates: Integers | None = None,
        held_out: bool = True,
        request_times: Integers | None = None,
    ) -> RankingDataset:
        users, ends = examples
        # Users without an example have an empty history, whose scale is never read.
        history_ends = np.array(events.offsets[:-1])
        history_ends[users] = ends
        scale = personal_time_scale(events, history_ends)
        return RankingDataset(
            events,
            examples,
            max_length=self.max_length,
            time_scale=scale,
            candidates=candidates,
            held_out=held_out,
            request_times=request_times,
            features=self.event_features,
        )

    def _prediction_set(self, histories: Histories) -> RankingDataset:
        return self._ranking_set(
            histories.events, histories.examples, held_out=False, request_times=histories.request_times
        )

    # -- what a model requires -----------------------------------------------------------------------------------------

    def require_negatives(self, reader: str) -> None:
        """Raise ValueError unless training batches have negatives.

        Args:
            reader: what needs them, for the message.
        """
        if not self.negatives.number and not self.negatives.batch_targets:
            raise ValueError(f"{reader} needs negatives: set data.init_args.num_negatives, such as 256")

    @property
    def other_negatives(self) -> str:
        """The options by which negatives are not uniform, for messages; "" if all are uniform."""
        return self.negatives.description

    def require_times(self, reader: str) -> None:
        """Raise ValueError unless all events have times, the histories to predict for included.

        Args:
            reader: what reads the times, for the message.
        """
        if not self.events.has_times:
            raise ValueError(
                f"{self.source.root}: found no time column, and {reader} reads times; name the column with "
                "data.init_args.time_column"
            )
        self.prediction_input.require_times(reader)

    def require_request_times(self, reader: str) -> None:
        """Raise ValueError unless all histories to predict for have the time of the request.

        Args:
            reader: what reads these times, for the message.
        """
        self.prediction_input.require_request_times(reader)
