"""Tests of the file of a saved checkpoint: it comes back as it was, and no content of a file raises anything else than
a refusal.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from backend.domain.errors import CorruptCheckpointError, DomainError, InvalidInputError
from backend.runtime.core.prng import Stream
from backend.runtime.engine.handover import newest_of, save
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.engine.simulate import simulate
from backend.runtime.snapshot.saved import SavedCheckpoint
from backend.runtime.snapshot.saved_file import read_saved, write_saved
from tests.support.runtime_jobs import small_job

_INCREMENTAL: dict[str, object] = {
    "execution.checkpointing.incremental": True,
    "runtime.state-backend": "changelog",
    "execution.checkpointing.file-merging.enabled": True,
    "state.storage.fs.memory-threshold": "1 b",
}


def _spec(**options: Any) -> JobSpec:
    return small_job("unaligned", seed=3, config={k: v for k, v in _INCREMENTAL.items() if k in _known()}, **options)


def _known() -> frozenset[str]:
    from backend.runtime.job.config import KEYS

    return frozenset(KEYS)


@pytest.fixture(scope="module")
def saved() -> SavedCheckpoint:
    engine = JobEngine(_spec())
    engine.run_until(330_000)
    newest = newest_of(engine)
    assert newest is not None
    found = save(engine, newest)
    document = json.loads(found.stored.metadata)
    subtasks = [s for v in document["vertices"] for s in v["subtasks"]]
    assert any("segments" in s["outputs"] for s in subtasks), "in-flight data in shared files"
    assert any("shared" in o["keyed"] for s in subtasks for o in s["operators"]), "keyed state in shared files"
    return replace(
        found, handover=replace(found.handover, outside=replace(found.handover.outside, table={3: -1, 7: 2}))
    )


def test_a_saved_checkpoint_comes_back_as_it_was(saved: SavedCheckpoint) -> None:
    content = write_saved(saved)
    assert read_saved(content, "x") == saved
    assert write_saved(read_saved(content, "x")) == content


def test_a_single_damaged_or_missing_byte_is_found(saved: SavedCheckpoint) -> None:
    content = write_saved(saved)
    draws = Stream(1, "damage")
    for _ in range(100):
        at = draws.below(len(content))
        damaged = content[:at] + bytes([content[at] ^ 1 << draws.below(8)]) + content[at + 1 :]
        for given in (damaged, content[:at]):
            with pytest.raises((CorruptCheckpointError, InvalidInputError)):
                read_saved(given, "x")


def test_a_foreign_file_is_refused_and_never_run() -> None:
    for foreign in (b"", b"[job]", pickle.dumps({"a": print}), b"\x00" * 4096, b"barrierscope", b"PK\x03\x04"):
        with pytest.raises((CorruptCheckpointError, InvalidInputError)):
            read_saved(foreign, "x")


@pytest.mark.parametrize("version", [0, 2])
def test_another_format_is_refused_by_its_number(saved: SavedCheckpoint, version: int) -> None:
    content = write_saved(saved).replace(b"barrierscope-checkpoint 1 ", b"barrierscope-checkpoint %d " % version, 1)
    with pytest.raises(InvalidInputError, match=f"x has format {version}, and this version .* reads format 1"):
        read_saved(content, "x")


def _signed(saved: SavedCheckpoint, document: dict[str, Any], manifest: dict[str, Any] | None = None) -> bytes:
    """Return the file with another metadata document and manifest, with right lengths, checksums and hash."""
    body = json.dumps({k: v for k, v in document.items() if k != "crc"}).encode()[1:]
    metadata = b'{"crc":"%08x",' % zlib.crc32(body) + body
    content = write_saved(replace(saved, stored=replace(saved.stored, metadata=metadata)))
    _, _, rest = content.partition(b"\n")
    if manifest is not None:
        line, _, data = rest.partition(b"\n")
        rest = json.dumps(json.loads(line) | manifest).encode() + b"\n" + data
    digest = hashlib.blake2b(rest, digest_size=32).hexdigest().encode()
    return b"barrierscope-checkpoint 1 %b %d\n" % (digest, len(rest)) + rest


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value of a document."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield from _places(each, (*path, key))


_STRANGE: tuple[Any, ...] = (
    *(None, -1, 0, 1, 7, 2**31, 2**63 - 1, 2**63, 10**30, 1.5, True, "", "x", "\u2603", "../../etc", [], {}),
    *([0], [[0, 0]], [[0, 1 << 40]], {"x": 1}, [None], "A" * 1000),
)


def _forged(document: dict[str, Any], draws: Stream) -> None:
    """Replace, remove or repeat one value of a document."""
    places = [path for path in _places(document) if path]
    *where, last = places[draws.below(len(places))]
    holder = document
    for key in where:
        holder = holder[key]
    way = draws.below(6)
    if way == 0:
        del holder[last]
    elif way == 1 and isinstance(holder, list):
        holder.append(holder[last])
    elif way == 2 and type(holder[last]) is int:
        holder[last] += draws.between(1, 3) - 2
    else:
        holder[last] = _STRANGE[draws.below(len(_STRANGE))]  # type: ignore[call-overload]


def test_a_forged_document_with_right_checksums_is_refused_or_runs(saved: SavedCheckpoint) -> None:
    """No forged file ends in another error, however far a job that continues from it comes."""
    spec, draws, refused = _spec(), Stream(2, "forged"), 0
    for _ in range(150):
        document = json.loads(saved.stored.metadata)
        _forged(document, draws)
        try:
            simulate(spec, duration_us=100_000, begun_from=read_saved(_signed(saved, document), "x"))
        except DomainError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize(
    "forged",
    [
        {"job": 5},
        {"seed": -1},
        {"at_us": -1},
        {"at_us": 10**16},
        {"files": []},
        {"files": [["x", -1]]},
        {"metadata": 10**12},
        {"outside": {}},
        {"more": 1},
    ],
)
def test_a_forged_manifest_is_refused(saved: SavedCheckpoint, forged: dict[str, Any]) -> None:
    with pytest.raises(CorruptCheckpointError, match="manifest"):
        read_saved(_signed(saved, json.loads(saved.stored.metadata), forged), "x")


def test_a_file_with_an_unknown_alignment_is_refused_when_it_is_read(saved: SavedCheckpoint) -> None:
    document = json.loads(saved.stored.metadata) | {"alignment": "no such"}

    with pytest.raises(CorruptCheckpointError):
        read_saved(_signed(saved, document), "x")


def test_the_external_system_must_know_the_transactions_of_the_checkpoint(saved: SavedCheckpoint) -> None:
    outside = saved.handover.outside
    assert outside.committed or outside.prepared
    for state in (
        replace(outside, committed=(), prepared=()),
        replace(outside, committed=(*outside.committed, "keyed/0/0/99")),
        replace(outside, committed=(*outside.committed, "no transaction")),
    ):
        with pytest.raises(CorruptCheckpointError, match=r"manifest\.outside"):
            read_saved(write_saved(replace(saved, handover=replace(saved.handover, outside=state))), "x")
