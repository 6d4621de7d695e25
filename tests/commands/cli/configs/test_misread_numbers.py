"""Texts that YAML 1.1 reads as a boolean, or as a number of base 60, 8 or 16, are not misread."""

import pytest

from tests.commands.cli.configs.refusals import answer, config_of


def test_a_text_that_yaml_reads_as_a_boolean_is_refused_with_the_reason(parser, capsys, messages, tmp_path):
    (tmp_path / "x.yaml").write_text("run_name: no\n")
    _, lines = answer(parser, [*config_of("recommender"), "--config", str(tmp_path / "x.yaml")], capsys, messages)
    assert "x.yaml:1: run_name: Expected a str or null, found False; YAML reads yes, no" in lines[-1]


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
def test_texts_for_a_number_are_read_as_numbers_or_refused(parser, capsys, messages, text, expected):
    arguments = [*config_of("recommender"), f"--data.init_args.batch_size={text}"]
    if expected is not None:
        assert parser.parse_args(arguments).data.init_args.batch_size == expected
        return
    code, lines = answer(parser, arguments, capsys, messages)
    assert code == 2
    assert "--data.init_args.batch_size: Expected an int" in lines[-1]
