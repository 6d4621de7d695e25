"""Calls a function in its own process: `python -m tests.support.device.call_in_process MODULE FUNCTION ARGUMENTS FILE`.

A broken CUDA context, an exhausted memory and a kernel that hangs end with the process. ARGUMENTS is a JSON list;
the function's result is written as JSON into FILE.
"""

import importlib
import json
import sys
from pathlib import Path


def main() -> None:
    module, function, arguments, answer = sys.argv[1:]
    result = getattr(importlib.import_module(module), function)(*json.loads(arguments))
    Path(answer).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
