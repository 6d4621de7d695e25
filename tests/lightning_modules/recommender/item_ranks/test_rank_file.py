"""Tests the file of ranks: it is read as written, and refused if it has changed."""

import io
import json
import random
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_modules.recommender.item_ranks.rank_file import (
    RankFileError,
    RankHeader,
    Recommended,
    UserRanks,
    encode,
    read_ranks,
)

HEADER = RankHeader("test", "", 26, 40, 3)


def make_ranks(users, seed=0, header=HEADER):
    generator = np.random.default_rng(seed)
    size = len(users)
    candidates = generator.integers(5, 60, size)
    return UserRanks(
        header,
        users,
        [f"item {number}" for number in generator.integers(0, 9, size)],
        generator.integers(0, 90, size),
        generator.integers(0, 90, size),
        generator.integers(1, candidates + 1),
        candidates,
    )


def rows(ranks):
    columns = (ranks.history.tolist(), ranks.popularity.tolist(), ranks.rank.tolist(), ranks.candidates.tolist())
    return list(zip(ranks.users, ranks.targets, *columns, strict=True))


@settings(max_examples=20)
@given(st.lists(st.text(), min_size=1, max_size=6, unique=True), st.randoms())
def test_users_are_read_sorted_whatever_their_order_was(tmp_path_factory, users, order):
    ranks, path = make_ranks(users), tmp_path_factory.getbasetemp() / "ranks-test.npz"
    path.write_bytes(encode(ranks))
    restored = read_ranks(path)
    assert restored.header == HEADER
    assert rows(restored) == sorted(rows(ranks))
    shuffled = order.sample(range(len(users)), len(users))
    columns = [np.array(column)[shuffled] for column in ranks[3:7]]
    texts = [[texts[index] for index in shuffled] for texts in ranks[1:3]]
    assert encode(UserRanks(HEADER, *texts, *columns)) == path.read_bytes()


def test_numpy_alone_reads_the_arrays(tmp_path):
    path = tmp_path / "ranks-test.npz"
    path.write_bytes(encode(make_ranks(["b", "\udcff", "ä"])))
    with np.load(path, allow_pickle=False) as arrays:
        assert json.loads(str(arrays["header"]))["stage"] == "test"
        assert arrays["users"].tobytes() == b"b\xc3\xa4\xed\xb3\xbf"
        assert arrays["user_lengths"].tolist() == [1, 2, 3]


def test_any_changed_byte_and_any_truncation_is_refused_or_harmless(tmp_path):
    path = tmp_path / "runs" / "a" / "ranks-test.npz"
    path.parent.mkdir(parents=True)
    ranks = make_ranks([f"user {number}" for number in range(5)])
    encoded = encode(ranks)
    chosen, refused = random.Random(0), 0
    for offset in range(0, len(encoded), 11):
        changed = bytearray(encoded)
        changed[offset] ^= 1 << chosen.randrange(8)
        for content in (bytes(changed), encoded[:offset]):
            path.write_bytes(content)
            try:
                assert rows(read_ranks(path)) == rows(ranks), "a changed value is read"
            except RankFileError as error:
                refused += 1
                assert len(str(error).splitlines()) == 3
                assert str(path) in str(error)
                assert "python train.py test --runs" in str(error)
                assert "--run_name a`" in str(error)
    assert refused > len(encoded) / 11 * 1.2


def edited(content, **arrays):
    """The file with other arrays and right checksums."""
    with np.load(io.BytesIO(content)) as old:
        kept = {name: old[name] for name in old.files}
    new = io.BytesIO()
    np.savez(new, **{name: value for name, value in (kept | arrays).items() if value is not None})
    return new.getvalue()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"rank": np.array([1, 0], np.int32)}, "rank 0 among .* candidates for user 'b'"),
        ({"rank": np.array([99, 1], np.int32)}, "rank 99 among .* candidates for user 'a'"),
        ({"rank": np.array([1, 1], np.int64)}, r"array rank of int64 \(2,\) for 2 users"),
        ({"rank": np.array([1], np.int32)}, r"array rank of int32 \(1,\) for 2 users"),
        ({"rank": None}, "no item named 'rank.npy'"),
        ({"history": np.array([-1, 4], np.int32)}, "for user 'a', with a history of -1 events"),
        ({"users": np.frombuffer(b"ba", np.uint8)}, "user 'a' out of order or twice"),
        ({"users": np.frombuffer(b"aa", np.uint8)}, "user 'a' out of order or twice"),
        ({"users": np.frombuffer(b"abc", np.uint8)}, "3 bytes in users, and lengths that add up to 2"),
        ({"user_lengths": np.array([3, -1], np.int32)}, "2 bytes in users, and lengths that add up to 2"),
        ({"users": np.frombuffer(b"a\xff", np.uint8)}, "codec can't decode"),
        ({"header": np.array('{"version": 3}')}, "version 3 instead of 1 or 2"),
        ({"header": np.array("[]")}, "version None instead of 1 or 2"),
        ({"header": np.array(json.dumps({"version": 1, **HEADER._asdict(), "stage": "fit"}))}, "header .*fit"),
        ({"header": np.array(json.dumps({"version": 1, **HEADER._asdict(), "step": "x"}))}, "header "),
    ],
)
def test_values_that_cannot_be_are_named(tmp_path, arrays, message):
    path = tmp_path / "ranks-val.npz"
    path.write_bytes(edited(encode(make_ranks(["a", "b"])), **arrays))
    with pytest.raises(RankFileError, match=f"found .*{message}") as error:
        read_ranks(path)
    assert "train.py validate --runs" in str(error.value)
    assert "--run_name" in str(error.value)


def make_recommended(users, seed=0):
    generator = np.random.default_rng(seed)
    items = generator.integers(0, 10, (len(users), 3))
    return make_ranks(users, seed)._replace(recommended=Recommended(items, generator.integers(1, 90, 9)))


def test_recommended_items_follow_their_users_into_the_order_of_the_file(tmp_path):
    path, ranks = tmp_path / "ranks-test.npz", make_recommended(["c", "a", "b"])
    path.write_bytes(encode(ranks))
    found = read_ranks(path)
    assert rows(found) == rows(make_ranks_in_order(ranks, [1, 2, 0]))
    assert found.recommended.items.tolist() == ranks.recommended.items[[1, 2, 0]].tolist()
    assert found.recommended.item_events.tolist() == ranks.recommended.item_events.tolist()
    path.write_bytes(encode(ranks._replace(recommended=None)))
    assert read_ranks(path).recommended is None


def make_ranks_in_order(ranks, order):
    texts = [[texts[index] for index in order] for texts in ranks[1:3]]
    return UserRanks(ranks.header, *texts, *(column[order] for column in ranks[3:7]))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"recommended": None}, "no item named 'recommended.npy'"),
        ({"item_events": None}, "no item named 'item_events.npy'"),
        ({"recommended": np.ones((3, 2), np.int32)}, r"array recommended of int32 \(3, 2\) for 2 users"),
        ({"recommended": np.ones((2, 0), np.int32)}, r"array recommended of int32 \(2, 0\) for 2 users"),
        ({"recommended": np.ones((2, 1))}, r"array recommended of float64 \(2, 1\) for 2 users"),
        ({"recommended": np.array([[0], [10]], np.int32)}, "recommended items 0 to 10 of 9"),
        ({"recommended": np.array([[-1], [9]], np.int32)}, "recommended items -1 to 9 of 9"),
        ({"item_events": np.zeros(9, np.int32)}, "array item_events of int32 .*, or without events"),
        ({"item_events": np.array([-1, 2], np.int32)}, "array item_events of int32"),
    ],
)
def test_recommended_items_that_cannot_be_are_named(tmp_path, arrays, message):
    path = tmp_path / "ranks-test.npz"
    path.write_bytes(edited(encode(make_recommended(["a", "b"])), **arrays))
    with pytest.raises(RankFileError, match=f"found .*{message}"):
        read_ranks(path)


def test_neither_pickles_nor_compressed_arrays_are_read(tmp_path):
    path, content = tmp_path / "ranks-test.npz", encode(make_ranks(["a", "b"]))
    path.write_bytes(edited(content, rank=np.array([1, 2], object)))
    with pytest.raises(RankFileError, match="allow_pickle"):
        read_ranks(path)
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(RankFileError, match="array header compressed"):
        read_ranks(path)
