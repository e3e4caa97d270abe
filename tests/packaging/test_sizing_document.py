"""The space that jobs need, as stated in ``docs/sizing.md``, follows from the first table of that document.

``benchmarks/history_bench.py`` measures the first table.
"""

from __future__ import annotations

import re

import pytest

from backend.store.schema.partitions import Retention
from tests.packaging.wheel_environment import ROOT

_TEXT = (ROOT / "docs" / "sizing.md").read_text()
_MIB = {"MiB": 1, "GiB": 1024}


def _table(heading):
    """Return the rows of the table with this first line: for each number of subtasks, the other cells in MiB."""
    lines = _TEXT.partition(heading)[2].partition("\n\n")[0].splitlines()[2:]
    rows = {}
    for line in lines:
        first, *others = (cell.split() for cell in line.strip("|").split("|"))
        rows[int(first[0])] = [float(number) * _MIB.get(unit, 1) for number, unit in others]
    return rows


_DAYS = _table("a day after its arrays were removed |")


def test_the_space_of_a_job_is_that_of_its_whole_and_its_small_days():
    retention = Retention()
    whole, days = retention.arrays_max_age.days + 1, retention.max_age.days + 1
    tables = _table("| subtasks | 1 job, 7 days | 100 jobs, 7 days | 1000 jobs, 7 days |")
    least = _table("| subtasks | 100 jobs | 1000 jobs |")

    assert tables.keys() == least.keys() == _DAYS.keys()
    for subtasks, (*_, day_mib, small_mib) in _DAYS.items():
        job_mib = whole * day_mib + (days - whole) * small_mib
        assert tables[subtasks] == pytest.approx([job_mib, 100 * job_mib, 1000 * job_mib], rel=0.03), subtasks
        least_mib = day_mib + (days - 1) * small_mib
        assert least[subtasks] == pytest.approx([100 * least_mib, 1000 * least_mib], rel=0.03), subtasks


def test_what_the_default_limit_holds_is_as_stated():
    jobs, limit_mib = 100, Retention().max_size_bytes / 2**20
    of_12, of_40 = _DAYS[12], _DAYS[40]
    assert of_12[3] + 7 * of_12[4] <= limit_mib / jobs
    [stated] = re.findall(r"today and (\d\.\d)\s+days of 100 jobs of 40 subtasks", _TEXT)
    assert float(stated) == pytest.approx((limit_mib / jobs - of_40[3]) / of_40[4], abs=0.1)
