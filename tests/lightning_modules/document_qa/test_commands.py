"""Tests the commands of the document-QA family: fit, test, predict, export, previews, and errors on bad samples."""

import json

import pytest
import yaml

from engine.data.dataloader import LoadingError
from engine.data.errors import BadSampleError
from tests.support.data_files.document_folder import write_folder
from tests.support.families.colored_squares import LANGUAGE_MODEL
from tests.support.families.tiny_documents import TinyDocument, TinyDocuments, TinyQuestions, write_config
from tests.support.outputs.model_card import read_card, run_code

QUICK = ["--data.init_args.size", "12", "--data.init_args.evaluation_batch_size", "5"]


class TornDocument(TinyDocument):
    @property
    def pages(self):
        raise BadSampleError("sample 6: manual.pdf is torn")


class TornQuestions(TinyQuestions):
    """The document of one sample cannot be read."""

    def document(self, epoch, index):
        document = super().document(epoch, index)
        if index == 6:
            document.__class__ = TornDocument
        return document


class TornDocuments(TinyDocuments):
    def question_set(self, split):
        questions = super().question_set(split)
        return TornQuestions(questions.split, self.size) if split in ("test", "predict") else questions


def shown_in(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"images": 0, "tensors": 0})
    events.Reload()
    return events.Images("val/examples"), events.Tensors("val/examples/text_summary")


def test_a_run_shows_predicts_and_reports(lockstep, tmp_path):
    options = [*write_config(tmp_path, evidence_questions=5), *QUICK, "--sample_previews.number", "3"]
    run = lockstep("fit", *options, name="a")
    (_, picture), (_, text) = shown_in(run.folder)  # of each of two epochs
    table = text.tensor_proto.string_val[0].decode()
    assert picture.step == text.step == 2
    assert picture.width >= 128
    assert table.count("\n") == 4
    assert "What is the mass of the" in table
    (_, file) = sorted((run.folder / "examples").iterdir())
    for shown in json.loads(file.read_text(encoding="utf-8"))["examples"]:
        sample = int(shown["name"].split()[0])
        question = TinyQuestions(1, 12).questions(0, sample)[0]
        assert shown["question"].startswith(question.question)
        assert shown["expected"] == question.answer
        assert shown["right"] == (shown["answer"] == question.answer)
        assert shown["picture"]
        assert shown["blind"]

    lockstep("test", *options, name="a")
    records = (run.folder / "metrics.jsonl").read_text().splitlines()[-1]
    assert {"test/accuracy", "test/evidence_page_accuracy"} <= json.loads(records).keys()
    assert (run.folder / "test_report.html").is_file()
    assert (run.folder / "ablation/none.json").is_file()

    lockstep("predict", *options, name="a")
    lines = run.predictions()
    assert [line["id"] for line in lines] == [f"3-{sample}-{sample}" for sample in range(12)]
    for line in lines:
        assert 0 <= line["confidence"] <= 1
        assert line["page"] in line["pages"]
        evidence = line["evidence"]
        assert evidence["page"] == line["page"]
        assert all(0 <= edge <= 1 for edge in evidence["box"])
        if "text" in line:
            assert sum(line["options"].values()) == pytest.approx(1, abs=1e-5)
            assert line["options"][line["answer"]] == line["confidence"] == max(line["options"].values())


@pytest.mark.slow
def test_a_prediction_without_evidence_has_the_same_answers(lockstep, tmp_path):
    options = [*write_config(tmp_path), *QUICK]
    run = lockstep("fit", *options, name="a")
    answers = []
    for look in ("true", "false"):
        lockstep("predict", *options, "--model.init_args.predict_evidence", look, name="a")
        lines = run.predictions()
        answers.append([line["answer"] for line in lines])
        assert {bool(line.get("evidence")) for line in lines} == {look == "true"}
    assert answers[0] == answers[1]


@pytest.mark.slow
def test_bad_samples_are_named_and_counted(lockstep, tmp_path):
    data = ["--data", "tests.lightning_modules.document_qa.test_commands.TornDocuments", *QUICK]
    options = [*write_config(tmp_path), *data, "--data.init_args.batch_size", "16"]
    run = lockstep("fit", *options, name="a")
    with pytest.raises(LoadingError, match="manual.pdf is torn"):
        lockstep("test", *options, name="a")
    allowed = [*options, "--data.init_args.on_bad_sample", "skip", "--data.init_args.max_bad_samples", "1"]
    lockstep("test", *allowed, name="a")
    records = run.records[-1]
    assert records["test/bad_samples"] == 1
    lockstep("predict", *allowed, name="a")
    lines = run.predictions()
    assert len(lines) == 12
    assert lines[6]["id"] == "3-6-6"
    assert lines[6]["answer"] is None
    assert "manual.pdf is torn" in lines[6]["why"]
    assert all(line["answer"] is not None for line in [*lines[:6], *lines[7:]])


@pytest.mark.slow
def test_questions_about_broken_documents_keep_their_lines(lockstep, tmp_path):
    """`on_broken: skip` allows broken documents of the user, whatever the value of `on_bad_sample`."""
    train = write_folder(tmp_path / "train", range(3))
    path = write_folder(tmp_path / "asked", range(10, 12))
    (tmp_path / "asked/documents/manual-10.pdf").write_bytes(b"%PDF-1.4 broken")
    source = {"predict_questions": path["questions"], "predict_documents": path["documents"]}
    settings = {
        "train": train,
        **source,
        "split": {"validation": 0.4, "test": 0},
        "batch_size": 4,
        "evaluation_batch_size": 4,
        "ingestion": {"dpi": 36, "workers": 1, "on_broken": "skip"},
        "context": {"images": "none"},
        "root": str(tmp_path / "root"),
    }
    options = write_config(tmp_path, language_model={"config": {**LANGUAGE_MODEL, "max_position_embeddings": 512}})
    (tmp_path / "data.yaml").write_text(yaml.safe_dump({"class_path": "DocumentQuestions", "init_args": settings}))
    options += ["--data", str(tmp_path / "data.yaml")]
    run = lockstep("fit", *options, name="a")
    lockstep("predict", *options, name="a")
    lines = run.predictions()
    assert [line["id"] for line in lines] == list(range(8))
    why = "manual-10.pdf is skipped: not a PDF"
    assert all(line["answer"] is None and why in line["why"] for line in lines[:4])
    assert all(line["answer"] is not None for line in lines[4:])
    assert "manual-10.pdf is skipped" in (run.folder / "prediction_report.html").read_text()


def test_a_training_on_all_documents_validates_nothing(lockstep, tmp_path):
    settings = {
        "train": write_folder(tmp_path / "train", range(3)),
        "split": {"validation": 0, "test": 0},
        "batch_size": 4,
        "ingestion": {"dpi": 36, "workers": 1},
        "context": {"images": "none"},
        "root": str(tmp_path / "root"),
    }
    options = write_config(tmp_path, language_model={"config": {**LANGUAGE_MODEL, "max_position_embeddings": 512}})
    (tmp_path / "data.yaml").write_text(yaml.safe_dump({"class_path": "DocumentQuestions", "init_args": settings}))
    run = lockstep("fit", *options, "--data", str(tmp_path / "data.yaml"), name="a")
    assert len(run.series("train/loss")) == 2
    assert not run.series("val/accuracy")
    assert [path.name for path in run.folder.rglob("*.ckpt")] == ["last.ckpt"]


@pytest.mark.slow
def test_an_export_writes_the_same_answers(lockstep, tmp_path):
    """A LlavaForConditionalGeneration answers the open questions as `predict` does."""
    from transformers import AutoProcessor, LlavaForConditionalGeneration

    options = [*write_config(tmp_path, projector={"layer_norm": False}, learning_rate=0.01), *QUICK]
    options += ["--trainer.max_steps", "24", "--trainer.check_val_every_n_epoch", "12"]
    run = lockstep("fit", *options, name="a")
    lockstep("predict", *options, name="a")
    lines = run.predictions()
    lockstep("export", *options, "--output", "llava", name="a")
    card = read_card(tmp_path / "llava")
    assert card.data.pipeline_tag == "image-text-to-text"
    assert "a LlavaForConditionalGeneration" in card.text
    model, processor = (
        kind.from_pretrained(tmp_path / "llava") for kind in (LlavaForConditionalGeneration, AutoProcessor)
    )
    asked_questions = open_questions()
    written = []
    for sample, (text, pictures) in asked_questions.items():
        chat = processor.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True)
        model_inputs = processor(images=pictures, text=chat, return_tensors="pt")
        tokens = model.generate(**model_inputs)[0, model_inputs["input_ids"].shape[1] :]
        written.append((lines[sample]["answer"], processor.decode(tokens, skip_special_tokens=True)))
    assert len(written) == 6
    assert all(ours == theirs for ours, theirs in written)
    assert len({ours for ours, _ in written}) > 1
    next(picture for _, pictures in asked_questions.values() for picture in pictures).save(
        tmp_path / "llava" / "picture.png"
    )
    run_code(tmp_path / "llava")


def open_questions():
    """Return {sample: (the user's text, pictures)} of the open questions to predict."""
    from tests.lightning_modules.document_qa.reader import built

    _, data = built("predict", size=12)
    sample_builder, found = data.predict_set.sample_builder, {}
    for sample in range(12):
        reading = sample_builder.build(0, sample)
        (question,) = reading.questions
        if question.options:
            continue
        context = sample_builder.context(reading)
        chunks = [chunk for page in context.blocks for chunk in page.images]
        found[sample] = (
            f"{context.text}\n\n{sample_builder.prompter.question_text(question)}",
            [reading.document.figure(chunk) for chunk in chunks],
        )
    return found
