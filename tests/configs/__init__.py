"""The YAML files of configs/: each trains, each key has a comment, and overlays and a user's YAML work with them."""
