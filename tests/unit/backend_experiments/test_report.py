"""Tests of the output of an experiment: the table, the page and the rows."""

from __future__ import annotations

import csv
import io
import json
import re

from backend.experiments import report
from backend.experiments.model import Experiment, Ordering, Row, below

_EVIL = "</script><b>"
_ROWS = [
    Row("duration", variant, setting, seed, value + seed, "ms")
    for variant, value in (("aligned", 500.0), (_EVIL, 5.0))
    for setting in ("slow", "fast")
    for seed in range(3)
]
_TOY = Experiment(
    "toy", "Toy & co", "A toy.", ("a",), lambda *_: [],
    (
        Ordering("It is shorter.", "a paper", below("duration", "slow", _EVIL, "aligned"), says="<it> is shorter"),
        Ordering("It is longer.", "a blog", below("duration", "slow", "aligned", _EVIL), "The store is slow."),
    ),
)  # fmt: skip


def test_the_table_has_medians_intervals_and_what_came_out():
    lines = list(report.table(_TOY, _ROWS))

    assert lines[0] == "duration, slow (ms)"
    assert lines[1].split() == ["aligned", "501", "500", "to", "502"]
    assert "  came out: It is shorter. [a paper]" in lines
    assert lines[lines.index("  came out: It is shorter. [a paper]") + 1] == '    the source: "<it> is shorter"'
    assert sum("the source" in line for line in lines) == 1
    assert "  did not come out: It is longer. [a blog]" in lines
    assert lines[-1].endswith("The store is slow.")


def test_the_page_needs_no_other_file_and_no_name_ends_its_script():
    page = report.page(_TOY, _ROWS, seeds=3, command="run it", code="abc", script="let Plotly = '</script>';")

    assert not re.search(r"(src|href)=", page)
    assert page.count("</script>") == 3
    assert "Toy &amp; co" in page
    assert "<cite>a paper: &quot;&lt;it&gt; is shorter&quot;</cite>" in page
    assert "<b>" + "did not come out" in page
    data = json.loads(re.search(r'id="figures">(.*)</script>', page)[1])
    assert [trace["name"] for trace in data[0]["data"]] == ["aligned", _EVIL]
    assert data[0]["data"][0]["y"] == [501, 501]
    assert data[0]["data"][0]["error_y"]["array"] == [1, 1]
    assert data[0]["layout"]["yaxis"]["type"] == "log"


def test_every_row_is_written():
    file = io.BytesIO()
    report.write_csv(_ROWS, file)
    rows = list(csv.DictReader(io.StringIO(file.getvalue().decode())))

    assert len(rows) == len(_ROWS)
    assert rows[0] == {
        "measure": "duration", "variant": "aligned", "setting": "slow", "seed": "0", "value": "500.0", "unit": "ms"
    }  # fmt: skip


def test_parquet_has_the_same_rows():
    from pyarrow import parquet

    file = io.BytesIO()
    report.write_parquet(_ROWS, file)
    assert parquet.read_table(file).to_pylist()[5] == {
        "measure": "duration", "variant": "aligned", "setting": "fast", "seed": 2, "value": 502.0, "unit": "ms"
    }  # fmt: skip
