"""Tests the projectors: sizes, pixel shuffle, the final norm."""

import pytest
import torch

from lightning_modules.multimodal.connector.projector import PixelShuffle, Projector, ProjectorSettings


@pytest.mark.parametrize("kind", ["linear", "mlp", "deep_mlp", "pixel_shuffle"])
def test_every_projector_has_its_shape_and_passes_gradients(kind):
    projector = Projector(ProjectorSettings(kind=kind), input_size=6, output_size=10)
    features = torch.randn(2, 16, 6, requires_grad=True)
    projected = projector(features)
    assert projected.shape == (2, projector.settings.count(16), 10)
    assert projector.settings.count(16) == (4 if kind == "pixel_shuffle" else 16)
    (projected * torch.randn_like(projected)).sum().backward()
    assert all(parameter.grad is not None for parameter in projector.parameters())
    assert features.grad.abs().min() > 0


@pytest.mark.parametrize("kind", ["linear", "mlp", "deep_mlp"])
def test_a_projector_maps_each_feature_of_a_list_alone(kind):
    projector = Projector(ProjectorSettings(kind=kind, hidden_size=7), input_size=6, output_size=10).eval()
    features = torch.randn(5, 6)
    torch.testing.assert_close(projector(features)[2], projector(features[2]))


def test_each_kind_has_its_layers():
    def layers(**settings):
        return [type(layer).__name__ for layer in Projector(ProjectorSettings(**settings), 4, 8).layers]

    assert layers(kind="linear", layer_norm=False) == ["Linear"]
    assert layers(kind="mlp") == ["Linear", "GELU", "Dropout", "Linear", "LayerNorm"]
    assert layers(kind="deep_mlp", depth=4).count("Linear") == 4


def test_norm_begins_at_its_scale():
    projector = Projector(ProjectorSettings(layer_norm_scale=0.1), 4, 400)
    torch.testing.assert_close(projector(torch.randn(3, 4)).std(dim=-1), torch.full((3,), 0.1), atol=1e-3, rtol=0)


def test_pixel_shuffle_puts_squares_side_by_side():
    """Cell (r, c) of a 4 x 4 grid is 10 r + c."""
    grid = torch.tensor([[10 * r + c for r in range(4) for c in range(4)]]).unsqueeze(-1)
    found = PixelShuffle(2)(grid)
    assert found.tolist() == [[[0, 1, 10, 11], [2, 3, 12, 13], [20, 21, 30, 31], [22, 23, 32, 33]]]


@pytest.mark.parametrize("count", [8, 9])
def test_pixel_shuffle_refuses_other_grids(count):
    with pytest.raises(ValueError, match=f"square grid of edge n x 2, got {count} features"):
        PixelShuffle(2)(torch.zeros(1, count, 3))


def test_sizes_are_at_least_one():
    with pytest.raises(ValueError, match="projector.depth must be at least 1, got 0"):
        Projector(ProjectorSettings(depth=0), 2, 2)
