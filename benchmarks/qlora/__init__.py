"""LoRA beside frozen weights in bf16, NF4 and int8: tokens per second, memory and its prediction."""
