"""Tests that a stage starts from an earlier stage: every weight is loaded or refused by name."""

import shutil

import pytest
import torch
import yaml

from tests.support.families.colored_squares import write_config, write_language_model, write_tower
from tests.tiers import slow

# Projector alone, as in LLaVA's first stage.
ALIGN = ["--model.init_args.language_model.trainable", "none", "--model.init_args.vision_tower.trainable", "none"]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """Directories of a tiny tower and a tiny language model with its tokenizer; {name: path}."""
    folder = tmp_path_factory.mktemp("pretrained")
    for seed, other in enumerate(("", "other_")):
        write_language_model(folder / f"{other}language", seed)
        write_tower(folder / f"{other}tower", seed)
    return folder


def options(folder, tmp_path, language="language", tower="tower"):
    paths = {"language_model": {"path": str(folder / language)}, "vision_tower": {"path": str(folder / tower)}}
    config = write_config(tmp_path, **paths)
    return [*config, "--data.init_args.tokenizer", str(folder / language), "--data.init_args.images", "[0, 1, 2]"]


def weights(run, name="last.ckpt"):
    return torch.load(run.folder / "checkpoints" / name, weights_only=True)


@pytest.fixture
def aligned(lockstep, pretrained, tmp_path):
    """A first stage, and the options that it was run with."""
    model_options = options(pretrained, tmp_path)
    return lockstep("fit", *model_options, *ALIGN, name="aligned"), model_options


def begun(lockstep, given, *more, name="sft", steps=0):
    """A second stage, of no step or of some."""
    rate = [] if steps else ["--model.init_args.learning_rate", "0"]
    limit = ["--trainer.max_steps", str(steps or 1)]
    return lockstep("fit", *given, *more, *rate, *limit, "--model.init_args.init_from", "aligned", name=name)


def test_only_weights_are_loaded(lockstep, aligned, messages):
    run, model_options = aligned
    messages.clear()
    second = begun(lockstep, model_options, "--model.init_args.vision_tower.trainable", "none")
    before, after = weights(run), weights(second)
    projector = {name for name in before["state_dict"] if name.startswith("projector.")}
    assert projector == set(before["state_dict"])
    assert projector  # the rest was frozen
    for name in projector:
        assert torch.equal(before["state_dict"][name], after["state_dict"][name]), name
    assert after["global_step"] == 1
    assert before["global_step"] == 2
    states = after["optimizer_states"][0]["state"]
    assert {int(state["step"]) for state in states.values()} == {1}
    assert len(states) > len(projector)
    assert f"initialized {len(projector)} weights from runs/aligned/checkpoints/" in "\n".join(messages)
    assert yaml.safe_load((second.folder / "config.yaml").read_text())["model"]["init_args"]["init_from"] == "aligned"


@pytest.mark.slow
def test_a_stage_resumes_without_the_earlier_stage(lockstep, aligned):
    run, model_options = aligned
    through = begun(lockstep, model_options, steps=4, name="through")
    begun(lockstep, model_options, steps=2, name="stopped")
    shutil.rmtree(run.folder)
    rest = ["--trainer.max_steps", "4", "--model.init_args.init_from", "aligned", "--ckpt_path", "last"]
    resumed = lockstep("fit", *model_options, *rest, name="stopped")
    assert resumed.series("train/loss") == through.series("train/loss")
    assert len(through.series("train/loss")) == 4
    assert resumed.series("val/loss")[4] == through.series("val/loss")[4]
    lockstep("test", "--run_name", "stopped", name="stopped")


@pytest.mark.slow
def test_trained_weights_that_are_frozen_now_are_kept(lockstep, pretrained, tmp_path):
    """Adapters on a language model that the first stage trained whole: the files do not have it."""
    model_options = options(pretrained, tmp_path)
    run = lockstep("fit", *model_options, name="aligned")
    second = begun(lockstep, model_options, "--model.init_args.language_model.trainable", "lora", steps=4)
    before, after = weights(run)["state_dict"], weights(second)["state_dict"]
    trained = before["language_model.network.model.layers.1.mlp.up_proj.weight"]
    name = "language_model.network.base_model.model.model.layers.1.mlp.up_proj.base_layer.weight"
    assert torch.equal(after[name], trained)
    losses = lockstep("test", "--ckpt_path", "last", name="sft").series("test/loss")
    assert losses[4] == pytest.approx(second.series("val/loss")[4], rel=1e-5)
    with pytest.raises(ValueError, match="earlier stage trained.*--merge"):
        lockstep("export", "--output", str(tmp_path / "adapters"), "--ckpt_path", "last", name="sft")


@pytest.mark.parametrize("how", ["lora", slow("full"), slow("last_n_layers"), "none"])
def test_every_second_stage_starts_from_a_frozen_model(lockstep, aligned, how, messages):
    _, model_options = aligned
    messages.clear()
    tiles = ["--data.init_args.max_tiles", "2", "--data.init_args.edge", "20"]
    run = begun(lockstep, model_options, *tiles, "--model.init_args.language_model.trainable", how, steps=1)
    new = next(line for line in messages if line.startswith("newly initialized, not in it"))
    assert new == "newly initialized, not in it: " + "adapters, " * (how == "lora") + "places.weight"
    assert len(run.series("train/loss")) == 1


@pytest.mark.slow
def test_narrow_and_wide_formats_of_the_same_files_are_compared_by_file(lockstep, aligned):
    """Frozen in bf16, trained from fp32: compared by files, not by values."""
    _, model_options = aligned
    narrow = ["--trainer.precision", "bf16-mixed"]
    lockstep("fit", *model_options, *ALIGN, *narrow, name="narrow")
    wide = [*narrow, "--model.init_args.init_from", "narrow", "--trainer.max_steps", "1"]
    assert lockstep("fit", *model_options, *wide, name="wide").series("train/loss")


@pytest.mark.parametrize("part", ["language", "tower"])
def test_another_base_is_refused(lockstep, aligned, pretrained, tmp_path, part):
    """A projector that was aligned with one model is refused for another model of the same architecture."""
    model_options = options(pretrained, tmp_path, **{part: f"other_{part}"})
    prefix = "language_model.network" if part == "language" else "encoder.network"
    message = f"omitted as frozen, and different from this model's, are {prefix}.*and .* more"
    with pytest.raises(ValueError, match=message):
        begun(lockstep, model_options)


REFUSALS = {
    "missing": (["--model.init_args.projector.kind", "deep_mlp"], r"it lacks projector\.layers\.\S+"),
    "unexpected": (["--model.init_args.projector.kind", "linear"], r"this model lacks projector\.layers\.\S+"),
    "shape": (["--model.init_args.projector.hidden_size", "40"], r"another shape are \S+ \(\(32, 16\), here \(40, 16"),
    "tower": (["--model.init_args.vision_tower.feature_layer", "-2"], "its encoder differs .*: architecture"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_checkpoint_that_does_not_fit_is_named(lockstep, aligned, case):
    more, message = REFUSALS[case]
    with pytest.raises(ValueError, match=f"init_from: runs/aligned/checkpoints/.* does not fit .*: .*{message}"):
        begun(lockstep, aligned[1], *more)


def test_adapters_are_not_dropped(lockstep, pretrained, tmp_path):
    model_options = options(pretrained, tmp_path)
    lockstep("fit", *model_options, "--model.init_args.language_model.trainable", "lora", name="aligned")
    with pytest.raises(ValueError, match=r"this model lacks language_model\S*lora_A.*train the adapters further"):
        begun(lockstep, model_options)
    more = ["--model.init_args.language_model.trainable", "lora"]
    assert begun(lockstep, model_options, *more, name="same").folder.is_dir()
    with pytest.raises(ValueError, match="its language_model differs .*: lora"):
        begun(lockstep, model_options, *more, "--model.init_args.language_model.lora.alpha", "3", name="other")


@pytest.mark.slow
def test_the_earlier_stage_is_found_by_every_name(lockstep, aligned, pretrained, tmp_path, messages):
    run, model_options = aligned
    kept = run.folder.relative_to(tmp_path) / "checkpoints/last.ckpt"
    shutil.copytree(run.folder, tmp_path / "runs" / f"{tmp_path.name}-vision_language-20990101-000000")
    names = [kept, run.folder, "aligned", model_options[1]]
    for index, name in enumerate(map(str, names)):
        messages.clear()
        lockstep(
            "fit", *model_options, "--trainer.max_steps", "1", "--model.init_args.init_from", name, name=f"run{index}"
        )
        chosen = "last.ckpt" if name == str(kept) else "best.ckpt"
        assert any(line.startswith("initialized") and chosen in line for line in messages), name
    with pytest.raises(
        FileNotFoundError, match="nothing is not a checkpoint, a run .* have checkpoints: aligned, run0"
    ):
        lockstep("fit", *model_options, "--model.init_args.init_from", "nothing", name="b")
    with pytest.raises(FileNotFoundError, match="there is no config nothing.yaml"):
        lockstep("fit", *model_options, "--model.init_args.init_from", "nothing.yaml", name="b")
