"""A wrong value of any option ends the start with one message of at most three lines that has the option's name."""

import itertools
import sys
from pathlib import Path

import pytest

from commands.cli.arguments import refuse_lone_values
from commands.cli.configs.config_files import check_arguments
from commands.cli.configs.parser_message import raised_by_class
from commands.cli.error_reporting import report_error
from commands.cli.main import main
from commands.cli.trainer import LockstepTrainer
from tests.conftest import REPOSITORY
from tests.tiers import slow

QUICKSTARTS = {
    "recommender": "quickstart",
    "image_classifier": "digits",
    "document_qa": "quickstart",
    "temporal": "quickstart",
    "vision_language": "quickstart_pretrain",
}
WRONG = ["null", "[1]", "{a: 1}", "foo", "-1", "nan", "1e400", ""]
ACCEPTED = "accepted"


def config_of(family):
    return ["--config", str(REPOSITORY / f"configs/{family}/{QUICKSTARTS[family]}.yaml")]


def options_of(parser, family):
    """Dotted keys of all options that a number, a text, a list or null is given for."""

    def keys(settings, prefix=""):
        for name, value in settings.items():
            if isinstance(value, dict) and value:
                yield from keys(value, f"{prefix}{name}.")
            else:
                yield prefix + name

    return [key for key in keys(parser.parse_args(config_of(family)).as_dict()) if key != "config"]


def answer(parser, arguments, capsys, messages):
    """`ACCEPTED`, or the exit code and the lines with which `train.py fit` would end before the data are opened."""
    capsys.readouterr()
    messages.clear()
    try:
        config = parser.parse_args(arguments)
        refuse_lone_values(parser, config)
        created = parser.instantiate(config)
        if any(word.startswith("--trainer.") for word in arguments):
            settings = {**created.trainer.as_dict(), "logger": False, "callbacks": [], "enable_checkpointing": False}
            settings["accelerator"] = "cpu" if settings["accelerator"] == "auto" else settings["accelerator"]
            LockstepTrainer(**settings)
    except SystemExit as end:
        return end.code, capsys.readouterr().err.splitlines()
    except Exception as error:
        return report_error(raised_by_class(error)), [line for line in messages if "LOCKSTEP_DEBUG" not in line]
    return ACCEPTED


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


@pytest.mark.parametrize(
    ("key", "class_path", "message"),
    [
        (
            "model",
            "SequentialRecomender",
            "there is no class SequentialRecomender; did you mean SequentialRecommender?",
        ),
        ("data", "engine.datamodule.Nothing", "there is no class Nothing in engine.datamodule"),
        (
            "model",
            "mine.Net",
            "no module named mine can be imported; install it, or put its folder on PYTHONPATH",
        ),
        (
            "trainer.callbacks",
            "lightning.pytorch.callbacks.EarlyStoping",
            "there is no class EarlyStoping in lightning.pytorch.callbacks; did you mean EarlyStopping?",
        ),
    ],
)
def test_a_misspelled_class_gets_the_nearest_name(parser, capsys, messages, tmp_path, key, class_path, message):
    value = f"{{class_path: {class_path}, init_args: {{a: 1}}}}"
    section, _, name = key.partition(".")
    (tmp_path / "x.yaml").write_text(f"{section}:\n  {name}: [{value}]\n" if name else f"{key}: {value}\n")
    code, lines = answer(parser, [*config_of("recommender"), "--config", str(tmp_path / "x.yaml")], capsys, messages)
    assert code == 2
    assert lines[-1].endswith(f"x.yaml:{2 if name else 1}: {key}: {message}")


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


@pytest.mark.parametrize(
    ("text", "message"), [("", "nothing"), ("# none\n", "nothing"), ("- a\n", "a list"), ("a\n", "a text")]
)
def test_a_file_without_settings_is_refused(parser, tmp_path, text, message):
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(ValueError, match=f"x.yaml:1: found {message}, expected settings, KEY: VALUE"):
        parser.parse_args(["--config", str(tmp_path / "x.yaml")])


def test_the_location_is_that_of_the_value_in_force(parser, capsys, messages, tmp_path):
    (tmp_path / "x.yaml").write_text("model:\n  init_args:\n    hiden_size: 5\n")
    (tmp_path / "y.yaml").write_text("# nothing\nmodel: {init_args: {num_blocks: many}}\n")
    _, lines = answer(parser, [*config_of("recommender"), "--config", str(tmp_path / "x.yaml")], capsys, messages)
    location, advice = "x.yaml:3: model.init_args.hiden_size: there is no such setting", "did you mean hidden_size?"
    assert location in lines[-1]
    assert lines[-1].endswith(advice)
    _, lines = answer(parser, [*config_of("recommender"), "--config", str(tmp_path / "y.yaml")], capsys, messages)
    assert lines[-1].endswith("y.yaml:2: model.init_args.num_blocks: Expected an int, found many")


def test_an_overlay_of_another_family_is_named_by_its_relative_path(parser, capsys, messages, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    overlay = "configs/overlays/qlora.yaml"
    _, lines = answer(parser, [*config_of("recommender"), "--config", overlay], capsys, messages)
    location = overlay + ":12: model.init_args.language_model.lora.rank"
    assert lines[-1] == f"error: {location}: there is no such setting of SequentialRecommender"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seed_everything: 1\nlog:\n  text\n", 'x.yaml:2: log: expected settings (KEY: VALUE), found "text"'),
        ("log:\n(  level: info\n", 'x.yaml: Spaces not allowed in keys: "( level"'),
        ("wat'ch:\n  timeout: 3\n", "x.yaml:2: wat'ch.timeout: there is no such setting"),
        ("data:\n  i.it_args:\n    batch_size: 2\n", "x.yaml:3: data.i.it_args.batch_size: there is no such setting"),
    ],
)
def test_a_file_is_named_where_settings_are_a_text_or_a_key_is_no_name(
    parser, capsys, messages, tmp_path, text, expected
):
    (tmp_path / "x.yaml").write_text(text)
    code, lines = answer(parser, [*config_of("recommender"), "--config", str(tmp_path / "x.yaml")], capsys, messages)
    assert code == 2
    assert expected in lines[-1]


def test_the_reason_of_a_class_is_reported_where_a_name_is_possible_too(parser, capsys, messages):
    """A strategy is a class or a name; jsonargparse's last reason is that the class is no name."""
    options = ["--config", "configs/overlays/fsdp.yaml", "--trainer.strategy.init_args.sharding_strategy", "NO_SHARD"]
    code, lines = answer(parser, [*config_of("recommender"), *options], capsys, messages)
    assert (code, lines) == (
        2,
        [
            "error: trainer.strategy.init_args.sharding_strategy NO_SHARD shards nothing: use strategy ddp "
            "(configs/overlays/gpu.yaml)"
        ],
    )


def test_a_class_path_that_is_a_number(parser, capsys, messages, tmp_path):
    (tmp_path / "x.yaml").write_text("seed_everything: 1\nmodel:\n  class_path: 5\n")
    _, lines = answer(parser, [*config_of("recommender"), "--config", str(tmp_path / "x.yaml")], capsys, messages)
    assert "x.yaml:2: model: Expected a class_path that is text" in lines[-1]


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--model.init_args", "0.5", "Expected settings (KEY: VALUE) or null, found 0.5"),
        ("--model", "a", "Expected an existing class_path or null, found a"),
        ("--model.class_path", "5", "Expected an existing class_path or null, found 5"),
        ("--model.class_path", "[]", "Expected a class_path that is text or null, found []"),
        ("--model.class_path", "os.system", "Import path os.system does not correspond to a subclass"),
        ("--trainer.strategy.class_path", "x", "Expected a str or existing class_path, found x"),
        ("--model.init_args.hidden_size.x", "1", "Expected an int, found 1"),
    ],
)
def test_an_option_inside_a_class_is_named_with_its_value(parser, capsys, messages, option, value, reason):
    """The config has the class, too; the option on the command line is in force."""
    code, lines = answer(parser, [*config_of("recommender"), f"{option}={value}"], capsys, messages)
    assert code == 2
    assert f"error: {option}: {reason}" in lines[-1]
    assert "NestedArg" not in lines[-1]


@pytest.mark.parametrize(
    "arguments", [["--config", ""], ["--config="], ["--config"], ["--config", "--trainer.devices"]]
)
def test_a_config_without_a_name(arguments):
    with pytest.raises(ValueError, match="^--config: found nothing, expected a YAML file"):
        check_arguments(["fit", *arguments])


@pytest.mark.parametrize("target", ["x.yaml", "absent.yaml"])
def test_a_config_that_is_a_link_to_no_file(tmp_path, target):
    (tmp_path / "x.yaml").symlink_to(tmp_path / target)
    with pytest.raises(FileNotFoundError, match="x.yaml: the symbolic link leads to no file; expected a YAML file"):
        check_arguments(["fit", "--config", str(tmp_path / "x.yaml")])


def test_a_text_that_yaml_reads_as_a_boolean(parser, capsys, messages, tmp_path):
    (tmp_path / "x.yaml").write_text("run_name: no\n")
    _, lines = answer(parser, [*config_of("recommender"), "--config", str(tmp_path / "x.yaml")], capsys, messages)
    assert "x.yaml:1: run_name: Expected a str or null, found False; YAML reads yes, no" in lines[-1]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--config", "x.yaml:3: the key trainer stands twice, first in line 1"),
        ("-c", "x.yaml:3: the key trainer stands twice, first in line 1"),
        ("--model", "x.yaml:3: the key trainer stands twice, first in line 1"),
        ("--trainer.callbacks", "--trainer.callbacks:1: found more than 50 levels"),
    ],
)
def test_files_and_values_are_checked_before_they_are_parsed(messages, tmp_path, monkeypatch, option, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    Path("x.yaml").write_text("trainer:\n  gradient_clip_val: 1\ntrainer:\n  max_epochs: 1\n")
    value = "[" * 3000 if option == "--trainer.callbacks" else "x.yaml"
    with pytest.raises(SystemExit) as end:
        main(["fit", option, value])
    assert end.value.code == 2
    assert messages[0].startswith(f"error: {message}")
    assert len(messages) == 2


def test_a_seed_that_numpy_does_not_take(messages, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py"])
    with pytest.raises(SystemExit) as end:
        main(["fit", *config_of("recommender"), "--seed_everything", "-1"])
    assert end.value.code == 2
    assert messages[0] == "error: seed_everything must be at least 0 and at most 4294967295, got -1"


AMBIGUOUS = [
    ("1:30", "data.init_args.batch_size"),
    ("0777", "trainer.max_epochs"),
    ("+0777", "data.init_args.batch_size"),
    ("-012", "model.init_args.learning_rate"),
    ("1:30.5", "model.init_args.learning_rate"),
]
"""Texts that YAML 1.1 reads as numbers of base 60 or 8, and options of the type int or float."""


@pytest.mark.parametrize(("text", "key"), AMBIGUOUS)
def test_a_number_is_decimal(parser, capsys, messages, tmp_path, text, key):
    """The text is accepted on the command line and quoted in a file; unquoted, the file is refused."""
    code, lines = answer(parser, [*config_of("recommender"), f"--{key}={text}"], capsys, messages)
    assert code == 2
    assert len(lines) == 3
    assert f"error: --{key}: " in lines[-1]
    assert f"found {text}" in lines[-1]
    *sections, name = key.split(".")
    lead = "".join(f"{'  ' * depth}{section}:\n" for depth, section in enumerate(sections)) + "  " * len(sections)
    (tmp_path / "x.yaml").write_text(f'{lead}{name}: "{text}"\n')
    code, lines = answer(parser, [*config_of("recommender"), "--config", str(tmp_path / "x.yaml")], capsys, messages)
    assert code == 2
    assert f"x.yaml:{len(sections) + 1}: {key}: " in lines[-1]
    assert f"found {text}" in lines[-1]


@pytest.mark.parametrize("texts", [("1:30", "0777", "2024-01-01"), ("1_000", "on", "0x10")])
def test_a_text_that_yaml_reads_as_something_else_stays_a_text(parser, texts):
    options = [f"--{key}={text}" for key, text in zip(("run_name", "wandb.entity", "wandb.name"), texts, strict=True)]
    config = parser.parse_args([*config_of("recommender"), *options])
    assert (config.run_name, config.wandb.entity, config.wandb.name) == texts


@pytest.mark.parametrize(
    ("text", "expected"), [("1_000", 1000), ("0x10", 16), ("1e3", None), ("yes", None), ("2024-01-01", None)]
)
def test_other_texts_for_a_number(parser, capsys, messages, text, expected):
    arguments = [*config_of("recommender"), f"--data.init_args.batch_size={text}"]
    if expected is not None:
        assert parser.parse_args(arguments).data.init_args.batch_size == expected
        return
    code, lines = answer(parser, arguments, capsys, messages)
    assert code == 2
    assert "--data.init_args.batch_size: Expected an int" in lines[-1]


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


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--log.console=yaml", "--log.console: expected one of text, json; found yaml"),
        (
            "--trainer.precision=8",
            "--trainer.precision: Expected 64 or 32 or 16 or transformer-engine or transformer-"
            "engine-float16 or 16-true or 16-mixed or bf16-true or bf16-mixed or 32-true or 64-true or 64 or 32 or "
            "16 or bf16 or null, found 8",
        ),
        ("--data.init_args.num_workers=foo", "--data.init_args.num_workers: Expected an int or auto, found foo"),
    ],
)
def test_the_values_of_a_choice_are_listed(parser, capsys, messages, option, message):
    code, lines = answer(parser, [*config_of("recommender"), option], capsys, messages)
    assert code == 2
    assert lines[-1] == f"error: {message}"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("configs/recommender/quikstart.yaml", "did you mean configs/recommender/quickstart.yaml"),
        ("configs/recomender/esasrec.yaml", "did you mean configs/recommender/esasrec.yaml?"),
        ("esasrec.yaml", "did you mean configs/recommender/esasrec.yaml?"),
        ("mine/fisrt.yaml", "did you mean mine/first.yaml?"),
        ("mine/zzz.yaml", ""),
    ],
)
def test_a_misspelt_config_names_the_closest_file(parser, capsys, messages, tmp_path, monkeypatch, name, meant):
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    Path("mine/first.yaml").write_text("seed_everything: 1\n")
    code, lines = answer(parser, ["--config", name], capsys, messages)
    assert code == 2
    assert "File does not exist" in lines[-1]
    assert meant in lines[-1]
    assert bool(meant) == ("did you mean" in lines[-1])
