"""Tests encoded features against a plain computation item by item."""

import numpy as np
import pytest

from datamodules.recommender.batch import Catalog
from datamodules.recommender.features.item_encoding import LIMIT, encode_items
from datamodules.recommender.features.item_feature_settings import ItemFeatures
from datamodules.recommender.features.item_features import load_item_features, with_cold_items
from datamodules.recommender.features.item_table import ItemTable
from datamodules.recommender.reading.errors import InteractionError

NAN = np.nan
TABLE = ItemTable(
    ids=list("abcdef"),
    categories={
        "genre": [("x", "y"), ("x",), (), ("z",), ("x", "z"), ("y",)],
        "brand": [("p",), ("p",), ("q",), ("p",), ("r",), ()],
    },
    numbers=np.array([[1.0, NAN], [3.0, 7.0], [NAN, 7.0], [1e9, 1.0], [5.0, NAN], [2.0, 2.0]]),
    vectors=np.array([[1, 2], [3, 4], [NAN, NAN], [9, 9], [5, 0], [0, 1]], np.float32),
)
# Items 1 to 4 are of the data; 3 has no row, and 4 is not trained. Items 5 and 6 occur in no interaction.
ROW_OF = np.array([-1, 0, 1, -1, 3, 4, 5])
TRAINED = np.array([False, True, True, True, False, False, False])


def names(arrays, item):
    """Share of each code of an item."""
    pairs = zip(arrays.codes[item].tolist(), arrays.shares[item].tolist(), strict=True)
    return {code: share for code, share in pairs if share}


def test_encoded_items_equal_a_plain_computation():
    arrays = encode_items(TABLE, ROW_OF, TRAINED)
    # Codes: 1 unknown genre, 2 x, 3 y, 4 unknown brand, 5 p, 6 and 7 missing numbers, 8 missing vector.
    assert arrays.known.tolist() == [False, True, True, True, True, True, True, True, True]
    assert [names(arrays, item) for item in range(7)] == [
        {},
        {2: 0.5, 3: 0.5, 5: 1, 7: 1},
        {2: 1, 5: 1},
        {1: 1, 4: 1, 6: 1, 7: 1, 8: 1},
        {1: 1, 5: 1},  # no training item has the genre z
        {2: 1, 4: 1, 7: 1},  # z is dropped beside x, and r is unknown
        {3: 1, 4: 1},
    ]
    assert (arrays.codes[arrays.shares == 0] == 0).all()
    assert arrays.codes[0].max() == 0
    mean, deviation = 2.0, 1.0  # of the training items 1.0 and 3.0; the other number of theirs is constant
    expected = [0, (1 - mean) / deviation, (3 - mean) / deviation, 0, LIMIT, 3.0, 0.0]
    np.testing.assert_allclose(arrays.dense[:, 0], expected)
    assert (arrays.dense[:, 1] == 0).all(), "a number that training items do not differ in"
    centre, norm = np.array([2.0, 3.0]), np.sqrt(2)
    vectors = [np.zeros(2) if row < 0 else (TABLE.vectors[row] - centre) / norm for row in ROW_OF]
    vectors[0] = np.zeros(2)
    np.testing.assert_allclose(arrays.dense[:, 2:], vectors, rtol=1e-6)
    np.testing.assert_array_equal(arrays.trained, TRAINED)


def test_other_items_do_not_change_those_of_the_training():
    encoded = encode_items(TABLE, ROW_OF, TRAINED)
    alone = encode_items(TABLE, ROW_OF[:4], TRAINED[:4])
    assert [names(encoded, item) for item in range(4)] == [names(alone, item) for item in range(4)]
    np.testing.assert_array_equal(encoded.dense[:4], alone.dense)


def one_column(numbers):
    """Encoded numbers of items; all but the last item are trained."""
    values = np.array(numbers)[:, None]
    table = ItemTable([str(row) for row in range(len(values))], {}, values, np.zeros((len(values), 0), np.float32))
    trained = np.array([False, *[True] * (len(values) - 1), False])
    return encode_items(table, np.arange(-1, len(values)), trained).dense[1:, 0]


def test_a_constant_number_whose_mean_is_rounded_is_zero():
    assert np.mean([0.1] * 6) != 0.1, "the rounded mean that this test is about"
    assert one_column([0.1] * 6 + [0.2]).tolist() == [0.0] * 7


@pytest.mark.parametrize("scale", [1e300, 1e-200])
def test_numbers_whose_squares_overflow_or_vanish_are_standardized(scale):
    numbers = np.array([1.0, -1.0, 0.5, 3.0])
    np.testing.assert_allclose(one_column(numbers * scale), one_column(numbers), rtol=1e-6)


# -- of a file ---------------------------------------------------------------------------------------------------------

SETTINGS = ItemFeatures(categories=["genre"], numbers=["price"])
CONTENT = "item_id,genre,price\na,x|y,1\nb,x,2\nnew,y,3\nc,,\n"


def load(tmp_path, content=CONTENT, settings=SETTINGS, trained=(False, True, True, False, True)):
    path = tmp_path / "items.csv"
    path.write_text(content)
    return load_item_features(path, settings, ["a", "b", "c", "d"], np.array(trained))


def test_cold_items_are_encoded_after_those_of_the_data(tmp_path):
    features = load(tmp_path)
    assert features.cold_ids == ["new"]
    assert len(features.arrays.trained) == 6
    assert features.report.endswith("features of 3 of 4 items of the data, and of 1 items without an interaction")
    assert features.trained_items.items.tolist() == [1, 2, 4]
    assert load(tmp_path, trained=[False] + [True] * 4).trained_items is None
    catalog = Catalog(4, 7, ["a", "b", "c", "d"], ["A", "B", "C", "D"])
    assert with_cold_items(catalog, features) == Catalog(5, 7, ["a", "b", "c", "d", "new"], ["A", "B", "C", "D", "new"])
    assert with_cold_items(catalog._replace(titles=None), features).titles is None
    assert with_cold_items(catalog, None) is catalog
    without = load(tmp_path, settings=ItemFeatures(categories=["genre"], numbers=["price"], cold_items=False))
    assert without.cold_ids == []
    assert "cold_items false skips" in without.report
    assert without.identity == features.identity
    np.testing.assert_array_equal(without.arrays.dense, features.arrays.dense[:5])


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"content": CONTENT.replace("new,y,3", "new,x,4\nnewer,z,9")}, True),
        ({"content": "\n".join([CONTENT.splitlines()[0], *reversed(CONTENT.splitlines()[1:])]) + "\n"}, True),
        ({"content": CONTENT.replace("x|y", "y|x")}, True),
        ({"content": CONTENT.replace("a,x|y,1", "a,x,1")}, False),
        ({"content": CONTENT.replace("a,x|y,1", "a,x|y,1.5")}, False),
        ({"content": CONTENT.replace("b,x,2", "b,x,")}, False),
        ({"content": CONTENT.replace("c,,\n", "")}, False),
        ({"trained": (False, True, True, True, True)}, False),
        ({"settings": ItemFeatures(categories=["genre"])}, False),
    ],
)
def test_the_identity_is_of_the_items_of_the_data(tmp_path, change, same):
    assert (load(tmp_path).identity == load(tmp_path, **change).identity) == same


def test_a_table_of_other_items_is_refused(tmp_path):
    with pytest.raises(InteractionError, match="found none of the 3 training items among 1 ids such as '7', expected"):
        load(tmp_path, "item_id,genre,price\n7,x,1\n")
