"""Language models: loading, precision, adapters, prefix cache and logits. No Lightning."""
