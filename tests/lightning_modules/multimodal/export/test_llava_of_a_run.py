"""A run that is exported as a Llava answers in transformers as predict does."""

import pytest
import torch
import yaml

from datamodules.multimodal.batch import ImageLayout
from tests.support.families.colored_squares import COLORS, TOWER, Squares, write_config, write_language_model


def answers_of(folder, pictures, question):
    from transformers import AutoProcessor, LlavaForConditionalGeneration

    model, processor = (kind.from_pretrained(folder) for kind in (LlavaForConditionalGeneration, AutoProcessor))
    chat = [{"role": "user", "content": question}]
    text = processor.apply_chat_template(chat, add_generation_prompt=True)
    for picture in pictures:
        model_inputs = processor(images=[picture], text=text, return_tensors="pt")
        written = model.generate(**model_inputs)[0, model_inputs["input_ids"].shape[1] :]
        yield processor.decode(written, skip_special_tokens=True)


@pytest.mark.slow
@pytest.mark.parametrize("trainable", ["full", "lora"])
def test_a_run_answers_there_as_predict_does(lockstep, tmp_path, messages, trainable):
    write_language_model(tmp_path / "qwen2", seed=0)
    language_model = {"path": str(tmp_path / "qwen2"), "trainable": trainable}
    options = write_config(tmp_path, language_model=language_model, projector={"layer_norm": False}, learning_rate=0.01)
    options += ["--data.init_args.tokenizer", str(tmp_path / "qwen2"), "--trainer.max_steps", "48"]
    options += ["--trainer.check_val_every_n_epoch", "12"]
    lockstep("fit", *options, name="a")
    run = lockstep("predict", *options, name="a")
    predicted = [record["answer"] for record in run.predictions()]
    if trainable == "lora":
        lockstep("export", *options, "--output", "parts", name="a")
        assert any("not as a Llava" in line and "add --merge" in line for line in messages)
        assert (tmp_path / "parts/adapter_config.json").is_file()
        assert (tmp_path / "parts/modality").is_dir()
    lockstep("export", *options, "--output", "llava", "--merge", name="a")
    assert "exporting as a LlavaForConditionalGeneration of transformers" in messages
    assert sorted(path.name for path in (tmp_path / "llava").iterdir()) == [
        "README.md",
        "SHA256SUMS",
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "processor_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    squares = Squares([1], 64, 16, ImageLayout(TOWER["image_size"], 4))
    pictures = [squares.decode_images(index)[0] for index in range(8)]
    assert len(set(predicted)) > 1, "it has learned to look"
    assert set(predicted) <= set(COLORS), "it has learned to look"
    assert list(answers_of(tmp_path / "llava", pictures, "<image>what colours ?")) == predicted[:8]


def test_parts_of_a_run_with_tiles_hold_the_position_embeddings(lockstep, tmp_path, messages):
    from safetensors.torch import load_file

    options = write_config(tmp_path)
    options += ["--data.init_args.max_tiles", "2", "--data.init_args.edge", "32"]
    run = lockstep("fit", *options, name="a")
    lockstep("export", *options, "--output", "parts", "--ckpt_path", "last", name="a")
    assert any("max_tiles" in line and "projector.layer_norm" in line for line in messages)
    saved = torch.load(run.folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    assert torch.equal(load_file(tmp_path / "parts/modality/places.safetensors")["weight"], saved["places.weight"])
    settings = yaml.safe_load((tmp_path / "parts/modality/settings.json").read_text())
    assert settings["encoder"]["max_tiles"] == 2
