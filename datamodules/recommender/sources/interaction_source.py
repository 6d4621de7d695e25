"""Opens the interactions of files, MovieLens or the embedded marketplace, each converted once to a store."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from datamodules.recommender.batch import Scorer
from datamodules.recommender.features.event_feature_settings import EVENT_OPTION
from datamodules.recommender.features.item_feature_settings import ItemFeatures
from datamodules.recommender.sources.synthetic_marketplace import Marketplace
from datamodules.recommender.store.interaction_store import VERSION, InteractionStore
from datamodules.recommender.store.prepare import Conversion, is_prepared, prepare_store
from datamodules.recommender.store.store_verification import open_verified
from datamodules.recommender.store.store_writer import write_store
from engine.io.atomic_file import write_atomically
from engine.io.gitignored_folder import make_gitignored_folder
from engine.number_check import check_number
from engine.system.installation import PROGRAM

Dataset = Literal["files", "synthetic", "ml-100k", "ml-1m", "ml-25m", "ml-32m", "ml-latest-small"]


@dataclass(frozen=True)
class InteractionSource:
    """Interactions and the settings of their conversion.

    Args:
        dataset: option `dataset` of InteractionSequences.
        root: file or folder of the interactions; of the marketplace, the folder of its stores.
        conversion: columns and filters.
        marketplace: size and rule of the data set `synthetic`.
    """

    dataset: Dataset
    root: Path
    conversion: Conversion
    marketplace: Marketplace

    def __post_init__(self) -> None:
        """Raise ValueError if `synthetic` lacks what an option reads, or `rating_column` is not read."""
        minimum, column = self.conversion.get("min_rating"), self.conversion.get("rating_column")
        check_number("data.init_args.min_rating", minimum)
        if minimum is not None and self.dataset == "synthetic":
            raise ValueError(f"data.init_args.min_rating: found {minimum:g}, but `synthetic` has no ratings")
        if self.conversion.get("event_features") is not None and self.dataset == "synthetic":
            raise ValueError(f"{EVENT_OPTION}: found columns, but the events of `synthetic` have no further columns")
        if minimum is None and column is not None:
            raise ValueError(
                f"data.init_args.rating_column: found {column!r}, but only data.init_args.min_rating reads ratings; "
                "set it, or remove rating_column"
            )

    @property
    def optima(self) -> dict[str, Scorer]:
        """Optimal scorers, if the rule of the data is known; otherwise empty."""
        if self.dataset != "synthetic":
            return {}
        return {
            "optimum-without-times": self.marketplace.time_blind_scores,
            "optimum": self.marketplace.optimal_scores,
        }

    def download(self) -> None:
        """Download a MovieLens data set, unless it is there; other data sets need no download."""
        if self.dataset not in ("files", "synthetic"):
            from datamodules.recommender.sources.movielens import download_movielens

            download_movielens(self.dataset, self.root)

    def is_converted(self) -> bool:
        """Return whether `open` would find a store. Writes nothing.

        Raises:
            FileNotFoundError: `root` does not exist.
            InteractionError: the files cannot be read.
        """
        if self.dataset == "synthetic":
            return (self._marketplace_store / "meta.json").is_file()
        self._require_root()
        return is_prepared(self.root, **self.conversion)

    def open(self, verify: bool = False) -> InteractionStore:
        """Return the store, which is converted the first time.

        Args:
            verify: compare an existing store with its checksums, and convert again if a file is corrupt.

        Raises:
            FileNotFoundError: `root` does not exist.
            InteractionError: the files cannot be read.
            StoreError: a corrupt store cannot be replaced.
        """
        if self.dataset == "synthetic":
            return self._open_marketplace(verify)
        self._require_root()
        return prepare_store(self.root, verify=verify, **self.conversion)

    def require_item_table(self, settings: ItemFeatures) -> None:
        """Raise ValueError if there is no table of items: the settings name no file, and none is generated."""
        if settings.path is None and self.dataset != "synthetic":
            raise ValueError(
                "data.init_args.item_features.path: found null, expected the file with a row for each item"
            )

    def item_table(self, settings: ItemFeatures) -> Path:
        """Return the file of the settings, or the marketplace's file, which is written if it is not there."""
        if settings.path is not None:
            return Path(settings.path)
        path, content = self._marketplace_store.with_suffix(".items.csv"), self.marketplace.item_table().encode()
        # The content is compared because the table may be from an older version of the generator.
        if not path.is_file() or path.read_bytes() != content:
            make_gitignored_folder(self.root)
            write_atomically(path, content)
        return path

    def _require_root(self) -> None:
        if not self.root.exists():
            files = self.dataset == "files"
            hint = "; set it to your file or folder" if files else f"; `{PROGRAM} prepare --config ...` downloads it"
            raise FileNotFoundError(f"data.init_args.root: {self.root} does not exist{hint}")

    # -- the marketplace ---------------------------------------------------------------------------------------------

    @property
    def _marketplace_store(self) -> Path:
        settings = json.dumps([VERSION, asdict(self.marketplace)])
        return self.root / f"marketplace-{hashlib.sha256(settings.encode()).hexdigest()[:16]}"

    def _open_marketplace(self, verify: bool) -> InteractionStore:
        root = self._marketplace_store
        if (root / "meta.json").is_file():
            return open_verified(root, self._generate_marketplace) if verify else InteractionStore.open(root)
        make_gitignored_folder(self.root)
        return self._generate_marketplace()

    def _generate_marketplace(self) -> InteractionStore:
        events = self.marketplace.events()
        return write_store(
            self._marketplace_store,
            offsets=events.offsets,
            items=events.items,
            times=events.times,
            user_ids=[f"shopper-{number}" for number in range(1, self.marketplace.num_users + 1)],
            item_ids=[f"item-{number}" for number in range(1, self.marketplace.num_items + 1)],
            source={"marketplace": asdict(self.marketplace)},
        )
