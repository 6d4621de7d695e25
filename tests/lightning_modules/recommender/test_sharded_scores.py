"""Compares ranks, scores and best items of a table sharded over three gloo ranks with those of the whole table."""

import math

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh

from engine.distributed.row_shards import shard_rows
from lightning_modules.recommender import sharded_scores
from lightning_modules.recommender.item_scores import DotProductScores, best_items
from lightning_modules.recommender.ranking_metrics import candidate_ranks, ranks
from lightning_modules.recommender.sharded_scores import ShardedDotProductScores
from tests.distributed.conftest import forge, team  # noqa: F401  (fixtures)

RANKS, C = 3, 2


def whole_numbers(*shape, low, high, seed):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


def compare():
    """Compare on each rank of a group."""
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    mesh = init_device_mesh("cpu", (RANKS,))
    users, histories = (3, 1, 2)[rank], (2, 4, 0)[rank]
    for items, block_bytes in ((1, 1 << 20), (2, 1 << 20), (10, 1 << 20), (10, 3 * 4 * 2 * 3)):
        sharded_scores.BLOCK_BYTES = block_bytes  # the last one has blocks of two items or more
        # Vectors of small integers: products are exact, and there are many ties.
        table = whole_numbers(items + 1, C, low=-1, high=2, seed=items).float()
        states = whole_numbers(users, C, low=-1, high=2, seed=rank).float()
        if items == 10 and rank == 0:
            states[0] = math.nan
        target = whole_numbers(users, low=0, high=items + 1, seed=rank + 10)
        seen = whole_numbers(users, histories, low=0, high=items + 1, seed=rank + 20)
        mask = torch.zeros(items + 1, dtype=torch.bool)
        mask[items // 2 + 1] = True
        sharded, alone = ShardedDotProductScores(states, shard_rows(table, mesh)), DotProductScores(states, table[1:])
        assert sharded.num_items == items
        torch.testing.assert_close(sharded.gather_items(seen), alone.gather_items(seen), rtol=0, atol=0, equal_nan=True)
        assert ranks(sharded, target, seen).equal(ranks(alone, target, seen))
        assert ranks(sharded, target).equal(ranks(alone, target))
        candidates = whole_numbers(users, 3, low=1, high=items + 1, seed=rank + 30)
        assert candidate_ranks(sharded, target, candidates).equal(candidate_ranks(alone, target, candidates))
        last = ranks(sharded.select_user(users - 1), target[-1:], seen[-1:])
        assert last.equal(ranks(alone, target, seen)[-1:])
        states = states.nan_to_num()
        sharded, alone = ShardedDotProductScores(states, shard_rows(table, mesh)), DotProductScores(states, table[1:])
        for number in (1, 4, 20):
            for excluded in (None, mask):
                actual, expected = (best_items(scores, number, seen, excluded) for scores in (sharded, alone))
                assert actual[1].equal(expected[1])
                real = expected[1] > -math.inf
                assert actual[0][real].equal(expected[0][real]), "the smaller item first, of equal scores"
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.distributed
def test_ranks_and_best_items_are_those_of_the_whole_table(team):  # noqa: F811
    ranks = team("-m", "tests.lightning_modules.recommender.test_sharded_scores", name="a", processes=RANKS)
    assert ranks.end() == [0] * RANKS, ranks.output


if __name__ == "__main__":
    compare()
