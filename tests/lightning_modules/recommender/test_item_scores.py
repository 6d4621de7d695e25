"""Compares ranks and best items over blocks of any size with those over all scores at once."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_modules.recommender import item_scores
from lightning_modules.recommender.item_scores import DotProductScores, PrecomputedScores, best_items
from lightning_modules.recommender.ranking_metrics import candidate_ranks, ranks


def plain_best(scores, number, excluded):
    """Best first; of equal scores the smaller item first."""
    left = [item for item in range(1, len(scores)) if item not in excluded and scores[item] > -math.inf]
    return sorted(left, key=lambda item: (-scores[item], item))[:number]


def shown(best):
    items, values = best
    return [
        [item for item, value in zip(*row, strict=True) if value > -math.inf]
        for row in zip(items.tolist(), values.tolist(), strict=True)
    ]


@st.composite
def catalogs(draw):
    """Vectors of small integers: products are exact, and nearly every example has ties."""
    rows, number = draw(st.integers(1, 4)), draw(st.integers(1, 11))
    vector = st.lists(st.integers(-1, 1), min_size=2, max_size=2)
    states = draw(st.lists(vector, min_size=rows, max_size=rows))
    weight = draw(st.lists(vector, min_size=number, max_size=number))
    item = st.integers(0, number)
    target = draw(st.lists(item, min_size=rows, max_size=rows))
    seen = draw(st.lists(st.lists(item, min_size=3, max_size=3), min_size=rows, max_size=rows))
    return states, weight, target, seen, draw(st.sets(item))


@settings(max_examples=150, deadline=None)
@given(catalogs(), st.integers(1, 13), st.integers(1, 13))
def test_blocks_of_any_size_give_the_same_ranks_and_best_items(example, size, number):
    states, weight, target, seen, excluded = example
    states, weight = (torch.tensor(x, dtype=torch.float32) for x in (states, weight))
    target, seen = torch.tensor(target), torch.tensor(seen)
    sequence = torch.cat((torch.full((len(states), 1), math.nan), states @ weight.T), 1)
    mask = torch.zeros(len(weight) + 1, dtype=torch.bool)
    mask[list(excluded)] = True
    block_bytes = 4 * len(states) * size
    of_blocks = DotProductScores(states, weight, block_bytes), PrecomputedScores(sequence, block_bytes)
    assert [block.scores.shape[1] for block in of_blocks[0].blocks()][0] == min(size, len(weight))
    wanted = [
        plain_best(row, number, excluded | set(own)) for row, own in zip(sequence.tolist(), seen.tolist(), strict=True)
    ]
    for scores in (*of_blocks, sequence):
        assert ranks(scores, target, seen).equal(plain_ranks(sequence, target, seen))
        assert ranks(scores, target).equal(plain_ranks(sequence, target, target[:, None]))
        assert shown(best_items(scores, number, seen, mask)) == wanted
        candidates = seen.clamp_min(1)
        assert candidate_ranks(scores, target, candidates).equal(candidate_ranks(sequence, target, candidates))


def plain_ranks(whole, target, seen):
    found = []
    for row, goal, own in zip(whole.tolist(), target.tolist(), seen.tolist(), strict=True):
        ahead = [item for item in range(1, len(row)) if item == goal or (item not in own and not row[item] < row[goal])]
        found.append(len(ahead) if goal else 0)
    return torch.tensor(found)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 1.0, math.inf, -math.inf, math.nan]), min_size=2, max_size=9),
    st.integers(1, 9),
    st.data(),
)
def test_ranks_of_invalid_scores_do_not_depend_on_the_blocks(scores, size, data):
    target = torch.tensor([data.draw(st.integers(1, len(scores) - 1))])
    whole = torch.tensor([scores])
    assert ranks(PrecomputedScores(whole, 4 * size), target).equal(plain_ranks(whole, target, torch.zeros(1, 1)))


def test_float_vectors_have_the_scores_of_their_own_blocks():
    """The target's score is the one in its block to the bit, so that an equal item ties with it."""
    generator = torch.Generator().manual_seed(0)
    states, weight = torch.randn(5, 64, generator=generator), torch.randn(1000, 64, generator=generator)
    weight[900] = weight[3]
    scores = DotProductScores(states, weight, 4 * 5 * 37)
    together = torch.cat([block.scores for block in scores.blocks()], 1)
    items = torch.randint(1, 1001, (5, 30), generator=generator)
    assert scores.gather_items(items).equal(together.gather(1, items - 1))
    assert ranks(scores, torch.full((5,), 4)).equal(
        plain_ranks(torch.nn.functional.pad(together, (1, 0)), torch.full((5,), 4), torch.zeros(5, 1))
    )


@pytest.mark.parametrize("num_items", [1_000, 50_000])
def test_the_largest_tensor_does_not_grow_with_the_items(num_items, monkeypatch):
    monkeypatch.setattr(item_scores, "BLOCK_BYTES", 1 << 12)
    scores = DotProductScores(torch.randn(4, 8), torch.randn(num_items, 8))
    assert max(block.scores.numel() * 4 for block in scores.blocks()) <= 1 << 12
    items, values = best_items(scores, 10)
    assert items.shape == values.shape == (4, 10)
    assert scores.select_user(2).gather_items(items[2:3]).allclose(values[2:3], atol=1e-5)


@pytest.mark.slow
def test_a_test_and_a_prediction_in_small_blocks_are_the_same(done, lockstep, monkeypatch):
    name, found = done.folder.name, []
    for block_bytes in (item_scores.BLOCK_BYTES, 1 << 10):
        monkeypatch.setattr(item_scores, "BLOCK_BYTES", block_bytes)
        lockstep("test", name=name)
        lockstep("predict", name=name)
        ranked = (done.folder / "ranks-test.npz").read_bytes()
        found.append((ranked, (done.folder / "predictions.jsonl").read_text()))
    assert found[0] == found[1]
