"""Runs the code on the model card of an exported directory, and compares its answer with that of predict."""

import shutil
from functools import partial

from tests.lightning_modules.vision_language.pretrained.plain_loop import apply_template
from tests.support.outputs.model_card import run_code

PICTURE = "picture.png"
"""The picture of the card, and of a question of the chats."""


def run_card(folder, chats, processor, monkeypatch, capsys):
    """Run the card's code in the folder. Return its variables and what it printed.

    Without torchvision transformers builds no video processor; a processor that has one is replaced by `processor`,
    which has none.
    """
    from transformers import AutoProcessor

    shutil.copyfile(chats / PICTURE, folder / PICTURE)
    with monkeypatch.context() as patch:
        if hasattr(processor, "video_processor"):
            patch.setattr(AutoProcessor, "from_pretrained", lambda folder: processor)
            patch.setattr(processor, "apply_chat_template", partial(apply_template, processor))
        capsys.readouterr()
        (names,) = run_code(folder)
    return names, capsys.readouterr().out


def assert_card_answers(folder, chats, processor, here, monkeypatch, capsys):
    """Assert that the card's code answers as `predict`, which wrote at most four tokens."""
    names, printed = run_card(folder, chats, processor, monkeypatch, capsys)
    assert printed == processor.decode(names["answer"], skip_special_tokens=True) + "\n"
    assert processor.decode(names["answer"][:4], skip_special_tokens=True).strip() == here
