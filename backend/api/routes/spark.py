"""The route to which Spark listeners push their events."""

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
    """Store the events of a Spark listener. Each micro-batch is a checkpoint. 409 if the target is paused.

    The events are committed before the response is sent. Pushing the same events again changes nothing, so a client can
    repeat a push that got no response.
    """
    return await services.spark.push(push)
