"""The parser's message about a class, a choice or an option inside a class names what was expected."""

import pytest

from tests.commands.cli.configs.refusals import answer, config_of


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
