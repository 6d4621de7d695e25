"""Fine-tunes a pretrained image-text model of transformers. Imports `lightning_modules.multimodal`."""
