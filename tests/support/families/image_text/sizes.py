"""Has the sizes of the tiny language models and vision towers."""

TEXT = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 24,
    "initializer_range": 0.3,  # far from uniform, so that a difference shows
}
TOWER = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": 28,
    "patch_size": 14,
    "initializer_range": 0.3,
}
