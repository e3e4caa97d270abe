"""A folder of event logs in S3, read by s3fs.

One request lists 1,000 objects, so an application that is idle costs no request of its own. A log is read by one
request for the bytes from a position. S3 shows an object when its writer has closed it, so a rolling log grows by whole
files, and a log of one file appears when its application ends.

s3fs belongs to the extra ``s3``. The keys are those of the target's connection, else those that AWS' own libraries find
(variables, profile, web identity, role of the machine). No value of a key is kept here, in messages or in the log.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any, Final

import aiohttp

from backend.domain.clock import to_epoch_ms
from backend.domain.connection import Reach
from backend.domain.connection_failure import ConnectionFailure
from backend.domain.errors import FieldProblem, InvalidInputError, TargetProtocolError, TargetUnavailableError
from backend.domain.text import clean
from collectors.credentials import CredentialError, Credentials
from collectors.http_date import ahead_of
from collectors.spark.arriving import WAIT_S, AsyncRead
from collectors.spark.log_folder import ROLLING
from collectors.spark.log_source import Cost
from collectors.spark.remote_files import FILES_MAX, Listing, RemoteFile
from collectors.spark.s3_session import PageError, RedirectedError, TooLargeAnswerError, guarded_session
from collectors.wall_clock import WallClock

INSTALL: Final = "pip install 'barrierscope[s3]'"
_PAGES_MAX: Final = 200
"""So many pages of 1,000 objects are asked for at most in one poll, and for so many seconds."""
_LIST_S: Final = 20.0
_LAST_CHARACTER: Final = chr(0x10FFFF)
"""Sorts after every other one, so that a list goes on behind a folder."""
_CODE_MAX: Final = 60
_TRIES: Final = 2


@dataclass(slots=True)
class S3Files:
    """Implements ``RemoteFiles``. ``make`` returns a file system of s3fs, which is not typed, for a pair of keys.

    ``errors`` are those that it raises.
    """

    url: str
    credentials: Credentials
    make: Callable[[tuple[str, str] | None], Any]
    errors: tuple[type[Exception], ...]
    cost: Cost = field(default_factory=Cost)
    timeout_s: float = 10.0
    monotonic_s: Callable[[], float] = time.monotonic
    _files: dict[str, RemoteFile] = field(default_factory=dict)
    _round: dict[str, RemoteFile] = field(default_factory=dict)
    _after: str = ""
    _is_cut: bool = False
    _was_cut: bool = False
    """Whether the round before was cut. What it found still counts while a round goes on."""
    _fs: Any = None
    _pair: tuple[str, str] | None = field(default=None, repr=False)
    _ahead: timedelta = timedelta(0)

    @property
    def clock_ahead(self) -> timedelta:
        """By how much the clock of S3 is ahead of ours."""
        return self._ahead

    @property
    def _bucket(self) -> str:
        return self.url.removeprefix("s3://").partition("/")[0]

    @property
    def _prefix(self) -> str:
        path = self.url.removeprefix("s3://").partition("/")[2]
        return f"{path}/" if path else ""

    async def listed(self) -> Listing:
        """List the objects below the prefix; see ``RemoteFiles``.

        S3 lists in the order of the keys. If one poll does not come to the last key, the next one goes on from there.
        """
        end_s = self.monotonic_s() + _LIST_S
        asked: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix}
        for _ in range(_PAGES_MAX):
            after = {"StartAfter": self._after} if self._after else {}
            page = await self._answer("list_objects_v2", **asked, **after)
            last = self._take(page)
            if not page["IsTruncated"]:
                self._files, self._round, self._after = self._round, {}, ""
                return self._listing(is_partial=False)
            token = page.get("NextContinuationToken")
            if not last and token and token != asked.get("ContinuationToken"):
                # A page may have only deleted objects.
                asked["ContinuationToken"] = token
            elif not last or last.encode() <= self._after.encode():
                raise self._no_list("says that more objects follow, but names no later one")
            else:
                asked.pop("ContinuationToken", None)
                self._after = last
            if self.monotonic_s() >= end_s:
                break
        return self._listing(is_partial=True)

    def _take(self, page: Mapping[str, Any]) -> str:
        """Take over the logs of a page. Return the key after which the next page begins.

        A folder that is no log is passed over, however many objects it has.
        """
        if not isinstance(page.get("IsTruncated"), bool) or not ("Name" in page or "KeyCount" in page):
            raise self._no_list("has no list of objects")
        last = ""
        for entry in page.get("Contents") or ():
            last, changed, size = str(entry.get("Key", "")), entry.get("LastModified"), entry.get("Size")
            path = last.removeprefix(self._prefix)
            if path and _outside(path) is None and isinstance(changed, datetime) and isinstance(size, int):
                self._round[path] = RemoteFile(path, size, to_epoch_ms(changed))
        if len(self._round) > 2 * FILES_MAX:
            self._is_cut = True
            self._round = _newest(self._round)
        passed = _outside(last.removeprefix(self._prefix))
        return last if passed is None else f"{self._prefix}{passed}/{_LAST_CHARACTER}"

    def _listing(self, *, is_partial: bool) -> Listing:
        """Return what this round of lists and, for the keys that it has not come to, the round before has found."""
        done = self._after.removeprefix(self._prefix).encode()
        files = self._round | {p: f for p, f in self._files.items() if not is_partial or p.encode() > done}
        is_cut = self._is_cut or len(files) > FILES_MAX or (is_partial and self._was_cut)
        if not is_partial:
            self._is_cut, self._was_cut = False, is_cut
        return Listing(tuple(_newest(files).values()), is_cut=is_cut, is_partial=is_partial)

    def _no_list(self, problem: str) -> TargetProtocolError:
        reason = f"the answer {problem}, so it is none of S3: does AWS_ENDPOINT_URL_S3 name a server of S3?"
        return TargetProtocolError(url=self.url, reason=reason, status=200)

    @asynccontextmanager
    async def opened(self, file: RemoteFile, begin: int) -> AsyncIterator[AsyncRead]:
        """Open an object at a position; see ``RemoteFiles``. One without bytes is not asked for."""
        if file.size == 0:
            yield _nothing
            return
        answer = await self._answer(
            "get_object", Bucket=self._bucket, Key=self._prefix + file.path, Range=f"bytes={begin}-"
        )
        body = answer["Body"]

        async def read(size: int) -> bytes:
            try:
                async with asyncio.timeout(WAIT_S):
                    return bytes(await body.read(size))
            except self.errors as error:
                raise self._failed(error) from None

        try:
            yield read
        finally:
            body.close()

    async def _answer(self, method: str, **arguments: Any) -> dict[str, Any]:
        fs = await self._current()
        self.cost.request_count += 1
        try:
            async with asyncio.timeout(self.timeout_s):
                answer: dict[str, Any] = await fs._call_s3(method, **arguments)
        except self.errors as error:
            raise self._failed(error) from None
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        dated = {name.title(): str(value) for name, value in headers.items() if name.lower() in ("date", "age")}
        self._ahead = ahead_of(dated, WallClock().now()) or timedelta(0)
        return answer

    async def _current(self) -> Any:
        """Return the file system with the keys that the references have now, which may have been replaced."""
        try:
            pair = self.credentials.pair()
        except CredentialError as error:
            raise TargetUnavailableError(
                url=self.url, reason=error.reason, failure=ConnectionFailure.CREDENTIAL
            ) from None
        if self._fs is None or pair != self._pair:
            await self.close()
            self._fs, self._pair = self.make(pair), pair
        return self._fs

    async def close(self) -> None:
        """Close the connections."""
        fs, self._fs = self._fs, None
        if fs is not None and fs._s3 is not None:
            await fs._s3.close()

    def _failed(self, error: Exception) -> TargetUnavailableError:
        """Return the error in our words. Those of the libraries may have what the server has sent."""
        failure, reason = _reason_of(error, self.timeout_s)
        return TargetUnavailableError(url=self.url, reason=reason, failure=failure)


def _outside(path: str) -> str | None:
    """Return the folder of an object that is in no log: one that is no rolling log, or is below one."""
    folder, _, name = path.partition("/")
    if not name and "/" not in path:
        return None
    if not folder.startswith(ROLLING):
        return folder
    below, _, deeper = name.partition("/")
    return f"{folder}/{below}" if deeper or name.endswith("/") else None


def _newest(files: dict[str, RemoteFile]) -> dict[str, RemoteFile]:
    if len(files) <= FILES_MAX:
        return files
    return {f.path: f for f in heapq.nlargest(FILES_MAX, files.values(), key=lambda f: f.changed_ms)}


async def _nothing(size: int) -> bytes:
    return b""


def _reason_of(error: Exception, timeout_s: float) -> tuple[ConnectionFailure | None, str]:
    if isinstance(error, TimeoutError):
        return ConnectionFailure.TIMEOUT, f"no answer of S3 within {timeout_s:g} s"
    if isinstance(error, TooLargeAnswerError):
        return None, f"{error}: does AWS_ENDPOINT_URL_S3 name a server of S3?"
    if isinstance(error, PageError):
        problem = "a page has answered and not S3, such as that of a login"
        return ConnectionFailure.LOGIN_PAGE, f"{problem}: does AWS_ENDPOINT_URL_S3 name a server of S3?"
    status = error.status if isinstance(error, RedirectedError) else _status_of(error)
    if status is not None and 300 <= status < 400:
        problem = f"S3 redirects to another address ({status}), which is not followed"
        return ConnectionFailure.REDIRECT, f"{problem}: are AWS_ENDPOINT_URL_S3 and the region of the bucket right?"
    if isinstance(error, FileNotFoundError):
        return None, "S3 has no such bucket or object"
    if isinstance(error, PermissionError):
        return None, f"S3 refuses these credentials{_code_of(error)}"
    kind = type(error).__name__
    if kind in ("NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError", "ProfileNotFound"):
        problem = "no credentials for S3 were found: set connection.basic, or what AWS' tools read"
        return ConnectionFailure.CREDENTIAL, problem
    if kind in ("EndpointConnectionError", "ConnectTimeoutError", "ClientConnectorError"):
        return None, "no connection to S3 is possible"
    if status is not None and status >= 500:
        problem = f"S3 answers with an error{_code_of(error)}: it is asked again at the next poll"
        return None, f"{problem}; if it still fails, read the log of its server"
    return None, f"S3 could not be read ({kind}){_code_of(error)}: are the address and AWS_ENDPOINT_URL_S3 right?"


def _answer_of(error: Exception) -> dict[str, Any]:
    """Return the answer of S3 that the libraries keep with an error; it is empty if there was none."""
    answer = getattr(error.__cause__, "response", None) or getattr(error, "response", None)
    return answer if isinstance(answer, dict) else {}


def _status_of(error: Exception) -> int | None:
    status = _answer_of(error).get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status if isinstance(status, int) else None


def _code_of(error: Exception) -> str:
    """Return the code of S3, such as ``AccessDenied``, in parentheses."""
    code = _answer_of(error).get("Error", {}).get("Code")
    return "" if not code else f" ({clean(str(code), length_max=_CODE_MAX)})"


@asynccontextmanager
async def open_s3(url: str, *, timeout_s: float, reach: Reach) -> AsyncIterator[S3Files]:
    """Open the folder at a normalised address ``s3://``. Its connections are closed when the context ends.

    Raises:
        InvalidInputError: s3fs is not installed.
        TargetUnavailableError: a credential cannot be read.
    """
    try:
        s3fs: Any = import_module("s3fs")
    except ImportError:
        problem = FieldProblem("url", f"is an address of S3, which needs the package s3fs: {INSTALL}")
        raise InvalidInputError([problem], what="target") from None
    credentials = Credentials(reach)
    try:
        ca = credentials.ca_path()
    except CredentialError as error:
        raise TargetUnavailableError(url=url, reason=error.reason, failure=ConnectionFailure.CREDENTIAL) from None

    session = guarded_session()

    def make(pair: tuple[str, str] | None) -> Any:
        keys = {} if pair is None else {"key": pair[0], "secret": pair[1]}
        fs = s3fs.S3FileSystem(
            asynchronous=True,
            skip_instance_cache=True,
            use_listings_cache=False,
            config_kwargs={
                "connect_timeout": timeout_s,
                "read_timeout": WAIT_S,
                "retries": {"max_attempts": 1},
                "http_session_cls": session,
            },
            client_kwargs={} if ca is None else {"verify": ca},
            **keys,
        )
        fs.retries = _TRIES
        return fs

    of_boto: Any = import_module("botocore.exceptions")
    errors = (OSError, TimeoutError, ValueError, aiohttp.ClientError, of_boto.BotoCoreError, of_boto.ClientError)
    files = S3Files(url, credentials, make, errors, timeout_s=timeout_s)
    try:
        yield files
    finally:
        await files.close()
