"""Tests that features replace their placeholders, and that another number of features is refused."""

import pytest
import torch

from datamodules.multimodal.batch import Prompts, TokenRows
from lightning_modules.multimodal.connector.merge_embeddings import merge_features_into_embeddings

PLACEHOLDER = 9
TOKENS = torch.tensor([[1, 9, 9, 2, 9, 3], [9, 4, 5, 9, 9, 0]])  # chats of samples 30, 31 in the first row, 32
COUNTS = torch.tensor([2, 1, 3])


def rows(placeholders=COUNTS, tokens=TOKENS):
    nothing = torch.zeros_like(tokens)
    return TokenRows(tokens, nothing, nothing, torch.tensor([30, 31, 32]), placeholders)


def test_features_replace_the_placeholders_in_order():
    embeddings, features = torch.randn(2, 6, 4), torch.randn(6, 4)
    merged = merge_features_into_embeddings(embeddings, rows(), features, COUNTS, PLACEHOLDER)
    slots = TOKENS == PLACEHOLDER
    assert torch.equal(merged[slots], features)
    assert torch.equal(merged[~slots], embeddings[~slots])
    assert torch.equal(merged, embeddings.masked_scatter(slots.unsqueeze(-1), features))


def test_gradients_reach_features_and_the_other_embeddings_alone():
    embeddings, features = torch.randn(2, 6, 4, requires_grad=True), torch.randn(6, 4, requires_grad=True)
    weights = torch.randn(2, 6, 4)
    (merge_features_into_embeddings(embeddings, rows(), features, COUNTS, PLACEHOLDER) * weights).sum().backward()
    slots = (TOKENS == PLACEHOLDER).unsqueeze(-1)
    assert torch.equal(features.grad, weights[slots.expand_as(weights)].view(6, 4))
    assert torch.equal(embeddings.grad, weights * ~slots)


def test_features_are_cast_to_the_format_of_embeddings():
    features = torch.randn(6, 4, requires_grad=True)
    merged = merge_features_into_embeddings(
        torch.zeros(2, 6, 4, dtype=torch.bfloat16), rows(), features, COUNTS, PLACEHOLDER
    )
    merged.float().sum().backward()
    assert merged.dtype == torch.bfloat16
    assert features.grad.dtype == torch.float32


def test_placeholders_of_prompts_are_replaced_by_features():
    tokens = torch.tensor([[0, 0, 9, 1], [9, 9, 9, 2]])
    prompts = Prompts(tokens, tokens > 0, torch.tensor([5, 6]), torch.tensor([1, 3]))
    features = torch.randn(4, 2)
    merged = merge_features_into_embeddings(torch.zeros(2, 4, 2), prompts, features, torch.tensor([1, 3]), PLACEHOLDER)
    assert torch.equal(merged[0, 2], features[0])
    assert torch.equal(merged[1, :3], features[1:])


def test_a_batch_without_features_keeps_its_embeddings():
    tokens, embeddings = torch.ones(1, 3, dtype=torch.int64), torch.randn(1, 3, 2)
    batch = TokenRows(tokens, tokens, tokens, torch.tensor([1]), torch.tensor([0]))
    assert torch.equal(
        merge_features_into_embeddings(embeddings, batch, torch.empty(0, 2), torch.tensor([0]), PLACEHOLDER), embeddings
    )


@pytest.mark.parametrize(
    ("counts", "features", "message"),
    [
        ([2, 2, 3], 7, "sample 31: its chat has 1 placeholders, but the encoder returned 2 features"),
        ([2, 0, 3], 5, "sample 31: its chat has 1 placeholders, but the encoder returned 0 features"),
        ([1, 2, 3], 6, "sample 30: its chat has 2 placeholders, but the encoder returned 1 features"),  # same total
        ([2, 1, 3], 7, "6 placeholders among the tokens, 6 expected, and 7 features"),
    ],
)
def test_another_number_is_refused_with_the_sample(counts, features, message):
    """masked_scatter ignores features that are too many."""
    with pytest.raises(ValueError, match=message):
        merge_features_into_embeddings(
            torch.zeros(2, 6, 4), rows(), torch.zeros(features, 4), torch.tensor(counts), PLACEHOLDER
        )


def test_a_chat_that_was_cut_is_refused():
    tokens = TOKENS.clone()
    tokens[1, 4] = 0
    with pytest.raises(ValueError, match="5 placeholders among the tokens, 6 expected, and 6 features"):
        merge_features_into_embeddings(
            torch.zeros(2, 6, 4), rows(tokens=tokens), torch.zeros(6, 4), COUNTS, PLACEHOLDER
        )
