"""Tests each loss against plain arithmetic: values, gradients, any split of a batch, packed or separate rows."""

import numpy as np
import pytest
import torch

from datamodules.multimodal.batch import IGNORE, Chat
from datamodules.multimodal.text.packing import one_per_row, pack
from lightning_modules.document_qa.losses import contrastive_options, focal, label_smoothing, sum_per_chat
from lightning_modules.multimodal.language.language_model import cross_entropy
from tests.lightning_modules.multimodal.conftest import VOCABULARY, build  # noqa: F401

QUESTIONS = ([(4, 2), (4, 3), (4, 1)], [(6, 4)], [(2, 1), (2, 5)])
"""Options of each question as (tokens of the prompt, tokens of the answer); the second question is open."""

RIGHT = (1, 0, 0)


def batch_of(questions=QUESTIONS, right=RIGHT, packed_length=None):
    """Rows, the number of each chat's question, and whether it is right."""
    numbers = np.random.default_rng(3)
    made = []
    for number, options in enumerate(QUESTIONS):
        for index, (prompt, answer) in enumerate(options):
            tokens = numbers.integers(0, VOCABULARY, prompt + answer)
            chat = Chat(tokens, np.arange(len(tokens)) >= prompt, 0)
            if options in questions:
                made.append((chat, number, index == RIGHT[number]))
    chats, samples = [chat for chat, *_ in made], np.array([number for _, number, _ in made])
    if packed_length is None:
        rows, order = one_per_row(chats, samples, 0), np.arange(len(chats))
    else:
        rows, order = pack(chats, samples, packed_length, 0)
    _, renumbered = np.unique(samples, return_inverse=True)
    return rows, torch.from_numpy(renumbered[order]), torch.tensor([made[index][2] for index in order])


def contrasted(model, rows, questions, right, weight=0.7):
    """The loss as DocumentReader computes it."""
    terms = model.terms(model.hidden_states(model.embed(rows.tokens), rows.positions), rows.labels)
    sums, lengths = sum_per_chat(terms, rows.labels, rows.positions, IGNORE)
    return contrastive_options(-sums, lengths, questions, right, weight), lengths[right].sum()


def by_hand(model, weight=0.7):
    """Chat by chat, question by question."""
    rows, questions, right = batch_of()
    total, count = torch.zeros(()), 0
    for number in range(len(QUESTIONS)):
        scores, output = [], []
        for index in torch.nonzero(questions == number).flatten().tolist():
            tokens = rows.tokens[index : index + 1, : int(sum(QUESTIONS[number][len(scores)]))]
            states = model.hidden_states(model.embed(tokens), torch.arange(tokens.shape[1]).unsqueeze(0))
            reported = torch.log_softmax(model.logits(states[0, :-1]), -1)
            reported = reported[torch.arange(tokens.shape[1] - 1), tokens[0, 1:]][
                QUESTIONS[number][len(scores)][0] - 1 :
            ]
            output.append(reported)
            scores.append(reported.mean())
        answer = output[RIGHT[number]]
        choice = -torch.log_softmax(torch.stack(scores), 0)[RIGHT[number]]
        total = total - answer.sum() + weight * len(answer) * choice
        count += len(answer)
    return total, count


def gradients(model, total):
    model.zero_grad()
    total.backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize("packed_length", [None, 16, 64])
def test_contrast_equals_its_definition(build, packed_length):  # noqa: F811
    model = build()
    total, count = contrasted(model, *batch_of(packed_length=packed_length))
    expected, number = by_hand(model)
    assert int(count) == number == 3 + 4 + 1
    torch.testing.assert_close(total, expected, atol=1e-5, rtol=1e-5)
    pairs = zip(gradients(model, total), gradients(model, expected), strict=True)
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_the_contrastive_loss_of_parts_sums_to_that_of_the_whole(build):  # noqa: F811
    model = build()
    loss, count = contrasted(model, *batch_of())
    parts = [contrasted(model, *batch_of(some)) for some in (QUESTIONS[:2], QUESTIONS[2:])]
    torch.testing.assert_close(loss, sum(total for total, _ in parts), atol=1e-5, rtol=1e-5)
    assert int(count) == sum(int(number) for _, number in parts)
    separate = [sum(some) for some in zip(*(gradients(model, total) for total, _ in parts), strict=True)]
    for ours, theirs in zip(gradients(model, contrasted(model, *batch_of())[0]), separate, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_the_order_of_options_does_not_matter():
    log_likelihoods, lengths = torch.tensor([-3.0, -8.0, -2.0, -1.0]), torch.tensor([2, 4, 1, 3])
    questions, right = torch.tensor([0, 0, 0, 1]), torch.tensor([False, True, False, True])
    expected = contrastive_options(log_likelihoods, lengths, questions, right, 1.0)
    order = torch.tensor([3, 1, 2, 0])
    actual = contrastive_options(log_likelihoods[order], lengths[order], questions[order], right[order], 1.0)
    torch.testing.assert_close(actual, expected)


def test_an_open_question_has_nothing_to_choose_from():
    alone = torch.tensor([-7.0], requires_grad=True)
    total = contrastive_options(alone, torch.tensor([2]), torch.tensor([0]), torch.tensor([True]), 5.0)
    total.backward()
    assert total.item() == 7
    assert alone.grad.item() == -1


def test_improbable_options_do_not_overflow():
    scores = torch.tensor([-4000.0, -9000.0], requires_grad=True)
    total = contrastive_options(scores, torch.tensor([1, 1]), torch.tensor([0, 0]), torch.tensor([False, True]), 1.0)
    total.backward()
    assert total.item() == 9000 + 5000
    assert torch.equal(scores.grad, torch.tensor([1.0, -2.0]))


def test_no_question_at_all_weighs_nothing(build):  # noqa: F811
    """A process without a sample takes part: every weight gets a gradient, of zero."""
    model = build()
    rows, _, _ = batch_of(questions=[])
    nothing = torch.zeros(0, dtype=torch.int64)
    total, count = contrasted(model, rows, nothing, nothing.bool())
    assert total.item() == 0
    assert count.item() == 0
    assert all(gradient.abs().max() == 0 for gradient in gradients(model, total))


# -- losses of tokens ------------------------------------------------------------------------------------------------


@pytest.fixture
def scored():
    torch.manual_seed(0)
    return torch.randn(7, 11, dtype=torch.float64, requires_grad=True), torch.randint(0, 11, (7,))


def test_label_smoothing_equals_its_definition(scored):
    scores, targets = scored
    spread = torch.full((7, 11), 0.3 / 11, dtype=torch.float64)
    spread[torch.arange(7), targets] += 0.7
    expected = -(spread * torch.log_softmax(scores, -1)).sum(1)
    torch.testing.assert_close(label_smoothing(0.3)(scores, targets), expected)
    assert torch.autograd.gradcheck(lambda x: label_smoothing(0.3)(x, targets), scores)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_focal_equals_its_definition(scored, gamma):
    scores, targets = scored
    probabilities = torch.softmax(scores, -1)[torch.arange(7), targets]
    torch.testing.assert_close(focal(gamma)(scores, targets), -((1 - probabilities) ** gamma) * probabilities.log())
    assert torch.autograd.gradcheck(lambda x: focal(gamma)(x, targets), scores)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_focal_has_a_gradient_where_a_token_is_certain(gamma):
    scores = torch.tensor([[60.0, -60.0], [-40.0, 40.0]], requires_grad=True)
    focal(gamma)(scores, torch.tensor([0, 0])).sum().backward()
    assert scores.grad.isfinite().all()
    assert scores.grad[1].abs().max() > 0.9


@pytest.mark.parametrize("criterion", [cross_entropy, label_smoothing(0.2), focal(2.0)])
def test_losses_are_equal_packed_unpacked_and_in_parts(build, criterion):  # noqa: F811
    model = build()

    def loss(*questions, packed_length=None):
        rows, _, _ = batch_of([QUESTIONS[number] for number in questions], packed_length=packed_length)
        return model.loss(model.hidden_states(model.embed(rows.tokens), rows.positions), rows.labels, criterion)

    expected, count = loss(0, 1, 2)
    assert int(count) == 16
    for parts in ([loss(0, 1, 2, packed_length=24)], [loss(0), loss(1, 2)]):
        torch.testing.assert_close(sum(total for total, _ in parts), expected, atol=1e-5, rtol=1e-5)
        assert sum(int(number) for _, number in parts) == 16
