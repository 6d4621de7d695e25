"""Trains a retriever to find pages by their text and their drawings, and checks its predictions."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from safetensors.torch import load_file

from datamodules.document_qa.retrieval.retrievers import build_retriever
from datamodules.document_qa.retrieval.saved_rankings import read_rankings
from datamodules.document_qa.retrieval.settings import RetrieverSettings
from datamodules.document_qa.types.question import Question
from tests.support.families.colored_squares import LANGUAGE_MODEL, write_language_model, write_tower
from tests.support.families.tiny_documents import TinyDocument, TinyQuestions
from tests.support.families.tiny_retriever import write_config

ENOUGH = ["--trainer.max_steps", "30", "--trainer.check_val_every_n_epoch", "15"]
PICTURES_ALONE = {"context": {"images": "pages", "texts": False, "show_page_numbers": False}}
"""Pages as pictures: grey where a text stands, black where a table does, colored where a figure does."""


def last(run, metric):
    series = run.series(metric)
    return series[max(series)]


def weights(run):
    return torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True)["state_dict"]


@pytest.mark.slow
def test_finds_pages_where_words_do_not(lockstep, tmp_path):
    run = lockstep("fit", *write_config(tmp_path), *ENOUGH, name="a")
    for source in ("text/", "table/", "figure/", ""):
        found, chance, words = (
            last(run, f"val/{system}{source}page_recall@1") for system in ("", "baseline/random/", "baseline/bm25/")
        )
        assert chance == pytest.approx(1 / 3)
        assert found >= 0.9, source
        assert found >= words, source
    assert last(run, "val/page_recall@4") == 1, "no document has more pages"
    assert last(run, "val/mrr") >= 0.95
    temperatures = run.series("train/temperature")
    assert len(temperatures) == 30, "it is learned"
    assert len(set(temperatures.values())) > 1, "it is learned"


@pytest.mark.slow
def test_the_retriever_finds_pictures_by_what_is_on_them(lockstep, tmp_path):
    """BM25 and a model without images rank pages without text in their order."""
    options = write_config(tmp_path, PICTURES_ALONE)
    longer = ["--trainer.max_steps", "60", "--trainer.check_val_every_n_epoch", "30"]
    sees = lockstep("fit", *options, *longer, name="sees")
    blind = lockstep("fit", *options, "--model.init_args.blind", "true", name="blind")
    assert last(sees, "val/figure/page_recall@1") == 1
    assert last(sees, "val/table/page_recall@1") == 1
    assert last(blind, "val/figure/page_recall@1") == 0, "all pages are equal, and the first comes first"
    assert last(blind, "val/page_recall@1") < 0.5 < last(sees, "val/page_recall@1")


@pytest.mark.slow
def test_metrics_do_not_depend_on_the_batches(lockstep, tmp_path):
    options = write_config(tmp_path)
    lockstep("fit", *options, name="a")
    for size in (16, 7, 1000):
        run = lockstep("test", *options, "--data.init_args.evaluation_batch_size", str(size), name="a")
    first, *others = run.test_metrics
    assert len(others) == 2
    assert {"test/mrr", "test/figure/mrr", "test/baseline/hybrid/mrr"} <= first.keys()
    assert all(other == pytest.approx(first) for other in others)


def test_encoding_in_parts_has_the_gradients_of_a_whole_batch(lockstep, tmp_path):
    """GradCache: 16 questions and 64 pages, 5 at once; an untied language model, whose scores nothing reads."""
    untied = {"config": {**LANGUAGE_MODEL, "tie_word_embeddings": False}}
    # Gradients as they are: where one is nothing but rounding, Adam would make a whole step of it.
    options = write_config(tmp_path, language_model=untied, symmetric=True)
    options += ["--trainer.max_steps", "1"]
    uninterrupted = lockstep("fit", *options, *kept(tmp_path), name="whole")
    parts = lockstep("fit", *options, *kept(tmp_path), "--model.init_args.encode_at_once", "5", name="parts")
    groups = lockstep("fit", *options, *kept(tmp_path), "--data.init_args.length_groups", "3", name="groups")
    expected = gradients(uninterrupted)
    for run in (parts, groups):
        actual = gradients(run)
        assert actual.keys() == expected.keys()
        worst = max(float((gradient - expected[name]).abs().max()) for name, gradient in actual.items())
        assert 0 < worst < 1e-5, "not computed in another order, or not the same"
        assert last(run, "train/loss") == pytest.approx(last(uninterrupted, "train/loss"), abs=1e-5)


@pytest.mark.slow
def test_a_retriever_trains_adapters_on_a_pretrained_model(lockstep, tmp_path):
    write_language_model(tmp_path / "language_model")
    write_tower(tmp_path / "tower")
    options = write_config(
        tmp_path,
        data={"tokenizer": str(tmp_path / "language_model")},
        language_model={"path": str(tmp_path / "language_model"), "trainable": "lora"},
        vision_tower={"path": str(tmp_path / "tower"), "trainable": "none"},
        learning_rate=1e-2,
        learning_rates={"head": 3e-3},
    )
    lockstep("fit", *options, name="a")
    trained = weights(lockstep("fit", *options, "--trainer.max_steps", "6", "--ckpt_path", "last", name="a"))
    assert {name.split(".")[0] for name in trained} == {"projector", "language_model", "head", "temperature"}
    assert all(".lora_" in name for name in trained if name.startswith("language_model."))
    lockstep("export", *options, "--ckpt_path", "last", "--output", str(tmp_path / "out"), name="a")
    assert (tmp_path / "out/adapter_model.safetensors").is_file()
    exported = load_file(tmp_path / "out/modality/head.safetensors")
    assert torch.equal(exported["linear.weight"], trained["head.linear.weight"])
    settings = json.loads((tmp_path / "out/modality/settings.json").read_text())
    assert settings["head"]["size"] == 16


@pytest.mark.slow
def test_a_reader_uses_the_rankings_of_a_retriever(lockstep, tmp_path):
    """One `predict` ranks all splits, and `retriever: {kind: dense, rankings: RUN}` reads these rankings."""
    options = write_config(tmp_path)
    lockstep("fit", *options, "--trainer.max_steps", "20", name="a")
    rank = ["--data.init_args.rank", "[train, validation, test]"]
    run = lockstep("predict", *options, *rank, name="a")
    rankings = read_rankings(run.folder / "rankings.jsonl")
    assert list(rankings) == [question.id for part in range(3) for question in questions(part)]
    assert not (run.folder / "predictions.jsonl").exists()
    dense = build_retriever(RetrieverSettings("dense", pages=2, rankings=str(run.folder)))
    hybrid = build_retriever(RetrieverSettings("hybrid", pages=2, rankings=str(run.folder)))
    right = 0
    for number, question in enumerate(questions(2)):
        document = TinyDocument(2000 + number // 4)
        ranked = dense.rank(document, question)
        assert ranked == rankings[question.id].pages[:2]
        assert len(hybrid.rank(document, question)) == 2
        right += ranked[0] in question.evidence_pages
    answered = sum(bool(question.evidence_pages) for question in questions(2))
    assert right / answered == pytest.approx(last_test(lockstep, options)["test/page_recall@1"])


class KeptGradients(Callback):
    """Writes the first step's gradients into the run's folder."""

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        found = {name: weight.grad.clone() for name, weight in pl_module.named_parameters() if weight.requires_grad}
        torch.save(found, Path(trainer.default_root_dir) / "gradients.pt")


def kept(folder):
    path = folder / "kept.yaml"
    path.write_text(f"trainer: {{callbacks: [{{class_path: {__name__}.KeptGradients}}]}}")
    return ["--config", str(path)]


def gradients(run):
    return torch.load(run.folder / "gradients.pt", weights_only=True)


def last_test(lockstep, options):
    return lockstep("test", *options, name="a").test_metrics[-1]


def questions(part: int) -> list[Question]:
    source = TinyQuestions(part, 32)
    return [question for index in range(32) for question in source.questions(0, index)]


REFUSED = {
    "accumulation": (["--data.init_args.micro_batch_size", "4"], "model.init_args.encode_at_once, 4 or more"),
    "task": (["--data.init_args.task", "answer"], "data.init_args.task retrieve"),
    "size": (["--model.init_args.size", "0"], "model.init_args.size must be at least 1"),
    "at once": (["--model.init_args.encode_at_once", "0"], "model.init_args.encode_at_once must be at least 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_settings_of_a_retriever_are_refused(lockstep, tmp_path, case):
    options, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        lockstep("fit", *write_config(tmp_path), *options, name="a")
