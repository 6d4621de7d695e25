"""Each config trains, comments each key, and works with each overlay."""

import math
import re

import pytest
import yaml

from callbacks.performance import auto_micro_batch
from tests.conftest import REPOSITORY, TINY
from tests.support.families import colored_squares, tiny_documents, tiny_retriever
from tests.support.families.tiny_temporal import TINY_TEMPORAL
from tests.support.faults.memory_faults import memory_fault
from tests.tiers import slow

CONFIGS = sorted(path for path in (REPOSITORY / "configs").glob("*/*.yaml") if path.parent.name != "overlays")
OVERLAYS = sorted((REPOSITORY / "configs/overlays").glob("*.yaml"))
FIRST = {path.parent: path for path in reversed(CONFIGS)}.values()  # of each family
RECOMMENDERS = [path for path in CONFIGS if path.parent.name == "recommender"]

# 32 sequences in batches of 16: an epoch of two steps, a validation and both checkpoints.
SMALL = [
    "--trainer.check_val_every_n_epoch=1",
    "--model.init_args.hidden_size=8",
    "--data.init_args.batch_size=16",
    "--data.init_args.max_length=12",
    "--trainer.max_epochs=1",
    "--trainer.log_every_n_steps=1",
    "--trainer.accelerator=cpu",
    "--trainer.enable_progress_bar=false",
]
SYNTHETIC = [
    "--data.init_args.dataset=synthetic",
    "--data.init_args.root=data/synthetic",
    "--data.init_args.marketplace.num_users=32",
    "--data.init_args.marketplace.num_items=300",
    "--data.init_args.marketplace.max_length=20",
]
# The families that the first line of an overlay names.
ONLY = {
    "Recommender only": {"recommender"},
    "Language families only": {"document_qa", "temporal", "vision_language"},
}


def name(path):
    return path.stem


@pytest.mark.parametrize("path", CONFIGS, ids=name)
def test_every_config_is_parsed(parser, path):
    assert parser.parse_args(["--config", str(path)]).model.class_path


@pytest.mark.parametrize("path", [path if path in FIRST else slow(path) for path in CONFIGS], ids=name)
def test_every_config_parses_with_every_overlay(parser, path):
    alone = parser.parse_args(["--config", str(path)])
    for overlay in OVERLAYS:
        if any(path.parent.name not in families and words in overlay.read_text() for words, families in ONLY.items()):
            continue
        both = parser.parse_args(["--config", str(path), "--config", str(overlay)])
        assert both.model.class_path == alone.model.class_path
        assert both.as_dict() != alone.as_dict(), f"{overlay.name} changes nothing"
        for section, keys in yaml.safe_load(overlay.read_text()).items():
            if not isinstance(keys, dict):
                assert both[section] == keys, f"{overlay.name}: {section}"
                continue
            for key, value in keys.get("init_args", keys).items():
                chosen = both[section].init_args if "init_args" in keys else both[section]
                assert holds(chosen[key], value), f"{overlay.name}: {section}.{key}"


def holds(chosen, value):
    """An overlay names some arguments of a class; the others have their defaults."""
    if isinstance(value, dict):
        return all(holds(chosen[key], inner) for key, inner in value.items())
    return chosen == value


@pytest.mark.parametrize("path", [*CONFIGS, *OVERLAYS], ids=name)
def test_every_key_has_a_comment(path):
    """Each value has a comment on its line; sections and class names need none."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# "), "line 1 describes the file"
    assert len(lines[0]) > 30, "line 1 describes the file"
    silent = re.compile(r"\s*(- )?class_path: [\w.]+|\s*[\w]+:\s*|\s*|#.*")
    assert [line for line in lines if not silent.fullmatch(line) and not re.search(r"\S # \S", line)] == []
    assert all(len(line) <= 120 for line in lines)


@pytest.mark.parametrize("path", CONFIGS, ids=name)
def test_the_final_weights_are_evaluated(path):
    """Otherwise the epochs after the last evaluation cannot become best.ckpt."""
    trainer = yaml.safe_load(path.read_text())["trainer"]
    assert (trainer.get("max_epochs") or 0) % (trainer.get("check_val_every_n_epoch") or 1) == 0


def test_overlays_know_no_family():
    for path in OVERLAYS:
        text = path.read_text()
        keys = yaml.safe_load(text)
        assert "model" not in keys or text.startswith(tuple(f"# {words}" for words in ONLY)), path.name
        shared = {"micro_batch_size", "evaluation_batch_size", "num_workers", "batch_size"}
        assert keys.get("data", {}).get("init_args", {}).keys() <= shared, path.name


def test_the_four_models_differ_by_their_switches_alone():
    def experiment(stem):
        config = yaml.safe_load((REPOSITORY / f"configs/recommender/{stem}.yaml").read_text())
        model = config["model"]["init_args"]
        switches = {key: model.pop(key, None) for key in ("attention", "residual")}
        for of_a_switch in ("time_span", "time_buckets", "streams", "sinkhorn_iterations", "activation_checkpointing"):
            model.pop(of_a_switch, None)
        return switches, model.pop("num_blocks"), config

    kinds = {
        "sasrec": 2,
        "tisasrec": 2,
        "sasrec_mhc": 2,
        "tisasrec_mhc": 2,
        "sasrec_mhc_deep4": 4,
    }
    base = experiment("sasrec")[2]
    for stem, blocks in kinds.items():
        switches, found, config = experiment(stem)
        assert (found, config) == (blocks, base), stem
        assert switches["attention"] == ("time_interval" if stem.startswith("tisasrec") else "standard")
        assert switches["residual"] == ("mhc" if "mhc" in stem else "plain")
    _, blocks, gbce = experiment("sasrec_gbce")
    for section, keys in (("model", ("loss", "gbce_calibration")), ("data", ("num_negatives", "shared_negatives"))):
        for key in keys:
            gbce[section]["init_args"].pop(key)
    base["model"]["init_args"].pop("loss")
    assert (blocks, gbce) == (2, base)


def test_request_time_is_a_switch_and_another_name_of_the_metrics():
    blind, request = (
        yaml.safe_load((REPOSITORY / f"configs/recommender/{stem}.yaml").read_text())
        for stem in ("tisasrec", "tisasrec_request_time")
    )
    assert request["model"]["init_args"].pop("request_time") is True
    assert request["model"]["init_args"].pop("time_buckets") == "log"
    assert blind["model"]["init_args"].pop("time_span") == 256  # of linear buckets alone
    monitors = [config["best_checkpoint"].pop("monitor") for config in (blind, request)]
    assert monitors == ["val/ndcg@10", "val/request_time/ndcg@10"]
    assert blind == request


def test_the_config_of_movielens_20m_is_ligr_time_with_negatives_and_20_epochs():
    smaller, larger = (
        yaml.safe_load((REPOSITORY / f"configs/recommender/{stem}.yaml").read_text())
        for stem in ("ligr_time", "movielens_20m")
    )
    changed = {}
    for section in smaller:
        before, after = (config[section] for config in (smaller, larger))
        if isinstance(before, dict):
            before, after = before.get("init_args", before), after.get("init_args", after)
            changed[section] = {key: after.get(key) for key in before | after if before.get(key) != after.get(key)}
        else:
            assert before == after
    assert changed == {
        "model": {"loss": "sampled_softmax", "warmup_steps": 500},
        "data": {"dataset": "files", "root": "data/ml-20m", "num_negatives": 256, "shared_negatives": True},
        "trainer": {"max_epochs": 20, "check_val_every_n_epoch": 4},
        "best_checkpoint": {},
        "last_checkpoint": {"every_n_steps": 500},
    }


@pytest.mark.parametrize("path", RECOMMENDERS, ids=name)
def test_every_config_trains_two_steps(lockstep, path, tmp_path):
    """Two steps of each, validated and saved, with the config's own model, loss, split and callbacks."""
    if path.stem == "your_data":
        (tmp_path / "data").mkdir()
        rows = [f"u{user},i{(user + 7 * step) % 40},{1000 * step + user}\n" for user in range(32) for step in range(12)]
        (tmp_path / "data/interactions.csv").write_text("user,item,timestamp\n" + "".join(rows))
        data = []
    else:
        data = SYNTHETIC
    run = lockstep("fit", "--config", str(path), *SMALL, *data, name="a")
    losses = run.series("train/loss")
    assert sorted(losses) == [1, 2]
    assert all(map(math.isfinite, losses.values()))
    monitor = yaml.safe_load(path.read_text())["best_checkpoint"]["monitor"]
    assert 0 <= run.series(monitor)[2] <= 1
    assert {file.name for file in (run.folder / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}


@pytest.mark.filterwarnings("ignore:You have turned on `Trainer\\(detect_anomaly=True\\)`:UserWarning")
def test_the_debug_overlay_trains_one_batch(lockstep):
    """Without learning and dropout the loss stays equal, unless the batches differ."""
    still = ["--model.init_args.dropout", "0", "--model.init_args.learning_rate", "0", "--trainer.max_epochs", "3"]
    overlay = str(REPOSITORY / "configs/overlays/debug.yaml")
    run = lockstep("fit", *TINY, "--config", overlay, *still, name="still")
    losses = run.series("train/loss")
    assert sorted(losses) == [1, 2, 3]
    assert len(set(losses.values())) == 1


@pytest.mark.slow
def test_the_low_memory_overlay_trains_the_same(lockstep, messages, monkeypatch):
    monkeypatch.setattr(auto_micro_batch, "reports_oom", lambda device: True)  # as on a GPU
    options = [
        *TINY,
        "--data.init_args.batch_size",
        "64",
        "--model.init_args.dropout",
        "0",
        "--trainer.max_epochs",
        "1",
    ]
    plain = lockstep("fit", *options, name="plain")
    overlay = ["--config", str(REPOSITORY / "configs/overlays/low_memory.yaml"), *memory_fault("Hungry", most=20)]
    thrifty = lockstep("fit", *options, *overlay, name="thrifty")
    assert "global batch 64 = 1 rank x 16 samples x 4 accumulation steps" in messages
    assert len(plain.series("train/loss")) == 4
    assert thrifty.series("train/loss").keys() == plain.series("train/loss").keys()
    for step, loss in plain.series("train/loss").items():
        assert thrifty.series("train/loss")[step] == pytest.approx(loss, rel=1e-5)


DIGITS = ["--config", str(REPOSITORY / "configs/image_classifier/digits.yaml"), "--trainer.accelerator", "cpu"]
FIRST_STEP = ["--trainer.max_steps", "1", "--trainer.log_every_n_steps", "1", "--trainer.limit_val_batches", "0"]


@pytest.mark.parametrize(
    ("family", "divides"),
    [
        (lambda folder: TINY_TEMPORAL, True),
        (lambda folder: DIGITS, True),
        (colored_squares.write_config, True),
        (tiny_documents.write_config, True),
        (tiny_retriever.write_config, False),
    ],
    ids=["temporal", "image_classifier", "vision_language", "document_qa", "document_qa_retriever"],
)
def test_the_low_memory_overlay_goes_with_every_family(lockstep, messages, tmp_path, monkeypatch, family, divides):
    """A family whose loss needs the whole batch at once logs a warning and trains without splitting it."""
    monkeypatch.setattr(auto_micro_batch, "reports_oom", lambda device: True)  # as on a GPU
    overlay = ["--config", str(REPOSITORY / "configs/overlays/low_memory.yaml")]
    run = lockstep("fit", *family(tmp_path), *overlay, *FIRST_STEP, name="a")
    assert list(run.series("train/loss")) == [1]
    assert any(re.match(r"auto_micro_batch: \d+ samples fit", line) for line in messages) == divides
    assert any("trainer.auto_micro_batch has no effect" in line for line in messages) != divides
