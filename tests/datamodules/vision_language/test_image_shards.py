"""Tests tar shards through ImageChats: as an exact stream on any number of processes, or at random."""

import pickle
from itertools import takewhile

import numpy as np
import pytest
import yaml

from datamodules.multimodal.batch import ImageLayout
from datamodules.vision_language.image_chats import ImageChats
from datamodules.vision_language.shards import chat_reader, shard
from datamodules.vision_language.source_config import SourceSettings
from engine.data.errors import BadSampleError
from engine.data.samplers import MicroBatchRequest, TrainSampler
from engine.data.stream import StreamBatches
from tests.support.data_files.vision_language_files import Sample, colored, write_llava, write_tar
from tests.support.families.colored_squares import TOWER, write_config
from tests.support.http_server import serve_folder

LAYOUT = ImageLayout(8, 4)
SIZES = (7, 0, 13, 2, 9)  # samples of each shard; 31 in all


@pytest.fixture
def shards(tmp_path, monkeypatch):
    """Shards of unequal length. The picture of sample i encodes i."""
    monkeypatch.setenv("PL_GLOBAL_SEED", "3")
    ends = np.cumsum(SIZES)
    for number, (size, end) in enumerate(zip(SIZES, ends, strict=True)):
        inside = range(int(end) - size, int(end))
        write_tar(tmp_path / f"train-{number:03}.tar", [colored(index) for index in inside], inside.start)
    write_tar(tmp_path / "val.tar", [colored(number) for number in range(100, 105)])
    return tmp_path


@pytest.fixture
def served(shards):
    """The address of a server of these files, which supports no ranges."""
    with serve_folder(shards) as address:
        yield address


def module(folder, path="train-{000..004}.tar", stage="fit", **settings):
    data = ImageChats(
        [SourceSettings(f"{folder}/{path}")],
        validation=[SourceSettings(f"{folder}/val.tar")],
        **{"shuffle_window": 8, "batch_size": 6, "root": str(folder / "root"), **settings},
    )
    data.image_layout = LAYOUT
    data.prepare_data()
    data.setup(stage)
    return data


def numbers(parts):
    """Return the numbers that the pictures of a micro-batch encode."""
    return [int(pixels[0, 0, 0]) for part in parts for pixels in part.encoder_input.pixels]


def trained(data, processes=1, workers=0, resume=(0, 0)):
    """The global batches of an epoch, as the processes see them together; each worker has a copy of the stream."""
    seen = []
    for process in range(processes):
        sampler = TrainSampler(None, 6, seed=3, rank=process, world_size=processes, resume=resume)
        batches = StreamBatches(data.train_set, 6, slice(process, None, processes))
        copies = [pickle.loads(pickle.dumps(batches)) for _ in range(workers or 1)]
        draws = (copies[turn % len(copies)][draw] for turn, draw in zip(range(99), sampler, strict=False))
        streamed = takewhile(lambda one: one.records, draws)
        seen.append([numbers(draw.batch) for draw in streamed])
    assert len({len(numbers_of) for numbers_of in seen}) == 1, "a process would wait for the others"
    return [sorted(sum(parts, [])) for parts in zip(*seen, strict=True)]


def test_each_sample_once_in_the_same_batches_on_any_number_of_processes_and_workers(shards):
    data = module(shards)
    uninterrupted = trained(data)
    assert sorted(sum(uninterrupted, [])) == list(range(31))
    assert list(map(len, uninterrupted)) == [6, 6, 6, 6, 6, 1]
    for processes in (1, 2, 3):
        for workers in (0, 2):
            assert trained(data, processes, workers) == uninterrupted
            assert trained(data, processes, workers, resume=(0, 3)) == uninterrupted[3:]
    assert trained(data, resume=(1, 0)) != uninterrupted
    assert sorted(sum(trained(data, resume=(1, 0)), [])) == list(range(31))


def test_a_streamed_sample_equals_the_sample_read_by_index(shards):
    """The same chats, with their texts and their images, as where any sample is read by its index."""
    streamed, at_random = module(shards), module(shards, shuffle_window=None)
    records = list(streamed.train_set.records(0))
    assert len(records) == len(at_random.train_set) == 31
    for record in records:
        [part] = streamed.train_set.batch(0, np.array([0]), [record])
        [same] = at_random.train_set[MicroBatchRequest(0, np.array([numbers([part])[0]]))]
        assert part.rows.tokens.tolist() == same.rows.tokens.tolist()
        assert part.encoder_input.pixels.equal(same.encoder_input.pixels)


def test_shards_before_a_position_are_not_looked_at_and_no_shard_is_opened_for_others(shards, monkeypatch):
    data = module(shards)
    asked, begins = [], shard.Shard.begins
    monkeypatch.setattr(shard.Shard, "begins", lambda self: (asked.append(self.name), begins(self))[1])
    monkeypatch.setattr(shard, "open_shard", None)  # the index has the positions of their samples
    assert len(list(data.train_set.records_from(0, 0))) == 31
    assert len(asked) == 4  # and not of the empty one
    asked.clear()
    assert len(list(data.train_set.records_from(0, 24))) == 7
    assert len(asked) < 4


def test_contents_are_read_by_the_process_that_trains_on_them_alone(shards, monkeypatch):
    data = module(shards)
    read, whole = [], chat_reader.read_contents
    monkeypatch.setattr(
        chat_reader, "read_contents", lambda sample, *rest: (read.append(sample.key), whole(sample, *rest))[1]
    )
    batches = StreamBatches(data.train_set, 6, slice(1, None, 3))
    batch = batches[next(iter(TrainSampler(None, 6, seed=3, rank=1, world_size=3)))].batch
    assert sorted(set(map(int, read))) == sorted(numbers(batch))
    assert len(numbers(batch)) == 2


@pytest.mark.parametrize("known", [True, False])
def test_shards_that_are_no_files_are_read_on(shards, known):
    """With `prepare` the sizes are known; without it a resumed stream reads the samples before its position."""
    local, remote = (
        module(shards),
        ImageChats(
            [SourceSettings(f"file://{shards}/train-{{000..004}}.tar", system="Be brief.")],
            validation=[SourceSettings(f"{shards}/val.tar")],
            shuffle_window=8,
            batch_size=6,
            root=str(shards / "remote"),
        ),
    )
    remote.image_layout = LAYOUT
    (remote.prepare if known else remote.prepare_data)()
    assert (shards / "remote/shards/index.json").exists() == known
    remote.setup("fit")
    assert (remote.train_set.identity == local.train_set.identity) == known
    uninterrupted = trained(local)
    assert trained(remote) == uninterrupted
    assert trained(remote, processes=2, workers=2, resume=(0, 4)) == uninterrupted[4:]
    [part] = remote.train_set.batch(0, np.array([0]), [next(remote.train_set.records(0))])
    assert "Be brief." in remote.tokenizer.decode(part.rows.tokens[0].tolist())


def test_shards_over_http_give_the_same_batches(shards, served):
    """This process reads the shards, and then workers do that are forked from it."""
    local = module(shards)
    remote = ImageChats(
        [SourceSettings(f"{served}/train-{{000..004}}.tar")],
        validation=[SourceSettings(f"{shards}/val.tar")],
        shuffle_window=8,
        batch_size=6,
        num_workers=2,
        root=str(shards / "remote"),
    )
    remote.image_layout = LAYOUT
    remote.prepare()
    remote.setup("fit")
    assert remote.train_set.identity == local.train_set.identity
    batches = [sorted(numbers(batch)) for batch in remote.train_dataloader()]
    assert batches == trained(local)
    (shards / "train-002.tar").unlink()
    with pytest.raises(FileNotFoundError, match="train-002.tar"):
        list(remote.train_set.records(0))


def test_the_validation_set_and_the_texts_come_from_the_shards(shards):
    data = module(shards)
    assert sorted(data.validation_set.source.messages(index)[-1]["content"] for index in range(5)) == [
        f"It is {number}." for number in range(100, 105)
    ]
    texts = list(data.texts())
    assert len(texts) == 2 * 31
    assert "It is 30." in texts


def test_a_broken_image_is_named_or_skipped(shards):
    samples = [colored(0), Sample([("user", "<image>?"), ("assistant", "no")], [b"no image"]), colored(2)]
    broken = write_tar(shards / "broken.tar", samples)
    data = module(shards, "broken.tar")
    records = list(data.train_set.records(0))
    index = [record.number for record in records].index(1)
    with pytest.raises(BadSampleError, match=rf"{broken}, sample 1 \(000001\), image 1 of 1: found 8 bytes"):
        data.train_set.batch(0, np.arange(3), records)
    lenient = module(shards, "broken.tar", on_bad_sample="skip", max_bad_samples=1)
    [part] = lenient.train_set.batch(0, np.arange(3), records)
    assert [left.sample for left in part.skipped] == [index]
    assert len(part.rows.samples) == 2

    cut = shards / "train-002.tar"
    data = module(shards)
    cut.write_bytes(cut.read_bytes()[:-6000])
    with pytest.raises(ValueError, match="train-002.tar: found .* bytes, but .* when it was indexed"):
        list(data.train_set.records(0))
    with pytest.raises(ValueError, match=r"train-002.tar: the archive ends in 0000\d\d.json"):
        module(shards)
    cut.unlink()
    with pytest.raises(FileNotFoundError, match="train-002.tar"):
        list(data.train_set.records(0))
    with pytest.raises(FileNotFoundError, match="of 5 shards these are missing: .*train-002.tar"):
        module(shards)


@pytest.mark.parametrize(
    ("sources", "settings", "messages"),
    [
        (["a.tar"], {"shuffle_window": 0}, "shuffle_window must be at least 1"),
        (["a.tar"], {"validation": None}, "a stream needs data.init_args.validation"),
        (["a.tar", "b.json"], {}, r"data.init_args.train\[1\] .b.json.: .* training streams tar shards"),
        ([{"path": "a.tar", "weight": 2.0}], {}, "weight and first"),
        ([{"path": "a.tar", "first": 2}], {}, "weight and first"),
        ([{"path": "a.tar", "images": "here"}], {}, "images of a.tar: tar shards contain their images"),
        (["a.tar.gz"], {}, "cannot detect the format"),
    ],
)
def test_impossible_settings_of_shards_are_refused(sources, settings, messages):
    train = [SourceSettings(**source) if isinstance(source, dict) else SourceSettings(source) for source in sources]
    with pytest.raises(ValueError, match=messages):
        ImageChats(train, **{"validation": train, "shuffle_window": 4, "batch_size": 2, **settings})


def test_a_shard_of_two_sources_is_refused(shards):
    twice = [SourceSettings(f"{shards}/train-*.tar"), SourceSettings(f"{shards}/train-003.tar")]
    data = ImageChats(twice, validation=twice, shuffle_window=4, batch_size=2, root=str(shards / "root"))
    data.image_layout = LAYOUT
    with pytest.raises(ValueError, match="two sources name the same tar shard"):
        data.setup("fit")


def test_shards_and_other_files_are_mixed_at_random(shards):
    others = write_llava(shards / "others.json", [colored(number) for number in range(50, 54)])
    train = [SourceSettings(f"{shards}/train-*.tar"), SourceSettings(str(others))]
    data = ImageChats(train, validation=[SourceSettings(f"{shards}/val.tar")], batch_size=2, root=str(shards / "root"))
    data.image_layout = LAYOUT
    data.setup("fit")
    assert sorted(numbers(data.train_set[MicroBatchRequest(0, np.arange(len(data.train_set)))])) == [
        *range(31),
        *range(50, 54),
    ]


# -- from the command line ---------------------------------------------------------------------------------------------


def options(folder, **settings):
    init = {
        "train": [{"path": f"{folder}/train-*.tar"}],
        "validation": [{"path": f"{folder}/val.tar"}],
        "test": [{"path": f"{folder}/val.tar"}],
        "shuffle_window": 8,
        "batch_size": 6,
        "root": str(folder / "root"),
        **settings,
    }
    path = folder / "data.yaml"
    path.write_text(yaml.safe_dump({"data": {"class_path": "ImageChats", "init_args": init}}))
    model = write_config(folder, vision_tower={"config": {**TOWER, "image_size": 8, "patch_size": 4}})
    return [*model, "--config", str(path)]


def last_metrics(run):
    return run.records[-1]


@pytest.mark.slow
def test_a_run_resumes_bit_identically_in_an_epoch_and_not_on_other_shards(lockstep, shards):
    arguments = [*options(shards), "--trainer.max_steps", "14"]
    through = lockstep("fit", *arguments, name="through")
    lockstep("fit", *arguments, "--trainer.max_steps", "9", name="stopped")
    again = [*arguments, "--ckpt_path", "last", "--data.init_args.num_workers", "2"]
    (shards / "train-003.tar").rename(shards / "set-aside")
    with pytest.raises(ValueError, match=r"3 batches into epoch 1 with .* \(5 shards.*this run has .*\(4 shards"):
        lockstep("fit", *again, name="stopped")
    (shards / "set-aside").rename(shards / "train-003.tar")
    with pytest.raises(ValueError, match="shuffle_window 8.*this run has .*shuffle_window 9"):
        lockstep("fit", *again, "--data.init_args.shuffle_window", "9", name="stopped")
    resumed = lockstep("fit", *again, name="stopped")
    assert resumed.series("train/loss") == through.series("train/loss")
    expected = through.series("val/loss")
    assert {step: value for step, value in resumed.series("val/loss").items() if step in expected} == expected
    assert sorted(through.series("train/loss")) == list(range(1, 15))
    assert sorted(expected) == [6, 12, 14]
    lockstep("test", *arguments, "--ckpt_path", "last", name="stopped")
    assert {"test/loss", "test/exact", "test/baseline/blind/exact"} <= set(last_metrics(resumed))


def test_prepare_prints_what_the_shards_hold(lockstep, shards, messages):
    lockstep("prepare", *options(shards), name="a")
    assert (shards / "root/shards/index.json").is_file()
    assert "tar shards: indexed 5 of 5" in messages
