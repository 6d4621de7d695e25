"""Tests that an exported classifier predicts the classes of `predict`, with Lockstep and without."""

import numpy as np
import pytest
from PIL import Image

from datamodules.image_classifier.sources.image_source import digits
from lightning_modules.image_classifier.export.runtime import load_classifier
from tests.support.families.tiny_digits import FOLDER, SMALL
from tests.support.outputs.model_card import read_card, run_code


@pytest.mark.slow
@pytest.mark.parametrize("network", ["resnet18", "vit"])
def test_the_average_that_is_evaluated_is_what_leaves(lockstep, tmp_path, network):
    import torch

    options = {"network": network, "width": 16, "depth": 1, "heads": 2, "ema_decay": 0.9, "evaluation_shift": 1}
    model = [text for key, value in options.items() for text in (f"--model.init_args.{key}", str(value))]
    steps = ["--trainer.max_steps", "12", "--trainer.limit_val_batches", "1"]
    run = lockstep("fit", "--config", str(FOLDER / "digits.yaml"), *SMALL, *model, *steps, name="a")
    lockstep("predict", "--ckpt_path", "last", name="a")
    lockstep("export", "--ckpt_path", "last", "--output", "out", name="a")

    card = read_card(tmp_path / "out")
    assert card.data.pipeline_tag == "image-classification"
    assert network in card.data.tags
    assert "CC BY 4.0" in card.text
    assert "moving average" in card.text
    assert "the mean over all shifts of the image by up to 1 pixels" in card.text
    test = digits(0.1).test
    images = test.read(np.arange(len(test.labels)))
    lines = run.predictions()
    reported = load_classifier(tmp_path / "out").classify(torch.from_numpy(images))
    assert [label for label, _ in reported] == [line["class"] for line in lines]
    assert [share for _, share in reported] == pytest.approx([line["probability"] for line in lines], abs=1e-4)

    Image.fromarray(images[3, 0]).save(tmp_path / "out" / "picture.png")
    without, with_lockstep = run_code(tmp_path / "out")
    assert without["answer"][0] == reported[3][0]
    assert without["answer"][1] == pytest.approx(reported[3][1], abs=1e-5)
    assert with_lockstep["model"].classes == without["settings"]["classes"]
    with pytest.raises(ValueError, match=r"found torch.uint8 \[1, 1, 4, 8\], expected"):
        with_lockstep["model"].classify(torch.zeros(1, 1, 4, 8, dtype=torch.uint8))
