"""Encodes chats with the processor of a pretrained image-text model. Imports `datamodules.multimodal`."""
