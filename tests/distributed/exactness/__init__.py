"""Training and evaluation are the same on any number of ranks: gradients, streams, shards (FSDP), adapters."""
