"""The client of Sagenbaum's door (docs/door.md) for Python 3.10 and later.

It needs nothing but the standard library, and has no rules of its own: what is wrong, the door
says. ``Sagenbaum`` is for ordinary code, ``AsyncSagenbaum`` for asyncio.

    sb = Sagenbaum.connect(agent="tripper")                     # SAGENBAUM_CREDS
    with sb.plan("book trip", deadline="2h") as p:              # commit on exit, fail on exception
        hotel = p.do("hotel.book", {"city": "Rome"}, book_hotel)
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import hashlib
import inspect
import json
import os
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any, Callable

from ._act import Blocked, Recorded, _Act, _Asks, _led
from ._door import (Conflict, Refused, SagenbaumError, Unauthorized, Unavailable, _Door, named,
                    parse_credentials, waits)
from ._tool import (Call, NotTaken, _arguments, _calling, _check_tool, _is_coroutine, _outcome, _text,
                    _wants_call, current_call)

__all__ = [
    "AsyncPlan", "AsyncSagenbaum", "Blocked", "Call", "CommitWaits", "Conflict", "NotTaken", "Plan",
    "Recorded", "Refused", "Sagenbaum", "SagenbaumError", "Unauthorized", "Unavailable", "current_call",
    "new_id", "parse_credentials",
]


def new_id() -> str:
    """An id for one fact or verdict: a UUID of version 7 (RFC 9562). The ledger knows it for good."""
    ms = time.time_ns() // 1_000_000
    rest = int.from_bytes(os.urandom(10), "big")
    return str(uuid.UUID(int=ms << 80 | 7 << 76 | (rest >> 68) << 64 | 2 << 62 | rest & (1 << 62) - 1))


class CommitWaits(Exception):
    """The commit is stored and waits: it is not known of some actions whether they happened."""

    def __init__(self, state: dict[str, Any]):
        self.doubts: list[dict[str, Any]] = state.get("doubts", [])
        named = ", ".join(d["action"] for d in self.doubts)
        super().__init__(f"the commit of {state['plan']} waits" + (f" for {named}" if named else ""))


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return f"{value.total_seconds():f}s"
    if isinstance(value, datetime):
        return value.isoformat()
    return value


def _given(**fields: Any) -> dict[str, Any]:
    return {name: _plain(value) for name, value in fields.items() if value is not None}


_leave_seconds = 5.0  # to tell of an action that is given up; later its commit tells it


class _PlanState:
    def __init__(self, door: _Door, state: dict[str, Any], recorded: list[dict[str, Any]] | None):
        self._door = door
        self.id: str = state["plan"]
        self.deadline_at: str | None = None  #: when it is undone if it is still open, as it was seen last
        self._deadline_set = 0
        self._see(state)
        self.recorded: list[dict[str, Any]] = recorded or []  #: when it was resumed
        self.resumed = recorded is not None
        self._lock = threading.Lock()
        self._known = {act["action"] for act in self.recorded}  # ids, which no number is
        self._count = len(self.recorded)
        self._rewinds: int = state.get("rewinds", 0)
        self._busy: set[str] = set()  # actions whose calls of do have not ended
        self._left: dict[str, _Act] = {}  # that are not called, and of which this is not told yet

    def _number(self, given: str | None) -> str:
        with self._lock:
            while given is None:
                self._count += 1
                given = str(self._count) if str(self._count) not in self._known else None
            self._known.add(given)
            return given

    def _ask(self, verb: str, **fields: Any) -> Any:
        return self._door.ask(verb, {"plan": self.id, "writer": self._door.writer, **fields})

    def _see(self, state: dict[str, Any]) -> dict[str, Any]:
        """Notes the deadline that an answer shows."""
        if state.get("deadline_set", 0) > self._deadline_set:
            self.deadline_at, self._deadline_set = state.get("deadline_at"), state["deadline_set"]
        return state

    def _act(self, capability: str, input: Any, action: str, options: dict[str, Any]) -> _Act:
        if "stage" in options:  # its tool is not to be called
            raise TypeError("stage: given to what is called; want Plan.stage")
        fields = {"plan": self.id, "writer": self._door.writer, "action": action, "capability": capability, **options}
        if input is not None:
            fields["input"] = input
        left = self._left.pop(action, None)
        earlier = any(act["action"] == action for act in self.recorded)
        return _Act(fields, earlier, left.is_own() if left else None)

    @contextlib.contextmanager
    def _doing(self, action: str) -> Iterator[bool]:
        """Whether no other call of do, which would tell of it, has the action."""
        with self._lock:
            first = action not in self._busy
            self._busy.add(action)
        try:
            yield first
        finally:
            if first:
                self._busy.discard(action)

    def _leave(self, act: _Act, error: BaseException) -> None:
        """Tells of an action that is not called for an error: its plan would wait for it."""
        over = isinstance(error, Unavailable) and error.status != 429 and error.stored != "nothing"
        if isinstance(error, SagenbaumError) and not over or isinstance(error, Recorded) and error.outcome != "unknown":
            return  # nothing is registered, or all is recorded
        self._left[act.fields["action"]] = act
        if not over:  # otherwise there is no time left
            self._tell_left(min(_leave_seconds, self._door.timeout))

    def _tell_left(self, within: float) -> float:
        """Tells of what is not called, and returns how many of so many seconds are left."""
        end = time.monotonic() + within
        for action, act in list(self._left.items()):
            ask = functools.partial(self._door.ask, within=max(end - time.monotonic(), 0.001))
            fields = {name: act.fields[name] for name in ("plan", "writer", "action")}
            try:
                # A request that is still on its way would register it after it is told.
                ask("plan.act", {**act.fields, "wait": "1ms"})
                ask("plan.outcome", {**fields, **act.left()})
            except Unavailable:
                continue  # later
            except (SagenbaumError, TypeError, ValueError, RecursionError):
                pass  # nothing is registered, or another outcome is recorded
            self._left.pop(action, None)
        return max(end - time.monotonic(), 0.001)

    def _waiting(self) -> _Asks:
        while True:
            state = yield "plan.wait", {"plan": self.id}
            if state["ended"]:
                return state

    def _settling(self) -> _Asks:
        while True:
            state = yield "plan.wait", {"plan": self.id, "settled": True}
            if state.get("settled"):
                return state.get("unknown", [])

    def _delivering(self) -> _Asks:
        if (yield "plan.wait", {"plan": self.id, "wait": "1ms"})["state"] == "open":
            raise Conflict({"status": 409, "code": "conflict", "field": "plan", "stored": "nothing",
                            "problem": "the plan is open", "want": "delivered after a commit"})
        while True:
            state = yield "plan.wait", {"plan": self.id, "delivered": True}
            delivery: dict[str, Any] = state.get("delivery") or {}
            if state["ended"] and state["state"] != "committed":
                raise Conflict({"status": 409, "code": "conflict", "field": "plan", "stored": "nothing",
                                "problem": f"the plan is {state['state']}"})
            if state["ended"] and delivery.get("state") not in ("staged", "delivering"):
                return delivery

    def _unwinding(self, savepoint: str, reason: str) -> _Asks:
        number = self._rewinds + 1
        fields = {"plan": self.id, "writer": self._door.writer, "savepoint": savepoint, "reason": reason,
                  "number": number}
        while True:
            state = yield "plan.unwind_to", fields
            if state["state"] != "unwinding":
                break
        self._rewinds = number
        if state["state"] != "open":
            raise Conflict({"status": 409, "code": "conflict", "problem": f"the plan is {state['state']}"})

    def _told(self, action: str, told: dict[str, Any]) -> None:
        """Tells an outcome, and where its message is refused, tells it without."""
        try:
            self._ask("plan.outcome", action=action, **told)
        except Refused:
            self._ask("plan.outcome", action=action, **{**told, "message": None})

    def _completed(self, action: str, output: Any) -> Any:
        fields = {"output": output} if output is not None else {}
        try:
            self._ask("plan.outcome", action=action, outcome="completed", **fields)
        except (Refused, TypeError, ValueError, RecursionError) as error:
            self._told(action, {"outcome": "completed", "incomplete": True, "message": _text(error)})
            raise
        return output


class Plan(_PlanState):
    """An open plan. As a context it is committed on exit, and failed on an exception or a refused commit."""

    def __enter__(self) -> Plan:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            try:
                self.commit()
            except (Refused, Conflict) as refused:  # no commit is stored, and the plan may be open
                self._fail_for(refused)
                raise
            return
        try:
            self.fail(_text(error) or type(error).__name__)
        except Conflict:
            pass  # it has ended already

    def _fail_for(self, refused: SagenbaumError) -> None:
        if refused.stored != "nothing":
            return
        try:
            self.fail("the commit was refused: " + _text(refused))
        except Conflict:
            pass  # it has ended already, or another process goes on with it

    def do(self, capability: str, input: Any, forward: Callable[..., Any], *, id: str | None = None,
           not_taken: Callable[[BaseException], bool] | None = None, **options: Any) -> Any:
        """Registers an action, and calls its tool once the ledger has taken it.

        What the tool returns is the output; what it raises is doubt, unless it is a NotTaken or
        ``not_taken(error)`` says so. Options: after, branch, pivot, review.
        """
        _check_tool(forward, not_taken)
        action = self._number(id)
        act = self._act(capability, input, action, options)
        with self._doing(action) as first:
            try:
                call, output, key = _led(self._door, act.registered())
            except BaseException as error:
                if first:
                    self._leave(act, error)
                raise
            if not call:
                return output
            try:
                with _calling(Call(key, self.id, action, input)) as made:
                    output = forward(made) if _wants_call(forward) else forward()
            except BaseException as error:
                self._told(action, _outcome(error, not_taken))
                raise
            return self._completed(action, output)

    def tool(self, capability: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Makes each call of a function an action; its input are the arguments by name, with defaults.

        Within it, current_call gives its idempotency key.
        """

        def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
            _check_tool(function, options.get("not_taken"))
            signature = inspect.signature(function)

            @functools.wraps(function)
            def called(*args: Any, **kwargs: Any) -> Any:
                given = _arguments(signature, args, kwargs)
                return self.do(capability, given, lambda: function(*args, **kwargs), **options)

            return called

        return wrap

    def stage(self, capability: str, input: Any = None, *, id: str | None = None, **options: Any) -> dict[str, Any]:
        """Registers an act that a worker makes once the plan is committed, for what cannot be undone.

        What undoes the plan before drops it, and nothing was called. Options: after, branch.
        """
        fields = {"input": input, **options} if input is not None else options
        return self._ask("plan.act", action=self._number(id), capability=capability, stage=True, **fields)

    def delivered(self) -> dict[str, Any]:
        """Waits until what is staged has been delivered, dropped or left to its owner, after the commit.

        Empty where nothing was staged. A Conflict where the plan is still open, or was undone.
        """
        found: dict[str, Any] = _led(self._door, self._delivering())
        return found

    def report(self, capability: str, input: Any = None, *, id: str | None = None, **options: Any) -> Any:
        """Registers what has happened. Options: output, external_ref, before, after, branch, pivot."""
        fields = {"input": input, **options} if input is not None else options
        return self._ask("plan.report", action=self._number(id), capability=capability, **fields)

    def put_blob(self, value: bytes, type: str = "application/octet-stream") -> dict[str, Any]:
        """Stores a value that is too large for a record, of at most 64 MiB. What it returns takes its place."""
        ref: dict[str, Any] = json.loads(self._door.blob(self.id, hashlib.sha256(value).hexdigest(), value, type))
        return ref

    def get_blob(self, ref: dict[str, Any]) -> bytes:
        """Reads a value by what put_blob has returned."""
        plan, _, digest = ref["sagenbaum/blob/v1"].partition("/")
        return self._door.blob(plan, digest)

    def settle(self, action: str, outcome: str, **fields: Any) -> Any:
        """Tells what became of an action of a process that has ended."""
        return self._ask("plan.outcome", action=action, outcome=outcome, **fields)

    def savepoint(self, name: str) -> Any:
        return self._ask("plan.savepoint", savepoint=name)

    def unwind_to(self, savepoint: str, reason: str = "") -> None:
        """Undoes what came after a savepoint, and returns when the plan is open again."""
        _led(self._door, self._unwinding(savepoint, reason))

    def move_deadline(self, to: str | timedelta | datetime, reason: str) -> dict[str, Any]:
        """Moves the deadline of the open plan: to so long from now, or to an instant.

        A Conflict with the field ``follows`` where an operator has moved the one that this process saw
        last: ``get`` shows it, and then it may be moved.
        """
        at = "deadline_at" if isinstance(to, datetime) else "deadline"
        return self._see(self._ask("plan.deadline", reason=reason, follows=self._deadline_set, **{at: _plain(to)}))

    def commit(self) -> dict[str, Any]:
        more = {"within": self._tell_left(self._door.timeout)} if self._left else {}
        state = self._door.ask("plan.commit", {"plan": self.id, "writer": self._door.writer}, **more)
        if state["state"] == "committing":
            raise CommitWaits(state)
        return state

    def fail(self, reason: str = "") -> dict[str, Any]:
        return self._ask("plan.fail", reason=reason)

    def cancel(self, reason: str = "") -> dict[str, Any]:
        return self._ask("plan.cancel", reason=reason)

    def wait(self) -> dict[str, Any]:
        """Waits for the end."""
        state: dict[str, Any] = _led(self._door, self._waiting())
        return state

    def settled(self) -> list[dict[str, Any]]:
        """Waits until nothing is asked about what is in doubt in the open plan. What is not known all the same,
        with why, is the answer. A Conflict where the plan is being undone, which settles that itself."""
        if self._left:
            self._tell_left(self._door.timeout)
        unknown: list[dict[str, Any]] = _led(self._door, self._settling())
        return unknown

    def get(self) -> dict[str, Any]:
        return self._see(self._door.ask("plan.get", {"plan": self.id}))

    def preview(self, to: str = "", sequence: int = 0, action: str = "") -> dict[str, Any]:
        """What an unwind would do; with action, only of it and what came after it, and whether it can be."""
        return self._door.ask("plan.preview", _given(plan=self.id, to=to, sequence=sequence,
                                                     action=action or None))


class Sagenbaum:
    """A process of an agent, a source or a supervisor."""

    def __init__(self, *, agent: str | None = None, tenant: str | None = None, creds: str | None = None,
                 url: str | None = None, token: str | None = None, writer: str | None = None,
                 timeout: float = 60.0):
        self._door = _Door(agent, tenant, creds, url, token, writer, timeout)

    @classmethod
    def connect(cls, **options: Any) -> Sagenbaum:
        """Finds the door by the options, by SAGENBAUM_CREDS, or by SAGENBAUM_HTTP and SAGENBAUM_TOKEN."""
        return cls(**options)

    @property
    def writer(self) -> str:
        return self._door.writer

    def ask(self, verb: str, **request: Any) -> Any:
        """Asks the door for a verb."""
        return self._door.ask(verb, request)

    def plan(self, label: str | None = None, *, id: str | None = None, **spec: Any) -> Plan:
        """Opens a plan. Its fields are those of plan.begin; deadline may be a timedelta."""
        request = _given(plan=named("id", id, lambda: str(uuid.uuid4())), writer=self.writer, label=label, **spec)
        state = self._door.ask("plan.begin", request)
        if state["state"] != "open":
            raise Conflict({"status": 409, "code": "conflict", "field": "plan",
                            "problem": f"it is {state['state']} already"})
        return Plan(self._door, state, None)

    def resume(self, id: str) -> Plan:
        """Goes on with a plan of a process that has ended. ``recorded`` says what is known of it."""
        state = self._door.ask("plan.resume", {"plan": id, "writer": self.writer})
        return Plan(self._door, state, state["acts"])

    def put_fact(self, key: str, value: Any, *, id: str | None = None, **more: Any) -> Any:
        return self.ask("fact.put", id=named("id", id, new_id), key=key, value=value, **more)

    def retract_fact(self, key: str, *, id: str | None = None) -> Any:
        return self.ask("fact.retract", id=named("id", id, new_id), key=key)

    def give_verdict(self, plan: str, action: str, verdict: str, reason: str = "", *, id: str | None = None,
                     scope: str | None = None) -> Any:
        """For a supervisor. ``scope`` is what a block or redirect undoes: "action" or "plan"."""
        return self.ask("verdict.give", id=named("id", id, new_id), plan=plan, action=action,
                        verdict=verdict, reason=reason, **_given(scope=scope))

    def reviews(self, **question: Any) -> Any:
        return self.ask("review.list", **question)


class _Threads:
    """The threads of an AsyncSagenbaum, made when they are needed.

    Requests that may wait have threads of their own, and a turn each, so that they hold up none that stores.
    """

    def __init__(self) -> None:
        self._stores = ThreadPoolExecutor(32, "sagenbaum")
        self._waits = ThreadPoolExecutor(256, "sagenbaum-waits")

    async def store(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self._run(self._stores, functools.partial(call, *args, **kwargs))

    async def ask(self, door: _Door, verb: str, *request: Any) -> Any:
        pool = self._waits if verb in waits else self._stores
        return await self._run(pool, functools.partial(door.ask, verb, *request))

    async def lead(self, door: _Door, asks: _Asks) -> Any:
        """As _led."""
        try:
            verb, fields, *lost = next(asks)
            if verb == "plan.act":  # it stores; a verdict that takes longer is waited for among those that wait
                answer = await self.store(door.ask, verb, {"wait": "500ms", **fields}, *lost)
            else:
                answer = await self.ask(door, verb, fields, *lost)
            while True:
                answer = await self.ask(door, *asks.send(answer))
        except StopIteration as end:
            return end.value

    async def _run(self, pool: ThreadPoolExecutor, call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(pool, contextvars.copy_context().run, call)


class AsyncPlan:
    """A Plan for asyncio: the same methods, to be awaited; tools may be coroutines."""

    def __init__(self, begin: Callable[[], Plan], threads: _Threads | None = None, new: bool = True):
        self._begin = begin
        self._threads = threads or _Threads()
        self._new = new  # begin opens it
        self._plan: Plan | None = None

    @property
    def plan(self) -> Plan:
        if self._plan is None:
            raise RuntimeError("the plan is not open yet: await it, or enter it")
        return self._plan

    async def _open(self) -> AsyncPlan:
        if self._plan is None:
            self._plan = await self._threads.store(self._begin)
        return self

    def __await__(self) -> Any:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncPlan:
        """Opens the plan. Where that is given up, the plan is failed once the door has opened it."""
        if self._plan is not None or not self._new:
            return await self._open()
        begin, lock = self._begin, threading.Lock()
        begun: list[Plan] = []
        given_up = False

        def begin_unless_given_up() -> Plan:
            p = begin()
            with lock:
                begun.append(p)
                late = given_up
            if late:
                self._abandon(p)
            return p

        self._begin = begin_unless_given_up
        try:
            return await self._open()
        except asyncio.CancelledError:
            with lock:
                given_up = True
                late = list(begun)
            for p in late:
                await asyncio.shield(self._threads.store(self._abandon, p))
            raise

    def _abandon(self, p: Plan) -> None:
        try:
            p.fail("it was given up while it began")
        except SagenbaumError:
            pass  # it has ended already, or no answer comes any more

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        await asyncio.shield(self._threads.store(self.plan.__exit__, kind, error, trace))

    async def do(self, capability: str, input: Any, forward: Callable[..., Any], *, id: str | None = None,
                 not_taken: Callable[[BaseException], bool] | None = None, **options: Any) -> Any:
        """As Plan.do."""
        p = self.plan
        _check_tool(forward, not_taken, plain=False)
        action = p._number(id)
        act = p._act(capability, input, action, options)
        with p._doing(action) as first:
            try:
                call, output, key = await self._threads.lead(p._door, act.registered())
            except BaseException as error:
                if first:
                    await asyncio.shield(self._threads.store(p._leave, act, error))
                raise
            if not call:
                return output
            try:
                with _calling(Call(key, p.id, action, input)) as made:
                    output = forward(made) if _wants_call(forward) else forward()
                    if inspect.isawaitable(output):
                        output = await output
            except BaseException as error:
                told = functools.partial(p._told, action, _outcome(error, not_taken))
                await asyncio.shield(self._threads.store(told))
                raise
            return await self._threads.store(p._completed, action, output)

    def tool(self, capability: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """As Plan.tool, also for coroutine functions; plain ones run in a thread. The calls are awaited."""

        def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
            _check_tool(function, options.get("not_taken"), plain=False)
            signature = inspect.signature(function)

            @functools.wraps(function)
            async def called(*args: Any, **kwargs: Any) -> Any:
                async def forward() -> Any:
                    call = functools.partial(function, *args, **kwargs)
                    output = call() if _is_coroutine(function) else await asyncio.to_thread(call)
                    return await output if inspect.isawaitable(output) else output

                return await self.do(capability, _arguments(signature, args, kwargs), forward, **options)

            return called

        return wrap

    async def delivered(self) -> dict[str, Any]:
        """As Plan.delivered."""
        found: dict[str, Any] = await self._threads.lead(self.plan._door, self.plan._delivering())
        return found

    async def unwind_to(self, savepoint: str, reason: str = "") -> None:
        """As Plan.unwind_to."""
        await self._threads.lead(self.plan._door, self.plan._unwinding(savepoint, reason))

    async def wait(self) -> dict[str, Any]:
        """As Plan.wait."""
        state: dict[str, Any] = await self._threads.lead(self.plan._door, self.plan._waiting())
        return state

    async def settled(self) -> list[dict[str, Any]]:
        """As Plan.settled."""
        if self.plan._left:
            await self._threads.store(self.plan._tell_left, self.plan._door.timeout)
        unknown: list[dict[str, Any]] = await self._threads.lead(self.plan._door, self.plan._settling())
        return unknown

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.plan, name)
        if not callable(value):
            return value

        async def called(*args: Any, **kwargs: Any) -> Any:
            return await self._threads.store(value, *args, **kwargs)

        return called


class AsyncSagenbaum:
    """Sagenbaum for asyncio."""

    def __init__(self, **options: Any):
        self._sync = Sagenbaum(**options)
        self._threads = _Threads()

    @classmethod
    def connect(cls, **options: Any) -> AsyncSagenbaum:
        return cls(**options)

    def plan(self, label: str | None = None, **spec: Any) -> AsyncPlan:
        """Opens a plan when it is entered or awaited."""
        return AsyncPlan(functools.partial(self._sync.plan, label, **spec), self._threads)

    def resume(self, id: str) -> AsyncPlan:
        return AsyncPlan(functools.partial(self._sync.resume, id), self._threads, new=False)

    async def ask(self, verb: str, **request: Any) -> Any:
        return await self._threads.ask(self._sync._door, verb, request)
