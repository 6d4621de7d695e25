"""A wrong setting of a config is reported with its file, line and key."""

import pytest

from tests.commands.cli.configs.refusals import answer, config_of
from tests.conftest import REPOSITORY


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


def test_a_class_path_that_is_a_number_is_refused_with_its_line(parser, capsys, messages, tmp_path):
    (tmp_path / "x.yaml").write_text("seed_everything: 1\nmodel:\n  class_path: 5\n")
    _, lines = answer(parser, [*config_of("recommender"), "--config", str(tmp_path / "x.yaml")], capsys, messages)
    assert "x.yaml:2: model: Expected a class_path that is text" in lines[-1]
