"""Checks that each flag, setting and command of the original guides has a row with its replacement."""

import re
import shlex

import pytest
import yaml

from tests.conftest import REPOSITORY
from tests.docs.pages import read, tables

PAGE = "docs/from-the-guides.md"
# Heading of the page -> commands, flags and keys of the guide.
ORIGINALS = {
    "Recommender": """
--dataset --train_dir --batch_size --lr --lr_decay_rate --lr_decay_step --warmup_steps --maxlen --hidden_units
--num_blocks --num_heads --dropout_rate --l2_emb --num_epochs --device --inference_only --state_dict_path
--norm_first --time_span --time_unit --no_time --no_mhc --mhc_expansion_rate --mhc_init_gate --mhc_sinkhorn_iter
--mhc_no_amp --use_amp --use_adamw --weight_decay --layer_norm_eps --early_stop_patience --early_stop_threshold
--gradient_accumulation_steps --num_workers --backend --master_port --multi_gpu
torchrun train_distributed.sh torch.distributed.launch NUM_GPUS BATCH_SIZE train.log val.log checkpoint_*.pth best.pth
final.pth tensorboard NCCL_DEBUG NCCL_SOCKET_IFNAME pin_memory CUDA_VISIBLE_DEVICES OMP_NUM_THREADS checkpointing
        """,
    "Temporal": """
torchrun --nnodes --node_rank --master_addr --resume --output_dir tensorboard tail gradient_accumulation_steps
lr num_workers pin_memory prefetch_factor fp16 bf16 checkpointing pregenerate_temporal_data --num_samples
start_epoch NCCL_DEBUG TORCH_DISTRIBUTED_DEBUG gradient_clip warmup_ratio llm_model_name freeze_llm
llm_embedding_dim hidden_dim output_dim num_layers kernel_sizes pooling normalization min_timesteps
max_timesteps time_granularity_ms num_train_samples num_val_samples type_distribution max_length noise_level
spike_probability diversity_level num_epochs learning_rate weight_decay max_grad_norm warmup_steps min_lr
num_cycles save_interval eval_interval save_total_limit log_interval betas eps seed device cache_dir log_dir
tensorboard_dir output_dir wandb metrics num_eval_samples num_generation_samples batch_size
        """,
    "Vision-language": """
torchrun --nproc_per_node train_multi_gpu.sh train_multi_gpu.bat torch.distributed.launch --master_addr
--master_port CUDA_VISIBLE_DEVICES MASTER_ADDR MASTER_PORT use_ddp batch_size accumulation_steps base_lr
sqrt(num_gpus) NCCL_DEBUG nccl.version nvidia-smi nvtop num_workers pin_memory prefetch_factor
find_unused_parameters use_mixed_precision set_to_none empty_cache local_rank WandB DistributedSampler
device_count eval_vlm.py create_parquet_dataset --mode --config --stage --train_data --val_data --vision_model
--language_model --image_special_token --batch_size --epochs --lr --max_seq_len --save_dir --resume --use_wandb
--wandb_project vision_model_type vision_model_path freeze_vision_encoder vision_layers_to_unfreeze
language_model_type language_model_path freeze_language_model language_layers_to_unfreeze use_lora lora_r
lora_alpha lora_dropout lora_target_modules projection_type projection_hidden_dim projection_activation
projection_dropout projection_layernorm image_special_token image_token_ids vision_processor_type use_bfloat16
max_seq_length training_stage num_epochs learning_rate warmup_steps weight_decay grad_clip data_path
val_data_path mixed_precision_dtype save_dir save_every log_every eval_every use_fsdp fsdp_sharding_strategy
fsdp_cpu_offload fsdp_sync_module_states fsdp_forward_prefetch fsdp_use_orig_params
        """,
}

# {flag of the original document QA: what to type here}. The last words are a key and its value.
DOCUMENT_QA = {
    "--train_questions": "--data.init_args.train.questions a.jsonl",
    "--valid_questions": "--data.init_args.validation '{questions: b.jsonl, documents: pdf}'",
    "--documents": "--data.init_args.train.documents pdf",
    "--output_dir": "--runs outputs --run_name multi_gpu",
    "--batch_size": "--data.init_args.batch_size null --data.init_args.batch_size_per_device 4",
    "--epochs": "--trainer.max_epochs 10",
    "--fp16": "--trainer.precision 16-mixed",
    "--ddp": "--trainer.devices 4 --trainer.strategy ddp",
    "--use_peft": "--model.init_args.language_model.trainable lora",
    "--use_data_augmentation": "--data.init_args.augmentation.enabled true",
    "--use_optimized_loss": "--model.init_args.loss contrastive_options",
    "--gradient_accumulation_steps": "--data.init_args.micro_batch_size 1",
    "--optimizer_type": "--model.init_args.optimizer adamw_8bit",
    "--cpu_offload": "--model.init_args.optimizer_offload true",
    "--profile": "--trainer.profiler pytorch",
    "--logging_steps": "--trainer.log_every_n_steps 1",
    "--save_strategy": "--trainer.check_val_every_n_epoch 1",
    "--save_total_limit": "--best_checkpoint.keep 3",
    "--load_best_model_at_end": "",
    "--metric_for_best_model": "--best_checkpoint.monitor val/accuracy",
    "--use_wandb": "--config configs/overlays/wandb.yaml",
    "--wandb_project": "--wandb.project industrial-multimodal-qa",
    "--wandb_name": "--wandb.project qa --wandb.name multi-node-training",
}
# Key and value of flags without such words.
IMPLIED = {
    "--load_best_model_at_end": ("best_checkpoint.monitor", "val/accuracy"),
    "--use_wandb": ("wandb.project", "lockstep"),
}
APART = ("--use_wandb", "--wandb_name")  # set the keys of other flags, too
TOGETHER = [flag for flag in DOCUMENT_QA if flag not in APART]
CONFIG = "configs/document_qa/your_documents.yaml"


def section(heading):
    """Return the part of the page below a heading."""
    _, found, rest = read(PAGE).partition(f"\n## {heading}\n")
    assert found, f"{PAGE} has no {heading}"
    return rest.partition("\n## ")[0]


@pytest.mark.parametrize("guide", ORIGINALS)
def test_everything_that_the_original_guide_names_has_a_row(guide):
    both = section("In every guide") + section(guide)
    named = " ".join(row[0] for table in tables(both) for row in table[1:])
    assert [word for word in ORIGINALS[guide].split() if not re.search(rf"(?<!\w){re.escape(word)}(?!\w)", named)] == []


@pytest.mark.parametrize("flags", [TOGETHER, *([flag] for flag in APART)], ids=lambda flags: flags[-1])
def test_flags_of_the_guide_set_the_options_that_the_page_names(parser, monkeypatch, flags):
    monkeypatch.chdir(REPOSITORY)
    options = [word for flag in flags for word in shlex.split(DOCUMENT_QA[flag])]
    config = parser.parse_args(["--config", CONFIG, *options])
    for flag in flags:
        key, value = IMPLIED.get(flag) or shlex.split(DOCUMENT_QA[flag])[-2:]
        actual, expected = config[key.removeprefix("--")], yaml.safe_load(value)
        if isinstance(expected, dict):
            actual = {name: actual[name] for name in expected}
        assert actual == expected, flag


@pytest.mark.parametrize("flag", DOCUMENT_QA)
def test_the_row_of_a_flag_has_what_is_typed(flag):
    """Keys of the guide may lack `init_args`."""
    rows = [" ".join(row) for rows in tables(section("Document QA")) for row in rows if f"`{flag}" in row[0]]
    assert rows, flag
    for option in re.findall(r"--([a-z][\w.]+)", DOCUMENT_QA[flag]):
        names = (option, option.replace("init_args.", ""))
        assert any(name in row for row in rows for name in names), (flag, option)
