"""Defines the interface between the recommender's module and its data."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

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
from engine.interface import LockstepData


class RecommenderData(LockstepData, Protocol):
    """Histories of users over a catalog of items. Implemented by InteractionSequences."""

    @property
    def catalog(self) -> Catalog:
        """Number of items, their ids and titles, and the maximum length of a row; the same in all splits."""

    @property
    def recommendable(self) -> Catalog:
        """The catalog with the items that have features and no interaction; these follow the items of the data."""

    @property
    def item_features(self) -> ItemFeatureArrays | None:
        """Features of the recommendable items; None without `data.init_args.item_features`."""

    @property
    def item_features_identity(self) -> FeaturesIdentity | None:
        """What a network with these features depends on; None without them."""

    @property
    def event_features(self) -> EventEncoding | None:
        """Vocabularies and statistics of the features of events; None without `data.init_args.event_features`."""

    @property
    def event_features_identity(self) -> FeaturesIdentity | None:
        """What a network with these features depends on; None without them."""

    @property
    def training_events(self) -> TrainingEvents:
        """Training part of every user's events, for the baselines."""

    @property
    def optima(self) -> Mapping[str, Scorer]:
        """{name: scorer} of the optimal scores [B, num_items + 1]; empty unless the rule of the data is known."""

    def some_histories(self, number: int) -> RankingBatch:
        """Return histories of at most `number` users, to compare an export with."""

    @property
    def user_ids(self) -> Sequence[str]:
        """[U] original ids of all users."""

    def whole_histories(self, batch_size: int) -> Iterator[RankingBatch]:
        """Yield the histories of all users with all their events, in the order of `user_ids`, without a target."""

    def require_negatives(self, reader: str) -> None:
        """Raise ValueError, which names what needs them, unless training batches have negatives."""

    @property
    def other_negatives(self) -> str:
        """The options by which negatives are not uniform, for messages; "" if all are uniform."""

    def require_times(self, reader: str) -> None:
        """Raise ValueError, which names what reads the times, unless all events have a time. Called after `setup`."""

    def require_request_times(self, reader: str) -> None:
        """Raise ValueError, which names what reads it, unless all of `predict_set` have the time of the request."""

    def user(self, row: int) -> str:
        """Return the original id of the user in a row of the store, as numbered by RankingBatch.users."""

    def evaluated_users(self, stage: str, rows: NDArray[np.integer]) -> EvaluatedUsers:
        """Return users of the validation (`val`) or the test (`test`), given their rows [n] in the store."""

    @property
    def excluded_items(self) -> NDArray[np.bool_] | None:
        """[recommendable + 1] true for items that `predict` must not recommend; None if it may recommend all."""

    def describe(self, row: int) -> Mapping[str, Any]:
        """Return the fields that `predict` writes besides the recommendations, for a row of `predict_set`."""


if TYPE_CHECKING:  # mypy checks the DataModule against the interface here
    from datamodules.recommender.datamodule import InteractionSequences

    def _provided(data: InteractionSequences) -> RecommenderData:
        return data
