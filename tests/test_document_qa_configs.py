"""The family's configs run as they stand, but for their sizes and their models, from `prepare` to `predict`."""

import json
import math
from types import SimpleNamespace

import pytest
import yaml

from tests.conftest import REPOSITORY
from tests.coloured_squares import write_language_model, write_tower
from tests.document_folder import MATERIALS, questions_about, write_folder, write_pdf, write_questions

FOLDER = REPOSITORY / "configs/document_qa"

SMALL = [
    "--data.init_args.batch_size", "8",
    "--data.init_args.micro_batch_size", "4",
    "--data.init_args.evaluation_batch_size", "4",
    "--data.init_args.num_workers", "0",
    "--data.init_args.ingestion.dpi", "36",
    "--data.init_args.ingestion.workers", "1",
]  # fmt: skip
BRIEFLY = [
    "--model.init_args.max_new_tokens", "4",
    "--model.init_args.warmup_steps", "1",
    "--trainer.num_sanity_val_steps", "0",
    "--trainer.log_every_n_steps", "1",
    "--trainer.enable_progress_bar", "false",
    "--trainer.accelerator", "cpu",
]  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A tower, a language model, documents with questions, and others to be asked about, all tiny."""
    folder = tmp_path_factory.mktemp("files")
    language_model, tower = folder / "language_model", folder / "tower"
    write_language_model(language_model)
    write_tower(tower)
    train = write_folder(folder / "train", range(6))
    others = [questions_about(f"other-{number}.pdf", number, 10 * number) for number in (20, 21)]
    for number in (20, 21):
        write_pdf(folder / f"others/other-{number}.pdf", number)
    mixed = (one for asked in zip(*others, strict=True) for one in asked)
    unknown = [{key: one[key] for key in one if key != "answer"} for one in mixed]
    questions = write_questions(folder / "questions.jsonl", unknown)
    return SimpleNamespace(
        language_model=language_model, tower=tower, train=train, questions=questions, documents=folder / "others"
    )


@pytest.fixture
def options(files):
    """What makes a config of pretrained models a tiny one."""

    def of(stem):
        data = [
            "--data.init_args.tokenizer", str(files.language_model),
            "--data.init_args.train", json.dumps(files.train),
            "--data.init_args.split.validation", "0.2",
            "--data.init_args.split.test", "0.2",
        ]  # fmt: skip
        model = [
            "--model.init_args.language_model.path", str(files.language_model),
            "--model.init_args.vision_tower.path", str(files.tower),
        ]  # fmt: skip
        config = ["--config", str(FOLDER / f"{stem}.yaml"), *data, *SMALL]
        return config, [*config, *model, *BRIEFLY]

    return of


def predictions(run):
    return [json.loads(line) for line in (run.folder / "predictions.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("stem", ["your_documents", "choice_lora"])
def test_from_documents_to_answers(lockstep, options, files, stem):
    from commands.cli import main

    of_the_data, all_of_it = options(stem)
    main(["prepare", *of_the_data])
    name = f"document_qa-{stem}-job1"
    run = lockstep("fit", *all_of_it, "--trainer.max_epochs", "1", name=name)
    losses = run.series("train/loss")
    assert losses and all(map(math.isfinite, losses.values()))
    monitor = yaml.safe_load((FOLDER / f"{stem}.yaml").read_text())["best_checkpoint"]["monitor"]
    (accuracy,) = run.series(monitor).values()
    assert 0 <= accuracy <= 1
    assert {file.name for file in (run.folder / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}

    checkpoint = ["--ckpt_path", "best"]
    tested = lockstep("test", *all_of_it, *checkpoint, name=name)
    assert {"test/accuracy", "test/baseline/random/accuracy", "test/page_recall@1"} <= {
        key for line in (tested.folder / "metrics.jsonl").read_text().splitlines() for key in json.loads(line)
    }
    asked = ["--data.init_args.predict_questions", str(files.questions)]
    asked += ["--data.init_args.predict_documents", str(files.documents)]
    answered = predictions(lockstep("predict", *all_of_it, *asked, *checkpoint, name=name))
    written = [json.loads(line) for line in files.questions.read_text().splitlines()]
    assert [line["id"] for line in answered] == [line["id"] for line in written]
    for line, record in zip(answered, written, strict=True):
        assert 0 < line["confidence"] <= 1 and line["page"] in (1, 2)
        if "options" in record:
            assert line["text"] == MATERIALS["ABCD".index(line["answer"])]
        else:
            assert isinstance(line["answer"], str)
