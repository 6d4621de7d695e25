"""The guides name no key, option or file that does not exist, and leave out no flag of the guide that they replace."""

import inspect
import re

import pytest
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy

from callbacks.best_checkpoint import BestCheckpoint
from callbacks.last_checkpoint import LastCheckpoint
from callbacks.throughput import Throughput
from callbacks.weights_and_biases import WandbSettings
from commands.trainer import LockstepTrainer
from datamodules.document_qa.augmentation.settings import AugmentationSettings
from datamodules.document_qa.context import ContextSettings
from datamodules.document_qa.datamodule import DocumentDataModule
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.manuals.settings import AskingSettings, ManualSettings
from datamodules.document_qa.questions.question_source import QuestionSource
from datamodules.document_qa.questions.splits import SplitSettings
from datamodules.document_qa.retrieval.settings import RetrieverSettings
from datamodules.document_qa.synthetic_manuals import SyntheticManuals
from datamodules.document_qa.user_documents import DocumentQuestions
from datamodules.image_classifier.datamodule import LabelledImages
from datamodules.multimodal.datamodule import MultimodalDataModule
from datamodules.multimodal.image_datamodule import ImageDataModule
from datamodules.recommender.datamodule import InteractionSequences
from datamodules.recommender.synthetic import Marketplace
from datamodules.temporal.datamodule import ResourceTimelines
from datamodules.temporal.samples import Synthesis
from datamodules.vision_language.image_chats import ImageChats
from datamodules.vision_language.rendered_scenes import RenderedScenes
from datamodules.vision_language.scenes.samples import Tasks
from datamodules.vision_language.scenes.scenes import World
from engine.checkpoints import DurableCheckpointIO
from engine.datamodule import LockstepDataModule
from engine.module import LockstepModule
from engine.sharded_strategy import ShardedStrategy
from lightning_modules.document_qa.module import DocumentReader
from lightning_modules.document_qa.page_retriever import PageRetriever
from lightning_modules.image_classifier.module import ImageClassifier
from lightning_modules.multimodal.chat_module import ChatModule
from lightning_modules.multimodal.composition import ComposedModule
from lightning_modules.multimodal.image_module import ImageModule
from lightning_modules.multimodal.language_model_settings import LanguageModelSettings, LoraSettings
from lightning_modules.multimodal.module import MultimodalModule
from lightning_modules.multimodal.projector import ProjectorSettings
from lightning_modules.multimodal.vision_tower_settings import VisionTowerSettings
from lightning_modules.recommender.module import SequentialRecommender
from lightning_modules.temporal.module import TimelineReader
from lightning_modules.vision_language.module import VisionLanguageModel
from tests.conftest import REPOSITORY

FAMILIES = {
    "image_classifier": {
        "model": [ImageClassifier, LockstepModule],
        "data": [LabelledImages, LockstepDataModule],
    },
    "recommender": {
        "model": [SequentialRecommender, LockstepModule],
        "data": [InteractionSequences, LockstepDataModule, Marketplace],
    },
    "temporal": {
        "model": [
            TimelineReader, MultimodalModule, ComposedModule, LockstepModule, LanguageModelSettings, ProjectorSettings,
        ],
        "data": [ResourceTimelines, MultimodalDataModule, LockstepDataModule, Synthesis],
    },
    "vision_language": {
        "model": [
            VisionLanguageModel, MultimodalModule, ComposedModule, LockstepModule, LanguageModelSettings, LoraSettings,
            VisionTowerSettings, ProjectorSettings,
        ],
        "data": [
            ImageChats, RenderedScenes, ImageDataModule, MultimodalDataModule, LockstepDataModule, World, Tasks,
        ],
    },
    "document_qa": {
        "model": [
            DocumentReader, PageRetriever, ImageModule, ChatModule, ComposedModule, LockstepModule,
            LanguageModelSettings, LoraSettings, VisionTowerSettings, ProjectorSettings,
        ],
        "data": [
            DocumentQuestions, DocumentDataModule, ImageDataModule, MultimodalDataModule, LockstepDataModule,
            QuestionSource, SplitSettings, IngestionSettings, RetrieverSettings, ContextSettings, AugmentationSettings,
            SyntheticManuals, ManualSettings, AskingSettings,
        ],
    },
}  # fmt: skip
KNOWN = {
    "trainer": [LockstepTrainer, Trainer, DDPStrategy, ShardedStrategy],
    "wandb": [WandbSettings],
    "best_checkpoint": [BestCheckpoint],
    "last_checkpoint": [LastCheckpoint],
    "checkpoints": [DurableCheckpointIO],
    "throughput": [Throughput],
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


def guide_of(family):
    return text(f"docs/{family.replace('_', '-')}.md")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_key_exists(family):
    ours, heading, theirs = guide_of(family).partition("## From the original guide")
    guide = ours + re.sub(r"^\| .*? \|", "", theirs, flags=re.MULTILINE)  # the first cells are of the original
    code = "\n".join(re.findall(r"`[^`]+`|^    .*$", guide, flags=re.MULTILINE))
    known = {**KNOWN, **FAMILIES[family]}
    keys = re.findall(rf"(?<![\w./])({'|'.join(known)})\.([a-z0-9_.]+[a-z0-9])", code)
    assert len(keys) >= (15 if family == "image_classifier" else 30)
    for section, key in keys:
        if key in ("help", "x", "init_args.x", "yaml", "onnx", "safetensors"):
            continue
        parameters = {name for kind in known[section] for name in inspect.signature(kind.__init__).parameters}
        parameters |= {"process_group_backend", "init_args", "class_path", "marketplace"}
        assert set(key.split(".")) <= parameters, f"{section}.{key}"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_file_exists(family):
    for name in re.findall(r"(?<![\w/])[a-z_]+/[a-z_0-9/.-]+\.(?:yaml|py)|tests/[a-z]+", guide_of(family)):
        theirs = name.startswith(("runs/", "configs/pretrain_temporal", "configs/vlm_", "scripts/", "tools/", "src/"))
        assert theirs or list(REPOSITORY.glob(name)), name
    for name in re.findall(r"`([a-z_0-9.-]+\.yaml)`", guide_of(family)):
        assert list(REPOSITORY.glob(f"configs/**/{name}")) or name in ("config.yaml", "config-2.yaml"), name


@pytest.mark.parametrize("family", FAMILIES)
def test_every_config_is_listed(family):
    for path in REPOSITORY.glob(f"configs/{family}/*.yaml"):
        assert f"`{path.name}`" in guide_of(family), path.name


def test_every_overlay_is_listed():
    for path in REPOSITORY.glob("configs/overlays/*.yaml"):
        assert f"`{path.name}`" in text("docs/recommender.md"), path.name


# The commands, options and settings of the guide that docs/temporal.md replaces, and of its configuration file.
TEMPORAL_ORIGINAL = """
torchrun --nnodes --node_rank --master_addr --resume --output_dir tensorboard tail gradient_accumulation_steps lr
num_workers pin_memory prefetch_factor fp16 bf16 checkpointing pregenerate_temporal_data --num_samples start_epoch
NCCL_DEBUG TORCH_DISTRIBUTED_DEBUG gradient_clip warmup_ratio
llm_model_name freeze_llm llm_embedding_dim hidden_dim output_dim num_layers kernel_sizes pooling normalization
min_timesteps max_timesteps time_granularity_ms num_train_samples num_val_samples type_distribution max_length
noise_level spike_probability diversity_level num_epochs learning_rate weight_decay max_grad_norm warmup_steps min_lr
num_cycles save_interval eval_interval save_total_limit log_interval betas eps seed device cache_dir log_dir
tensorboard_dir output_dir wandb metrics num_eval_samples num_generation_samples batch_size
""".split()


def test_every_setting_of_the_original_temporal_guide_has_a_row():
    table = text("docs/temporal.md").partition("## From the original guide to this program")[2]
    first_cells = " ".join(re.findall(r"^\| (.*?) \|", table, flags=re.MULTILINE))
    assert [word for word in TEMPORAL_ORIGINAL if word not in first_cells] == []


# The commands, settings and advice of the guide that docs/vision-language.md replaces; flags and keys of its program.
VISION_LANGUAGE_ORIGINAL = """
torchrun --nproc_per_node train_multi_gpu.sh train_multi_gpu.bat torch.distributed.launch --master_addr --master_port
CUDA_VISIBLE_DEVICES MASTER_ADDR MASTER_PORT use_ddp batch_size accumulation_steps base_lr sqrt(num_gpus) NCCL_DEBUG
nccl.version nvidia-smi nvtop num_workers pin_memory prefetch_factor find_unused_parameters use_mixed_precision
set_to_none empty_cache local_rank WandB DistributedSampler device_count eval_vlm.py create_parquet_dataset --mode
--config --stage --train_data --val_data --vision_model --language_model --image_special_token --batch_size --epochs
--lr --max_seq_len --save_dir --resume --use_wandb --wandb_project
vision_model_type vision_model_path freeze_vision_encoder vision_layers_to_unfreeze language_model_type
language_model_path freeze_language_model language_layers_to_unfreeze use_lora lora_r lora_alpha lora_dropout
lora_target_modules projection_type projection_hidden_dim projection_activation projection_dropout projection_layernorm
image_special_token image_token_ids vision_processor_type use_bfloat16 max_seq_length training_stage num_epochs
learning_rate warmup_steps weight_decay grad_clip data_path val_data_path mixed_precision_dtype save_dir save_every
log_every eval_every use_fsdp fsdp_sharding_strategy fsdp_cpu_offload fsdp_sync_module_states fsdp_forward_prefetch
fsdp_use_orig_params
""".split()


def test_every_setting_of_the_original_vision_language_guide_has_a_row():
    table = guide_of("vision_language").partition("## From the original guide to this program")[2]
    first_cells = " ".join(re.findall(r"^\| (.*?) \|", table, flags=re.MULTILINE))
    assert [word for word in VISION_LANGUAGE_ORIGINAL if word not in first_cells] == []


def test_every_flag_of_the_original_guide_has_a_row():
    table = text("docs/recommender.md").partition("## From the original guide's flags to keys")[2]
    first_cells = " ".join(re.findall(r"^\| (.*?) \|", table, flags=re.MULTILINE))
    assert [flag for flag in ORIGINAL if f"--{flag}" not in first_cells] == []
    for other in ("train_distributed.sh", "torch.distributed.launch", "torchrun", "NUM_GPUS", "BATCH_SIZE", "train.log",
                  "val.log", "checkpoint_*.pth", "best.pth", "final.pth", "tensorboard", "NCCL_DEBUG", "pin_memory",
                  "NCCL_SOCKET_IFNAME", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "checkpointing"):  # fmt: skip
        assert other in first_cells, other
