"""Limits how long OpenMP threads spin before they sleep. Call it before torch is imported.

At the end of a parallel region, threads wait for the slowest thread. OpenMP's libraries first spin, i.e. keep the core
busy, and then sleep. GNU's libgomp (env.c), in PyTorch's wheels for Linux, spins 300,000 rounds, about 3 ms. LLVM's
libomp and Intel's libiomp, in the wheels for macOS and Windows and in conda's builds, spin 200 ms.

A training step has hundreds of short regions. If another program uses one of the cores, a spinning thread occupies the
core that the slowest thread needs, and training is up to 30 times slower. Each library ignores the other's variable.
"""

from collections.abc import MutableMapping

WAITS = {
    "GOMP_SPINCOUNT": "10000",  # rounds, about 0.1 ms: longer than the gaps between the regions of a step
    "KMP_BLOCKTIME": "1",  # ms, the shortest besides 0 in every version; 0 sleeps at once
}
"""Limits, by the variable that each library reads."""

POLICY = "OMP_WAIT_POLICY"
"""Variable for all libraries, which a user may set."""


def limit_thread_spin(environ: MutableMapping[str, str]) -> None:
    """Limit spinning in this process and its children, unless the user has set how threads wait."""
    if not any(environ.get(name) for name in (POLICY, *WAITS)):
        environ.update(WAITS)
