"""Tests that a training that cannot use a kernel is refused, with the setting to use instead."""

from types import SimpleNamespace

import pytest
import torch

from lightning_modules.document_qa.reader_module import DocumentReader
from lightning_modules.document_qa.retriever_module import PageRetriever
from lightning_modules.multimodal.language.kernels.kernel_checks import require_gpu_kernels
from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.language.precision import precision_of
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.language_module import LanguageModule
from lightning_modules.multimodal.vision.settings import VisionTowerSettings
from lightning_modules.vision_language.pretrained.settings import language_model_settings
from tests.lightning_modules.multimodal.conftest import CONFIGS, VOCABULARY
from tests.support.fake_trainer import fake_trainer
from tests.support.language.gemma2 import GEMMA2

LIGER, FLEX = {"loss_kernel": "liger"}, {"attention": "flex_attention"}


def chosen(**settings) -> LanguageModelSettings:
    return LanguageModelSettings(config=settings.pop("config", CONFIGS["qwen2"]), **settings)


@pytest.mark.parametrize(
    "settings, device, sharded, dtype, message",
    [
        (FLEX, "cpu", False, torch.float32, "attention is flex_attention, .* the device is cpu. Set it to sdpa"),
        (LIGER, "cpu", False, torch.float32, "loss_kernel is liger, .* the device is cpu. Set it to torch"),
        (LIGER, "cuda", True, torch.float32, "loss_kernel is liger, .* shards the weights. Set it to torch"),
        (LIGER, "cuda", False, torch.float64, "loss_kernel is liger, .*64-true. Set it to torch"),
    ],
)
def test_kernels_that_a_device_or_format_lacks_are_refused(settings, device, sharded, dtype, message):
    with pytest.raises(ValueError, match=message):
        require_gpu_kernels(chosen(**settings), torch.device(device), sharded, dtype)


@pytest.mark.parametrize(
    "settings, device", [({}, "cpu"), (LIGER, "cuda"), (FLEX, "cuda"), ({**LIGER, **FLEX}, "cuda")]
)
def test_kernels_that_the_device_has_are_accepted(settings, device):
    require_gpu_kernels(chosen(**settings), torch.device(device), False, torch.float32)


@pytest.mark.parametrize("settings", [LIGER, FLEX], ids=str)
@pytest.mark.parametrize("command", ["fit", "validate"])
def test_a_cpu_evaluates_with_the_kernels_but_does_not_train(settings, command):
    module, built = SimpleNamespace(language_model_settings=chosen(**settings), init_from=None, sharded=False), []
    module.build, module.model_precision = lambda: built.append(1), precision_of("32-true", True)
    module.trainer = fake_trainer(command)
    if command == "fit":
        with pytest.raises(ValueError, match="the device is cpu"):
            LanguageModule.configure_model(module)
    else:
        LanguageModule.configure_model(module)
    assert len(built) == (command == "validate")


@pytest.mark.parametrize(
    "settings, found",
    [
        ({**LIGER, "config": GEMMA2, "attention": "eager"}, "gemma2 .* its logits"),
        ({**FLEX, "compile": True}, r"language_model\.compile to false"),
    ],
    ids=["caps", "compile"],
)
def test_kernels_refuse_capped_logits_and_compilation(settings, found):
    with pytest.raises(ValueError, match=found):
        LanguageModel(chosen(**settings), VOCABULARY, precision_of("32-true", True))


@pytest.mark.parametrize(
    "config, message",
    [
        ({"attention_dropout": 0.5}, "attention_dropout is 0.5. Set .* sdpa"),
        (None, "gemma2 with eager or flash_attention_2 only"),
    ],
)
def test_flex_attention_is_refused_for_models_that_lack_it(config, message):
    settings = {**CONFIGS["qwen2"], **config} if config else GEMMA2
    with pytest.raises(ValueError, match=message):
        LanguageModel(chosen(**FLEX, config=settings), VOCABULARY, precision_of("32-true", True), torch.device("cuda"))


def test_adapters_at_the_output_layer_are_refused_by_the_kernel():
    from lightning_modules.multimodal.language.settings import LoraSettings

    settings = chosen(
        **LIGER, config=CONFIGS["llama"], trainable="lora", lora=LoraSettings(4, target_modules=["lm_head"])
    )
    with pytest.raises(ValueError, match="the output layer is a Linear, as with adapters"):
        LanguageModel(settings, VOCABULARY, precision_of("32-true", True))


def test_families_without_a_kernel_refuse_its_option():
    with pytest.raises(ValueError, match="pretrained image-text model does not support"):
        language_model_settings(LanguageModelSettings(**FLEX), "somewhere")
    with pytest.raises(ValueError, match="loss_kernel is liger, .* a retriever predicts no tokens"):
        PageRetriever(chosen(**LIGER), VisionTowerSettings())
    for loss in ("label_smoothing", "focal"):
        with pytest.raises(ValueError, match=f"loss_kernel is liger, which has no loss {loss}"):
            DocumentReader(chosen(**LIGER), VisionTowerSettings(), loss=loss)
    DocumentReader(chosen(**LIGER), VisionTowerSettings(), loss="contrastive_options")
