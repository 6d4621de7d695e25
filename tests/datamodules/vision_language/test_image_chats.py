"""Tests the settings of chat files: sources, deprecated names, and values that are refused."""

import pytest

from datamodules.vision_language.image_chats import ImageChats
from datamodules.vision_language.source_config import SourceSettings
from tests.support.data_files.vision_language_files import colored, write_jsonl, write_minimind_parquet
from tests.support.families.image_chat_files import module, numbers_of


def test_a_file_to_train_and_to_evaluate_is_warned_of(tmp_path, caplog):
    """Shared files are found under other names too; missing files are ignored."""
    paths = [write_jsonl(tmp_path / f"{name}.jsonl", [colored(0), colored(1)]) for name in "ab"]
    (tmp_path / "link.jsonl").symlink_to(paths[0])
    train, other, link = (SourceSettings(str(path)) for path in (*paths, tmp_path / "link.jsonl"))

    def warned(stage, **sets):
        caplog.clear()
        module(train, **{name: [source] for name, source in sets.items()}).setup(stage)
        return [record.message for record in caplog.records if record.levelname == "WARNING"]

    [output] = warned("fit", validation=link)
    assert output.startswith(f"{paths[0]}: in data.init_args.train and in data.init_args.validation")
    [output] = warned("test", test=train)
    assert output.startswith(f"{paths[0]}: in data.init_args.train and in data.init_args.test")
    assert warned("fit") == warned("fit", validation=other) == warned("test", test=other) == []
    absent = SourceSettings(str(tmp_path / "absent.parquet"))
    assert warned("fit", test=absent) == []


def test_validation_and_test_may_have_files_of_their_own(chats, tmp_path):
    others = [colored(number) for number in range(100, 105)]
    (tmp_path / "others").mkdir()
    validation = SourceSettings(str(write_jsonl(tmp_path / "others/chats.jsonl", others)))
    test = SourceSettings(str(write_minimind_parquet(tmp_path / "test.parquet", others[:3])))
    data = module(chats, validation=[validation], test=[test])
    for stage in ("fit", "test"):
        data.setup(stage)
    assert numbers_of(data.train_set.source) == list(range(40))
    assert numbers_of(data.validation_set.source) == list(range(100, 105))
    assert numbers_of(data.test_set.source) == [100, 101, 102]


def test_max_unusable_is_on_bad_sample_skip(chats, messages):
    """Deprecated in 0.2.0."""
    data = module(chats, validation=[chats], max_unusable=2)
    assert (data.on_bad_sample, data.max_bad_samples) == ("skip", 2)
    assert [line for line in messages if "deprecated: data.init_args.max_unusable" in line]


def test_the_tokenizer_is_made_from_texts_to_train_on_alone(chats, tmp_path, monkeypatch):
    monkeypatch.setattr("datamodules.vision_language.chat_dataset.decode", None)
    data = module(chats, validation_share=0.2)
    texts = list(data.texts())
    data.setup("validate")
    held = {f"It is {number}." for number in range(40)} - set(texts)
    assert {data.validation_set.source.messages(i)[-1]["content"] for i in range(len(data.validation_set))} == held
    assert len(texts) == 2 * (40 - len(held))
    assert texts == list(module(chats, validation_share=0.2).texts())
    (tmp_path / "images/000000-0.png").unlink()
    assert len(list(module(chats, validation=[chats]).texts())) == 2 * 39


@pytest.mark.parametrize(
    ("settings", "messages"),
    [
        ({"train": []}, "data.init_args.train is empty"),
        ({"validation": []}, "data.init_args.validation is empty"),
        ({"validation_share": 0.0}, "validation_share must be more than 0 and less than 1, got 0.0"),
        ({"validation_size": 0}, "validation_size must be at least 1"),
        ({"max_pixels": 0}, "max_pixels must be at least 1 and at most 178956970, got 0"),
        ({"max_pixels": 10**9}, "max_pixels must be at least 1"),
        ({"max_unusable": -1}, "max_unusable must be at least 0, got -1"),
        ({"too_long": "drop"}, "too_long is drop, but max_length is null"),
        ({"max_tiles": 0}, "max_tiles"),
        ({"tiling": "llava_next", "resize_mode": "pad"}, "resize_mode is pad, but the tiling llava_next stretches"),
    ],
)
def test_impossible_settings_are_refused(settings, messages):
    with pytest.raises(ValueError, match=messages):
        ImageChats(**{"train": [SourceSettings("a.json")], "batch_size": 4, **settings})


def test_a_missing_source_is_reported(chats):
    with pytest.raises(ValueError, match="test needs data.init_args.test"):
        module(chats).setup("test")
    with pytest.raises(ValueError, match="predict needs data.init_args.questions"):
        module(chats).setup("predict")
