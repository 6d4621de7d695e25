"""Trains a pretrained language model frozen, with adapters and whole; each resumes bit-identically."""

import logging

import pytest
import torch
import yaml

from tests.support.families.tiny_temporal import TINY_TEMPORAL, write_qwen2
from tests.tiers import slow

# 64 samples in batches of 16: four steps an epoch; new samples in each. Dropout is on.
OPTIONS = [*TINY_TEMPORAL, "--model.init_args.encoder_dropout", "0.1", "--trainer.max_epochs", "-1"]


@pytest.fixture(scope="module")
def qwen2(tmp_path_factory):
    folder = tmp_path_factory.mktemp("qwen2")
    write_qwen2(folder)
    overlay = folder / "overlay.yaml"
    model = {"init_args": {"language_model": {"path": str(folder), "config": None}}}
    data = {"init_args": {"tokenizer": str(folder)}}
    overlay.write_text(yaml.safe_dump({"model": model, "data": data}))
    return ["--config", str(overlay)]


def steps(number):
    return ["--trainer.max_steps", str(number)]


@pytest.mark.parametrize(
    "trainable",
    [slow("lora"), slow("none"), slow("full"), slow("last_n_layers")],
)
def test_a_pretrained_model_trains_and_resumes_to_the_bit(lockstep, qwen2, trainable, caplog):
    options = [*OPTIONS, *qwen2, "--model.init_args.language_model.trainable", trainable]
    options += ["--model.init_args.language_model.last_n_layers", "1"]
    with caplog.at_level(logging.INFO, "lockstep"):
        through = lockstep("fit", *options, *steps(9), name="through")
    stopped = lockstep("fit", *options, *steps(6), name="stopped")  # in the middle of the second epoch
    assert sorted(stopped.series("train/loss")) == list(range(1, 7))
    resumed = lockstep("fit", *options, *steps(9), "--ckpt_path", "last", name="stopped")
    assert resumed.series("train/loss") == through.series("train/loss")
    expected = through.series("val/loss")
    assert {step: value for step, value in resumed.series("val/loss").items() if step in expected} == expected

    path = stopped.folder / "checkpoints/last.ckpt"
    weights = torch.load(path, weights_only=True)["state_dict"]
    of_the_model = [name for name in weights if name.startswith("language_model.")]
    kinds = {"none": lambda name: False, "lora": lambda name: "lora_" in name}
    if trainable in kinds:
        assert all(map(kinds[trainable], of_the_model))
        assert bool(of_the_model) == (trainable == "lora")
    if trainable == "last_n_layers":
        assert of_the_model
        assert all(".layers.1." in name or ".norm." in name for name in of_the_model)


def test_a_frozen_models_checkpoint_holds_what_was_trained(lockstep, qwen2):
    """Weights and Adam's two means, and not much else: with bigger parts the rest would not even show."""
    sizes = ["--model.init_args.feature_size", "256", "--model.init_args.encoder_size", "64"]
    options = [*OPTIONS, *qwen2, *sizes, "--model.init_args.language_model.trainable", "none"]
    run = lockstep("fit", *options, *steps(2), name="a")
    path = run.folder / "checkpoints/last.ckpt"
    weights = torch.load(path, weights_only=True)["state_dict"]
    state = 3 * sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
    assert path.stat().st_size < 1.2 * state


def test_another_base_model_is_refused(lockstep, qwen2, tmp_path):
    from transformers import Qwen2ForCausalLM

    options = [*OPTIONS, *qwen2, "--model.init_args.language_model.trainable", "none"]
    lockstep("fit", *options, *steps(2), name="a")
    other = tmp_path / "other"
    write_qwen2(other)
    model = Qwen2ForCausalLM.from_pretrained(other)
    model.model.layers[0].mlp.up_proj.weight.data[0, 0] += 1
    model.save_pretrained(other)
    with pytest.raises(ValueError, match="other"):
        lockstep(
            "fit",
            *options,
            "--model.init_args.language_model.path",
            str(other),
            *steps(4),
            "--ckpt_path",
            "last",
            name="a",
        )


def test_the_table_has_the_learning_rate_of_each_part(lockstep, qwen2, caplog):
    rates = "{encoder: 0.004, language_model: 0.001}"
    options = [*OPTIONS, *qwen2, "--model.init_args.language_model.trainable", "lora"]
    with caplog.at_level(logging.INFO, "lockstep"):
        run = lockstep(
            "fit",
            *options,
            "--model.init_args.learning_rates",
            rates,
            "--model.init_args.learning_rate",
            "0.002",
            *steps(1),
            name="a",
        )
    table = next(record.message for record in caplog.records if "projector" in record.message)
    rate_of = {}
    for line in table.splitlines():
        for part in ("encoder", "projector", "language_model"):
            if part in line:
                rate_of[part] = line
    assert "0.004" in rate_of["encoder"]
    assert "0.002" in rate_of["projector"]
    assert "0.001" in rate_of["language_model"]
    groups = torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True)["optimizer_states"][0]["param_groups"]
    assert {group["initial_lr"] for group in groups} == {0.004, 0.002, 0.001}


@pytest.mark.slow
def test_unpacked_rows_train_the_same_as_packed_ones(lockstep):
    options = [*TINY_TEMPORAL, *steps(4)]
    packed = lockstep("fit", *options, name="packed").series("train/loss")
    rows = lockstep(
        "fit", *options, "--data.init_args.packed_length", "null", "--data.init_args.length_groups", "3", name="rows"
    ).series("train/loss")
    assert packed.keys() == rows.keys()
    assert len(rows) == 4
    for step, loss in rows.items():
        assert packed[step] == pytest.approx(loss, rel=1e-5), step


@pytest.mark.slow
def test_a_blind_model_does_not_see(lockstep):
    """Trained and evaluated blind it is its own blind baseline."""
    run = lockstep("fit", *TINY_TEMPORAL, "--model.init_args.blind", "true", *steps(8), name="a")
    assert run.series("val/loss") == run.series("val/baseline/blind/loss")
    seeing = lockstep("fit", *TINY_TEMPORAL, *steps(8), name="b")
    assert seeing.series("val/loss") != seeing.series("val/baseline/blind/loss")
    assert set(seeing.series("val/baseline/rules/exact").values()) == {1.0}


def test_in_the_middle_of_an_epoch_the_samples_must_be_the_same(lockstep):
    lockstep("fit", *TINY_TEMPORAL, *steps(2), name="a")
    with pytest.raises(ValueError, match="2 batches into epoch 0 with timelines"):
        lockstep(
            "fit", *TINY_TEMPORAL, "--data.init_args.synthesis.noise", "0.1", *steps(4), "--ckpt_path", "last", name="a"
        )
