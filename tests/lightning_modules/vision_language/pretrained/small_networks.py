"""Builds the network of a tiny image-text model from its directory."""

from datamodules.vision_language.pretrained.processor import ModelProcessor
from lightning_modules.multimodal.language.precision import precision_of
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.vision_language.pretrained.image_text_model_loading import load_config, load_image_text_model
from lightning_modules.vision_language.pretrained.image_text_network import ImageTextNetwork
from lightning_modules.vision_language.pretrained.settings import PartSettings, language_model_settings

PARTS = {"vision_tower": PartSettings("full"), "connector": PartSettings("full")}


def build(folder, parts=None, **settings):
    model = ModelProcessor(str(folder), folder)
    language_model = language_model_settings(LanguageModelSettings(**settings), str(folder))
    precision = precision_of("32-true", has_bf16=True)
    network = load_image_text_model(load_config(str(folder)), language_model, precision, parts_train=False)
    vocabulary = len(model.processor.tokenizer)
    return model, ImageTextNetwork(network, language_model, parts or PARTS, vocabulary, precision)
