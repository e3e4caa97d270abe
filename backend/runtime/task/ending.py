"""Decides when a subtask may close: after its data has ended, and after its final checkpoint (FN-22 to FN-24).

This is a pure state machine. Its methods record events, and ``may_close`` states whether the subtask may close.

Invariant (FN-32): a subtask that waits for a final checkpoint closes only after a checkpoint that contains the effect
of all its records is complete. A subtask that stops with a savepoint closes only after that savepoint.
"""

from __future__ import annotations


class Ending:
    """What is known about the end of one attempt of one subtask.

    ``waits_for_final``: whether the subtask waits for a checkpoint after the end of its data. If not, its last
    transactions may stay uncommitted (FN-31).
    """

    def __init__(self, *, has_input: bool, waits_for_final: bool) -> None:
        self._waits_for_final = waits_for_final
        self._are_inputs_ended = not has_input
        self._savepoint_id: int | None = None
        self._final_id_min: int | None = None
        self.is_at_end = False
        """Whether the subtask has sent the end of its data. Its operators have finished then (FN-12)."""
        self.is_processed = False
        """Whether every receiver has processed all data up to its end (FN-23)."""
        self.is_final_complete = False
        """Whether the final checkpoint, or the savepoint that stops the job, is complete (FN-22)."""

    def ended_data(self) -> None:
        """Record that the subtask has sent the end of its data."""
        self.is_at_end = True

    def ended_inputs(self) -> None:
        """Record that every input channel has ended. Nothing more can arrive."""
        self._are_inputs_ended = True

    def processed(self) -> None:
        """Record that every receiver has processed all data."""
        self.is_processed = True

    def stops_with(self, checkpoint_id: int) -> None:
        """Record that this savepoint stops the job. From now on, only its completion lets the subtask close."""
        self._savepoint_id = checkpoint_id

    def snapshotting(self, checkpoint_id: int) -> None:
        """Record that the subtask takes a snapshot. The first one after the end of the data is the final one."""
        if self.is_at_end and self._final_id_min is None:
            self._final_id_min = checkpoint_id

    def completed(self, checkpoint_id: int) -> None:
        """Record that a checkpoint is complete. A checkpoint newer than the final one counts as final too (FN-22)."""
        if self._savepoint_id is not None:
            self.is_final_complete |= checkpoint_id == self._savepoint_id
        elif self._final_id_min is not None and checkpoint_id >= self._final_id_min:
            self.is_final_complete = True

    @property
    def is_stopping(self) -> bool:
        """Whether a savepoint that stops the job has reached the subtask."""
        return self._savepoint_id is not None

    @property
    def may_close(self) -> bool:
        """Whether the subtask has nothing more to wait for."""
        if not self.is_at_end or not self._are_inputs_ended:
            return False
        if self._savepoint_id is not None and not self.is_final_complete:
            return False
        return not self._waits_for_final or (self.is_final_complete and self.is_processed)
