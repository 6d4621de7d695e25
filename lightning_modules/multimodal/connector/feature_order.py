"""Orders the features of views, with learned vectors among them."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules.multimodal.batch import FeatureOrder
from lightning_modules.multimodal.connector.merge_embeddings import Features


def order_features(vectors: Tensor, learned: nn.Embedding | None, order: FeatureOrder) -> Features:
    """Return the features of views [V, N, C] and the learned vectors in an order. Gradients reach both."""
    assert learned is not None, "a tiling with an order has learned vectors"
    rows = learned(torch.arange(learned.num_embeddings, device=vectors.device))
    # [learned + V N, C]: the learned vectors come first, as the indices of the order count them.
    table = torch.cat((rows.to(vectors.dtype), vectors.flatten(0, 1)))
    # Unlike indexing, the gradient of an embedding is deterministic on every device.
    return Features(F.embedding(order.indices, table), order.counts)
