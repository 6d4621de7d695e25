"""`python train.py doctor --plan nodes=2,gpus=8,gb=80`: what to set so that a language model fits these GPUs.

cluster.py         number of nodes, GPUs of each, and GB of each GPU
qwen2_5_shapes.py  sizes of the Qwen2.5 series, for a table without a config
recipes.py         ways to train: their settings, and the options that set them
plan.py            predicted memory of each recipe, whether it fits, and which one is recommended
plan_output.py     the tables and the JSON object
"""
