"""The guides name no key, option or file that does not exist, and leave out no flag of the guide that they replace."""

import inspect
import re

from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy

from callbacks.best_checkpoint import BestCheckpoint
from callbacks.last_checkpoint import LastCheckpoint
from datamodules.recommender.datamodule import InteractionSequences
from datamodules.recommender.synthetic import Marketplace
from engine.checkpoints import DurableCheckpointIO
from engine.datamodule import LockstepDataModule
from engine.module import LockstepModule
from lightning_modules.recommender.module import SequentialRecommender
from tests.conftest import REPOSITORY

KNOWN = {
    "model": [SequentialRecommender, LockstepModule],
    "data": [InteractionSequences, LockstepDataModule, Marketplace],
    "trainer": [Trainer, DDPStrategy],
    "best_checkpoint": [BestCheckpoint],
    "last_checkpoint": [LastCheckpoint],
    "checkpoints": [DurableCheckpointIO],
}
# The options of the original guide and of the program that it describes.
ORIGINAL = """
dataset train_dir batch_size lr lr_decay_rate lr_decay_step warmup_steps maxlen hidden_units num_blocks num_heads
dropout_rate l2_emb num_epochs device inference_only state_dict_path norm_first time_span time_unit no_time no_mhc
mhc_expansion_rate mhc_init_gate mhc_sinkhorn_iter mhc_no_amp use_amp use_adamw weight_decay layer_norm_eps
early_stop_patience early_stop_threshold gradient_accumulation_steps num_workers backend master_port multi_gpu
""".split()


def text(name):
    return (REPOSITORY / name).read_text(encoding="utf-8")


def test_every_key_exists():
    code = "\n".join(re.findall(r"`[^`]+`|^    .*$", text("docs/recommender.md"), flags=re.MULTILINE))
    keys = re.findall(rf"(?<![\w./])({'|'.join(KNOWN)})\.([a-z0-9_.]+[a-z0-9])", code)
    assert len(keys) >= 60
    for section, key in keys:
        if key in ("help", "x", "init_args.x"):
            continue
        parameters = {name for kind in KNOWN[section] for name in inspect.signature(kind.__init__).parameters}
        parameters |= {"process_group_backend", "init_args", "marketplace"}
        assert set(key.split(".")) <= parameters, f"{section}.{key}"


def test_every_file_exists():
    for name in re.findall(r"[a-z_]+/[a-z_0-9/]+\.(?:yaml|py)|tests/[a-z]+", text("docs/recommender.md")):
        assert name.startswith("runs/") or (REPOSITORY / name).exists(), name
    for name in re.findall(r"`([a-z_0-9]+\.yaml)`", text("docs/recommender.md")):
        assert list(REPOSITORY.glob(f"configs/*/{name}")) or name == "config.yaml", name


def test_every_config_is_listed():
    listed = text("docs/recommender.md")
    for path in [*REPOSITORY.glob("configs/recommender/*.yaml"), *REPOSITORY.glob("configs/overlays/*.yaml")]:
        assert f"`{path.name}`" in listed, path.name


def test_every_flag_of_the_original_guide_has_a_row():
    table = text("docs/recommender.md").partition("## From the original guide's flags to keys")[2]
    first_cells = " ".join(re.findall(r"^\| (.*?) \|", table, flags=re.MULTILINE))
    assert [flag for flag in ORIGINAL if f"--{flag}" not in first_cells] == []
    for other in ("train_distributed.sh", "torch.distributed.launch", "torchrun", "NUM_GPUS", "BATCH_SIZE", "train.log",
                  "val.log", "checkpoint_*.pth", "best.pth", "final.pth", "tensorboard", "NCCL_DEBUG", "pin_memory",
                  "NCCL_SOCKET_IFNAME", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "checkpointing"):  # fmt: skip
        assert other in first_cells, other
