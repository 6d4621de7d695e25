"""Orders the features of views, with learnt vectors among them."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules.multimodal.batch import FeatureOrder
from lightning_modules.multimodal.connector.merge_embeddings import Features


def order_features(vectors: Tensor, learnt: nn.Embedding | None, order: FeatureOrder) -> Features:
    """Return the features of views [V, N, C] and the learnt vectors in an order. Gradients reach both."""
    assert learnt is not None, "a tiling with an order has learnt vectors"
    rows = learnt(torch.arange(learnt.num_embeddings, device=vectors.device))
    table = torch.cat((rows.to(vectors.dtype), vectors.flatten(0, 1)))
    # Unlike indexing, the gradient of an embedding is deterministic on every device.
    return Features(F.embedding(order.indices, table), order.counts)
