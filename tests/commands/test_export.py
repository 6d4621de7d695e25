"""Tests `train.py export`: from a run to a directory that other programs load and whose model card describes it."""

import json
import os

import pytest
import torch
import yaml
from safetensors.torch import load_file

from commands.cli.main import main
from engine.module import LockstepModule
from lightning_modules.recommender.module import SequentialRecommender
from tests.conftest import TINY
from tests.support.families.tiny_temporal import TINY_TEMPORAL, write_qwen2
from tests.support.outputs.model_card import read_card, run_code


@pytest.fixture
def adapted(lockstep, tmp_path):
    """A run that has trained adapters to a Qwen2 from a directory; the options of its command, and the directory."""
    base = tmp_path / "qwen2"
    write_qwen2(base)
    language_model = {"path": str(base), "config": None, "trainable": "lora"}
    model = {"language_model": language_model, "learning_rate": 0.05}
    overlay = {"model": {"init_args": model}, "data": {"init_args": {"tokenizer": str(base)}}}
    (tmp_path / "overlay.yaml").write_text(yaml.safe_dump(overlay))
    options = [*TINY_TEMPORAL, "--config", str(tmp_path / "overlay.yaml"), "--trainer.max_epochs", "2"]
    return lockstep("fit", *options, name="adapted"), base


def logits(model):
    with torch.no_grad():
        return model.eval()(torch.arange(3, 20).unsqueeze(0)).logits


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # of plain peft
def test_adapters_alone_and_merged_compute_the_same(lockstep, adapted, tmp_path):
    """An export never overwrites a directory, and refuses a checkpoint of another base model."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    run, base = adapted
    alone, merged = tmp_path / "out" / "adapter", tmp_path / "out" / "merged"
    lockstep("export", "--output", str(alone), name="adapted")
    lockstep("export", "--output", str(merged), "--merge", name="adapted")
    for folder, library in ((alone, "peft"), (merged, "transformers")):
        assert read_card(folder).data.library_name == library
        (loaded,) = run_code(folder)
        assert loaded["model"].config.vocab_size
        assert len(loaded["tokenizer"])
    before = logits(AutoModelForCausalLM.from_pretrained(base))
    with_adapters = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), alone)
    merged_model = AutoModelForCausalLM.from_pretrained(merged)
    vocabulary_size = (
        with_adapters.config.vocab_size
    )  # transformers' class for a Qwen2's tokenizer adds a token of its own
    torch.testing.assert_close(logits(merged_model)[..., :vocabulary_size], logits(with_adapters), atol=1e-5, rtol=0)
    assert (logits(with_adapters) - before).abs().max() > 1e-3

    saved = torch.load(run.folder / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    for part in ("encoder", "projector"):
        weights = load_file(alone / "modality" / f"{part}.safetensors")
        assert weights
        assert all(torch.equal(saved[f"{part}.{name}"], value) for name, value in weights.items())
    settings = json.loads((alone / "modality" / "settings.json").read_text())
    assert settings["language_model"]["name"] == str(base)
    assert settings["encoder"]["class"] == "SeriesEncoder"

    with pytest.raises(FileExistsError, match="adapter exists already"):
        lockstep("export", "--output", str(alone), name="adapted")
    changed = bytearray((base / "model.safetensors").read_bytes())
    changed[-1] ^= 1
    (base / "model.safetensors").write_bytes(changed)
    with pytest.raises(ValueError, match=f"trained on the language model {base}, .*differ: weights"):
        lockstep("export", "--output", str(tmp_path / "out" / "other"), name="adapted")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"adapter", "merged"}


@pytest.mark.slow
def test_an_exported_recommender_has_its_metrics_and_recommends_as_predict_does(done, lockstep, tmp_path):
    """Runs the code of the model card, with Lockstep and without, on a history of its own."""
    lockstep("test", "--data.init_args.num_workers", "1", name=done.folder.name)
    whole = done.series("test/ndcg@10")
    part = ["--trainer.limit_test_batches", "1", "--data.init_args.evaluation_batch_size", "50"]
    lockstep("test", *part, name=done.folder.name)
    assert done.series("test/ndcg@10") != whole
    lockstep("export", "--output", str(tmp_path / "out"), name=done.folder.name)
    card = read_card(tmp_path / "out")
    step = max(whole)
    metrics = {(result.dataset_split, result.metric_type): result.metric_value for result in card.data.eval_results}
    assert metrics["test", "ndcg@10"] == pytest.approx(whole[step], abs=1e-6)
    assert metrics["validation", "hr@10"] == pytest.approx(done.series("val/hr@10")[step], abs=1e-6)
    assert "nobody's data are in it" in card.text
    assert "hidden_size: 16" in card.text
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()} == {0o666 & ~umask()}

    history = {"items": ["item-1", "item-2"], "times": [1767225600, 1767229200]}
    (tmp_path / "histories.jsonl").write_text(json.dumps(history) + "\n")
    lockstep("predict", "--data.init_args.predict_histories", "histories.jsonl", name=done.folder.name)
    (line,) = (done.folder / "predictions-histories.jsonl").read_text().splitlines()
    predicted = [(item["item"], item["score"]) for item in json.loads(line)["recommendations"]]
    without, with_lockstep = run_code(tmp_path / "out")
    recommended = with_lockstep["model"].recommend(**history)
    for found in (without["recommended"], [(item.item, item.score) for item in recommended]):
        assert [item for item, _ in found] == [item for item, _ in predicted]
        assert [score for _, score in found] == pytest.approx([score for _, score in predicted], abs=1e-4)

    with pytest.raises(ValueError, match="--merge: a recommender has no adapters to merge"):
        lockstep("export", "--output", str(tmp_path / "other"), "--merge", name=done.folder.name)
    assert not (tmp_path / "other").exists()


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_families_without_an_export_are_refused(done, lockstep, tmp_path, monkeypatch):
    monkeypatch.setattr(SequentialRecommender, "export", LockstepModule.export)
    with pytest.raises(ValueError, match="export: SequentialRecommender cannot be exported"):
        lockstep("export", "--output", str(tmp_path / "out"), name=done.folder.name)


def test_an_output_without_a_name_is_refused(done, lockstep):
    with pytest.raises(ValueError, match="^--output: found nothing, expected the name of a new directory"):
        lockstep("export", "--output", "", name=done.folder.name)


def test_the_output_must_be_named(capsys):
    with pytest.raises(SystemExit) as end:
        main(["export", *TINY])
    assert end.value.code == 2
    assert "output" in capsys.readouterr().err
