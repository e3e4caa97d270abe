"""The limits with which the rules of the diagnosis compare measured values.

``docs/reference/verdict-rules.md`` lists the same values, and a test compares the two. They come from recordings
of Flink 1.20 under known load. The noise was tens to hundreds of milliseconds, so effects under half a second prove
nothing.
"""

from __future__ import annotations

from typing import Final

CHECKPOINTS_MAX: Final = 10
"""How many of the newest terminal checkpoints are judged: the default length of Flink's history."""

HEALTH_MIN_COUNT: Final = 3
"""With fewer terminal checkpoints than this, health is not judged."""

FAILED_MIN_RATIO: Final = 0.2
"""A job is failing if at least this share of its checkpoints failed. One failure in ten is a single incident."""

FAILED_IN_A_ROW_COUNT: Final = 2
"""A job is failing if this many of the newest checkpoints failed in a row."""

SLOW_IN_A_ROW_COUNT: Final = 3
"""A job is slow if this many of the newest checkpoints were slow in a row.

The median of ten checkpoints would show a new problem only later.
"""

STRUCK_WINDOW_COUNT: Final = 20
"""How many of the newest terminal checkpoints are searched for a cause that strikes only some of them."""

STRUCK_WINDOW_MIN_COUNT: Final = 5
"""With fewer terminal checkpoints than this, a cause is not called intermittent."""

STRUCK_MIN_COUNT: Final = 2
"""A cause is intermittent if it struck at least this many times, with quick checkpoints in between."""

STRUCK_MIN_RATIO: Final = 0.2
"""A cause is intermittent if it struck at least this share of the checkpoints."""

STRUCK_TIMES: Final = 5.0
"""A checkpoint is struck if it takes at least this many times as long as the quick ones of the job.

Under an even load, the longest of twenty checkpoints of a job takes two to three times as long as a quick one.
"""

STRUCK_SLOW_TIMES: Final = 2.0
"""A checkpoint that is slow by the job's settings is struck from this many times the quick ones on."""

QUICK_QUANTILE: Final = 0.25
"""The quick checkpoints of a job take no longer than this quantile of its durations.

A cause may strike up to two thirds of the checkpoints, so the median may itself be struck.
"""

STRUCK_READING_S: Final = 6
"""A reading up to this long after the end of a struck checkpoint shows the job as it was during the checkpoint."""

CONDITION_TIMES: Final = 1.5
"""A value explains when a cause strikes if it differs by this factor, without overlap, when the cause strikes."""

NEIGHBOURS_MAX: Final = 12
"""One checkpoint is compared with at most this many before it."""

NEIGHBOURS_MIN_COUNT: Final = 4
"""With fewer quick checkpoints before it, a checkpoint is not compared with them."""

SHARE_DIFFERENCE_MIN: Final = 0.25
"""A share of time or of records was different near a checkpoint if it is larger by this much than near its neighbours.

The gauges of Flink are averages over seconds, and vary by a tenth under an even load.
"""

RESTARTS_MIN_COUNT: Final = 3
"""A job restarts again and again if it restarted at least this many times within ``RESTARTS_WINDOW_S``."""

RESTARTS_WINDOW_S: Final = 600
"""Restarts that are more than this many seconds older than the newest one are left out."""

POD_BEFORE_S: Final = 70
"""The end of a pod explains an exception that follows within this time: ``heartbeat.timeout`` (50 s), and some more."""

POD_AFTER_S: Final = 10
"""The clocks of Kubernetes and of the engine may differ so much."""

RESTARTS_OF_TRANSACTIONS_MIN_COUNT: Final = 2
"""Two restarts because a transaction had ended are a pattern: it is committed with every checkpoint."""

RESTARTS_OF_TRANSACTIONS_WINDOW_S: Final = 86_400
"""Such restarts belong together within a day: Kafka's default timeout of a transaction is up to an hour."""

LOST_ROWS_WINDOW_S: Final = 3600
"""The seconds for which a loss of output counts; at least three times as long as a transaction stays open."""

RESTARTS_OVER_TIMES: Final = 4.0
"""Restarts are over if the job has since run for this many times their usual distance."""

NAMED_MIN_MS: Final = 100
"""If nothing suffers, the verdict says what takes the time of checkpoints that take at least this long."""

NAMED_INTERVAL_RATIO: Final = 0.1
"""If nothing suffers, a snapshot part that takes at least this share of the interval is a verdict of its own.

It must also take half of the checkpoints' time. Checkpoints are slow if they take half of the interval. A part that
takes a tenth of it is far from that, but it is what to change if checkpoints should be quicker.
"""

SECOND_MIN_RATIO: Final = 0.2
"""A further cause is named if it takes at least this share of the checkpoints' time."""

ACK_WAIT_MIN_RATIO: Final = 0.75
"""The coordinator is late if at least this share of the subtasks waits for it.

If fewer wait, the delay is on the way from their machines, or in the subtasks themselves.
"""

STALL_RATE_RATIO: Final = 0.5
"""A subtask stands still while a barrier waits at it if it then reads at most this share of its usual records.

A subtask with a queue reads as many records as it can while a barrier waits in this queue.
"""

STALL_TIME_RATIO: Final = 0.5
"""A subtask stands still if it reads no record at all in this share of the time in which a barrier waits at it."""

PIECE_MIN_MS: Final = 1000
"""A record that takes less is no piece of work that holds the thread of a task: a barrier then waits for many records.

It must also take as long as makes the checkpoints of the job slow, or ``SLOW_TRAVEL_MS`` if that is less.
"""

QUEUED_MIN_COUNT: Final = 10
"""A barrier that waits for this many records waits in a queue, also if each of them takes seconds.

A barrier that overtakes the queue then waits for a tenth of the time: for the record in work.
"""

HOST_COST_TIMES: Final = 1.5
"""A host is slow if its subtasks need at least this many times as long for a record as those of other hosts."""

SLOW_MIN_MS: Final = 1_000
"""A shorter duration is never slow, because it is within the noise of a loaded machine."""

SLOW_INTERVAL_RATIO: Final = 0.5
"""A checkpoint is slow if it takes this share of the interval. At the whole interval, checkpoints run back to back."""

SLOW_TIMEOUT_RATIO: Final = 1 / 3
"""A checkpoint is slow if it takes this share of the timeout. A timeout should be three times the duration (R-TO-1)."""

SLOW_TRAVEL_MS: Final = 10_000
"""A checkpoint is slow if its barrier alone travels this long: records then wait in the queues just as long."""

EXPIRY_SLACK_MS: Final = 2_000
"""If a checkpoint is open for longer than its timeout plus this time, its end was not read or the clocks differ."""

BUSY_MIN_RATIO: Final = 0.8
"""A subtask is full if its busy ratio is at least this.

Real subtasks at their limit showed 0.95 to 1.0; averages are slightly lower.
"""

BACKPRESSURED_OK_RATIO: Final = 0.1
"""Up to this ratio, a subtask is not back-pressured. Flink has the same border between OK and LOW."""

BACKPRESSURED_MIN_RATIO: Final = 0.2
"""The vertex upstream of a suspect must be back-pressured for at least this share of the time."""

BACKPRESSURED_HIGH_RATIO: Final = 0.5
"""From this ratio on, a subtask is certainly back-pressured. Flink has the same border between LOW and HIGH."""

RELIEVED_BUSY_MIN_RATIO: Final = 0.9
"""A second cause shows as a subtask that is busy for at least this share of the time outside a long sync part."""

RELIEVED_SPENT_MIN_RATIO: Final = 0.4
"""Such a subtask also processes records for at least this share of the whole time.

With less, it would keep up with more than twice its input once it gets the time of the sync part as well.
"""

SIBLINGS_BUSY_RATIO: Final = 0.6
"""If the busy ratio of the siblings of full subtasks is at least this, the whole vertex is near its limit.

The siblings of one slow subtask are idle or wait.
"""

UNEVEN_MIN_RATIO: Final = 2.0
"""A full subtask that read at least this many times the records of its siblings has key skew.

Then it is a straggler only if the time per record differs by this factor more than the records do. Records are
counted. Busy times are samples over a few seconds, which miss a sibling that works in bursts because the sources wait
for the full subtask.
"""

PRESSURE_WINDOW_S: Final = 120
"""Readings that are more than this many seconds older than the newest reading are left out."""

RATE_WINDOW_S: Final = 30
"""Records are counted over at least this time, or else since the start of the task.

It is half of the 60 seconds over which an engine averages busy times. In a window of a few seconds, siblings seem to
get no records while an alignment blocks their channels.
"""

CHECKPOINT_WINDOW_S: Final = 60
"""Readings up to this long before a checkpoint's trigger or after its end belong to the checkpoint."""

PHASE_MIN_RATIO: Final = 0.5
"""A phase is the cause if it takes at least this share of a checkpoint."""

PHASE_MIN_MS: Final = 500
"""A shorter sync part, async part or source delay is within the noise."""

STANDOUT_RATIO: Final = 0.5
"""The subtask with the largest value is named, and with it every subtask that has at least this share of that value."""

GRADED_RATIO: Final = 0.25
"""If siblings have at least this share of the longest snapshot part, the whole vertex is slow.

A store serves its writers one after the other, so the parts of its writers differ.
"""

HOP_MIN_MS: Final = 500
"""If a hop of the barrier is shorter than this, there was no real queue in front of the subtask."""

ROUNDING_MS: Final = 4
"""The largest rounding error of a subtask: four phases are each truncated to whole milliseconds.

The sum of the phases may differ from the acknowledgement by this much.
"""

CONFIDENT_COUNT: Final = 5
"""High confidence needs this many checkpoints (AD-3)."""

PERSISTED_MIN_BYTES: Final = 16_384
"""If each subtask persists this much in-flight data, there are queues, so something is back-pressured.

The value is half of a default buffer.
"""

PROGRESS_SLOW_RATIO: Final = 1.5
"""An open checkpoint is slow if it takes longer than this multiple of the time that completed checkpoints took.

That time is the longest one that a completed checkpoint needed for the same progress.
"""

PROGRESS_STUCK_RATIO: Final = 3.0
"""An open checkpoint is stuck if no acknowledgement has arrived for this multiple of the longest pause.

The longest pause is the longest time without an acknowledgement in the completed checkpoints.
"""

PROGRESS_MIN_MS: Final = 1_000
"""No open checkpoint is slow or stuck before this time."""

FINISH_MIN_COUNT: Final = 5
"""The end of an open checkpoint is predicted from at least this many earlier checkpoints."""

FINISH_COUNT: Final = 20
"""The end of an open checkpoint is predicted from at most this many earlier checkpoints, the newest."""

FINISH_INTERVAL_RATIO: Final = 0.9
"""The predicted interval of the end leaves out the earliest and the latest half of the rest."""

FINISH_YOUNG_TAIL_RATIO: Final = 0.06
"""Each side of the interval leaves out this share of the predicted cases, up to 2 % of the timeout.

The tails were chosen so that the interval holds as often as stated in each band of ages, on 138 drawn jobs. What each
side of the interval is stated to leave out is half of the rest of ``FINISH_INTERVAL_RATIO``, at all ages.
"""

FINISH_EARLY_TAIL_RATIO: Final = 0.03
"""The same after 2 % to 25 % of the timeout: the earlier checkpoints alone would promise too much at these ages."""

FINISH_MIDDLE_TAIL_RATIO: Final = 0.04
"""The same after 25 % to 50 % of the timeout. From there on, and without a timeout, nothing is corrected."""

FINISH_FADE_RATIO: Final = 0.95
"""The weight of an earlier checkpoint in the prediction of the end, relative to the one after it."""

FINISH_LIKENESS_LOG: Final = 0.7
"""An earlier checkpoint whose progress was twice as fast (e to this power) has 0.6 of the weight of an alike one."""

FINISH_DAMPING_RATIO: Final = 0.1
"""This share of an earlier checkpoint's length is added to times before their ratio is taken."""

FINISH_SPREAD_POWER: Final = 30.0
"""The end that follows from an earlier checkpoint is spread by a log-logistic distribution of this power: by 10 %."""

FINISH_UNLIKE_WEIGHT: Final = 0.7
"""The weight of the case that the open checkpoint is unlike all earlier ones. The newest earlier one has weight 1."""

FINISH_TAIL_POWER: Final = 0.7
"""Beyond all earlier checkpoints, the share that is still open falls with this power of the time."""

FINISH_WARN_RATIO: Final = 0.92
"""A timeout is warned of from this probability on, while the job's newest checkpoints did not expire."""

FINISH_WARN_AGAIN_RATIO: Final = 0.8
"""A timeout is warned of from this probability on if one of the newest ended checkpoints expired.

A false warning then wakes nobody a second time, and the next one is likely to expire too.
"""

FINISH_LATE_AGE_RATIO: Final = 0.95
"""From this share of the timeout on, ``FINISH_WARN_LATE_RATIO`` is enough: there is no time left to become surer."""

FINISH_WARN_LATE_RATIO: Final = 0.85
"""A checkpoint that has used up ``FINISH_LATE_AGE_RATIO`` of its timeout is warned of from this probability on.

With 0.7, more of the expired checkpoints were warned of, and the false pages of drawn jobs grew by more than half.
"""

FINISH_LATELY_COUNT: Final = 3
"""So many of the newest ended checkpoints say whether checkpoints of the job expire now."""

FINISH_PLAIN_RATIO: Final = 0.8
"""The plain rule, which stands beside the prediction, warns once this share of the timeout is used up."""

FINISH_UNKNOWN_RATIO: Final = 0.9
"""Without a prediction, an open checkpoint that has used up this share of its timeout is warned of.

The first checkpoints after a start are often long and complete all the same. On drawn jobs, a third of the false pages
came from warnings without a prediction at four fifths of the timeout.
"""

PROGRESS_TIMEOUT_RATIO: Final = 0.5
"""If no checkpoint has completed yet, the limit for an open checkpoint is this share of the timeout.

An open checkpoint is slow after this time, and stuck after a pause of this time without an acknowledgement.
"""

REFUSED_TIMES: Final = 3.0
"""Checkpoints are refused if none has begun for this many times the interval, or the minimum pause if that is longer.

A job that starts, restarts or rescales refuses one or two.
"""

REFUSED_MIN_S: Final = 10.0
"""Checkpoints are not called refused before none has begun for this many seconds."""

REFUSED_MIN_COUNT: Final = 2
"""Checkpoints are called refused only after this many failed without starting, or were declined."""

REFUSED_MIN_RATIO: Final = 0.5
"""At least this share of the checkpoints that were due must have been counted as failed.

The others may have been due while the coordinator restarted.
"""

UNCOUNTED_TIMES: Final = 2.0
"""Without such counts, none must have begun for this many times as long, because Flink before 1.14 counts none."""

LAST_MIN_COUNT: Final = 3
"""In so many checkpoints at least it must be known which subtask of a vertex the barrier reaches last."""

LAST_MIN_RATIO: Final = 0.8
"""A subtask is named as the last one if it is last in at least this share of these checkpoints."""
