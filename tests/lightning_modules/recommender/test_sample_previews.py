"""Tests that the preview of a user agrees with the metrics over all users."""

import pytest
import torch

from datamodules.recommender.batch import History, RankingBatch
from lightning_modules.recommender.ranking_metrics import ranks
from lightning_modules.recommender.sample_previews import BEST, LAST, render_preview, user_preview

B, V, L = 6, 40, 14


def batch():
    generator = torch.Generator().manual_seed(0)
    items = torch.stack([torch.randperm(V, generator=generator)[: L + 1] + 1 for _ in range(B)])
    lengths = torch.tensor([14, 1, 5, 10, 11, 3])
    target, held = items[:, -1], torch.arange(L) < lengths[:, None]
    history = items[:, :L] * held
    ones = torch.ones(B, dtype=torch.int64)
    return RankingBatch(
        History(history, history, lengths, ones), target, history, torch.zeros(B, 0, dtype=torch.int64), torch.arange(B)
    )


@pytest.mark.parametrize("remove_seen", [True, False])
def test_ranks_and_recommendations_are_those_of_the_metrics(remove_seen):
    given, scores = batch(), torch.randn(B, V + 1, generator=torch.Generator().manual_seed(1))
    before = scores.clone()
    expected = ranks(scores, given.target, given.seen if remove_seen else None).tolist()
    for row in range(B):
        shown = user_preview(scores, given, row, remove_seen)
        items = given.history.items[row, : given.history.lengths[row]].tolist()
        assert shown.rank == expected[row]
        assert shown.target == given.target[row]
        assert list(shown.last) == items[::-1][:LAST]
        assert shown.events == len(items)
        free = [item for item in range(1, V + 1) if not (remove_seen and item in items)]
        assert list(shown.best) == sorted(free, key=lambda item: -scores[row, item])[:BEST]
        reported = render_preview("7", shown, "item {}".format)
        assert reported.right == (shown.rank <= BEST) == (shown.target in shown.best)
        assert reported.expected == f"item {shown.target}"
        assert reported.name == "user 7"
        assert ("all events" in reported.question) == (len(items) <= LAST)
        assert reported.answer.endswith(f"\n...\n{shown.rank}. item {shown.target}") == (not reported.right)
    assert torch.equal(scores, before)


def test_fewer_items_than_are_shown():
    given, scores = batch(), torch.zeros(B, V + 1)
    scores[:, 21:] = -torch.inf
    preview = user_preview(scores, given, 0, remove_seen=True)
    assert set(preview.best) <= set(range(1, 21)) - set(given.history.items[0].tolist())
