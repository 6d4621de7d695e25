"""Tests the networks and the moving average, without a Trainer."""

import pytest
import torch

from lightning_modules.image_classifier.networks.normalization import SyncBatchNorm
from lightning_modules.image_classifier.networks.resnet import ResNet18
from lightning_modules.image_classifier.networks.vit import VisionTransformer
from lightning_modules.image_classifier.weight_averaging import MovingAverage


def test_sizes_are_those_of_the_papers():
    """ResNet-18 for CIFAR-10: 11,173,962 weights in every public implementation (He et al. count layers alone)."""
    assert sum(weight.numel() for weight in ResNet18(3, 10, norm="batch").parameters()) == 11_173_962
    vit = VisionTransformer(3, 32, 10, patch=4, width=192, depth=12, heads=3)
    block = 12 * 192**2 + 13 * 192  # attention 4 C^2 + 4 C, feed-forward 8 C^2 + 5 C, two norms 4 C
    assert sum(weight.numel() for weight in vit.parameters()) == 12 * block + (48 + 1 + 64 + 2) * 192 + 193 * 10


@pytest.mark.parametrize("build", [lambda: ResNet18(1, 7, 16), lambda: VisionTransformer(1, 8, 7, 4, 32, 2, 2)])
def test_an_image_has_the_same_scores_in_any_company(build):
    torch.manual_seed(0)
    network = build().train()
    images = torch.randn(5, 1, 8, 8)
    scores = network(images)
    assert scores.shape == (5, 7)
    torch.testing.assert_close(network(images[2:3]), scores[2:3], rtol=1e-4, atol=1e-5)
    scores.square().sum().backward()
    assert all(weight.grad is not None for weight in network.parameters())


@pytest.mark.parametrize("norm", ["batch", "sync_batch"])
def test_batch_norms_look_at_the_batch_in_training_alone(norm):
    torch.manual_seed(0)
    network, images = ResNet18(1, 3, 8, norm), torch.randn(6, 1, 8, 8)
    assert not torch.allclose(network(images)[:2], network(images[:2]), atol=1e-3)
    network.eval()
    torch.testing.assert_close(network(images)[:2], network(images[:2]))


def test_residual_blocks_start_as_the_identity():
    network = ResNet18(1, 3, 8)
    states = torch.rand(2, 8, 8, 8)  # positive, so that the block's last ReLU leaves them alone
    torch.testing.assert_close(network.blocks[0](states), states)


def test_a_patch_size_that_does_not_divide_the_image_is_refused():
    with pytest.raises(ValueError, match="patch_size 3 for images of 8 pixels"):
        VisionTransformer(1, 8, 10, patch=3)


def test_the_average_follows_the_network():
    torch.manual_seed(0)
    network = ResNet18(1, 3, 8, "batch")
    average, expected = MovingAverage(network, 0.5), network.head.weight.detach().clone()
    for step in (0, 1, 50):
        with torch.no_grad():
            network.head.weight.add_(torch.randn_like(network.head.weight))
        network(torch.randn(4, 1, 8, 8))  # statistics of norms move, too
        average.update(network, step)
        decay = min(0.5, step / (9 + step))
        expected = decay * expected + (1 - decay) * network.head.weight.detach()
        assert step or torch.equal(average.state["head.weight"], network.head.weight)
    torch.testing.assert_close(average.state["head.weight"], expected)
    assert average.state["stem.1.num_batches_tracked"] == 3
    other, images = ResNet18(1, 3, 8, "batch").eval(), torch.randn(4, 1, 8, 8)
    other.load_state_dict(average.state)
    torch.testing.assert_close(average.apply_to(network.eval(), images), other(images))
    assert not torch.allclose(network(images), other(images))


def test_one_process_needs_no_collective_for_its_statistics():
    norm, plain = SyncBatchNorm(4), torch.nn.BatchNorm2d(4)
    images = torch.randn(3, 4, 2, 2)
    torch.testing.assert_close(norm(images), plain(images))
