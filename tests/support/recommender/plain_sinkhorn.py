"""Sinkhorn's iterations as they are published, as the reference of the fused ones."""


def plain_sinkhorn(logits, iterations):
    matrices = logits.exp()
    for _ in range(iterations):
        matrices = matrices / matrices.sum(0, keepdim=True)
        matrices = matrices / matrices.sum(1, keepdim=True)
    return matrices
