"""A wrong value of any option ends the start with one message of at most three lines that has the option's name."""

import itertools
import sys

import pytest

from commands.cli.main import main
from tests.commands.cli.configs.refusals import ACCEPTED, QUICKSTARTS, answer, config_of
from tests.tiers import slow

WRONG = ["null", "[1]", "{a: 1}", "foo", "-1", "nan", "1e400", ""]


def options_of(parser, family):
    """Dotted keys of all options that a number, a text, a list or null is given for."""

    def keys(settings, prefix=""):
        for name, value in settings.items():
            if isinstance(value, dict) and value:
                yield from keys(value, f"{prefix}{name}.")
            else:
                yield prefix + name

    return [key for key in keys(parser.parse_args(config_of(family)).as_dict()) if key != "config"]


def wrongly_answered(parser, family, pairs, capsys, messages):
    for key, value in pairs:
        outcome = answer(parser, [*config_of(family), f"--{key}={value}"], capsys, messages)
        if outcome == ACCEPTED:
            continue
        code, lines = outcome
        text = "\n".join(lines)
        is_named = key.rpartition(".")[2].split("[")[0] in text
        if code != 2 or len(lines) > 3 or len(text) > 1000 or not is_named or "Traceback" in text:
            yield key, value, code, text[:500]


@pytest.mark.parametrize("family", ["recommender", *map(slow, list(QUICKSTARTS)[1:])])
@pytest.mark.filterwarnings("ignore")  # of Lightning's, about what a trainer of these settings could do better
def test_the_wrong_values_of_some_options(parser, capsys, messages, tmp_path, monkeypatch, family):
    """Every 40th option, each with the next wrong value; the slow test has all options."""
    monkeypatch.chdir(tmp_path)
    pairs = list(zip(options_of(parser, family)[::40], itertools.cycle(WRONG)))
    assert list(wrongly_answered(parser, family, pairs, capsys, messages)) == []


@pytest.mark.slow
@pytest.mark.parametrize("family", QUICKSTARTS)
@pytest.mark.filterwarnings("ignore")
def test_the_wrong_values_of_every_option(parser, capsys, messages, tmp_path, monkeypatch, family):
    """An option has two wrong values with the first family, else one with the first family that has this option."""
    monkeypatch.chdir(tmp_path)
    families = list(QUICKSTARTS)
    earlier = {key for other in families[: families.index(family)] for key in options_of(parser, other)}
    keys, turns = [key for key in options_of(parser, family) if key not in earlier], 1 if earlier else 2
    pairs = [
        (key, WRONG[(2 * index + turn * 3) % len(WRONG)]) for index, key in enumerate(keys) for turn in range(turns)
    ]
    assert list(wrongly_answered(parser, family, pairs, capsys, messages)) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("trainer.gradient_clip_val", "-1"),
        ("trainer.check_val_every_n_epoch", "0"),
        ("trainer.max_time", "soon"),
        ("trainer.val_check_interval", "00:01:00:00"),
        ("trainer.val_check_interval", "soon"),
        ("trainer.val_check_interval", "{minutes: 5}"),
        ("trainer.devices", "0"),
        ("trainer.devices", "-2"),
        ("trainer.devices", "two"),
        ("trainer.barebones", "true"),
        ("trainer.accelerator", "tpu"),
        ("data.init_args.num_workers", "100000"),
        ("trainer.val_check_interval", "0"),
        ("trainer.limit_train_batches", "-1"),
        ("trainer.accumulate_grad_batches", "0"),
        ("trainer.max_time", "00:00:00:00"),
        ("trainer.max_epochs", "-2"),
        ("model.init_args.top_k", "0"),
        ("model.init_args.dropout", "1"),
        ("model.init_args.learning_rate", "-1e-3"),
        ("model.init_args.learning_rate", "nan"),
        ("model.init_args.betas", "[0.9, 1.0]"),
        ("model.init_args.warmup_steps", "-1"),
        ("data.init_args.batch_size", "0"),
        ("data.init_args.evaluation_batch_size", "0"),
        ("data.init_args.marketplace.num_users", "0"),
        ("data.init_args.max_bad_samples", "-1"),
        ("watchdog.timeout", "nan"),
        ("last_checkpoint.keep", "0"),
        ("stragglers.every_n_steps", "0"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_numbers_without_a_meaning_are_refused(parser, capsys, messages, tmp_path, monkeypatch, key, value):
    monkeypatch.chdir(tmp_path)
    code, lines = answer(parser, [*config_of("recommender"), f"--{key}={value}"], capsys, messages)
    assert code == 2
    assert len(lines) <= 3
    assert key.rpartition(".")[2] in lines[-1]


NULL = ["model.init_args.hidden_size", "data.init_args.marketplace.num_items", "log.level", "threads"]


@pytest.mark.parametrize("key", NULL)
def test_null_is_refused_where_the_type_does_not_have_it(parser, capsys, messages, tmp_path, key):
    """The command line and a file are checked; an empty value in a file is null."""
    code, lines = answer(parser, [*config_of("recommender"), f"--{key}=null"], capsys, messages)
    assert code == 2
    assert len(lines) == 3
    assert f"error: --{key}: " in lines[-1]
    assert lines[-1].endswith("found None")
    *sections, name = key.split(".")
    text = "".join(f"{'  ' * depth}{section}:\n" for depth, section in enumerate(sections))
    (tmp_path / "x.yaml").write_text(f"{text}{'  ' * len(sections)}{name}:\n")
    code, lines = answer(parser, [*config_of("recommender"), "--config", str(tmp_path / "x.yaml")], capsys, messages)
    assert code == 2
    assert f"x.yaml:{len(sections) + 1}: {key}: " in lines[-1]
    assert lines[-1].endswith("found None")


def test_a_seed_that_numpy_does_not_accept_is_refused(messages, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py"])
    with pytest.raises(SystemExit) as end:
        main(["fit", *config_of("recommender"), "--seed_everything", "-1"])
    assert end.value.code == 2
    assert messages[0] == "error: seed_everything must be at least 0 and at most 4294967295, got -1"


def test_an_error_of_the_trainer_ends_the_command(messages, tmp_path, monkeypatch):
    """It was raised from itself, and the search for its cause had no end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    with pytest.raises(SystemExit) as end:
        main(["fit", *config_of("recommender"), "--trainer.accelerator", "cpu", "--trainer.max_time", "00:00:00:00"])
    assert end.value.code == 2
    assert "error: trainer.max_time must be more than 0, got '00:00:00:00'" in messages
    error = end.value.__cause__
    assert error is not None
    assert error.__cause__ is not error
