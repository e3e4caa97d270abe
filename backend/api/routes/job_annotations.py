"""The routes for annotations of jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Header, Path

from backend.api import examples
from backend.api.deps import LIMIT, Cursor, Given, JobId, Limit, Range
from backend.contracts.annotations import AnnotationIn, AnnotationOut, AnnotationsIn
from backend.contracts.api import Page

router = APIRouter(tags=["annotations"])

_TEXT = r"^[^\x00]*$"
AnnotationId = Annotated[str, Path(max_length=100, pattern=_TEXT, description="Id of an annotation.")]
NewAnnotation = Annotated[
    AnnotationIn, Body(openapi_examples={"deployment": {"value": examples.read("annotation_in")}})
]
NewAnnotations = Annotated[
    AnnotationsIn, Body(openapi_examples={"deployment": {"value": examples.read("annotations_in")}})
]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="A repeated request with the same key posts nothing and gets the response of the first one.",
    ),
]


@router.get("/jobs/{job}/annotations", responses=examples.page_of("annotation"))
async def list_annotations(
    job: JobId, services: Given, wanted: Range, cursor: Cursor = None, limit: Limit = LIMIT
) -> Page[AnnotationOut]:
    """List the annotations of a job, newest first. ``from`` and ``to`` are on the engine's clock."""
    return await services.annotations.page(job, wanted, cursor=cursor, limit=limit)


@router.post("/jobs/{job}/annotations", status_code=201, responses=examples.of("annotation", status=201))
async def add_annotation(job: JobId, wanted: NewAnnotation, services: Given, key: Key = None) -> AnnotationOut:
    """Post an annotation to a job, such as a deployment. 429 if the job got more than 30 within a minute."""
    return await services.annotations.add_to_job(job, wanted, key=key)


@router.delete("/jobs/{job}/annotations/{annotation}", status_code=204)
async def remove_annotation_of_job(job: JobId, annotation: AnnotationId, services: Given) -> None:
    """Delete an annotation of one job."""
    await services.annotations.remove(annotation, job_id=job)


@router.post("/annotations", status_code=201, responses=examples.page_of("annotation", status=201))
async def add_annotations(wanted: NewAnnotations, services: Given, key: Key = None) -> Page[AnnotationOut]:
    """Post an annotation to every watched job with this name, on this target, or with these labels.

    404 if no job fits. The response has one annotation for each job, all with the same id.
    """
    return await services.annotations.add(wanted, key=key)


@router.delete("/annotations/{annotation}", status_code=204)
async def remove_annotation(annotation: AnnotationId, services: Given) -> None:
    """Delete an annotation of every job to which it was posted."""
    await services.annotations.remove(annotation, job_id=None)
