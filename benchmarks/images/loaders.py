"""Measures samples per second of the loaders of image families, by number of workers."""

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.table import Table

from benchmarks.cpu_time import cpu_seconds
from benchmarks.images.jpeg_images import jpeg
from benchmarks.turn_order import turn_order
from datamodules.image_classifier.dataset import ImageDataset
from datamodules.image_classifier.sources.image_source import FileImages
from datamodules.images.decoding import MAX_PIXELS
from datamodules.multimodal.batch import ImageLayout, Images
from datamodules.vision_language.chat_dataset import ImageProcessor
from datamodules.vision_language.chat_file import ImageChat
from engine.data.dataloader import TimedDataLoader
from engine.data.loader_factory import LoaderFactory
from engine.data.samplers import MicroBatchRequest, TrainSampler
from engine.system.cpu_count import available_cpus

_FILES, _SIZE = 512, (640, 480)
_BATCH = 32
_VIEW = 384
_WORKERS = (1, 2, 4, 8, 16)
"""Numbers of workers beside 0; those above 2 where there are as many cores."""


class _ChatImages:
    """The images of chats as the vision-language family loads them; their texts cost little beside it."""

    def __init__(self, files: list[Path], max_tiles: int) -> None:
        layout = ImageLayout(_VIEW, 64, max_tiles)
        self.files, self.processor = files, ImageProcessor(layout, MAX_PIXELS)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, request: MicroBatchRequest) -> Images:
        # Files are read as in training, which belongs to the cost of a sample.
        chats = (ImageChat(str(row), [], [self.files[row].read_bytes()]) for row in request.indices)
        return self.processor.collate([self.processor.item(chat).encoder_input for chat in chats])


class Variants(NamedTuple):
    """Data sets whose loaders are measured: pictures to classify, and chats with a view or with tiles of a picture."""

    classifier: ImageDataset
    view: _ChatImages
    tiles: _ChatImages


_TITLES = {
    "classifier": "image classifier, 224 x 224",
    "view": f"vision-language, a view of {_VIEW} x {_VIEW}",
    "tiles": f"vision-language, {_VIEW} x {_VIEW} and 2 x 2 tiles",
}


def measure(repeats: int, files: int = _FILES) -> dict[str, Any]:
    """Return {family: {workers: samples per second, for each turn}}, and per CPU second of all processes as `N/core`.

    A turn is an epoch.
    """
    numbers = [0, *(number for number in _WORKERS if number <= max(2, available_cpus()))]
    with tempfile.TemporaryDirectory() as folder:
        variants = _variants(Path(folder), files)
        columns = [column for number in numbers for column in (str(number), _per_core(number))]
        found: dict[str, Any] = {name: {column: [] for column in columns} for name in variants._fields}
        for turn in range(repeats):
            for name in turn_order(variants._fields, turn):
                for number in turn_order(numbers, turn):
                    wall, core = _rates(getattr(variants, name), number)
                    found[name][str(number)].append(wall)
                    found[name][_per_core(number)].append(core)
    return found


def table(found: dict[str, Any]) -> Table:
    """Return a table of the medians with their ranges."""
    table = Table(title=f"samples per second, JPEG of {_SIZE[0]} x {_SIZE[1]}", title_justify="left")
    table.add_column("family")
    for column in next(iter(found.values())):
        number, _, per_core = column.partition("/")
        table.add_column(f"{number} workers" + ", per CPU s" * bool(per_core), justify="right")
    for name, columns in found.items():
        cells = (f"{median(turns):,.0f} ({min(turns):,.0f} - {max(turns):,.0f})" for turns in columns.values())
        table.add_row(_TITLES[name], *cells)
    return table


def _variants(folder: Path, number: int) -> Variants:
    files = [folder / f"{index}.jpg" for index in range(number)]
    # A few pictures under many names: the page cache holds all files, so disks are not measured.
    pictures = [jpeg(*_SIZE, seed) for seed in range(8)]
    for index, file in enumerate(files):
        file.write_bytes(pictures[index % len(pictures)])
    labels = np.zeros(number, np.int64)
    classifier = ImageDataset(FileImages(files, labels, (3, 224, 224), folder), random=True)
    return Variants(classifier, _ChatImages(files, 1), _ChatImages(files, 2))


def _per_core(workers: int) -> str:
    return f"{workers}/core"


def _rates(data: Any, workers: int) -> tuple[float, float]:
    """Return the samples per second of an epoch after its first batch, and per CPU second of the whole epoch.

    The CPU time is that of all processes, the start of the workers included: they load ahead of the batch that is read.
    """
    used = cpu_seconds()
    batches = iter(_loader(data, workers))
    next(batches)  # the workers have started
    began = time.perf_counter()
    count = sum(1 for _ in batches)
    wall = time.perf_counter() - began
    del batches  # the workers have ended, and their time counts
    return count * _BATCH / wall, (count + 1) * _BATCH / (cpu_seconds() - used)


def _loader(data: Any, workers: int) -> TimedDataLoader:
    factory = LoaderFactory(
        rank=0,
        world_size=1,
        local_world_size=1,
        num_workers=workers,
        worker_start=None,
        worker_timeout=300,
        persistent_workers=False,
        prefetch_factor=2,
        skip_bad=False,
        pin_memory=torch.cuda.is_available(),
    )
    return factory.train_loader(data, TrainSampler(len(data), _BATCH, seed=1))
