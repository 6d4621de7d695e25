"""Which base model a checkpoint belongs to, and weights from an earlier stage."""
