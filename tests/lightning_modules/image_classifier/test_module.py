"""Runs the family from the command line: it learns, distinguishes classes, and reports errors."""

import math

import pytest
import torch
import yaml
from lightning.pytorch.strategies import FSDPStrategy
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.nn.functional import cross_entropy

from commands.report.comparison.saved_answers import read_answers
from datamodules.image_classifier.sources import cifar
from datamodules.image_classifier.sources.image_source import digits
from lightning_modules.image_classifier.module import ImageClassifier
from lightning_modules.image_classifier.networks.resnet import ResNet18
from tests.support.data_files.image_files import COLORS, cifar_archive, write_colors
from tests.support.fake_trainer import fake_trainer
from tests.support.families.tiny_digits import DIGITS, FOLDER, SMALL


def colors(tmp_path, **options):
    write_colors(tmp_path / "data/images/train", 10)
    settings = {"width": 32, "depth": 1, "heads": 2, "warmup_steps": 5, "ema_decay": 0.5, **options}
    model = [text for key, value in settings.items() for text in (f"--model.init_args.{key}", str(value))]
    data = ["--data.init_args.image_size", "16", "--data.init_args.batch_size", "8"]
    return ["--config", str(FOLDER / "image_folder.yaml"), *SMALL, *model, *data]


def test_colors_are_distinguished_and_predicted_by_file(lockstep, tmp_path):
    """Trains on 16 files, one of which is not an image and is skipped. Errors are tested afterwards on this run."""
    options = colors(tmp_path)
    (tmp_path / "data/images/train/red/5.png").write_bytes(b"no image")
    run = lockstep("fit", *options, "--trainer.max_epochs", "8", name="a")
    assert run.series("val/accuracy")[16] == 1.0
    assert (run.folder / "bad_samples.jsonl").read_text().count("red/5.png") >= 1
    lockstep("test", "--trainer.accelerator", "cpu", name="a")
    board = EventAccumulator(str(run.folder), {"images": 0})
    board.Reload()
    assert set(board.Tags()["images"]) == {"val/confusion", "test/confusion", "val/examples"}

    (tmp_path / "data/images").rename(tmp_path / "elsewhere")  # a checkpoint knows its classes
    write_colors(tmp_path / "new", 2)
    (tmp_path / "new/red/2.png").write_bytes(b"no image")
    lockstep("predict", "--data.init_args.predict_folder", "new", "--trainer.accelerator", "cpu", name="a")
    *found, bad = run.predictions()
    assert bad["image"] == "new/red/2.png"
    assert bad["answer"] is None
    assert "found 8 bytes" in bad["why"]
    assert [(item["image"], item["class"]) for item in found] == [
        (f"new/{color}/{number}.png", color) for color in sorted(set(COLORS) - {"green"}) for number in range(2)
    ]
    assert all(0.5 < item["probability"] <= 1 for item in found)

    (tmp_path / "elsewhere").rename(tmp_path / "data/images")
    (tmp_path / "data/images/train/red").rename(tmp_path / "data/images/train/ruby")
    with pytest.raises(
        ValueError, match="class 1: found ruby in the data, expected red as in the checkpoint, which has 2"
    ):
        lockstep("test", "--trainer.accelerator", "cpu", name="a")


def evaluated(weights, prefix, digits_of):
    """Mean loss on a part of the digits, by a network of its own with these weights."""
    network = ResNet18(1, 10, 8).eval()
    network.load_state_dict(
        {
            name.removeprefix(prefix).replace("/", "."): value.float()
            for name, value in weights.items()
            if name.startswith(prefix)
        }
    )
    pixels = torch.from_numpy(digits_of.pixels).float() / 127.5 - 1
    with torch.no_grad():
        return float(cross_entropy(network(pixels), torch.from_numpy(digits_of.labels)))


def test_the_moving_average_is_evaluated(lockstep):
    options = ["--trainer.limit_train_batches", "20", "--model.init_args.schedule", "constant"]
    run = lockstep("fit", *DIGITS, *options, name="a")
    weights = torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
    average, plain = (evaluated(weights, prefix, digits(0.1).validation) for prefix in ("average.", "network."))
    assert run.series("val/loss")[20] == pytest.approx(average, rel=1e-4)
    assert abs(average - plain) > 0.002 * plain


def test_weights_of_16_bits_train_and_metrics_are_means_in_32_bits(lockstep):
    """They train, and metrics are means in 32 bits; a 16-bit average would not change."""
    options = [*DIGITS, "--trainer.precision", "bf16-true"]
    run = lockstep("fit", *options, "--model.init_args.ema_decay", "null", name="a")
    weights = torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
    assert weights["network.head.weight"].dtype == torch.bfloat16
    lockstep("test", "--trainer.accelerator", "cpu", name="a")
    answers = read_answers(run.folder)  # refuses answers whose points are not the metric
    assert len(answers.answers) == len(digits(0.1).test.labels)
    assert answers.answers[0].expected in map(str, range(10))
    for name, part in {"val": digits(0.1).validation, "test": digits(0.1).test}.items():
        loss = run.series(f"{name}/loss")[6]
        assert loss == pytest.approx(evaluated(weights, "network.", part), rel=0.02)
        assert loss != float(torch.tensor(loss).bfloat16())
    with pytest.raises(ValueError, match="ema_decay is 0.99, but with trainer.precision bf16-true .* rounds to"):
        lockstep("fit", *options, name="b")


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
def test_the_configs_of_cifar_run(lockstep, tmp_path, monkeypatch, dataset):
    """Runs the shipped configs with smaller sizes, on 20 images a file, without a download."""
    content, md5 = cifar_archive(dataset)
    archive = cifar._ARCHIVES[dataset]
    monkeypatch.setitem(cifar._ARCHIVES, dataset, archive._replace(md5=md5))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / archive.name).write_bytes(content)
    config = FOLDER / f"{dataset}.yaml"
    lockstep("prepare", "--config", str(config), name="prepared")
    small = ["--model.init_args.width", "8", "--data.init_args.batch_size", "10", "--trainer.max_epochs", "1"]
    some = ["--data.init_args.validation_share", "0.1", "--trainer.limit_train_batches", "2"]
    run = lockstep("fit", "--config", str(config), *SMALL, *small, *some, name="a")
    losses = run.series("train/loss")
    assert sorted(losses) == [1, 2]
    assert all(map(math.isfinite, losses.values()))
    assert 0 <= run.series(yaml.safe_load(config.read_text())["best_checkpoint"]["monitor"])[2] <= 1


def test_there_is_no_average_of_shards():
    module = ImageClassifier(ema_decay=0.9)
    module._trainer = fake_trainer("test", strategy=FSDPStrategy())
    with pytest.raises(ValueError, match="which FSDP shards"):
        module.setup("test")


def test_a_decay_that_keeps_everything_is_refused(lockstep, tmp_path):
    with pytest.raises(ValueError, match="ema_decay must be more than 0 and less than 1, got 1.0"):
        lockstep("fit", *colors(tmp_path, ema_decay=1.0), name="a")
