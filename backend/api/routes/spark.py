"""What Spark listeners push. Parse, call, serialise; decide nothing here."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body

from backend.api import examples
from backend.api.deps import Given
from backend.contracts import spark as wire

router = APIRouter(prefix="/ingest", tags=["ingest"])

Push = Annotated[wire.SparkPushIn, Body(openapi_examples={"batch": {"value": examples.read("spark_push_in")}})]


@router.post("/spark", responses=examples.of("spark_push_out"))
async def push_spark(push: Push, services: Given) -> wire.SparkPushOut:
    """Store what a Spark listener saw: each micro-batch is a checkpoint. Committed when this answers; 409 while paused.

    Pushing the same again changes nothing, so whoever does not know whether a push arrived pushes again.
    """
    return await services.spark.push(push)
