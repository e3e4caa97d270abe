"""Explore every interleaving of events in the small job of ``model_job.py`` (T-8): ``make model-check``.

Each state is explored once. If a state breaks an invariant, the report lists the steps that lead to this state.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from backend.runtime.core.elements import Alignment
from tests.simulators.model_ending import EndingWorld
from tests.simulators.model_handlers import ModelError
from tests.simulators.model_job import TIMEOUT_US, World


class TooManyStatesError(Exception):
    """Raised if there are more states than the limit. None of the states explored so far breaks an invariant."""


def explore(start: World, *, most: int = 10_000_000) -> tuple[int, int, set[str]]:
    """Explore every state that can follow from ``start``.

    Return (number of states, number of final states, results of checkpoints). A final state has no next step. A result
    is a text such as ``1 completed`` or ``2 failed``, which begins with the id of the checkpoint.

    Raises:
        ModelError: if a state breaks an invariant.
        TooManyStatesError: if there are more than ``most`` states.
    """
    seen = {hash(start.key())}
    waiting: list[tuple[World, tuple[str, ...]]] = [(start, ())]
    ends, endings = 0, set[str]()
    while waiting:
        world, path = waiting.pop()
        steps = list(world.steps())
        try:
            if not steps:
                world.check_end()
                ends += 1
                endings |= {f"{k} {how}" for k, how in world.ended.items()}
            for name, step in steps:
                following = world.copied()
                try:
                    step(following)
                    following.settle()
                except ModelError as error:
                    raise ModelError(str(error).rpartition("; by")[0], (*path, name)) from None
                found = hash(following.key())
                if found not in seen:
                    seen.add(found)
                    waiting.append((following, (*path, name)))
        except ModelError as error:
            raise ModelError(str(error).rpartition("; by")[0], error.path or path) from None
        if len(seen) > most:
            raise TooManyStatesError(f"more than {most} states")
    return len(seen), ends, endings


STARTS: dict[str, Callable[[], World]] = {
    "aligned": lambda: World(Alignment.ALIGNED, None, 2, expires=False),
    "aligned, the first expires": lambda: World(Alignment.ALIGNED, None, 1),
    "aligned, two at once": lambda: World(Alignment.ALIGNED, None, 1, most_pending=2, expires=False),
    "unaligned": lambda: World(Alignment.UNALIGNED, None, 2, expires=False),
    "unaligned, the first expires": lambda: World(Alignment.UNALIGNED, None, 1),
    "capped, waits": lambda: World(Alignment.UNALIGNED, None, 1, cap=1, expires=False),
    "capped, the first expires": lambda: World(Alignment.UNALIGNED, None, 1, cap=1, stalls=True),
    "capped, waits, two records": lambda: World(Alignment.UNALIGNED, None, 2, cap=1, expires=False),
    "capped, overtakes in part": lambda: World(Alignment.UNALIGNED, None, 2, cap=1, on_cap="partial", expires=False),
    "capped, declines": lambda: World(Alignment.UNALIGNED, None, 1, cap=1, on_cap="decline", expires=False),
    "at least once": lambda: World(Alignment.AT_LEAST_ONCE, None, 2, expires=False),
    "at least once, the first expires": lambda: World(Alignment.AT_LEAST_ONCE, None, 1),
    "at least once, two at once": lambda: World(Alignment.AT_LEAST_ONCE, None, 1, most_pending=2, expires=False),
    "unaligned on the last barrier": lambda: World(Alignment.UNALIGNED_LAST, None, 2, expires=False),
    "unaligned on the last barrier, the first expires": lambda: World(Alignment.UNALIGNED_LAST, None, 1),
    "Chandy-Lamport": lambda: World(Alignment.MARKER, None, 1, expires=False),
    "Chandy-Lamport, the first expires": lambda: World(Alignment.MARKER, None, 1),
    "Chandy-Lamport, every task triggered": lambda: World(
        Alignment.MARKER, None, 1, checkpoints=1, expires=False, triggers_all=True
    ),
    "Chandy-Lamport, overtaking": lambda: World(Alignment.OVERTAKING_MARKER, None, 1, expires=False),
    "Chandy-Lamport, blocking": lambda: World(Alignment.BLOCKING_MARKER, None, 1, expires=False),
    "aligned, the sources end": lambda: EndingWorld(Alignment.ALIGNED, 1),
    "aligned, the sources end, two at any time": lambda: EndingWorld(Alignment.ALIGNED, 1, checkpoints=2),
    "unaligned, the sources end": lambda: EndingWorld(Alignment.UNALIGNED, 1),
    "Chandy-Lamport, the sources end": lambda: EndingWorld(Alignment.MARKER, 1),
    "unaligned on the last barrier, the sources end": lambda: EndingWorld(Alignment.UNALIGNED_LAST, 1),
    "aligned with timeout": lambda: World(Alignment.ALIGNED, TIMEOUT_US, 1, expires=False),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Explore the job under every protocol, or under those that ``--only`` names.

    If a state breaks an invariant, print the steps to it and return 1. Otherwise, return 0.
    """
    parser = argparse.ArgumentParser(prog="make model-check", description="every interleaving of a small job (T-8)")
    parser.add_argument("--only", choices=[*STARTS], action="append")
    parser.add_argument("--most", type=int, default=1_000_000, help="give up after this number of states")
    options = parser.parse_args(arguments)
    for name in options.only or STARTS:
        try:
            states, ends, endings = explore(STARTS[name](), most=options.most)
        except TooManyStatesError as error:
            print(f"{name}: {error}, none of which breaks an invariant", flush=True)
            continue
        except ModelError as error:
            print(f"{name}: {error}", flush=True)
            return 1
        print(f"{name}: {states} states, {ends} without a next one, checkpoints {sorted(endings)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
