"""Requests of the door, and why one was not carried out."""

from __future__ import annotations

import base64
import functools
import http.client
import io
import json
import math
import os
import re
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from typing import Any, Callable


_credentials_wanted = ("creds or SAGENBAUM_CREDS, a file of sagenbaum user add, or url and token, "
                       "or SAGENBAUM_HTTP and SAGENBAUM_TOKEN")


class SagenbaumError(Exception):
    """Why a request was not carried out."""

    def __init__(self, error: dict[str, Any]):
        self.status: int = error.get("status", 0)
        self.code: str = error.get("code", "")
        self.field: str | None = error.get("field")
        self.problem: str = error.get("problem", "")
        self.want: str | None = error.get("want")
        self.limit: str | None = error.get("limit")
        self.agent: str | None = error.get("agent")  #: that has the plan, where it was handed to that one
        self.stored: str | None = error.get("stored")
        text = f"{self.field}: {self.problem}" if self.field else self.problem
        super().__init__(f"{text}; want {self.want}" if self.want else text)


class Refused(SagenbaumError):
    """``field`` of the request is wrong, and ``want`` would be right. Nothing is stored."""


class Conflict(SagenbaumError):
    """It was decided before: the plan has ended, or another process goes on with it."""


class Unavailable(SagenbaumError):
    """No answer in time. ``stored`` says whether anything is in the ledger."""


class Unauthorized(SagenbaumError):
    """The token is missing, not good, or of a user that may not do this; or too many that were not good were shown.

    Asking again with it does not help. ``field`` is ``authorization`` where the token itself is what is wrong.
    """


_errors = {401: Unauthorized, 403: Unauthorized, 409: Conflict, 422: Refused, 429: Unavailable, 503: Unavailable}


def _error(status: int, error: Any, with_token: bool) -> SagenbaumError:
    if not isinstance(error, dict):  # a proxy before the door may answer with any text
        error = {"status": status, "problem": f"status {status}"}
    if status == 401 and not with_token:
        error = {**error, "problem": f"{error.get('problem')}: no credentials were given", "want": _credentials_wanted}
    if status in (401, 403):
        error = {"status": status, "code": "unauthorized", "field": "authorization", "stored": "nothing", **error}
    if status == 429 and error.get("field") == "authorization":  # for tokens that are not good
        return Unauthorized(error)
    return _errors.get(status, SagenbaumError)(error)


_request_seconds = 100.0  # that one request may take
_wait_seconds = 20.0  # that the door waits where a request does not say

waits = ("plan.act", "plan.unwind_to", "plan.wait")  #: verbs whose answers may wait


def _seconds(wait: Any) -> float:
    """A duration as in "1m30s" in seconds; the door refuses any other text."""
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
    return sum(float(n) * units[unit] for n, unit in re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h)", str(wait)))


def _checked(url: str, token: str | None, timeout: float) -> None:
    """Refuses at once what no request could be made with."""
    try:
        parts = urllib.parse.urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good or re.search(r"[\s\x00-\x1f\x7f]", url):
        raise TypeError(f"url: {url!r}; want the address of a door, as in http://127.0.0.1:4270")
    if token and re.search(r"[^!-~]", token):  # which is a secret, and not shown
        problem = "it ends in a newline" if token[-1] in "\r\n" else "a character that no token has"
        raise TypeError(f"token: {problem}; want the token alone, as sagenbaum user token prints it")
    if not (isinstance(timeout, (int, float)) and timeout > 0):
        raise TypeError(f"timeout: {timeout!r}; want seconds, more than 0")


def _not_json(value: Any, path: str) -> str | None:
    """Where a value has what JSON does not have, and what that is."""
    parts: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        for name in value:
            if not isinstance(name, (str, int, float, type(None))):
                return f"{path}: a key that is a {type(name).__name__}; want a text"
        parts = [(f"{path}.{name}" if path else str(name), part) for name, part in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [(f"{path}[{i}]", part) for i, part in enumerate(value)]
    elif isinstance(value, float) and not math.isfinite(value):
        return f"{path}: {value}; want a finite number, or None"
    elif not isinstance(value, (str, int, float, type(None))):
        return f"{path}: a {type(value).__name__}, which JSON does not have; want texts, numbers, lists or dicts"
    return next(filter(None, (_not_json(part, at) for at, part in parts)), None)


def _json(request: dict[str, Any]) -> bytes:
    try:
        return json.dumps(request, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        try:
            found = _not_json(request, "")
        except RecursionError:
            raise error from None  # which says that it goes in a circle
        raise type(error)(found or error) from None


def named(field: str, given: str | None, made: Callable[[], str]) -> str:
    """A name that is given, or one that is made."""
    if given == "":
        raise TypeError(f"{field}: empty; want a name, or None for a random one")
    return made() if given is None else given


def parse_credentials(text: str) -> dict[str, Any]:
    """Reads the line that ``sagenbaum user add`` writes into a file of credentials."""
    line = re.search(r"^# sagenbaum (\S+)$", text, re.MULTILINE)
    if not line:
        raise ValueError("no file of credentials of sagenbaum user add")
    return json.loads(base64.b64decode(line.group(1)))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """What a redirect leads to is not the door, and must not get the token."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class _Until(io.RawIOBase):
    """What comes in at a socket until one moment: a server that sends a byte now and then does not move it."""

    def __init__(self, end: float, sock: socket.socket):
        self._end, self._sock, self._raw = end, sock, sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int | None:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left)
        return self._raw.readinto(into)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    """An answer, its head as its body, until one moment."""

    def __init__(self, end: float, sock: socket.socket, *args: Any, **kwargs: Any):
        super().__init__(sock, *args, **kwargs)
        self.fp.close()
        self.fp = io.BufferedReader(_Until(end, sock))


class _Whole:
    """The timeout of a request is that of all of it, and not of each of its reads."""

    def do_open(self, kind: Any, request: urllib.request.Request, **options: Any) -> Any:
        def connection(host: str, timeout: float, **more: Any) -> http.client.HTTPConnection:
            made: http.client.HTTPConnection = kind(host, timeout=timeout, **more)
            made.response_class = functools.partial(_Answer, time.monotonic() + timeout)  # type: ignore[assignment]
            return made

        return super().do_open(connection, request, **options)  # type: ignore[misc]


class _WholeHTTP(_Whole, urllib.request.HTTPHandler):
    pass


class _WholeHTTPS(_Whole, urllib.request.HTTPSHandler):
    pass


def _opener(url: str, *handlers: Any) -> urllib.request.OpenerDirector:
    """What opens requests: for a door on this machine without the proxies of the environment."""
    host = urllib.parse.urlsplit(url).hostname or ""
    own = host in ("localhost", "::1") or host.startswith("127.")
    proxies = [urllib.request.ProxyHandler({})] if own else []
    return urllib.request.build_opener(_NoRedirect, *proxies, *handlers)


class _Door:
    """Requests, each asked again while there is no answer: every verb may be repeated."""

    def __init__(self, agent: str | None, tenant: str | None, creds: str | None, url: str | None,
                 token: str | None, writer: str | None, timeout: float):
        found: dict[str, Any] = {}
        creds = creds or os.environ.get("SAGENBAUM_CREDS")
        if creds and not (url and token):
            with open(creds, encoding="utf-8") as file:
                found = parse_credentials(file.read())
        self.tenant = tenant or (found.get("tenant") if found.get("tenant") != "*" else None) or "default"
        name = agent or (found.get("name") if found.get("role") != "local" else None)
        if not name:
            raise TypeError("agent: missing; want the name of the agent" +
                            ("" if found or token else f", or {_credentials_wanted}"))
        self.name: str = name
        url = url or found.get("door") or os.environ.get("SAGENBAUM_HTTP")
        token = token or found.get("token") or os.environ.get("SAGENBAUM_TOKEN")
        if token and not url:  # whoever has the default address must not get it
            raise TypeError("url: the credentials name no door; want url, SAGENBAUM_HTTP, or a server with --http")
        self._guessed = not url  # and no door has answered there
        url = url or "http://127.0.0.1:4270"
        _checked(url, token, timeout)
        self._opener = _opener(url, _WholeHTTP, _WholeHTTPS)
        self._blobs = _opener(url)
        path = "/".join(urllib.parse.quote(part, safe="") for part in (self.tenant, self.name))
        self.base = f"{url.rstrip('/')}/v1/{path}"
        self.headers = {"Content-Type": "application/json"}
        if token:
            self.headers["Authorization"] = f"Bearer {token}"
        self.writer = named("writer", writer, lambda: f"py-{uuid.uuid4()}")
        self.timeout = timeout

    def ask(self, verb: str, request: dict[str, Any], lost: Callable[[], None] | None = None,
            within: float | None = None) -> Any:
        """The answer, within so many seconds beside a ``wait`` that is given; default the timeout."""
        seconds = self.timeout if within is None else within
        if verb in waits and "wait" in request:
            seconds += _seconds(request["wait"])
        elif verb in waits and seconds < 2 * _wait_seconds:  # so that the answer is there in time
            request = {**request, "wait": f"{max(int(500 * seconds), 1)}ms"}
        body = _json(request)
        made = urllib.request.Request(f"{self.base}/{urllib.parse.quote(verb, safe='')}", body, self.headers)
        end = time.monotonic() + seconds
        return json.loads(self._send(self._opener, made, end, lambda: end - time.monotonic(), lost))

    def blob(self, plan: str, digest: str, value: bytes | None = None, kind: str = "") -> bytes:
        """Stores a value, or reads it. It may take as long as something of it moves within the timeout."""
        path = "/".join(urllib.parse.quote(part, safe="") for part in ("plans", plan, "blobs", digest))
        headers = {**self.headers, "Content-Type": kind} if value is not None else self.headers
        method = "GET" if value is None else "PUT"
        made = urllib.request.Request(f"{self.base}/{path}", value, headers, method=method)
        return self._send(self._blobs, made, time.monotonic() + self.timeout, lambda: self.timeout)

    def _send(self, opener: urllib.request.OpenerDirector, request: urllib.request.Request, end: float,
              left: Callable[[], float], lost: Callable[[], None] | None = None) -> bytes:
        delay = 0.05
        while True:
            try:
                return self._once(opener, request, max(min(left(), _request_seconds), 0.001))
            except Unavailable as failed:
                if lost and failed.stored != "nothing":
                    lost()
                limit = failed.status == 429 and failed.stored != "nothing"  # of the tenant
                lasting = limit or failed.field == "creds"
                if lasting or time.monotonic() + delay > end:
                    raise
            time.sleep(delay)
            delay = min(2 * delay, 1.0)

    def _once(self, opener: urllib.request.OpenerDirector, request: urllib.request.Request, within: float) -> bytes:
        try:
            with opener.open(request, timeout=within) as response:
                self._guessed = False
                return response.read()
        except urllib.error.HTTPError as failed:
            self._guessed = False
            if 300 <= failed.code < 400:
                raise SagenbaumError({"status": failed.code, "code": "redirected", "field": "url", "stored": "unknown",
                                      "problem": "the answer is a redirect, which is not followed",
                                      "want": "the address of the door itself"}) from None
            try:
                error = json.load(failed)["error"]
            except (ValueError, LookupError, TypeError, OSError, http.client.HTTPException):
                error = None
            raise _error(failed.code, error, "Authorization" in self.headers) from None
        except (OSError, http.client.HTTPException) as failed:
            if self._guessed and isinstance(getattr(failed, "reason", None), ConnectionRefusedError):
                raise Unavailable({"status": 503, "code": "unavailable", "field": "creds", "stored": "nothing",
                                   "problem": f"no credentials were given, and there is no door at {self.base}",
                                   "want": _credentials_wanted}) from failed
            raise Unavailable({"status": 503, "code": "unavailable", "stored": "unknown",
                               "problem": f"no answer of {self.base}: {failed}",
                               "want": "the same again"}) from failed
