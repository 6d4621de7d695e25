"""Tests InfoNCE against explicit probabilities, and several processes against one."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from engine.optim.global_loss_mean import GlobalLossMean, LossSum
from lightning_modules.document_qa.contrastive import ProjectionHead, Temperature, info_nce
from tests.distributed.conftest import forge, team  # noqa: F401  (fixtures)

SIZE, MOST = 6, 3  # of the vectors; evidence pages of a question
SCALE = torch.tensor([5.0])


def made(questions, hard, seed=0):
    """Random unit vectors, pages of few documents so that questions share them, and each page's key among them."""
    generator = torch.Generator().manual_seed(seed)
    vectors = F.normalize(torch.randn(2 * questions + hard, SIZE, generator=generator, dtype=torch.float64), dim=1)
    keys = torch.randint(1, 9, (questions + hard,), generator=generator)
    evidence = torch.randint(0, 9, (questions, MOST), generator=generator)
    evidence[:, 0] = keys[:questions]  # its own page is one of them
    return vectors[:questions], vectors[questions:], evidence, keys


def written_out(questions, pages, evidence, keys, symmetric, scale=float(SCALE)):
    """The same, one probability after the other."""
    total, own = 0.0, range(len(questions))
    for q in own:
        right = math.e ** (scale * questions[q] @ pages[q])
        wrong = [p for p in range(len(pages)) if p != q and keys[p] not in evidence[q]]
        forward = right / (right + sum(math.e ** (scale * questions[q] @ pages[p]) for p in wrong))
        others = [other for other in own if other != q and keys[q] not in evidence[other]]
        backward = right / (right + sum(math.e ** (scale * questions[other] @ pages[q]) for other in others))
        total -= (forward.log() + backward.log()) / 2 if symmetric else forward.log()
    return total


@pytest.mark.parametrize("symmetric", [False, True])
def test_info_nce_equals_the_cross_entropy_of_the_right_page(symmetric):
    for seed in range(5):
        batch = made(4, 6, seed)
        loss = info_nce(*batch, SCALE, symmetric)
        assert loss == pytest.approx(float(written_out(*batch, symmetric)), rel=1e-6)


def test_other_pages_that_answer_are_no_wrong_ones():
    """The second page of the evidence is as good as can be, and so is the same page once more; the third is wrong."""
    questions = torch.eye(3)[:1]
    pages = torch.stack([questions[0], questions[0], questions[0], -questions[0]])
    keys, evidence = torch.tensor([7, 8, 7, 9]), torch.tensor([[7, 8, 0]])
    loss = info_nce(questions, pages, evidence, keys, torch.ones(1), symmetric=False)
    assert loss == pytest.approx(math.log(1 + math.exp(-2)), rel=1e-5)


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_rank_without_a_question_has_zero_gradients(symmetric):
    """A process alone without a sample: nothing to learn, and every weight gets a gradient all the same."""
    network = nn.Linear(SIZE, SIZE)
    vectors = network(torch.ones(1, SIZE))[:0]
    no_keys = torch.zeros(0, dtype=torch.int64)
    loss = info_nce(vectors, vectors, torch.zeros(0, MOST, dtype=torch.int64), no_keys, SCALE, symmetric)
    loss.backward()
    assert loss == 0
    assert not network.weight.grad.any()


def test_the_temperature_is_bounded_and_trains():
    temperature = Temperature()
    assert temperature().item() == pytest.approx(1 / 0.07)
    for value, expected in ((9.0, 100.0), (-3.0, 1.0), (2.0, math.exp(2))):
        with torch.no_grad():
            temperature.log_scale.fill_(value)
        temperature.clamp()
        assert temperature().item() == pytest.approx(expected)
    temperature().backward()
    assert temperature.log_scale.grad.item() != 0


def test_vectors_have_length_one_in_any_format():
    head = ProjectionHead(8, SIZE)
    with torch.autocast("cpu", torch.bfloat16):
        vectors = head(torch.randn(5, 8).bfloat16())
    assert vectors.dtype == torch.float32
    assert vectors.shape == (5, SIZE)
    assert torch.allclose(vectors.norm(dim=1), torch.ones(5))


# -- several processes -------------------------------------------------------------------------------------------------

STEPS, BATCH, HARD = 4, 7, 2  # of the 7 questions of a step one process has more than another
SHARES = {1: [7], 2: [4, 3], 3: [4, 3, 0]}  # the third process has none


class Encoder(nn.Module):
    """Stands for tower, language model and head: reads questions and pages alike."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second, self.temperature = nn.Linear(SIZE, 8), nn.Linear(8, SIZE), Temperature()

    def forward(self, inputs):
        return F.normalize(self.second(torch.tanh(self.first(inputs))), dim=1), self.temperature()


def inputs_of(step, process, processes):
    """A rank's part of a global batch: questions, pages (right pages first), evidence, keys."""
    generator = torch.Generator().manual_seed(100 + step)
    questions, right = torch.randn(2, BATCH, SIZE, generator=generator)
    hard = torch.randn(BATCH, HARD, SIZE, generator=generator)
    keys = torch.randint(1, 12, (BATCH, 1 + HARD), generator=generator)
    evidence = torch.stack([keys[:, 0], torch.randint(0, 12, (BATCH,), generator=generator)], dim=1)
    shares = SHARES[processes]
    own = slice(sum(shares[:process]), sum(shares[: process + 1]))
    pages = torch.cat([right[own], hard[own].flatten(0, 1)])
    return questions[own], pages, evidence[own], torch.cat([keys[own, 0], keys[own, 1:].flatten()])


def train(process, processes, symmetric):
    """Weights after some steps, and the gradients of the first."""
    encoder = Encoder()
    model = nn.parallel.DistributedDataParallel(encoder) if processes > 1 else encoder
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.3)
    mean, gradients = GlobalLossMean(BATCH), None
    for step in range(STEPS):
        optimizer.zero_grad()
        questions, pages, evidence, keys = inputs_of(step, process, processes)
        texts = torch.cat([questions, pages, torch.zeros(1, SIZE)])  # never without a row, as the rows of a batch
        vectors, scale = model(texts)
        parts = vectors[:-1].split([len(questions), len(pages)])
        loss = info_nce(*parts, evidence, keys, scale, symmetric)
        mean.add(LossSum(loss, len(questions))).backward()
        mean.normalize_gradients(encoder.parameters())
        gradients = gradients or [weight.grad.clone() for weight in encoder.parameters()]
        optimizer.step()
    return [weight.detach() for weight in encoder.parameters()], gradients


def reference(symmetric):
    """One process, no gathering: the mean of probabilities written out."""
    encoder = Encoder()
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.3)
    gradients = None
    for step in range(STEPS):
        optimizer.zero_grad()
        questions, pages, evidence, keys = inputs_of(step, 0, 1)
        vectors, scale = encoder(torch.cat([questions, pages]))
        parts = vectors.split([len(questions), len(pages)])
        (written_out(*parts, evidence, keys, symmetric, scale) / BATCH).backward()
        gradients = gradients or [weight.grad.clone() for weight in encoder.parameters()]
        optimizer.step()
    return [weight.detach() for weight in encoder.parameters()], gradients


def train_together():
    """Train as one of several processes, and write the result to a file of the working folder."""
    torch.distributed.init_process_group("gloo")
    process, processes = torch.distributed.get_rank(), torch.distributed.get_world_size()
    found = [train(process, processes, symmetric) for symmetric in (False, True)]
    torch.save(found, f"{processes}-{process}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("processes", SHARES)
def test_trains_the_same_on_any_number_of_processes(processes, team, tmp_path):  # noqa: F811
    """Compares weights and first gradients with a plain training on one process with an explicit loss."""
    if processes == 1:
        everyones = [[train(0, 1, symmetric) for symmetric in (False, True)]]
    else:
        ranks = team("-m", "tests.lightning_modules.document_qa.test_contrastive", name="a", processes=processes)
        assert ranks.end() == [0] * processes, ranks.output
        everyones = [torch.load(tmp_path / f"{processes}-{process}.pt") for process in range(processes)]
    for symmetric in (False, True):
        expected = reference(symmetric)
        for actual in everyones:
            for kind, ours, theirs in zip(("weights", "gradients"), actual[symmetric], expected, strict=True):
                worst = max(float((first - second).abs().max()) for first, second in zip(ours, theirs, strict=True))
                assert worst < 1e-5, (kind, symmetric, worst)


if __name__ == "__main__":
    train_together()
