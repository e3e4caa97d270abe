"""Turns checkpoints into hourly rollups, as functions from DataFrames to DataFrames.

This module does not read or write data. ``domain.rollup`` defines the rollups. Every number is exact. Quantiles use
the sorted values and the arithmetic of PostgreSQL's ``percentile_cont``, and equal its results to the last bit.
Buckets have whole-number bounds. Sums are decimals that cannot overflow.
"""

from __future__ import annotations

from math import log

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from backend.analysis.numbers.log_buckets import BOUNDS, GAMMA, ZERO
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.rollup import Measure

_KEY = ("job_id", "hour")
_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def hourly_rollups(checkpoints: DataFrame) -> DataFrame:
    """Return the rows to stage.

    Each job and hour has one row with its counts, in which ``measure`` is null, and one row for each measure.

    Args:
        checkpoints: Rows of ``source.CHECKPOINT_SCHEMA``, with all checkpoints of each hour.
    """
    # Partition by job and hour once. All later groupings include these columns, so they need no further shuffle.
    by_hour = checkpoints.repartition(*_KEY)
    return _counts(by_hour).unionByName(_measures(by_hour), allowMissingColumns=True)


def _counts(checkpoints: DataFrame) -> DataFrame:
    is_failed = F.col("status") == CheckpointStatus.FAILED.value
    reason = F.coalesce("failure_reason", F.lit(FailureReason.UNKNOWN.value))
    counted = checkpoints.groupBy(*_KEY).agg(
        F.count("*").alias("triggered_count"),
        F.count_if(F.col("status") == CheckpointStatus.COMPLETED.value).alias("completed_count"),
        F.count_if(is_failed).alias("failed_count"),
        F.max("completed_at").alias("last_completed_at"),
        F.max("restorable_at").alias("restorable_at"),
        F.collect_list(F.when(is_failed, reason)).alias("reasons"),
    )
    distinct = F.array_sort(F.array_distinct("reasons"))
    numbers = F.transform(distinct, lambda r: F.size(F.filter("reasons", lambda x: x == r)))
    by_reason = F.to_json(F.map_from_arrays(distinct, numbers)).alias("failed_by_reason")
    return counted.select(
        *_KEY,
        F.lit(None).cast("string").alias("measure"),
        "triggered_count",
        "completed_count",
        "failed_count",
        by_reason,
        "last_completed_at",
        "restorable_at",
    )


def _measures(checkpoints: DataFrame) -> DataFrame:
    is_completed = F.col("status") == CheckpointStatus.COMPLETED.value
    is_expired = (F.col("status") == CheckpointStatus.FAILED.value) & F.col("failure_reason").eqNullSafe(
        FailureReason.EXPIRED.value
    )
    censored = [m.value for m in Measure if m.is_censored]
    pairs = ", ".join(f"'{measure}', {measure}" for measure in Measure)
    values = (
        checkpoints.where(is_completed | is_expired)
        .select(*_KEY, is_expired.alias("is_expired"), F.expr(f"stack({len(Measure)}, {pairs}) AS (measure, value)"))
        .where(F.col("value").isNotNull() & (~F.col("is_expired") | F.col("measure").isin(censored)))
    )
    buckets = (
        values.withColumn("bucket", bucket_of(F.col("value")))
        .groupBy(*_KEY, "measure", "bucket")
        .agg(
            F.count("*").alias("number"),
            F.sum(F.col("value").cast("decimal(20,0)")).alias("total"),
            F.min(F.when(F.col("is_expired"), F.col("value"))).alias("expired_min"),
            F.collect_list("value").alias("some"),
        )
    )
    whole = buckets.groupBy(*_KEY, "measure").agg(
        F.sum("number").alias("present_count"),
        F.sum("total").alias("total"),
        F.min("expired_min").alias("expired_min"),
        F.array_sort(F.flatten(F.collect_list("some"))).alias("ordered"),
        F.array_sort(F.collect_list(F.struct("bucket", "number"))).alias("buckets"),
    )
    return whole.select(
        *_KEY,
        "measure",
        "present_count",
        F.element_at("ordered", 1).alias("minimum"),
        F.element_at("ordered", -1).alias("maximum"),
        F.col("total").cast("string").alias("total"),
        *(_quantile(share).alias(name) for name, share in _SHARES.items()),
        "expired_min",
        F.array_max(F.filter("ordered", lambda value: value < F.col("expired_min"))).alias("exact_max"),
        _array_text("buckets.bucket").alias("bucket_index"),
        _array_text("buckets.number").alias("bucket_count"),
    )


def bucket_of(value: Column) -> Column:
    """Return the bucket of a value, as ``analysis.numbers.log_buckets.bucket_of`` does.

    A logarithm gives an estimate, which is then corrected with the exact bounds.
    """
    # The bounds are one text literal, which the optimiser turns into a constant array. Thousands of literals would
    # take seconds to transfer.
    bounds = F.split(F.lit(",".join(map(str, BOUNDS))), ",").cast("array<bigint>")
    guess = F.least(F.ceil(F.log(value.cast("double")) / F.lit(log(GAMMA))), F.lit(len(BOUNDS) - 1)).cast("int")
    return (
        F.when(value <= 0, F.lit(ZERO))
        .when((guess > 0) & (value <= F.element_at(bounds, F.greatest(guess, F.lit(1)))), guess - 1)
        .when(value > F.element_at(bounds, guess + 1), guess + 1)
        .otherwise(guess)
    )


def _quantile(share: float) -> Column:
    position = F.lit(share) * (F.col("present_count") - 1)
    below = F.floor(position)
    low = F.element_at("ordered", (below + 1).cast("int")).cast("double")
    high = F.element_at("ordered", F.least(below + 2, "present_count").cast("int")).cast("double")
    return low + (position - below) * (high - low)


def _array_text(column: str) -> Column:
    # This is PostgreSQL's text form of an array. The move out of staging converts it to an array.
    return F.concat(F.lit("{"), F.array_join(F.col(column).cast("array<string>"), ","), F.lit("}"))
