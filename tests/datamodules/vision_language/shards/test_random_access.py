"""Tests that random access to shards returns the same samples as sequential reading."""

import pytest

from datamodules.vision_language.shards.chat_reader import read_sample
from datamodules.vision_language.shards.random_access import TarChats
from datamodules.vision_language.shards.shard import Shard


def test_a_row_read_by_index_equals_the_row_read_in_order(write_shard):
    folder = "long" * 40  # has an extended header
    names = [f"{folder if n % 2 else 'a'}/{n}.{end}" for n in range(5) for end in ("jpg", "txt")]
    files = {name: name[-5:].replace(".", "").encode() for name in names}
    shards = [
        Shard(str(write_shard(name, some)))
        for name, some in (("a.tar", files), ("empty.tar", {}), ("b.tar", {"__note__.txt": b"", "x.jpg": b"j"}))
    ]
    chats = TarChats(shards)
    all_samples = [sample for shard in shards for sample in shard.locations()]
    assert len(chats) == len(all_samples) == 6
    assert [chats.read(row) for row in range(5)] == [read_sample(sample) for sample in all_samples[:5]]
    assert chats.read(3).images == [b"3jpg"]
    assert [chats.name(row) for row in (0, 5)] == [f"{shards[0].name}, sample 0", f"{shards[2].name}, sample 0"]
    with pytest.raises(ValueError, match="b.tar, sample 0 .x.: expected a .json"):
        chats.read(5)


def test_a_remote_shard_is_refused():
    with pytest.raises(ValueError, match="s3://a/b.tar: .* stream them .data.init_args.shuffle_window"):
        TarChats([Shard("s3://a/b.tar")])
