"""Makes Python's garbage collector run less often in the long-lived roles.

A role keeps hundreds of thousands of objects (cached findings, facts, parsed entries of histories). By default, Python
looks for unreachable cycles after each 700 new objects, and looks through all objects again and again while a cache
grows. This took a third of the CPU time of the first evaluation of the alert rules over 2000 jobs, and a twentieth of
that of the collector. Nearly all objects are freed by their reference counts, without the garbage collector.
"""

from __future__ import annotations

import gc

# While the collector looks through objects, no other thread runs, so a pass must be short. With 2,000 new objects, all
# tuples of a hundred values, it takes 4 ms; with 50,000 it took 100 ms, and every other request waited for it. A pass
# over all objects comes no sooner than after 50 million new ones.
_THRESHOLDS = (2_000, 10, 2_500)


def collect_garbage_less_often() -> None:
    """Exclude the objects that exist now from garbage collection, and set higher thresholds for new ones.

    A role calls this once, after it has imported its modules.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
