"""Limits how long OpenMP threads spin before they sleep; set before torch is imported.

Threads of a parallel region wait at its end. OpenMP's libraries let them spin first: 300,000 rounds, about 3 ms, in
GNU's libgomp (env.c), which PyTorch's Linux wheels contain, and 200 ms in LLVM's libomp and Intel's libiomp, which the
wheels for macOS and Windows and conda's builds contain. A training step has hundreds of short regions. Where another
program uses one of the cores, a spinning thread occupies the core that the awaited thread needs, and training is up to
30 times slower. Each library ignores the variable of the other.
"""

from collections.abc import MutableMapping

WAITS = {
    "GOMP_SPINCOUNT": "10000",  # rounds, about 0.1 ms: longer than the gaps between the regions of a step
    "KMP_BLOCKTIME": "1",  # ms, the shortest besides 0 in every version; 0 sleeps at once
}
"""Limits, by the variable that each library reads."""

POLICY = "OMP_WAIT_POLICY"
"""Variable for all libraries, which a user may set."""


def bound_waits(environ: MutableMapping[str, str]) -> None:
    """Limit spinning in this process and its children, unless the user has set how threads wait."""
    if not any(environ.get(name) for name in (POLICY, *WAITS)):
        environ.update(WAITS)
