"""The peers train the same samples in each step, and all of them are measured."""

from functools import wraps
from itertools import islice

import pytest
import torch
from rich.console import Console

from benchmarks.engine.interleaving import Gate
from benchmarks.vision_language import step_parts, trainers
from benchmarks.vision_language.baselines import parts
from benchmarks.vision_language.models import TINY, Layout, built
from benchmarks.vision_language.plain_llava import PlainLlava
from datamodules.multimodal.batch import IGNORE
from engine.health.signals import stop_signals
from lightning_modules.vision_language.module import VisionLanguageModel


def test_the_peers_have_our_samples_and_our_loss():
    module, data = built(TINY, Layout())
    model, chats = parts(TINY)
    theirs = chats.collate([chats[index] for index in range(TINY.batch_size)])
    ((examples,),) = [next(iter(data.train_dataloader()))]
    rows = examples.rows
    assert sorted(map(tuple, _real(theirs["tokens"], data))) == sorted(map(tuple, _real(rows.tokens, data)))
    # With our weights in it the plain model has our loss, so both compute the same.
    model.language_model.load_state_dict(module.language_model.network.state_dict())
    model.tower.load_state_dict(module.encoder.network.state_dict())
    model.projector.load_state_dict(_layers(module.projector))
    with torch.no_grad():
        ours = module.training_loss((examples,))
        mean = model(**theirs)["loss"]
    assert int((theirs["labels"][:, 1:] != IGNORE).sum()) == int(ours.terms)
    assert float(mean) == pytest.approx(float(ours.total / ours.terms), rel=1e-5)


def _real(tokens, data):
    pad = data.tokenizer.pad
    return [[int(token) for token in row if token != pad] for row in tokens]


def _layers(projector):
    found = {}
    linear = [part for part in projector.modules() if isinstance(part, torch.nn.Linear)]
    for index, layer in zip((0, 2), linear, strict=True):
        found |= {f"{index}.weight": layer.weight, f"{index}.bias": layer.bias}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", trainers.variants_of(TINY))
def test_every_training_has_our_samples_in_each_step(name, tmp_path, monkeypatch):
    """The peers' loaders fix the order of samples: another order would change the tokens per second."""
    monkeypatch.chdir(tmp_path)
    _, data = built(TINY, Layout())
    expected = [_tokens(examples.rows.tokens, data) for (examples,) in islice(data.train_dataloader(), 4)]
    trained = []

    class Enough(Exception):
        pass

    class Counted(Gate):
        def step(self):
            if len(trained) == 4:
                raise Enough

    def keep(kind, method, tokens_of):
        real = getattr(kind, method)

        @wraps(real)  # whose arguments Hugging Face's Trainer looks up
        def kept(self, *batch, **named):
            if self.training:
                trained.append(_tokens(tokens_of(*batch, **named), data))
            return real(self, *batch, **named)

        monkeypatch.setattr(kind, method, kept)

    keep(PlainLlava, "forward", lambda tokens, **others: tokens)
    keep(VisionLanguageModel, "training_loss", lambda batch: batch[0].rows.tokens)
    with pytest.raises(Enough), stop_signals.handlers_installed():  # a training leaves the process to its end otherwise
        trainers.variants_of(TINY)[name](Counted())
    assert trained == expected
    assert (tmp_path / "runs/benchmark/config.yaml").exists() == name.startswith("Lockstep")


def _tokens(tokens, data):
    """Return the tokens of all rows, sorted, wherever they are in them."""
    return sorted(token for row in _real(tokens, data) for token in row)


@pytest.mark.slow
@pytest.mark.usefixtures("forked_variants")
def test_the_table_names_the_peer_and_each_of_our_variants():
    variants = {
        name: body for name, body in trainers.variants_of(TINY).items() if name in (trainers.PEER, *trainers.GOALS)
    }
    measured = trainers.measure(repeats=1, sizes=TINY, steps=2, variants=variants)
    assert all(min(variant["tokens_per_cpu_second"]) > 0 and variant["memory"] > 2**27 for variant in measured["sides"])
    console = Console(width=160, record=True)
    console.print(trainers.table(measured))
    text = console.export_text()
    assert all(variant["name"] in text for variant in measured["sides"])
    assert text.count("goal: Lockstep") == 2


@pytest.mark.slow
@pytest.mark.usefixtures("forked_variants")
def test_the_parts_of_a_step_are_the_whole_step():
    measured = step_parts.measure(repeats=2, sizes=TINY, steps=2, layouts={"packed": Layout(packed=True)})
    for variant in measured["sides"]:
        assert [sum(turn.values()) for turn in variant["shares"]] == [pytest.approx(1)] * 2
        assert all(min(turn.values()) > 0 for turn in variant["shares"])
    console = Console(width=160, record=True)
    console.print(step_parts.table(measured))
    assert "optimizer" in console.export_text()
