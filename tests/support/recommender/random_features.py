"""Random features of items."""

import numpy as np

from datamodules.recommender.batch import ItemFeatureArrays


def random_features(items, trained, cold=0, dense=3, seed=0):
    """Features of `items` items of the data, of which some are trained, and of cold ones."""
    generator = np.random.default_rng(seed)
    number, slots, codes = items + cold + 1, 3, 7
    shares = generator.random((number, slots)).astype(np.float32) * (generator.random((number, slots)) < 0.7)
    arrays = ItemFeatureArrays(
        codes=np.where(shares > 0, generator.integers(1, codes, shares.shape), 0).astype(np.int32),
        shares=shares.astype(np.float32),
        dense=generator.normal(size=(number, dense)).astype(np.float32),
        known=np.array([False, *[True] * (codes - 2), False]),
        trained=np.isin(np.arange(number), list(trained)),
    )
    for array in arrays[:3]:
        array[0] = 0
    return arrays
