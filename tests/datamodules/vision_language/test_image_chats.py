"""Tests the user's files: all formats train alike, training and validation rows are disjoint, predict works."""

import json

import numpy as np
import pytest
import yaml

from datamodules.multimodal.batch import ImageLayout
from datamodules.multimodal.synthetic_split import Split
from datamodules.vision_language.chat_dataset import ImageProcessor, TrainDataset
from datamodules.vision_language.chat_file import ImageChat
from datamodules.vision_language.evaluation_dataset import select_samples
from datamodules.vision_language.files import parquet_rewrite
from datamodules.vision_language.image_chats import ImageChats
from datamodules.vision_language.mixture import Mixture
from datamodules.vision_language.row_subset import RowSubset, validation_mask
from datamodules.vision_language.scenes.scene import World
from datamodules.vision_language.scenes.tasks import SceneTasks, Tasks
from datamodules.vision_language.source_config import SourceSettings
from engine.data.errors import BadSampleError
from engine.data.samplers import PADDING_INDEX, MicroBatchRequest, ShuffleBlocks
from tests.support.data_files.vision_language_files import (
    Sample,
    coloured,
    encoded,
    png,
    write_finevision_parquet,
    write_jsonl,
    write_llava,
    write_minimind_parquet,
)
from tests.support.families.coloured_squares import write_config

LAYOUT = ImageLayout(16, 4)
RED, GREEN, BLUE = (250, 0, 0), (0, 250, 0), (0, 0, 250)


@pytest.fixture
def chats(tmp_path):
    """40 samples in a file."""
    return SourceSettings(str(write_llava(tmp_path / "chats.json", [coloured(number) for number in range(40)])))


def module(train, **settings):
    data = ImageChats([train] if isinstance(train, SourceSettings) else train, batch_size=4, **settings)
    data.image_layout = LAYOUT
    return data


def numbers_of(source):
    """Return the numbers that the pictures of a source's samples encode."""
    return [int(views.pixels[0, 0, 0, 0]) for views in (source.item(0, i).encoder_input for i in range(len(source)))]


# -- samples -----------------------------------------------------------------------------------------------------------


def test_a_sample_has_the_views_of_its_images():
    chat = ImageChat(
        "a.json, record 3",
        [{"role": "user", "content": "<image><image>same?"}, {"role": "assistant", "content": "no"}],
        [png(RED, 16), png(BLUE, 40)],
    )
    item = ImageProcessor(LAYOUT, 10_000).item(chat)
    assert item.messages == chat.messages
    assert item.counts == (4, 4)
    assert item.encoder_input.pixels[:, :, 8, 8].tolist() == [list(RED), list(BLUE)]
    split = ImageProcessor(LAYOUT._replace(max_tiles=2), 10_000).item(chat)
    assert split.counts == (5, 25)
    assert split.encoder_input.tile_positions.tolist() == [0, 0, 1, 2, 3, 4]
    assert ImageProcessor(LAYOUT, 1).item(chat._replace(images=[])).counts == ()


def test_the_corrupt_image_of_a_sample_is_reported():
    chat = ImageChat("a.json, record 3", [], [png(RED, 16), png(BLUE, 40)])
    with pytest.raises(BadSampleError, match=r"a.json, record 3, image 2 of 2: .*40 x 40 .*at most 1,000"):
        ImageProcessor(LAYOUT, 1000).item(chat)
    with pytest.raises(BadSampleError, match=r"a.json, record 3, image 1 of 2: .*expected an image"):
        ImageProcessor(LAYOUT, 10_000).item(chat._replace(images=[b"no image", png(RED)]))


def test_training_and_validation_never_share_a_row(chats):
    data = module(chats, validation_share=0.2, validation_size=None)
    data.setup("fit")
    trained, validated = numbers_of(data.train_set.source), numbers_of(data.validation_set.source)
    assert sorted(trained + validated) == list(range(40))
    assert 0 < len(validated) < 20
    again = module(chats, validation_share=0.2, validation_size=3)
    again.setup("validate")
    some = numbers_of(again.validation_set.source)
    assert len(some) == 3
    assert set(some) < set(validated)
    assert some == sorted(some)
    smaller = module(chats, validation_share=1e-9)
    smaller.setup("validate")
    assert len(smaller.validation_set) == 1


def test_a_file_to_train_and_to_evaluate_is_warned_of(tmp_path, caplog):
    """Shared files are found under other names too; missing files are ignored."""
    paths = [write_jsonl(tmp_path / f"{name}.jsonl", [coloured(0), coloured(1)]) for name in "ab"]
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


@pytest.mark.parametrize(("samples", "size"), [(40, 3), (100_000, 1000), (1000, 999), (5, 5), (5, 50)])
def test_an_evaluation_takes_short_stretches_from_everywhere(samples, size):
    indices = select_samples(samples, size)
    assert len(np.unique(indices)) == min(samples, size)
    assert (np.diff(indices) > 0).all()
    assert indices.min() >= 0
    assert indices.max() < samples
    if samples == 100_000:
        assert 32 <= (np.diff(indices) > 1).sum() + 1 <= 64
        assert (np.histogram(indices, 4, (0, samples))[0] > 100).all()


def test_weights_are_of_the_training(chats, tmp_path):
    """Each row that is held out is validated once, however often the others are trained."""
    twice = SourceSettings(chats.path, weight=2.0)
    data = module(twice, validation_share=0.2, validation_size=None)
    data.setup("fit")
    trained, validated = numbers_of(data.train_set.source), numbers_of(data.validation_set.source)
    assert sorted(trained) == sorted(2 * sorted(set(range(40)) - set(validated)))
    assert len(set(validated)) == len(validated)


def test_files_of_its_own_to_validate_and_test_with(chats, tmp_path):
    others = [coloured(number) for number in range(100, 105)]
    (tmp_path / "others").mkdir()
    validation = SourceSettings(str(write_jsonl(tmp_path / "others/chats.jsonl", others)))
    test = SourceSettings(str(write_minimind_parquet(tmp_path / "test.parquet", others[:3])))
    data = module(chats, validation=[validation], test=[test])
    for stage in ("fit", "test"):
        data.setup(stage)
    assert numbers_of(data.train_set.source) == list(range(40))
    assert numbers_of(data.validation_set.source) == list(range(100, 105))
    assert numbers_of(data.test_set.source) == [100, 101, 102]


def test_a_part_of_a_file_keeps_its_blocks():
    class File:
        blocks = ShuffleBlocks(np.array([0, 4, 8]), np.array([40, 41, 42]), 100)
        identity = "a file"

        def __len__(self):
            return 10

        def name(self, row):
            return f"row {row}"

        def read(self, row):
            return row

    part = RowSubset(File(), np.array([1, 3, 8, 9]))
    assert part.blocks.starts.tolist() == [0, 2]
    assert part.blocks.sizes.tolist() == [40, 42]
    assert part.blocks.window == 100
    assert [part.read(row) for row in range(len(part))] == [1, 3, 8, 9]
    assert part.name(2) == "row 8"
    last = RowSubset(File(), np.array([8, 9])).blocks
    assert last.starts.tolist() == [0]
    assert last.sizes.tolist() == [42]
    long = type("Long", (File,), {"__len__": lambda self: 100_000})()
    held = np.flatnonzero(validation_mask(long, 0.01))
    assert 400 < len(held) < 1600
    assert len(np.unique(held // 64)) == -(-len(held) // 64)  # neighbours, read at once
    held = validation_mask(File(), 0.3)
    assert 0 < held.sum() < 10
    assert (held == validation_mask(File(), 0.3)).all()
    File.__len__ = lambda self: 1
    with pytest.raises(ValueError, match=r"1 samples \(row 0\).*set data.init_args.validation"):
        validation_mask(File(), 0.3)


def test_questions_are_ordered_without_decoding_an_image(chats, tmp_path, monkeypatch):
    """Lengths follow from texts and headers, and an evaluation reads each text once."""
    samples = [
        Sample([("user", "<image>\n" + "word " * length), ("assistant", f"{length}")], [png(RED, size)])
        for length, size in ((50, 8), (1, 8), (1, 64), (20, 8))
    ]
    source = SourceSettings(str(write_llava(tmp_path / "lengths.json", samples)))
    data = module(chats, validation=[source])
    data.image_layout = LAYOUT._replace(max_tiles=4)
    reads = []
    read = Mixture.read
    monkeypatch.setattr(Mixture, "read", lambda self, *location: reads.append(location) or read(self, *location))
    monkeypatch.setattr("datamodules.vision_language.chat_dataset.decode", None)
    data.setup("validate")
    assert data.validation_set._order.tolist() == [1, 3, 0, 2]  # 64 pixels are 17 views
    assert [data.validation_set.source.messages(index)[-1]["content"] for index in range(4)] == ["50", "1", "1", "20"]
    assert len(reads) == 4


def test_each_image_is_decoded_once_for_an_evaluation(chats, monkeypatch):
    from datamodules.vision_language import chat_dataset

    names = []
    decode = chat_dataset.decode

    def counted(data, name, *rest):
        names.append(name)
        return decode(data, name, *rest)

    monkeypatch.setattr(chat_dataset, "decode", counted)
    data = module(chats, validation_share=0.2)
    data.setup("validate")
    size = len(data.validation_set)
    data.validation_set[MicroBatchRequest(0, np.arange(size))]
    assert len(names) == size == len(set(names))


def test_a_batch_has_its_samples_pixels_and_placeholders(chats):
    data = module(chats, system=None)
    data.setup("fit")
    (batch,) = data.train_set[MicroBatchRequest(0, np.array([3, 0, PADDING_INDEX]))]
    assert sorted(batch.rows.samples.tolist()) == [0, 3]
    assert batch.encoder_input.pixels.shape == (2, 3, 16, 16)
    assert (batch.rows.tokens == data.tokenizer.placeholder).sum() == 8
    assert batch.skipped == ()


def test_bad_rows_are_named_by_file_and_row(chats, tmp_path):
    for broken, output in ((3, "image 1 of 1: found 8 bytes"), (5, "special token")):
        number = f"{broken:06}"
        if broken == 3:
            (tmp_path / f"images/{number}-0.png").write_bytes(b"no image")
        else:
            records = json.loads((tmp_path / "chats.json").read_text())
            records[broken]["conversations"][1]["value"] = "<|im_end|>"
            (tmp_path / "chats.json").write_text(json.dumps(records))
        samples = TrainDataset(Mixture([chats], tmp_path), ImageProcessor(LAYOUT, 10_000))
        data = module(chats, validation=[chats]).examples(samples)
        with pytest.raises(BadSampleError, match=rf"chats.json, record {broken}\b.*{output}"):
            data[MicroBatchRequest(0, np.array([broken]))]
    lenient = module(chats, validation=[chats], on_bad_sample="skip", max_bad_samples=2)
    lenient.setup("fit")
    (batch,) = lenient.train_set[MicroBatchRequest(0, np.arange(8))]
    assert [left.sample for left in batch.skipped] == [3, 5]
    assert len(batch.rows.samples) == 6
    questions = lenient.validation_set[MicroBatchRequest(0, np.arange(40))]
    assert sorted(left.sample for left in questions.skipped) == [3, 5]
    assert len(questions.rows.samples) == 38


def test_max_unusable_is_on_bad_sample_skip(chats, messages):
    """Deprecated in 0.2.0."""
    data = module(chats, validation=[chats], max_unusable=2)
    assert (data.on_bad_sample, data.max_bad_samples) == ("skip", 2)
    assert [line for line in messages if "deprecated: data.init_args.max_unusable" in line]


def test_too_long_a_sample_is_named_or_dropped(chats):
    shortest = 6
    data = module(chats, max_length=shortest)
    data.setup("fit")
    with pytest.raises(ValueError, match=r"sample 0 \(.*chats.json, record \d+\): \d+ tokens \(4 of them for fea"):
        data.train_set[MicroBatchRequest(0, np.array([0]))]
    data = module(chats, max_length=shortest, too_long="drop")
    data.setup("fit")
    (batch,) = data.train_set[MicroBatchRequest(0, np.array([0]))]
    assert batch.skipped[0].reason == "too_long"
    assert "chats.json, record" in batch.skipped[0].what


# -- texts, settings -------------------------------------------------------------------------------------------


def test_the_last_answer_of_several_is_asked_for(tmp_path):
    turns = [("user", "<image>\nColour?"), ("assistant", "red"), ("user", "Shape?"), ("assistant", "square")]
    open_end = [*turns, ("user", "Size?")]
    path = write_llava(tmp_path / "turns.json", [Sample(turns, [png(RED)]), Sample(open_end, [png(RED)])])
    data = module(SourceSettings(str(path)), validation=[SourceSettings(str(path))])
    data.setup("validate")
    data.trainer = type("Trainer", (), {"state": type("State", (), {"stage": None})})
    data.validation_set.in_order = True
    batch = data.validation_set[MicroBatchRequest(0, np.arange(2))]
    text = data.tokenizer.tokenizer.decode(batch.prompts.tokens[0])
    assert text.endswith("Shape?<|im_end|>\n<|im_start|>assistant\n")
    assert "red<|im_end|>" in text
    assert data.grade(0, "Square")["exact"] == (1, 1)
    assert data.grade(0, "red")["exact"] == (0, 1)
    assert data.question(0) == "Colour?\nShape?"
    assert data.right_answer(0) == "square"
    assert data.grade(1, "small") == {}
    assert data.right_answer(1) == ""  # the reference is unknown
    assert data.images(0)[0].getpixel((0, 0)) == RED
    data.trainer = None


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
        ({"tiling": "llava_next", "fit": "pad"}, "fit is pad, but the tiling llava_next stretches"),
    ],
)
def test_settings_that_are_refused(settings, messages):
    with pytest.raises(ValueError, match=messages):
        ImageChats(**{"train": [SourceSettings("a.json")], "batch_size": 4, **settings})


def test_a_missing_source_is_reported(chats):
    with pytest.raises(ValueError, match="test needs data.init_args.test"):
        module(chats).setup("test")
    with pytest.raises(ValueError, match="predict needs data.init_args.questions"):
        module(chats).setup("predict")


# -- from the command line ---------------------------------------------------------------------------------------------


def scenes(number):
    """Samples of the embedded data."""
    tasks = SceneTasks(World(), Tasks(), 0)
    samples = [tasks.sample(Split.TRAIN, 0, index) for index in range(number)]
    return [
        Sample([("user", sample.question), ("assistant", sample.answer)], [encoded(tasks.picture(sample))])
        for sample in samples
    ]


def options(folder, *sources, **settings):
    """Return the options of a tiny run: the model's section, and the data's in a file of its own."""
    data = {"class_path": "ImageChats", "init_args": {"batch_size": 8, "train": list(sources), **settings}}
    path = folder / f"data-{len(list(folder.glob('data-*')))}.yaml"
    path.write_text(yaml.safe_dump({"data": data}))
    return [*write_config(folder), "--config", str(path)]


@pytest.mark.slow
def test_any_form_of_the_same_samples_trains_the_same(lockstep, tmp_path):
    """Only the data section differs between a LLaVA folder, minimind-v's Parquet, FineVision's Parquet and JSONL."""
    samples = scenes(24)
    sources = {
        "llava": {"path": str(write_llava(tmp_path / "chats.json", samples, tmp_path)), "images": str(tmp_path)},
        "minimind": {"path": str(write_minimind_parquet(tmp_path / "minimind.parquet", samples))},
        "finevision": {"path": str(write_finevision_parquet(tmp_path / "finevision.parquet", samples))},
        "jsonl": {"path": str(write_jsonl(tmp_path / "chats.jsonl", samples, tmp_path))},
    }
    runs = {}
    for name, source in sources.items():
        arguments = options(tmp_path, source, validation_share=0.1)
        steps = ["--trainer.max_steps", "6", "--trainer.val_check_interval", "3"]
        runs[name] = lockstep("fit", *arguments, *steps, name=name)
    losses = {name: run.series("train/loss") for name, run in runs.items()}
    assert list(losses["llava"]) == list(range(1, 7))
    for name in sources:
        for metric in ("train/loss", "val/loss", "val/token_f1", "val/baseline/blind/loss"):
            expected, actual = runs["llava"].series(metric), runs[name].series(metric)
            assert expected
            assert expected.keys() == actual.keys()
            assert max(abs(expected[step] - actual[step]) for step in expected) < 1e-6, (name, metric)


def test_large_row_groups_are_rewritten_by_prepare(lockstep, tmp_path, monkeypatch, messages):
    monkeypatch.setattr(parquet_rewrite, "MAX_ROWS", 10)
    path = write_minimind_parquet(tmp_path / "large.parquet", [coloured(number) for number in range(24)])
    arguments = options(tmp_path, {"path": str(path)}, validation_share=0.1, root=str(tmp_path / "root"))
    with pytest.raises(ValueError, match="large.parquet.*train.py prepare"):
        lockstep("fit", *arguments, name="early")
    lockstep("prepare", *arguments, name="prepared")
    assert any("large.parquet: rewritten with smaller row groups" in line for line in messages)
    run = lockstep("fit", *arguments, name="a")
    assert list(run.series("train/loss")) == [1, 2]


def test_from_files_to_answers(lockstep, tmp_path, messages):
    """fit, test and predict: a model that has learned the colours answers questions about new images in order."""
    colours = {"red": RED, "green": GREEN, "blue": BLUE}
    user_turn = ("user", "<image>\nWhat colour?")
    samples = [Sample([user_turn, ("assistant", name)], [png(colour, 12)]) for name, colour in colours.items()] * 16
    path = write_llava(tmp_path / "chats.json", samples)
    order = "blue", "red", "green"
    asked_about = [{"image": f"{name}.jpg", "question": "What colour?", "id": name} for name in order]
    for name, colour in colours.items():
        (tmp_path / f"{name}.jpg").write_bytes(png(colour, 30, "JPEG"))
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, asked_about)))
    tests = [{"path": str(write_minimind_parquet(tmp_path / "test.parquet", samples[:3]))}]
    arguments = options(tmp_path, {"path": str(path)}, test=tests, questions=str(tmp_path / "questions.jsonl"))
    training = ["--trainer.max_steps", "48", "--model.init_args.learning_rate", "1e-2"]
    best = ["--best_checkpoint.monitor", "val/loss", "--best_checkpoint.mode", "min"]
    run = lockstep("fit", *arguments, *training, *best, name="a")
    lockstep("test", *arguments, name="a")
    assert list(run.series("test/exact").values()) == [1.0] == list(run.series("test/token_f1").values())
    assert list(run.series("test/baseline/blind/exact").values())[0] < 0.5
    lockstep("predict", *arguments, name="a")
    lines = [json.loads(line) for line in (run.folder / "predictions.jsonl").read_text().splitlines()]
    assert lines == [{**question, "answer": question["id"]} for question in asked_about]
