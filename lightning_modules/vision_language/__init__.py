"""Vision-language model. Imports `lightning_modules.multimodal`."""
