"""Tests features of events from files to batches: store, encoding, histories."""

import json
import math
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from datamodules.recommender.batch import NumberStatistics
from datamodules.recommender.datamodule import InteractionSequences
from datamodules.recommender.events import EventArrays, EventColumns
from datamodules.recommender.features.event_encoding import EncodedEvents, encoding_identity, fit_event_encoding
from datamodules.recommender.features.event_feature_settings import EventFeatures
from datamodules.recommender.features.history_features import HistoryFeatures
from datamodules.recommender.prediction_input import PredictionInput
from datamodules.recommender.reading.errors import InteractionError
from datamodules.recommender.reading.item_lists import ItemLists
from datamodules.recommender.reading.predict_histories import read_histories
from datamodules.recommender.splits import SplitExamples, leave_one_out
from datamodules.recommender.store.prepare import prepare_store
from engine.data.samplers import MicroBatchRequest

SETTINGS = EventFeatures(categories=["device"], numbers=["stars", "paid"])
ONE_OF_EACH = EventFeatures(categories=["device"], numbers=["stars"])
# (user, item, time, stars, device, paid); rows of a user are not in order, and b comes first.
ROWS = [
    ("b", "x", 30, "4", "phone", "1.5"),
    ("a", "y", 20, "", "web", ""),
    ("b", "y", 10, "2", "", "2e2"),
    ("a", "x", 10, "5", "phone", "-3"),
    ("b", "x", 20, "1", "tv", "0"),
    ("a", "z", 40, "3", "web", "7"),
    ("a", "x", 30, "3", "web", "9"),
    ("b", "y", 40, "5", "watch", "1000000"),
]
HEADER = "user_id,item_id,timestamp,stars,device,paid"


def table(folder, rows=ROWS, header=HEADER, name="events.csv"):
    path = folder / name
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def store_of(path, settings=SETTINGS, **options):
    return prepare_store(path, event_features=settings, min_item_interactions=1, **options)


def as_rows(store):
    """(device, stars, paid) of each event; None where missing."""
    codes, numbers, (devices,) = store.features
    return [
        (devices[code - 1] if code else None, *(None if math.isnan(value) else value for value in values))
        for (code,), values in zip(codes.tolist(), numbers.tolist(), strict=True)
    ]


def expected_rows(rows=ROWS):
    users = list(dict.fromkeys(row[0] for row in rows))
    ordered = sorted(rows, key=lambda row: (users.index(row[0]), row[2]))
    return [(row[4] or None, *(float(cell) if cell else None for cell in (row[3], row[5]))) for row in ordered]


def test_a_store_has_the_features_of_each_event(tmp_path):
    store = store_of(table(tmp_path))
    assert as_rows(store) == expected_rows()
    assert store.find_corrupt_file() is None
    assert store.features.numbers.dtype == np.float64
    assert isinstance(store.features.codes, np.memmap)
    recbole = table(
        tmp_path,
        name="shop.inter",
        header="user_id:token,item_id:token,timestamp:float,stars:float,device:token,paid:float",
    )
    recbole.write_text(recbole.read_text().replace(",", "\t"))
    assert as_rows(store_of(recbole)) == expected_rows()
    frame = pl.read_csv(tmp_path / "events.csv")
    frame.with_columns(pl.col("device").cast(pl.Categorical)).write_parquet(tmp_path / "events.parquet")
    assert as_rows(store_of(tmp_path / "events.parquet")) == expected_rows()


def test_white_space_around_a_category_is_no_part_of_it(tmp_path):
    path = table(tmp_path, [(*row[:4], f" {row[4]} " if row[2] > 10 else row[4], row[5]) for row in ROWS])
    assert as_rows(store_of(path)) == expected_rows()
    pl.read_csv(path).write_parquet(tmp_path / "events.parquet")
    assert as_rows(store_of(tmp_path / "events.parquet")) == expected_rows()


def test_filters_drop_the_features_of_their_rows(tmp_path):
    rows = [*ROWS, ("a", "rare", 15, "1", "rare device", "3")]
    store = prepare_store(table(tmp_path, rows), event_features=SETTINGS, min_item_interactions=2)
    kept = [row for row in rows if row[1] not in ("rare", "z")]
    assert as_rows(store) == expected_rows(kept)


def test_a_store_belongs_to_its_columns(tmp_path):
    path = table(tmp_path)
    plain = prepare_store(path, min_item_interactions=1)
    assert plain.features is None
    assert "event_features" not in json.loads((plain.root / "meta.json").read_text())
    roots = {
        store_of(path, settings).root
        for settings in (SETTINGS, EventFeatures(numbers=["stars"]), EventFeatures(categories=["stars"]))
    } | {plain.root}
    assert len(roots) == 4
    store = store_of(path)
    (store.root / "event_numbers.npy").write_bytes(b"corrupt")
    assert as_rows(store_of(path, verify=True)) == expected_rows(), "converted again"


@pytest.mark.parametrize(
    ("cell", "column", "message"),
    [("four", 3, "'four'"), ("nan", 3, "'nan'"), ("inf", 5, "'inf'"), ("1,5", 5, "fields"), ("1 2", 5, "'1 2'")],
)
def test_a_wrong_value_is_named_with_line_and_column(tmp_path, cell, column, message):
    rows = [list(row) for row in ROWS]
    rows[2][column] = cell
    with pytest.raises(InteractionError, match=rf"events.csv: line 4: .*{message}") as raised:
        store_of(table(tmp_path, rows))
    assert message == "fields" or f"column '{HEADER.split(',')[column]}'" in str(raised.value)


def test_wrong_columns_and_parquet_values_are_refused(tmp_path):
    path = table(tmp_path)
    for settings, message in (
        (EventFeatures(numbers=["star"]), r"no column 'star' \(data.init_args.event_features\).*did you mean 'stars'"),
        (EventFeatures(categories=["item_id"]), "'item_id' is the user, item or time already"),
        (EventFeatures(numbers=["device"]), "line 2: column 'device': found 'phone', expected a finite number"),
    ):
        with pytest.raises(InteractionError, match=message):
            store_of(path, settings)
    path.write_text(path.read_text().rstrip("\n"))
    with pytest.raises(InteractionError, match="line 9: .* without a line end"):
        store_of(path)
    frame = pl.DataFrame({"user_id": ["a", "a"], "item_id": [1, 2], "timestamp": [1, 2], "stars": [1.0, math.inf]})
    frame.write_parquet(tmp_path / "t.parquet")
    with pytest.raises(InteractionError, match="t.parquet: row 2: column 'stars': found inf, expected a finite number"):
        store_of(tmp_path / "t.parquet", EventFeatures(numbers=["stars"]))
    with pytest.raises(
        InteractionError, match="t.parquet: column 'stars': found type Float64, expected text, integers"
    ):
        store_of(tmp_path / "t.parquet", EventFeatures(categories=["stars"]))
    with pytest.raises(
        InteractionError, match="2 rows with data.init_args.event_features need .*conversion on disk has"
    ):
        store_of(tmp_path / "t.parquet", EventFeatures(numbers=["stars"]), conversion_memory=1e-9)
    for wrong, message in (
        ({}, "found no column"),
        ({"numbers": ["a"], "categories": ["a"]}, "found the column 'a' twice"),
        ({"numbers": ["times"]}, "'times', which is a key of predict_histories"),
    ):
        with pytest.raises(ValueError, match=message):
            EventFeatures(**wrong)
    with pytest.raises(ValueError, match=r"event_features: found columns, but the events of `synthetic`"):
        InteractionSequences(dataset="synthetic", event_features=SETTINGS)


def test_the_encoding_is_that_of_inputs_of_training_rows(tmp_path):
    store = store_of(table(tmp_path))
    encoding = fit_event_encoding(SETTINGS, store, leave_one_out(store).train, chunk=3)
    # Inputs of b: the event at 10 alone, as that at 20 is a target; of a: that at 10.
    assert encoding.categories == {"device": ["phone"]}
    assert encoding.numbers["stars"] == (3.5, 1.5)
    assert encoding.numbers["paid"] == (98.5, 101.5)
    coded = EncodedEvents(encoding, store)
    codes, numbers = coded.gather(np.array([0, 4]), np.array([2, 4]), 4)
    assert codes[..., 0].tolist() == [[0, 0, 0, 0], [1, 0, 0, 0]], "an unknown category is as a missing one"
    np.testing.assert_allclose(numbers[0, :2], [[-1, 1], [-2.5 / 1.5, -98.5 / 101.5]], rtol=1e-6)
    assert np.isnan(numbers[0, 2:]).all(), "padding, and empty cells"
    assert np.isnan(numbers[1, 1]).all(), "padding, and empty cells"
    assert coded.gather(np.array([3]), np.array([1]), 1)[1][0, 0, 1] == 5, "a million is limited"
    identity = encoding_identity(encoding)
    assert identity.columns == "categories device, number stars, number paid"
    features = store.features.select_rows(np.array([1, -1, 3]))
    assert as_rows(SimpleNamespace(features=features)) == [as_rows(store)[1], (None, None, None), as_rows(store)[3]]
    assert identity.sha256 != encoding_identity(encoding._replace(categories={"device": ["tv"]})).sha256


def events_of(numbers, categories=("only",), codes=None):
    """One user's events with a number each, and their training row."""
    codes = np.ones(len(numbers), np.int32) if codes is None else np.array(codes, np.int32)
    features = EventColumns(codes[:, None], np.array(numbers, np.float64)[:, None], [list(categories)])
    columns = np.array([0, len(numbers)]), np.ones(len(numbers), np.int32), np.arange(len(numbers))
    return EventArrays(*columns, 1, features), SplitExamples(np.array([0]), np.array([len(numbers)]))


def test_equal_numbers_have_no_deviation():
    events, examples = events_of([0.1] * 8)
    number = fit_event_encoding(ONE_OF_EACH, events, examples).numbers["stars"]
    assert number == (pytest.approx(0.1), 1.0), "the deviation of the sum's rounding is not one of the numbers"
    events, examples = events_of([1e308, -1e308, 1e308, -1e308, 0])
    assert fit_event_encoding(ONE_OF_EACH, events, examples).numbers["stars"] == (0, 1e308), "no sum overflows"
    events, examples = events_of([math.nan] * 3)
    assert fit_event_encoding(ONE_OF_EACH, events, examples).numbers["stars"] == (0, 1)


def test_the_identity_depends_on_no_order_of_sums():
    values = np.random.default_rng(0).normal(size=400)
    values = np.concatenate([values - values.mean(), [0.0]])
    found = []
    for order, chunk in ((slice(None, -1), 1 << 20), (slice(None, -1), 7), (slice(-2, None, -1), 7)):
        found.append(fit_event_encoding(ONE_OF_EACH, *events_of([*values[order], 0]), chunk=chunk))
    assert found[0] == found[1] == found[2]
    noise = [found[0]._replace(numbers={"stars": NumberStatistics(mean, 1.0)}) for mean in (-1.57e-17, -1.44e-17, 0.0)]
    assert len({encoding_identity(encoding).sha256 for encoding in noise}) == 1
    assert encoding_identity(noise[0]).sha256 != encoding_identity(found[0]).sha256


def test_events_before_the_last_windows_do_not_count():
    events, examples = events_of([100, 1, 3, 50], ("early", "late", "target"), [1, 2, 2, 3])
    encoding = fit_event_encoding(ONE_OF_EACH, events, examples, max_length=2)
    assert encoding == ({"device": ["late"]}, {"stars": (2, 1)})
    assert fit_event_encoding(ONE_OF_EACH, events, examples, max_length=9).categories == {"device": ["early", "late"]}
    assert fit_event_encoding(ONE_OF_EACH, events, examples).categories == {"device": ["early", "late"]}


@pytest.mark.parametrize("windows, known", [("last", ["late"]), ("random", ["early", "late"])])
def test_the_data_count_the_events_of_their_windows(tmp_path, windows, known):
    rows = [("a", "x", time, 1, "early" if time < 2 else "late", 1) for time in range(6)]
    data = InteractionSequences(
        root=str(table(tmp_path, rows)), min_item_interactions=1, event_features=SETTINGS, max_length=1, windows=windows
    )
    data.prepare_data()
    assert data.event_features.categories == {"device": known}


def module_of(folder, rows=ROWS):
    folder.mkdir()
    path = table(folder, rows)
    data = InteractionSequences(root=str(path), min_item_interactions=1, event_features=SETTINGS, max_length=3)
    data.prepare_data()
    data.setup("fit")
    return data


def batches(data):
    rows = np.arange(2)
    return [part[MicroBatchRequest(0, rows)] for part in (data.train_set.rows, data.validation_set, data.test_set)]


def test_the_features_of_a_target_are_in_no_batch(tmp_path):
    """A history has the features of its events; the predicted event has none, in training and evaluation."""
    data = module_of(tmp_path / "a")
    train, validation, test = batches(data)
    assert train.history.event_codes.tolist() == [[[0]], [[1]]]
    assert train.history.event_numbers.shape == (2, 1, 2)
    assert test.history.event_codes.shape == (2, 3, 1)
    assert validation.history.event_codes.shape == (2, 2, 1)
    # The third event of a user is the target of the validation, the fourth event is the target of the test.
    for index, same in ((2, (train, validation)), (3, (train, validation, test))):
        rows = [list(row) for row in ROWS]
        for user in "ab":
            own = sorted((row for row in rows if row[0] == user), key=lambda row: row[2])
            own[index][3:] = ["1", "phone", "0.25"]
        changed = batches(module_of(tmp_path / str(index), rows))
        for before, after in zip((train, validation, test), changed, strict=True):
            alike = all(
                np.array_equal(first.numpy(), second.numpy(), equal_nan=first.is_floating_point())
                for first, second in zip(before.history, after.history, strict=True)
            )
            assert alike == any(before is batch for batch in same)


def test_histories_of_a_file_have_features_under_their_names(tmp_path):
    path = tmp_path / "people.jsonl"
    lines = [
        {"items": ["x", "?", "y"], "times": [1, 2, 3], "stars": [4, 5, None], "device": [True, "tv", " "]},
        {"items": ["x"], "times": [1], "paid": [3], "device": [" tv "]},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    histories = read_histories(path, ["x", "y"], HistoryFeatures(SETTINGS))
    assert as_rows(histories.events) == [("true", 4, None), (None, None, None), ("tv", None, 3)]
    for key, value, message in (
        ("stars", [1, 2], "key 'stars': found 2 values and 1 items"),
        ("stars", 4, "key 'stars': found 4, expected a list"),
        ("stars", ["4"], "key 'stars': found \"4\", expected a number, or null"),
        ("stars", [True], "found true, expected a number"),
        ("paid", [10**400], "expected a finite number"),
        ("device", [1.5], "key 'device': found 1.5, expected a category"),
    ):
        path.write_text(json.dumps({"items": ["x"], "times": [1], key: value}))
        with pytest.raises(InteractionError, match=f"people.jsonl: line 1: .*{message}"):
            read_histories(path, ["x", "y"], HistoryFeatures(SETTINGS))


def test_keys_that_no_line_has_are_reported(tmp_path, messages):
    path = tmp_path / "people.jsonl"
    lines = [{"items": ["x"], "times": [1], "Stars": [4], "device": ["tv"]}, {"items": [], "times": [], "paid": []}]
    path.write_text("\n".join(map(json.dumps, lines)))
    read = PredictionInput(str(path), None, ItemLists(None, None)).read
    read(SimpleNamespace(), ["x"], SETTINGS)
    (message,) = [text for text in messages if "no line" in text]
    assert f"{path}: found no line with the key 'stars'; " in message
    path.write_text(json.dumps({**lines[0], "stars": [1], "paid": [None]}))
    read(SimpleNamespace(), ["x"], SETTINGS)
    assert sum("no line" in text for text in messages) == 1
