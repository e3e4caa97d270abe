"""Converts a checkpoint's channel state into spans, for runs that track only sizes of records (``network.spans``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from backend.domain.errors import ProtocolViolationError
from backend.runtime.measure.measures import ChannelState, SubtaskSnapshot, TaskKey
from backend.runtime.network.buffers import Data
from backend.runtime.network.channel import ByteDecoder, ChannelKey
from backend.runtime.network.spans import Span


def sized(snapshots: Mapping[TaskKey, SubtaskSnapshot]) -> dict[TaskKey, SubtaskSnapshot]:
    """Return the snapshots with their in-flight data replaced by spans of the same sizes."""
    chunks: dict[ChannelKey, list[Data]] = {}
    # On each channel, the receiver's persisted bytes come before the sender's (RC-3). One record may be partly in both,
    # so the input is converted first and its incomplete record is completed from the output.
    for snapshot in snapshots.values():
        for key, of_input in snapshot.channels.inputs.items():
            chunks[key] = list(of_input)
    for snapshot in snapshots.values():
        for key, of_output in snapshot.channels.outputs.items():
            chunks.setdefault(key, []).extend(of_output)
    spans = {key: _spans(of_channel) for key, of_channel in chunks.items()}
    return {task: replace(snapshot, channels=_sized(snapshot.channels, spans)) for task, snapshot in snapshots.items()}


def _sized(channels: ChannelState, spans: Mapping[ChannelKey, list[Span]]) -> ChannelState:
    inputs: dict[ChannelKey, list[Data]] = {
        key: list(spans[key][: len(chunks)]) for key, chunks in channels.inputs.items()
    }
    outputs: dict[ChannelKey, list[Data]] = {
        key: list(spans[key][len(spans[key]) - len(chunks) :]) for key, chunks in channels.outputs.items()
    }
    return ChannelState(inputs, outputs)


def _spans(chunks: Iterable[Data]) -> list[Span]:
    parts = [len(chunk) for chunk in chunks]
    decoder = ByteDecoder()
    elements = decoder.take(b"".join(map(bytes, chunks)), [])[::-1]
    if decoder.unconsumed_bytes([]):
        raise ProtocolViolationError("in-flight data ends in the middle of a record", rule="RC-3")
    whole = Span(elements, 0, sum(parts), behind=0)
    ends = [sum(parts[: n + 1]) for n in range(len(parts))]
    return [whole.part(end - size, end) for size, end in zip(parts, ends, strict=True)]
