"""Programs that use the Triton kernels without a GPU, in a process of their own: `python -m ...programs NAME`.

`compare` needs TRITON_INTERPRET=1, which must be set before the kernels are imported. Each prints JSON.
"""

import json
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from lightning_modules.recommender.networks.attention.fused_causal_attention import Relations, causal_attention
from lightning_modules.recommender.networks.attention.kernels import time_attention_kernels as kernels
from lightning_modules.recommender.networks.attention.kernels.time_attention import time_interval_attention

CASES = {
    "several_tiles": {"B": 2, "H": 2, "L": 37, "D": 8, "T": 5, "dropout": 0.0},
    "dropout": {"B": 2, "H": 1, "L": 33, "D": 20, "T": 64, "dropout": 0.3},
    "one_event": {"B": 3, "H": 1, "L": 1, "D": 16, "T": 256, "dropout": 0.5},
}
NAMES = ["result", "query", "key", "value", "relation_keys", "relation_values"]


def compare() -> dict[str, dict[str, float]]:
    """Return {case: {tensor: largest difference to the plain form}}, of the result and of the gradients."""
    return {name: _differences(**case) for name, case in CASES.items()}


def _differences(B: int, H: int, L: int, D: int, T: int, dropout: float) -> dict[str, float]:
    draws = torch.Generator().manual_seed(L)
    tensors = [torch.randn(B, H, L, D, generator=draws, requires_grad=True) for _ in range(3)]
    tensors += [torch.randn(H, T + 1, D, generator=draws, requires_grad=True) for _ in range(2)]
    intervals = torch.randint(T + 1, (B, L, L), generator=draws)
    keys = torch.randint(-(2**62), 2**62, (B,), generator=draws)
    gradient = torch.randn(B, H, L, D, generator=draws)

    def outcome(attend: Callable[..., Tensor]) -> list[Tensor]:
        result = attend(*tensors[:3], dropout, Relations(intervals, *tensors[3:]), keys)
        return [result, *torch.autograd.grad(result, tensors, gradient)]

    pairs = zip(outcome(time_interval_attention), outcome(causal_attention), strict=True)
    return dict(zip(NAMES, [(own - plain).abs().max().item() for own, plain in pairs], strict=True))


def translate() -> dict[str, int]:
    """Compile the kernels for GPUs of compute capability 8.0 and return the bytes of shared memory each needs."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    target = GPUTarget("cuda", 80, 32)
    constants = {"T1": 257, "D": 64, "WIDTH": 64, "M": 64, "N": 64, "DROPOUT": True, "PRECISION": "tf32"}
    needed = {}
    for kernel in (kernels.mix_values, kernels.differentiate_queries, kernels.differentiate_keys):
        source = ASTSource(kernel, signature={p.name: _kind(p) for p in kernel.params}, constexprs=constants)
        compiled = triton.compile(source, target=target, options={"num_stages": 2})
        needed[kernel.__name__] = compiled.metadata.shared
    return needed


def _kind(parameter: "triton.runtime.jit.KernelParam") -> str:  # noqa: F821  # imported where it is needed
    sizes = {"heads", "length", "head_stride", "row_stride", "dropped"}
    exact = {"mass", "log_sums", "corrections", "grad_query", "grad_mass"}
    if parameter.is_constexpr:
        return "constexpr"
    if parameter.name in sizes:
        return "i32"
    return {"intervals": "*i16", "mask_keys": "*i64", "mask_bits": "*i64"}.get(
        parameter.name, "*fp32" if parameter.name in exact else "*bf16"
    )


if __name__ == "__main__":
    print(json.dumps({"compare": compare, "translate": translate}[sys.argv[1]]()))
