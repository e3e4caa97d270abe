# One image; the role is the command: up, api (with the pages), runtime, collect, alert, lab, pipeline, migrate.
#
#   docker build --tag barrierscope --build-arg VERSION=$(.venv/bin/barrierscope --version) .
#   docker run --rm --publish 127.0.0.1:8050:8050 --volume barrierscope:/var/lib/barrierscope \
#     --env BARRIERSCOPE_API_TOKEN=$(openssl rand -hex 32) barrierscope up --host 0.0.0.0
#
# To build what was tested bit for bit, name the base by digest: --build-arg PYTHON_IMAGE=python@sha256:...
# `make try-dockerfile` runs these very lines in an empty root folder, without a container engine.
ARG PYTHON_IMAGE=python:3.12-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
# An environment of its own: the import packages have generic names.
RUN python -m venv /opt/barrierscope
COPY requirements.txt requirements-spark.txt requirements-s3.txt ./
RUN /opt/barrierscope/bin/python -m pip install --no-compile --require-hashes -r requirements.txt
# Spark and a Java runtime, for the role `pipeline`; PySpark comes as source and is built with what is locked above.
RUN /opt/barrierscope/bin/python -m pip install --no-compile --no-build-isolation --require-hashes -r requirements-spark.txt
# Event logs of Spark in S3.
RUN /opt/barrierscope/bin/python -m pip install --no-compile --require-hashes -r requirements-s3.txt
COPY pyproject.toml README.md LICENSE ./
COPY backend ./backend
COPY collectors ./collectors
COPY dashboard ./dashboard
COPY migrations ./migrations
COPY docs/runbooks ./docs/runbooks
COPY docs/causes ./docs/causes
# The builder sees no tags of git, so the version of a release is an argument.
ARG VERSION=0.1.0.dev0
ENV SETUPTOOLS_SCM_PRETEND_VERSION=${VERSION}
RUN /opt/barrierscope/bin/python -m pip install --no-compile --no-deps --no-build-isolation --no-index .
# What builds has no business where it runs.
RUN /opt/barrierscope/bin/python -m pip uninstall --yes setuptools hatchling hatch-vcs setuptools-scm vcs-versioning editables pip
# The root of the file system may be read-only later, and a start must not compile everything again.
RUN /usr/local/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/barrierscope/lib

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="Barrierscope" \
      org.opencontainers.image.description="See which subtask holds the checkpoint barrier, why, and what would cure it" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --gid 10001 barrierscope \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin barrierscope \
 && install --directory --owner 10001 --group 10001 --mode 0711 /var/lib/barrierscope
COPY --from=build /opt/barrierscope /opt/barrierscope
ENV PATH=/opt/barrierscope/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    BARRIERSCOPE_DATA_DIR=/var/lib/barrierscope \
    BARRIERSCOPE_HEARTBEAT_FILE=/tmp/barrierscope-heartbeat
# A number instead of a name, so that a cluster can see that it is not root. Only /tmp and /var/lib/barrierscope are written to.
USER 10001:10001
WORKDIR /tmp
VOLUME /var/lib/barrierscope
EXPOSE 8050 18050
# Every long-running role touches its heartbeat every 5 s; `migrate` and `pipeline` end before this is asked.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
  CMD test -n "$(find "$BARRIERSCOPE_HEARTBEAT_FILE" -mmin -1)"
ENTRYPOINT ["barrierscope"]
CMD ["up"]
