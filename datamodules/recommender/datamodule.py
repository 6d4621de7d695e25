"""Interaction sequences: from files of (user, item, time) to batches of histories."""

import hashlib
import json
import logging
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.batch import Catalog, Scorer, TrainingEvents
from datamodules.recommender.candidates import load_candidates, sampled_candidates, save_candidates
from datamodules.recommender.description import described
from datamodules.recommender.histories import read_histories
from datamodules.recommender.length_groups import LengthGroups
from datamodules.recommender.sequences import RankingExamples, TrainSequences, personal_time_scale
from datamodules.recommender.splits import Splits, leave_one_out, temporal
from datamodules.recommender.store import InteractionStore, is_prepared, prepare_store
from datamodules.recommender.synthetic import Marketplace
from engine.datamodule import LockstepDataModule
from engine.exported import DataDescription
from engine.randomness import global_seed

log = logging.getLogger("lockstep")

Dataset = Literal["files", "synthetic", "ml-100k", "ml-1m", "ml-25m", "ml-32m", "ml-latest-small"]


class InteractionSequences(LockstepDataModule):
    """Histories of users, oldest event first, and the item that follows.

    Args:
        dataset: `synthetic` (the embedded marketplace), a MovieLens set that `prepare` can download, or `files` for your own.
        root: folder or file with the interactions: MovieLens folders, RecBole `.inter`, CSV, TSV or Parquet, told apart by what is there. Default for MovieLens: data/NAME.
        user_column: column of the user in a CSV, TSV or Parquet file; null to find it by its usual names.
        item_column: column of the item, likewise.
        time_column: column of the time in seconds, likewise.
        min_item_interactions: items with fewer interactions are dropped (5 in the SASRec papers).
        min_user_interactions: users with fewer interactions are dropped, after the items.
        split: `leave_one_out` (last event tests, last but one validates) or `temporal` (two moments cut the whole data set).
        validation_from: first moment of the validation period of `temporal`, seconds since 1970 or the share of older interactions.
        test_from: first moment of the test period of `temporal`, likewise.
        max_length: events of a history that the model sees; the last ones.
        length_groups: parts of similar length that a batch is computed in: little padding, the same batch.
        num_negatives: negatives for each position (or row); 0 for the loss `cross_entropy`.
        shared_negatives: draw negatives once for a row instead of for each position.
        sampled_100: also evaluate against 100 fixed negatives, to compare with the papers; its metrics have names of their own.
        predict_histories: JSONL file of histories to predict for; null predicts for every user of the data.
        marketplace: size and rule of the `synthetic` data set.
        loading: see LockstepDataModule.
    """  # noqa: E501

    loads_at_once = True

    def __init__(
        self,
        dataset: Dataset = "files",
        root: str | None = None,
        user_column: str | None = None,
        item_column: str | None = None,
        time_column: str | None = None,
        min_item_interactions: int = 5,
        min_user_interactions: int = 1,
        split: Literal["leave_one_out", "temporal"] = "leave_one_out",
        validation_from: float = 0.8,
        test_from: float = 0.9,
        max_length: int = 200,
        length_groups: int = 8,
        num_negatives: int = 0,
        shared_negatives: bool = False,
        sampled_100: bool = False,
        predict_histories: str | None = None,
        marketplace: Marketplace | None = None,
        **loading: Any,
    ) -> None:
        super().__init__(**loading)
        if dataset == "files" and root is None:
            raise ValueError("data.init_args.root: null; give the folder or file with the interactions")
        self.dataset, self.root = dataset, Path(root or f"data/{dataset}")
        self.columns = {"user_column": user_column, "item_column": item_column, "time_column": time_column}
        self.min_item_interactions, self.min_user_interactions = min_item_interactions, min_user_interactions
        self.split, self.validation_from, self.test_from = split, validation_from, test_from
        self.max_length, self.length_groups = max_length, length_groups
        self.num_negatives, self.shared_negatives = num_negatives, shared_negatives
        self.sampled_100, self.predict_histories = sampled_100, predict_histories
        self.marketplace = marketplace or Marketplace()

    # -- once a machine ----------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        if self.dataset not in ("files", "synthetic"):
            from datamodules.recommender.movielens import download

            download(self.dataset, self.root)
        self.prepare_data()
        log.info("%s: %s", self.dataset, self._counts(self._open()))

    def prepare_data(self) -> None:
        """Convert the files to the memory-mapped store and draw the candidates, unless that has been done."""
        self._open()
        if self.sampled_100 and not self._candidate_file.exists():
            try:
                save_candidates(self._candidate_file, sampled_candidates(self.events, seed=0))
            except PermissionError:
                log.info("%s may not be written; each run draws the candidates again", self._candidate_file)

    def unprepared(self) -> str | None:
        if self.dataset == "synthetic":
            there = (self._marketplace_store / "meta.json").is_file()
        else:
            self._require_root()
            there = is_prepared(self.root, **self._conversion)
        return None if there else f"{self.root} is to be made into a store of sequences"

    def _require_root(self) -> None:
        if not self.root.exists():
            hint = "" if self.dataset == "files" else "; `python train.py prepare --config ...` downloads it"
            raise FileNotFoundError(f"data.init_args.root: {self.root} does not exist{hint}")

    @property
    def _conversion(self) -> dict[str, Any]:
        return {
            **self.columns,
            "min_item_interactions": self.min_item_interactions,
            "min_user_interactions": self.min_user_interactions,
        }

    def _open(self) -> InteractionStore:
        if self.dataset == "synthetic":
            return self._open_marketplace()
        self._require_root()
        return prepare_store(self.root, **self._conversion)

    @property
    def _marketplace_store(self) -> Path:
        settings = json.dumps(asdict(self.marketplace))
        return self.root / f"marketplace-{hashlib.sha256(settings.encode()).hexdigest()[:16]}"

    def _open_marketplace(self) -> InteractionStore:
        """The marketplace as a store, made once like any other data."""
        root = self._marketplace_store
        if (root / "meta.json").is_file():
            return InteractionStore.open(root)
        events = self.marketplace.events()
        return InteractionStore.write(
            root,
            offsets=events.offsets,
            items=events.items,
            times=events.times,
            user_ids=[f"shopper-{number}" for number in range(1, self.marketplace.num_users + 1)],
            item_ids=[f"item-{number}" for number in range(1, self.marketplace.num_items + 1)],
            source={"marketplace": asdict(self.marketplace)},
        )

    # -- every process -----------------------------------------------------------------------------------------------

    @cached_property
    def events(self) -> InteractionStore:
        """Offsets, items, times and what the ids stand for."""
        return self._open()

    @cached_property
    def splits(self) -> Splits:
        """Which events train, validate and test."""
        if self.split == "temporal":
            return temporal(self.events, self.validation_from, self.test_from)
        return leave_one_out(self.events)

    @property
    def catalog(self) -> Catalog:
        return Catalog(self.events.num_items, self.max_length, self.events.item_ids, self.events.titles)

    @property
    def training_events(self) -> TrainingEvents:
        return TrainingEvents(self.events.offsets, self.events.items, self.splits.train_end)

    @property
    def optima(self) -> dict[str, Scorer]:
        """The best scores that there are, where the data's rule is known; none otherwise."""
        if self.dataset != "synthetic":
            return {}
        return {
            "optimum-without-times": self.marketplace.time_blind_scores,
            "optimum": self.marketplace.optimal_scores,
        }

    def setup(self, stage: str) -> None:
        if not hasattr(self, "train_set"):
            self._setup_splits()
        if stage == "predict":
            self.predict_set = self._requests(personal_time_scale(self.events, self.splits.train_end))

    def _setup_splits(self) -> None:
        events, splits = self.events, self.splits
        time_scale = personal_time_scale(events, splits.train_end)
        shared: dict[str, Any] = {"max_length": self.max_length, "time_scale": time_scale}
        rows = TrainSequences(
            events,
            splits.train,
            seed=global_seed(),
            num_negatives=self.num_negatives,
            shared_negatives=self.shared_negatives,
            **shared,
        )
        self.train_set = LengthGroups(rows, self.length_groups)
        candidates = self._candidates() if self.sampled_100 else None
        self.validation_set = RankingExamples(events, splits.validation, candidates=candidates, **shared)
        self.test_set = RankingExamples(events, splits.test, candidates=candidates, **shared)
        log.info("%s; %d training rows, %d to validate, %d to test", self._counts(events), len(self.train_set),
                 len(self.validation_set), len(self.test_set))  # fmt: skip
        if any(splits.left_out.values()):
            log.info("users without a history before the period, left out: %s", splits.left_out)

    @property
    def _candidate_file(self) -> Path:
        """Beside the store, so that all models are compared on the same list, whatever their seed."""
        return self.events.root / "sampled_100.npy"

    def _candidates(self) -> NDArray[np.int32]:
        """The fixed list. Where it could not be kept it is made again, and comes out the same."""
        if self._candidate_file.exists():
            return load_candidates(self._candidate_file, self.events)
        return sampled_candidates(self.events, seed=0)

    def _requests(self, time_scale: NDArray[np.int64]) -> RankingExamples:
        """What to predict for: the histories of a file, or every user's whole history."""
        if self.predict_histories is None:
            everyone = np.arange(self.events.num_users), np.asarray(self.events.offsets[1:])
            self._names = self.events.user_ids
            return RankingExamples(
                self.events, everyone, max_length=self.max_length, time_scale=time_scale, held_out=False
            )
        histories = read_histories(Path(self.predict_histories), self.events.item_ids)
        if histories.report:
            log.warning("%s: %s", self.predict_histories, histories.report)
        self._names = histories.users
        scale = personal_time_scale(histories.events, histories.events.offsets[1:])
        return RankingExamples(
            histories.events, histories.examples, max_length=self.max_length, time_scale=scale, held_out=False
        )

    def description(self) -> DataDescription:
        content = f"{self._counts(self.events)}; of a history the last {self.max_length} events; split: {self.split}."
        return described(self.dataset, self.root.name, content)

    def user(self, row: int) -> str:
        """The original id of the user in a row of the store."""
        return str(self.events.user_ids[row])

    def describe(self, row: int) -> dict[str, Any]:
        """What `predict` says of a row besides the recommendations."""
        return {"user": self._names[row]}

    @staticmethod
    def _counts(events: InteractionStore) -> str:
        return f"{events.num_users:,} users, {events.num_items:,} items, {events.num_interactions:,} interactions"
