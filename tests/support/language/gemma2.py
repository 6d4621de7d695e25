"""The config of a Gemma 2 of one layer."""

GEMMA2 = {
    "model_type": "gemma2",
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "intermediate_size": 24,
}
