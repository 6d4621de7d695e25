"""Tests the settings of documents and questions, from the command line to the batches."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jsonargparse import ArgumentParser

from datamodules.document_qa.augmentation.settings import AugmentationSettings
from datamodules.document_qa.batch import FIRST_CHUNK, OptionTrainBatch
from datamodules.document_qa.manuals.settings import ManualQuestionSettings
from datamodules.document_qa.prompt.context import ContextSettings
from datamodules.document_qa.retrieval.ranking_dataset import PageRankingDataset
from datamodules.document_qa.retrieval.settings import RetrieverSettings
from datamodules.document_qa.retrieval.train_pairs import RetrievalPairDataset
from datamodules.document_qa.samples.evaluation_dataset import DocumentEvaluationDataset
from datamodules.document_qa.synthetic_manuals import SyntheticManuals
from datamodules.document_qa.user_documents import DocumentQuestions
from engine.data.samplers import MicroBatchRequest
from tests.support.document_qa.attached_data import data
from tests.support.families.tiny_documents import TinyDocuments, write_config

ALTERED = AugmentationSettings(enabled=True, paraphrase=0.5, distractors=2, scan=0.5)


def same(first: Any, second: Any) -> bool:
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    if isinstance(first, (tuple, list)):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"augmentation": ALTERED, "questions_per_chat": 2},
        {"augmentation": ALTERED, "loss": "contrastive_options", "context": ContextSettings(images="both", tokens=90)},
        {"ablate": "shuffled_figure", "packed_length": 300},
    ],
)
def test_batches_are_the_same_in_workers(settings: dict[str, Any]) -> None:
    alone, by_workers = data(**settings), data(**settings, num_workers=2)
    batches = list(alone.train_dataloader())
    assert len(batches) == 6
    found = list(by_workers.train_dataloader())
    assert all(same(first, second) for first, second in zip(batches, found, strict=True))


@pytest.mark.parametrize("loss", ["answer", "contrastive_options"])
def test_a_resumed_epoch_has_the_rest_of_its_samples(loss: str) -> None:
    settings = {"augmentation": ALTERED, "loss": loss}
    through = list(data(**settings).train_dataloader())
    resumed = data(**settings)
    state = {"epoch": 0, "batches": 4, **resumed._order_identity()}
    resumed.load_state_dict(state)
    assert same(through[4:], list(resumed.train_dataloader()))
    others = data(**settings, questions_per_chat=3)
    others.load_state_dict(state)
    with pytest.raises(ValueError, match="questions_per_chat 1, this run has questions_per_chat 3"):
        others.train_dataloader()


@pytest.mark.parametrize("stated", [False, True])
def test_an_epoch_is_not_resumed_with_other_answers(stated: bool) -> None:
    questions = ManualQuestionSettings(stated_parts=stated)
    identity = SyntheticManuals(questions=questions).sample_identity()
    assert ("stated_parts" in identity) == stated  # not named when false: such runs began before the setting


def test_the_identity_of_the_samples_is_that_of_earlier_checkpoints() -> None:
    """An epoch that an earlier version began is resumed, whatever its settings are called now."""
    assert SyntheticManuals(seed=3).sample_identity() == (
        "ManualSettings(chapters=2, parts=4, highest_number=9, columns=2, pages=('text', 'table', 'figure'), "
        "shuffled_pages=True, grid=2, callouts='inside', figure_size=96), "
        "ManualQuestionSettings(kinds={}, choice_share=0.5, letters=(1.0, 1.0, 1.0, 1.0), page_mentions=0.1, "
        "unseen_wordings=0.2), "
        "seed=3, fresh_samples=True, one_page_chats=False, describing_epochs=0, version 1"
    )


def test_another_epoch_is_altered_otherwise() -> None:
    tiny_data = data(augmentation=ALTERED)
    first, second = (tiny_data.train_set[MicroBatchRequest(epoch, np.arange(6))] for epoch in (0, 1))
    assert not same(first, second)
    plain = data()
    assert same(*(plain.train_set[MicroBatchRequest(epoch, np.arange(6))] for epoch in (0, 1)))


def test_evaluations_see_the_data_as_they_are() -> None:
    for stage in ("validate", "test", "predict"):
        altered, plain = data(stage, augmentation=ALTERED), data(stage)
        name = {"validate": "validation_set"}.get(stage, f"{stage}_set")
        assert same(*(getattr(tiny_data, name)[MicroBatchRequest(0, np.arange(5))] for tiny_data in (altered, plain)))


def test_the_loss_decides_what_is_trained_on() -> None:
    (examples,) = data(loss="contrastive_options").train_set[MicroBatchRequest(0, np.arange(4))]
    assert isinstance(examples, OptionTrainBatch)


def test_the_options_of_a_question_are_computed_together() -> None:
    with pytest.raises(ValueError, match="length_groups is 2, but with .* contrastive_options"):
        data(loss="contrastive_options", length_groups=2)


def test_each_stage_asks_what_it_needs() -> None:
    test = data("test", evidence_questions=2, option_orders=3)
    batch = test.test_set[MicroBatchRequest(0, np.arange(32))]
    explained = set(batch.prompts.samples[batch.variants >= FIRST_CHUNK].tolist())
    assert explained == {0, 1}
    assert set(batch.variants[batch.variants < FIRST_CHUNK].tolist()) == {-1, 0, 1, 2}
    predict = data("predict").predict_set[MicroBatchRequest(0, np.arange(4))]
    assert set(predict.prompts.samples[predict.variants >= FIRST_CHUNK].tolist()) == set(range(4))
    assert -1 not in predict.variants
    validation = data("fit", evidence_questions=2).validation_set[MicroBatchRequest(0, np.arange(32))]
    assert (validation.variants < FIRST_CHUNK).all()


def test_evaluated_questions_can_be_looked_up() -> None:
    tiny_data = data("test")
    assert isinstance(tiny_data.evaluated, DocumentEvaluationDataset)
    (question,) = tiny_data.question_set("test").questions(0, 5)
    assert tiny_data.question(5) == question
    assert tiny_data.describe(5) == {"id": "2-5-5", "question": question.question, "document": "device-2001"}
    assert len(list(tiny_data.test_dataloader())) == 7


def test_pages_can_be_searched_instead() -> None:
    tiny_data = data(task="retrieve", hard_negatives=1)
    assert isinstance(tiny_data.train_set, RetrievalPairDataset)
    assert isinstance(tiny_data.validation_set, PageRankingDataset)
    pairs = tiny_data.train_set[MicroBatchRequest(0, np.arange(3))]
    assert len(pairs.questions.tokens) == 3
    assert len(pairs.pages.tokens) == 6
    ranked = data("predict", task="retrieve", rank=["test", "predict"])
    assert [part.split for part in ranked.predict_set.parts] == [2, 3]


@pytest.mark.parametrize(
    ("wrong", "messages"),
    [
        ({"list_options": False, "option_orders": 2}, "list_options is false, so options have neither letters nor"),
        ({"list_options": False, "answer_with": "letter"}, "list_options is false, so options have neither letters"),
        ({"option_orders": 0}, "data.init_args.option_orders must be at least 1, got 0"),
        ({"questions_per_chat": 0}, "data.init_args.questions_per_chat must be at least 1, got 0"),
        ({"hard_negatives": -1}, "data.init_args.hard_negatives must be at least 0, got -1"),
        ({"context": ContextSettings(tokens=0)}, "data.init_args.context.tokens"),
        ({"retriever": RetrieverSettings("dense")}, "data.init_args.retriever.kind dense requires"),
        ({"augmentation": AugmentationSettings(skew=3)}, "data.init_args.augmentation.skew"),
        ({"task": "retrieve", "augmentation": ALTERED}, "augmentation applies to data.init_args.task answer only"),
        ({"rank": ["test"]}, "rank applies to data.init_args.task retrieve only"),
        ({"task": "retrieve", "ablate": "question_only"}, "question_only leaves no page"),
        ({"task": "retrieve", "list_options": False}, "list_options false applies to data.init_args.task answer only"),
        ({"task": "retrieve", "questions_per_chat": 3, "rank": ["test", "train"]}, "rank contains train, .* to 1"),
    ],
)
def test_settings_that_cannot_be_used_are_named(wrong: dict[str, Any], messages: str) -> None:
    with pytest.raises(ValueError, match=messages):
        TinyDocuments(batch_size=4, **wrong)


def test_short_names_reach_the_settings(parser: Any, tmp_path: Path) -> None:
    parsed = parser.parse_args(
        [
            *write_config(tmp_path),
            "--data.ablate",
            "figure",
            "--data.context.tokens",
            "512",
            "--data.augmentation.enabled",
            "true",
            "--data.retriever.kind",
            "bm25",
            "--data.init_args.context.images",
            "pages",
        ]
    )
    settings = parsed.data.init_args
    assert (settings.ablate, settings.context.tokens, settings.context.images) == ("figure", 512, "pages")
    assert settings.augmentation.enabled
    assert settings.retriever.kind == "bm25"


@pytest.mark.slow
def test_a_run_resumes_in_the_middle_of_an_altered_epoch(lockstep: Any, tmp_path: Path) -> None:
    options = [
        *write_config(tmp_path),
        "--data.augmentation.enabled",
        "true",
        "--data.questions_per_chat",
        "2",
        "--data.batch_size",
        "8",
        "--data.context.tokens",
        "90",
        "--trainer.limit_val_batches",
        "1",
    ]
    through = lockstep("fit", *options, "--trainer.max_steps", "5", name="through")
    lockstep("fit", *options, "--trainer.max_steps", "2", name="stopped")
    more = ["--trainer.max_steps", "5", "--ckpt_path", "last", "--data.num_workers", "2"]
    resumed = lockstep("fit", *options, *more, name="stopped")
    assert resumed.series("train/loss") == through.series("train/loss")
    assert sorted(through.series("train/loss")) == [1, 2, 3, 4, 5]
    ablated = lockstep("test", "--data.ablate", "figure", name="stopped")
    assert (ablated.folder / "ablation" / "figure.json").is_file()


@pytest.mark.parametrize("kind", [DocumentQuestions, SyntheticManuals])
def test_few_questions_are_asked_at_once_by_default(kind):
    """Each comes with its whole context: the other families' 256 would not fit into a device."""
    parser = ArgumentParser()
    parser.add_class_arguments(kind, "data")
    assert parser.get_defaults().data.evaluation_batch_size == 16
    assert TinyDocuments(batch_size=1).evaluation_batch_size == 16
    assert TinyDocuments(batch_size=1, evaluation_batch_size=7).evaluation_batch_size == 7
