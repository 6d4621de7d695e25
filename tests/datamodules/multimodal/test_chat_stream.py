"""Tests that chats of a stream are batched as those of a data set, on any number of processes and workers."""

import pickle
from functools import partial
from itertools import takewhile

import numpy as np
import pytest
import torch

from datamodules.multimodal.batch import IGNORE
from datamodules.multimodal.chat_dataset import ChatExamples, ChatItem
from datamodules.multimodal.chat_stream import ChatStream
from datamodules.multimodal.text.chat_encoder import ChatEncoder
from datamodules.multimodal.text.tokenizer import load_tokenizer
from engine.data.errors import BadSampleError
from engine.data.samplers import PADDING_INDEX, MicroBatchRequest, TrainSampler
from engine.data.stream import StreamBatches


class Letters:
    """Record i of epoch e: (e, i), a question of 10 - i letters with i % 3 features, each of the value i. The record
    `bad` cannot be read."""

    identity = "letters"

    def __init__(self, length=10, bad=None):
        self.length, self.bad = length, bad

    def __len__(self):
        return self.length

    def records_from(self, epoch, start):
        return ((epoch, position) for position in range(start, self.length))

    def name(self, record):
        return f"letter {record}"

    def item(self, record, index=None):
        position = record[1] if index is None else index
        if position == self.bad:
            raise BadSampleError(f"letter {position} cannot be read")
        messages = [{"role": "user", "content": "a" * (10 - position) + "<it>" * (position % 3)}]
        messages.append({"role": "assistant", "content": "b" * position})
        return ChatItem(messages, (1,) * (position % 3), torch.full((position % 3,), position))

    def collate(self, items):
        return torch.cat([*items, torch.zeros(0, dtype=torch.int64)])


class Sized(Letters):
    """The same as a data set."""

    def name(self, index, epoch=0):
        return f"{index} (letter {(epoch, index)})"

    def item(self, epoch, index):
        return super().item(None, index)


@pytest.fixture(scope="module")
def encoder():
    return ChatEncoder(load_tokenizer(None, ["aaa bbb"]), "<it>")


def stream(encoder, source=None, **options):
    return ChatStream(source or Letters(), partial(ChatExamples, encoder=encoder, **options))


def arrays(parts):
    return [
        [getattr(field, "tolist", lambda field=field: field)() for field in (*part.rows, part.encoder_input)]
        for part in parts
    ]


@pytest.mark.parametrize("options", [{"packed_length": 60}, {"length_groups": 3}, {}])
def test_a_batch_is_what_a_data_set_makes_of_the_same_samples(encoder, options):
    positions = np.array([7, 0, 3, 6])
    ours = stream(encoder, **options).batch(2, positions, [(2, position) for position in positions.tolist()])
    theirs = ChatExamples(Sized(), encoder, **options)[MicroBatchRequest(2, positions)]
    assert arrays(ours) == arrays(theirs)
    assert len(ours) == options.get("length_groups", 1)


def test_a_padding_index_of_a_stream_has_no_loss_terms(encoder):
    [part] = stream(encoder).batch(0, np.array([PADDING_INDEX]), [(0, 5)])
    assert (part.rows.labels == IGNORE).all()
    assert not len(part.rows.samples)
    assert not len(part.encoder_input)


def test_bad_samples_are_named_or_skipped(encoder):
    arguments = 1, np.array([4, 5]), [(1, 4), (1, 5)]
    with pytest.raises(BadSampleError, match="letter 5 cannot be read"):
        stream(encoder, Letters(bad=5)).batch(*arguments)
    [part] = stream(encoder, Letters(bad=5), skip_bad=True).batch(*arguments)
    assert part.rows.samples.tolist() == [4]
    assert [(skip.reason, skip.what) for skip in part.skipped] == [("bad", "letter 5 cannot be read")]
    with pytest.raises(ValueError, match=r"sample 4 \(letter \(1, 4\)\): .* max_length is 9"):
        stream(encoder, max_length=9).batch(*arguments)
    [part] = stream(encoder, max_length=9, too_long="drop").batch(*arguments)
    assert [skip.reason for skip in part.skipped] == ["too_long", "too_long"]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_each_chat_once_on_any_number_of_processes_and_workers(encoder, processes, workers):
    full = stream(encoder, Letters(20), packed_length=200)
    steps = []
    for process in range(processes):
        sampler = TrainSampler(None, 6, seed=1, rank=process, world_size=processes)
        # As a loader's workers have them: each a copy of its own.
        own = slice(process, None, processes)
        copies = [pickle.loads(pickle.dumps(StreamBatches(full, 6, own))) for _ in range(workers or 1)]
        draws = (copies[turn % len(copies)][draw] for turn, draw in zip(range(99), sampler, strict=False))
        batches = takewhile(lambda streamed: streamed.records, draws)
        steps.append([[sample for part in batch.batch for sample in part.rows.samples.tolist()] for batch in batches])
    together = [sorted(sum(parts, [])) for parts in zip(*steps, strict=True)]
    assert together == [list(range(start, min(start + 6, 20))) for start in range(0, 20, 6)]
