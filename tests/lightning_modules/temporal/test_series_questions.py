"""Tests questions about the user's series, from files to metrics, reports and predictions."""

import json
import logging
import math

import numpy as np
import pytest
import torch

from commands.report.comparison.saved_answers import read_answers
from datamodules.multimodal.text.packing import one_per_row
from datamodules.temporal.batch import Series, SeriesLayout
from datamodules.temporal.series.dataset import collate_series
from datamodules.temporal.series.normalization import normalize
from lightning_modules.multimodal.connector.merge_embeddings import Features
from lightning_modules.multimodal.modality import FeatureNetworks
from lightning_modules.temporal.series_encoder import SeriesEncoder
from lightning_modules.temporal.series_evaluation import SeriesEvaluation
from lightning_modules.temporal.series_features import SeriesFeatures
from tests.support.families.tiny_series import write_series_folder
from tests.support.outputs.jsonl import read_jsonl


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A fit of two steps on five foreign shapes, its test and its predictions.

    (folder of the run, messages of the prediction, pairs of an option's score and its plain reference)
    """
    from commands.cli.main import main

    folder = tmp_path_factory.mktemp("series")
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("LOCKSTEP_DEBUG", "1")
        options = write_series_folder(folder / "series")
        waves = [float(k % 3) for k in range(6000)]
        questions = [
            {"question": "Up?", "series": waves, "options": ["yes", "no", "never"]},
            {"question": "Last?", "series": {"values": [1, None, -3]}, "key": "b"},
        ]
        (folder / "asked.jsonl").write_text("\n".join(map(json.dumps, questions)))
        main(["fit", *options, "--trainer.max_steps", "2", "--trainer.check_val_every_n_epoch", "1", "--run_name", "a"])
        compared = []
        with patch.context() as watched:
            watched.setattr(SeriesEvaluation, "_answer", scored_twice(SeriesEvaluation._answer, compared))
            main(["test", *options, "--run_name", "a"])
        logging.getLogger("lockstep").addHandler(handler)
        main(["predict", *options, "--data.init_args.questions", "asked.jsonl", "--run_name", "a"])
        logging.getLogger("lockstep").removeHandler(handler)
    return folder / "runs/a", messages, compared


def scored_twice(answer, compared):
    def watched(evaluation, module, batch, features):
        texts, scores = answer(evaluation, module, batch, features)
        ends = features.counts.cumsum(0).tolist()
        for index, sample in enumerate(batch.prompts.samples.tolist()):
            own = features.vectors[ends[index] - int(features.counts[index]) : ends[index]]
            plain = [plain_score(module, sample, option, own) for option in module.data.options(sample)]
            compared.extend(zip(scores[index], plain, strict=True))
            assert not plain or texts[index] == module.data.options(sample)[int(np.argmax(plain))]
        return texts, scores

    return watched


def plain_score(module, sample, option, vectors):
    item = module.data.evaluated.item(0, sample)
    messages = [item.messages[0], {"role": "assistant", "content": option}]
    chat = module.data.chat_encoder.chat(messages, item.counts)
    row = one_per_row([chat], np.array([sample]), module.data.tokenizer.pad)
    states = module.states(row, Features(vectors, torch.tensor([len(vectors)])))
    logarithms = module.language_model.logits(states[0]).float().log_softmax(-1)
    return sum(logarithms[at - 1, token].item() for at, token in enumerate(chat.tokens) if chat.supervised[at])


def test_five_foreign_shapes_are_trained_tested_and_reported(finished):
    folder, *_ = finished
    records = {key: value for line in read_jsonl(folder / "metrics.jsonl") for key, value in line.items()}
    assert math.isfinite(records["train/loss"])
    assert math.isfinite(records["val/loss"])
    for name in ("right", "accuracy", "number_within_tolerance", "text_exact", "gaps/right", "rates/right"):
        assert 0 <= records[f"test/{name}"] <= 1, name
        assert 0 <= records[f"test/baseline/blind/{name}"] <= 1, name
    assert records["test/baseline/chance/accuracy"] == 0.5
    assert records["test/baseline/chance/right"] == pytest.approx(0.2), "open questions cannot be guessed"
    report = json.loads((folder / "prediction_report.json").read_text(encoding="utf-8"))
    assert len(report["records"]) == 10
    assert {len(record["curves"]) for record in report["records"]} == {1, 2}
    by_kind = {record["task"]: record for record in report["records"]}
    assert by_kind["gaps"]["curves"][0]["values"].count(None) == 15
    assert by_kind["text"]["curves"][0]["length"] == 5000
    assert len(by_kind["text"]["curves"][0]["values"]) <= 1200
    right = [not record["errors"] for record in report["records"]]
    assert records["test/right"] == pytest.approx(sum(right) / 10)
    answers = read_answers(folder)  # refuses answers whose points are not the metric
    assert answers.metric == "test/right"
    assert [answer.points == 1 for answer in answers.answers] == right
    assert (folder / "prediction_report.html").stat().st_size > 20_000


def test_predictions_have_the_scores_of_the_options(finished):
    folder, messages, _ = finished
    first, second = read_jsonl(folder / "predictions-asked.jsonl")
    assert first["options"] == ["yes", "no", "never"]
    assert len(first["log_likelihoods"]) == 3
    assert first["answer"] == first["options"][int(np.argmax(first["log_likelihoods"]))]
    assert second["key"] == "b"
    assert isinstance(second["answer"], str)
    assert "log_likelihoods" not in second
    longer = [message for message in messages if "6,000 steps" in message]
    assert len(longer) == 1
    assert "longest training series 5,000" in longer[0]


def test_options_score_the_sum_of_their_tokens_log_probabilities(finished):
    """The reference is one whole chat for each option, and the softmax of its logits, token by token."""
    *_, compared = finished
    assert len(compared) == 2 * 2 * 4, "two systems, four questions of two options"
    for score, plain in compared:
        assert score == pytest.approx(plain, abs=1e-4)


def test_a_series_features_do_not_depend_on_its_batch():
    """Series of unlike lengths, several in a sample: features and counts equal those of each series alone."""
    torch.manual_seed(0)
    encoder = SeriesEncoder(SeriesLayout(1, "channel_patch", 4), output_size=6, hidden_size=4).eval()
    features, networks = SeriesFeatures({}), FeatureNetworks(encoder, torch.nn.Identity())
    series = [normalize(np.random.default_rng(k).normal(size=length)) for k, length in enumerate((3, 17, 40, 9))]
    together = features.compute(networks, collate_series([series[:3], series[3:]]))
    alone = [features.compute(networks, collate_series([[values]])) for values in series]
    assert together.counts.tolist() == [1 + 5 + 10, 3]
    torch.testing.assert_close(together.vectors, torch.cat([part.vectors for part in alone]))
    empty = collate_series([])
    assert isinstance(empty, Series)
    assert features.compute(networks, empty).counts.tolist() == [0]


def test_wrong_files_are_refused_before_the_training(lockstep, tmp_path):
    options = write_series_folder(tmp_path / "series")
    path = tmp_path / "series/validation.jsonl"
    path.write_text(path.read_text().replace('"answer": "load"', '"answer": "both"'))
    with pytest.raises(
        ValueError, match=r"validation.jsonl, line 1: answer: found 'both', expected one of the options"
    ):
        lockstep("fit", *options, "--trainer.max_steps", "1", name="a")
