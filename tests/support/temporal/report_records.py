"""Records of reports about time series."""

import numpy as np

from datamodules.temporal.timelines.reports.sample_view import SampleView


def shown(number=0, **changes) -> SampleView:
    """A sample of two channels and four steps."""
    plain = {
        "sample": number,
        "task": "trend",
        "channels": ("cpu_cores", "gpu_mem_gb"),
        "units": (" cores", " GB"),
        "capacities": (64.0, 80.0),
        "step_ms": 100,
        "values": np.array([[0.5, 0.1], [0.25, 0.0], [0.75, 0.3], [1.0, 0.4]], np.float32),
        "present": np.array([[True, True], [True, False], [True, True], [True, True]]),
        "question": "trend of cpu?",
        "truth": "cpu is rising from 50% to 100%.",
    }
    return SampleView(**(plain | changes))
