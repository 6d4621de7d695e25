"""Image classification networks. No Lightning."""
