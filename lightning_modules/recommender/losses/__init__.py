"""Next-item losses, and a memory-saving cross-entropy. No Lightning."""
