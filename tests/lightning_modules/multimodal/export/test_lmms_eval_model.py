"""Tests that lmms-eval gets the answers of `predict` and Lockstep's losses from an exported Llava."""

import configparser
import io
import json
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from datamodules.vision_language.chat_dataset import ImageProcessor
from datamodules.vision_language.chat_file import ImageChat
from engine.system.installation import SETUP
from tests.support.data_files.picture_forms import PICTURES
from tests.support.families.bos_tokenizers import WITH_BOS
from tests.support.families.exported_llava import LAYOUT, asked, embedded, export, predicted

MODULE = "lightning_modules.multimodal.export.lmms_eval_model"
INSTALLED = find_spec("lmms_eval") is not None
QUESTION = "What is shown here?"
OPTIONS = ["steel", "brass", "a pump"]

TASKS = """
from PIL import Image

def images(document):
    return [Image.open(document["image"])]
"""

TASK = """
task: tiny
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}, cache_dir: CACHE}
test_split: test
output_type: generate_until
doc_to_visual: !function tasks.images
doc_to_text: question
doc_to_target: answer
generation_kwargs: {max_new_tokens: 12}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""


@pytest.fixture
def adapter(monkeypatch):
    """The module of the model; where lmms-eval is not installed, on the parts of its interface that the model uses."""
    if not INSTALLED:

        class Lmms:
            def __init__(self):
                self.task_dict = {}

        for name in ("lmms_eval", "lmms_eval.api", "lmms_eval.api.model"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        sys.modules["lmms_eval.api.model"].lmms = Lmms
        monkeypatch.delitem(sys.modules, MODULE, raising=False)
    yield import_module(MODULE)
    if not INSTALLED:
        sys.modules.pop(MODULE, None)


@pytest.fixture
def exported(tmp_path):
    """The parts of a Llava, its tokenizer and its folder, beside a picture."""
    (tmp_path / "llava").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (24, 18, 4), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    return *export(tmp_path / "llava", "gemma", WITH_BOS), tmp_path / "llava"


@torch.no_grad()
def loss_of(parts, tokenizer, folder, answer):
    """The loss of an answer by Lockstep's own networks, and whether it is the greedy one."""
    prompt, images = asked(tokenizer, folder)
    target = torch.tensor(tokenizer.tokenizer(answer, add_special_tokens=False)["input_ids"])
    tokens = torch.cat([prompt, target[None]], 1)
    states = parts.language_model.hidden_states(embedded(parts, tokens, images), torch.arange(tokens.shape[1])[None])
    scores = parts.language_model.logits(states)[0, -len(target) - 1 : -1].log_softmax(-1)
    total = -sum(float(row[token]) for row, token in zip(scores, target, strict=True))
    return total / len(target), bool((scores.argmax(-1) == target).all())


def request(*args):
    return SimpleNamespace(args=args)


def test_answers_and_losses_are_those_of_lockstep(adapter, exported, tmp_path):
    parts, tokenizer, folder = exported
    tokens, _, answer = predicted(parts, tokenizer, tmp_path)
    model = adapter.LmmsEvalModel(str(folder), device="cpu")
    model.task_dict["tiny"] = {"test": [{"file": tmp_path / "picture.png", "answer": "brass"}]}
    instance = (lambda document: [Image.open(document["file"])], 0, "tiny", "test")
    options = [{"max_new_tokens": 12}, {"max_new_tokens": 12, "until": [answer[1]]}]
    actual = model.generate_until([request(QUESTION, option, *instance) for option in options])
    assert actual == [answer.strip(), answer[: answer.index(answer[1])].strip()]
    assert len(answer) > 1
    answers = [*OPTIONS, answer[0]]
    results = model.loglikelihood([request(QUESTION, f" {text}", *instance) for text in answers])
    expected = [loss_of(parts, tokenizer, tmp_path, text) for text in answers]
    assert [loss for loss, _ in results] == pytest.approx([loss for loss, _ in expected], abs=1e-4)
    assert [greedy for _, greedy in results] == [greedy for _, greedy in expected] == [False, False, False, True]
    of_document = model.loglikelihood([request(QUESTION, lambda document: document["answer"], *instance)])
    assert of_document == [results[1]]
    alone = model.loglikelihood([request("", " brass")])
    assert alone != [results[1]]
    assert alone[0][0] > 0


@pytest.mark.parametrize("name", [name for name in PICTURES if name != "large"])  # a JPEG that training reduces
def test_pictures_have_the_pixels_of_training(adapter, name):
    """A picture of 16 bits was white: converting it to RGB clips values above 255."""
    (expected,) = ImageProcessor(LAYOUT, 10**7).decode_images(ImageChat(name, [], [PICTURES[name]]))
    picture = Image.open(io.BytesIO(PICTURES[name]))
    (actual,) = adapter.LmmsEvalModel._images(
        SimpleNamespace(_document=lambda number: [picture][number]), lambda document: [document], 0
    )
    assert (actual.mode, actual.size) == ("RGB", expected.size)
    assert actual.tobytes() == expected.tobytes()


def test_what_the_model_cannot_do_is_refused(adapter, exported):
    with pytest.raises(ValueError, match="batch_size must be 1"):
        adapter.LmmsEvalModel(str(exported[2]), batch_size=2)
    model = adapter.LmmsEvalModel(str(exported[2]), device="cpu")
    model.task_dict["tiny"] = {"test": ["film.mp4"]}
    with pytest.raises(ValueError, match="expected images, found a str"):
        model.generate_until([request(QUESTION, {}, lambda document: [document], 0, "tiny", "test")])
    with pytest.raises(ValueError, match="expected an answer with a token"):
        model.loglikelihood([request(QUESTION, " ")])
    with pytest.raises(NotImplementedError, match="several rounds"):
        model.generate_until_multi_round([])


def test_lmms_eval_finds_the_model_by_an_entry_point(adapter):
    setup = configparser.ConfigParser()
    setup.read(SETUP, encoding="utf-8")
    name, _, target = setup["options.entry_points"]["lmms_eval.models"].strip().partition(" = ")
    module, _, function = target.partition(":")
    assert name == "lockstep"
    assert getattr(import_module(module), function) is adapter.manifest


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not INSTALLED, reason="lmms-eval is not installed: pip install lmms-eval")
def test_lmms_eval_evaluates_the_export(adapter, exported, tmp_path):
    from lmms_eval.evaluator import simple_evaluate
    from lmms_eval.models import MODEL_REGISTRY_V2
    from lmms_eval.tasks import TaskManager

    MODEL_REGISTRY_V2.register_manifest(adapter.manifest(), overwrite=True)
    parts, tokenizer, folder = exported
    answer = predicted(parts, tokenizer, tmp_path)[2].strip()
    document = {"question": QUESTION, "image": str(tmp_path / "picture.png")}
    lines = [json.dumps({**document, "answer": output}) + "\n" for output in (answer, answer, answer, f"not {answer}")]
    (tmp_path / "data.jsonl").write_text("".join(lines))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/tasks.py").write_text(TASKS)
    task = TASK.replace("DATA", str(tmp_path / "data.jsonl")).replace("CACHE", str(tmp_path / "cache"))
    (tmp_path / "tasks/tiny.yaml").write_text(task)
    found = simple_evaluate(
        "lockstep",
        f"pretrained={folder}",
        tasks=["tiny"],
        batch_size=1,
        device="cpu",
        task_manager=TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False),
    )["results"]
    assert found["tiny"]["exact_match,none"] == 0.75
