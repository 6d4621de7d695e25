"""Trains a reader: it memorizes a document, and every weight gets a gradient from any batch."""

import numpy as np
import pytest
import torch

from datamodules.document_qa.prompt.context import ContextSettings
from engine.data.samplers import PADDING_INDEX, MicroBatchRequest
from tests.lightning_modules.document_qa.reader import built

LOSSES = ("answer", "label_smoothing", "focal", "contrastive_options")


def mean_loss(module, batch):
    total, count = module.training_loss(batch)
    return total / count


def test_one_document_is_overfitted():
    """Its four questions: a choice from the text, a mass from the table, a color that is seen, one without answer."""
    module, data = built(size=4, reader={"max_new_tokens": 8})
    optimizer = torch.optim.AdamW(module.parameters(), lr=4e-3, betas=(0.9, 0.95))
    module.train()
    for step in range(60):
        loss = mean_loss(module, data.train_set[MicroBatchRequest(step, np.arange(4))])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
    assert loss < 0.1
    data.validation_set.sample_builder.questions = data.train_set.source.sample_builder.questions
    module.eval()
    with torch.no_grad():
        records = module.answering.records(data.validation_set[MicroBatchRequest(0, np.arange(4))])
    assert sorted(record.sample for record in records) == [0, 1, 2, 3]
    for record in records:
        question = data.question(record.sample)
        if question.options:
            assert record.whole.chosen == question.right
            assert record.whole.confidence > 0.6
        else:
            assert record.whole.text == question.answer
            assert record.whole.confidence > 0.6
        assert record.whole.loss / record.whole.terms < 0.2


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_reach_the_tower(loss):
    module, data = built(reader={"loss": loss})
    mean_loss(module, data.train_set[MicroBatchRequest(0, np.arange(8))]).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())
    first, *_ = module.encoder.parameters()
    assert first.grad.abs().max() > 0


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("samples", [range(4), [PADDING_INDEX]])
def test_without_an_image_every_weight_takes_part(loss, samples):
    """Other processes wait for the tower's gradient, which is zero; also of a process that has no sample at all."""
    module, data = built(reader={"loss": loss}, context=ContextSettings(images="none"))
    batch = data.train_set[MicroBatchRequest(0, np.array(list(samples)))]
    assert sum(len(part.encoder_input.pixels) for part in batch) == 0
    total, count = module.training_loss(batch)
    total.backward()
    assert all(p.grad is not None for p in module.parameters())
    assert all(p.grad.abs().max() == 0 for p in module.encoder.parameters())
    assert (int(count) > 0) == (PADDING_INDEX not in samples)
    assert (total.item() > 0) == (PADDING_INDEX not in samples)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("packed_length", [None, 700])
def test_the_loss_is_the_same_in_any_parts(loss, packed_length):
    """The loss of eight samples is the same at once and in twos, with one chat in a row and with several."""
    module, data = built(reader={"loss": loss}, packed_length=packed_length, questions_per_chat=2)
    module.eval()
    whole = module.training_loss(data.train_set[MicroBatchRequest(0, np.arange(8))])
    parts = [
        module.training_loss(data.train_set[MicroBatchRequest(0, np.arange(start, start + 2))])
        for start in (0, 2, 4, 6)
    ]
    total, count = (sum(values) for values in zip(*parts, strict=True))
    torch.testing.assert_close(whole.total, total, atol=1e-4, rtol=1e-5)
    assert int(whole.terms) == int(count) > 16


def test_losses_differ_and_settings_count():
    found = set()
    for reader in (
        {"loss": "answer"},
        {"loss": "label_smoothing"},
        {"loss": "label_smoothing", "label_smoothing": 0.3},
        {"loss": "focal"},
        {"loss": "focal", "focal_gamma": 1.0},
        {"loss": "contrastive_options"},
        {"loss": "contrastive_options", "contrast_weight": 2.0},
    ):
        module, data = built(reader=reader)
        module.eval()
        loss = mean_loss(module, data.train_set[MicroBatchRequest(0, np.arange(4))])
        found.add(round(loss.item(), 5))
    assert len(found) == 7


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("label_smoothing", 1.0),
        ("label_smoothing", -0.1),
        ("focal_gamma", -1.0),
        ("contrast_weight", -1.0),
        ("evidence_questions", -1),
        ("max_new_tokens", 0),
    ],
)
def test_invalid_settings_are_refused(setting, value):
    with pytest.raises(ValueError, match=rf"model\.init_args\.{setting}.*{value}"):
        built(reader={setting: value})
