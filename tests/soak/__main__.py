"""Kill short trainings of all families at random and print what became of them."""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.soak.campaign import Campaign
from tests.soak.trainings import Training, trainings
from tests.support.ranks.team import ForkServer

KILLS_OF_A_RUN = 3


def main() -> int:
    """Run the soak; return 1 if a run hung, differed or could not be resumed."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="kills in all, spread over the trainings")
    parser.add_argument("--minutes", type=float, default=600, help="begin no training after this time")
    parser.add_argument("--seed", type=int, help="seed of all random choices; it is printed, so a soak can be repeated")
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of the trainings to run")
    options = parser.parse_args()
    seed = random.randrange(2**31) if options.seed is None else options.seed
    chosen = [
        training for training in trainings() if not options.only or any(part in training.name for part in options.only)
    ]
    print(f"seed {seed}, {len(chosen)} trainings", flush=True)
    print(f"{'training':34} {'kills':>6} {'hangs':>6} {'differing steps':>16} {'faults':>7} {'minutes':>8}", flush=True)
    signals: Counter[str] = Counter()
    totals, began, fork_server = [0, 0, 0, 0], time.monotonic(), ForkServer()
    try:
        for number, training in enumerate(chosen):
            if time.monotonic() - began > options.minutes * 60:
                print(f"time is over: {len(chosen) - number} trainings were not run")
                break
            share = (options.kills * (number + 1)) // len(chosen) - (options.kills * number) // len(chosen)
            counts = _soak(fork_server, training, share, random.Random(f"{seed}-{training.name}"), signals)
            totals = [total + count for total, count in zip(totals, counts, strict=True)]
    finally:
        fork_server.close()
    minutes = (time.monotonic() - began) / 60
    print(f"{'all':34} {totals[0]:6} {totals[1]:6} {totals[2]:16} {totals[3]:7} {minutes:8.1f}")
    print("signals: " + ", ".join(f"{name} {count}" for name, count in signals.most_common()))
    return int(any(totals[1:]))


def _soak(
    fork_server: ForkServer, training: Training, kills: int, random_source: random.Random, signals: Counter[str]
) -> list[int]:
    """Kill runs of one training until it has had its share; return kills, hangs, differing steps and faults."""
    began, counts = time.monotonic(), [0, 0, 0, 0]
    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        campaign = Campaign(fork_server, training, Path(temporary))
        number = 0
        while counts[0] < kills:
            result = campaign.run(f"run-{number}", min(KILLS_OF_A_RUN, kills - counts[0]), random_source)
            signals.update(kill.signal for kill in result.kills)
            for fault in result.faults:
                print(f"--- {training.name}, run {number}, {result.kills}\n{fault}", file=sys.stderr, flush=True)
            found = (len(result.kills), result.hangs, result.differing, len(result.faults))
            counts = [count + more for count, more in zip(counts, found, strict=True)]
            number += 1
    minutes = (time.monotonic() - began) / 60
    print(f"{training.name:34} {counts[0]:6} {counts[1]:6} {counts[2]:16} {counts[3]:7} {minutes:8.1f}", flush=True)
    return counts


if __name__ == "__main__":
    sys.exit(main())
