"""Hashes a tensor's bits on the tensor's device.

Multilinear hashing (Lemire and Kaser, "Strongly universal string hashing is fast", 2014): the bytes of a tensor are
read as 32-bit words, each word is multiplied by a 64-bit weight of its position, and the products are summed modulo
2^64. Rows of words are hashed first, then the hashes of the rows, until one is left. Integer sums do not round, so the
hash is the same on every device. It detects corruption and drift, but is not a cryptographic hash.
"""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from engine.determinism.stateless_rng import GOLDEN, mix_bits

_ROW = 1 << 15  # words; a row with its weights and products fits into the L2 cache of a CPU core
_ROWS_ON_GPU = 1 << 8  # rows at once: fewer kernel launches, 64 MiB of products


@torch.no_grad()
def hash_tensor(tensor: Tensor) -> Tensor:
    """Return the hash of a tensor of any shape and dtype.

    Tensors with equal shape, element size and bits have equal hashes. Others collide with a probability of about 2^-32.
    A NaN is compared by its bits; 0.0 and -0.0 differ.

    Returns:
        Scalar int64 on the tensor's device. The call does not wait for the device.
    """
    words = _as_words(tensor)
    while True:
        hashes = _hash_rows(words)
        if len(hashes) == 1:
            return hashes[0] + _hash_shape((*tensor.shape, tensor.element_size()))
        # A 64-bit hash is two words, so each round divides the number of words by 16,384.
        words = hashes.view(torch.int32)


def _as_words(tensor: Tensor) -> Tensor:
    # The bytes in the order of the elements, whatever the strides.
    octets = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    # A view as 32-bit words needs whole words at an aligned address. An empty tensor gets one word.
    if len(octets) % 4 or octets.storage_offset() % 4 or not len(octets):
        octets = pad(octets, (0, -len(octets) % 4 or 4))
    return octets.view(torch.int32)


def _hash_rows(words: Tensor) -> Tensor:
    """Return [ceil(words / _ROW)] int64, the hash of each row."""
    # sum_i word_i * weight_i modulo 2^64: int64 products and sums wrap on every device.
    weights = _weights(words.device)
    full = len(words) // _ROW
    rows = words[: full * _ROW].view(full, _ROW)
    chunk = 1 if words.device.type == "cpu" else _ROWS_ON_GPU
    hashes = [(group.to(torch.int64) * weights).sum(dim=1) for group in rows.split(chunk)] if full else []
    partial_row = words[full * _ROW :]
    if len(partial_row):
        hashes.append((partial_row.to(torch.int64) * weights[: len(partial_row)]).sum().reshape(1))
    return torch.cat(hashes)


@lru_cache(maxsize=16)
def _weights(device: torch.device) -> Tensor:
    # Odd weights: the product then changes with every change of a word, modulo 2^64.
    return torch.from_numpy((_split_mix(np.arange(_ROW, dtype=np.uint64)) | np.uint64(1)).view(np.int64)).to(device)


def _hash_shape(sizes: tuple[int, ...]) -> int:
    # Distinguishes tensors that differ in shape, element size or trailing padding alone.
    words = np.array(sizes, dtype=np.uint64) * _split_mix(np.arange(1, len(sizes) + 1, dtype=np.uint64))
    return int(_split_mix(words.sum(keepdims=True, dtype=np.uint64)).view(np.int64)[0])


def _split_mix(numbers: np.ndarray) -> np.ndarray:
    """Return SplitMix64 (Steele, Lea and Flood, 2014) of uint64 counters: 64 well-mixed bits each, modulo 2^64."""
    return mix_bits((numbers + np.uint64(1)) * np.uint64(GOLDEN))
