"""A user's documents on two ranks: one ingests, the other waits, and both have the same questions."""

import pytest
import yaml

from tests.support.data_files.document_folder import questions_about, write_folder, write_pdf, write_questions
from tests.support.families.colored_squares import LANGUAGE_MODEL, TOWER
from tests.support.outputs.metric_series import assert_same_series


@pytest.fixture
def options(tmp_path):
    """A run of two epochs on documents that are not prepared."""
    train = write_folder(tmp_path, range(8))
    config = {
        "model": {
            "class_path": "DocumentReader",
            "init_args": {
                "language_model": {"config": {**LANGUAGE_MODEL, "max_position_embeddings": 512}},
                "vision_tower": {"config": TOWER},
                "learning_rate": 3e-3,
                "max_new_tokens": 4,
            },
        },
        "data": {
            "class_path": "DocumentQuestions",
            "init_args": {
                "train": train,
                "split": {"validation": 0.2, "test": 0.2},
                "ingestion": {"dpi": 36, "workers": 1},
                "context": {"images": "none"},
                "batch_size": 8,
                "evaluation_batch_size": 4,
                "questions_per_chat": 2,
            },
        },
        "trainer": {
            "max_epochs": 2,
            "accelerator": "cpu",
            "enable_progress_bar": False,
            "log_every_n_steps": 1,
            "num_sanity_val_steps": 0,
        },
        "best_checkpoint": {"monitor": "val/accuracy", "mode": "max"},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    return ["--config", str(tmp_path / "config.yaml")]


def test_one_and_two_processes_have_the_same_questions(lockstep, team, options, tmp_path):
    pair = team("fit", *options, name="pair", processes=2)
    assert pair.end(150) == [0, 0], pair.output
    assert pair.output.count("8 documents ingested into") == 1
    alone = lockstep("fit", *options, name="alone")
    metrics = ("train/loss", "val/loss", "val/text/accuracy", "val/baseline/question_only/accuracy")
    assert_same_series(alone, pair, metrics, 1e-4)

    write_pdf(tmp_path / "others/new.pdf", 30)
    path = write_questions(tmp_path / "asked.jsonl", questions_about("new.pdf", 30, 100))
    predict = ["--data.init_args.predict_questions", str(path)]
    predict += ["--data.init_args.predict_documents", str(tmp_path / "others"), "--ckpt_path", "last"]
    answers = []
    for name, processes in (("alone", 1), ("pair", 2)):
        predicting = team("predict", *options, *predict, name=name, processes=processes)
        assert predicting.end(150) == [0] * processes, predicting.output
        answers.append(predicting.predictions())
    assert [line["id"] for line in answers[0]] == [line["id"] for line in answers[1]] == [100, 101, 102, 103]
    assert [line["answer"] for line in answers[0]] == [line["answer"] for line in answers[1]]


def test_a_broken_document_ends_both(team, options, tmp_path):
    (tmp_path / "documents/manual-3.pdf").write_bytes(b"%PDF-1.4 broken")
    pair = team("fit", *options, name="pair", processes=2)
    codes = pair.end_cleanly(100)
    assert 0 not in codes, pair.output
    assert "manual-3.pdf: " in pair.output
    assert "data.init_args.ingestion.on_broken to skip" in pair.output
