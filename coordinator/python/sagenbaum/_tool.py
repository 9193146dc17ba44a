"""Tools: whether one can be called, with what, and what its error means."""

from __future__ import annotations

import contextlib
import contextvars
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Callable


@dataclass(frozen=True)
class Call:
    """What a tool is called with."""

    key: str  #: idempotency key for the tool
    plan: str
    action: str
    input: Any


_current: contextvars.ContextVar[Call] = contextvars.ContextVar("sagenbaum_call")


def current_call() -> Call:
    """The call of the tool that runs, for one that takes none, as with ``Plan.tool``; a LookupError outside."""
    try:
        return _current.get()
    except LookupError:
        raise LookupError("no tool of a plan runs here; want current_call within one, in its thread or task") from None


@contextlib.contextmanager
def _calling(call: Call) -> Iterator[Call]:
    """Makes it the call that current_call gives."""
    before = _current.set(call)
    try:
        yield call
    finally:
        _current.reset(before)


class NotTaken(Exception):
    """Raise it where the tool's answer proves that it did nothing. Everything else is doubt."""


def _text(error: BaseException) -> str:
    """What an error says, as text that can be told."""
    try:
        said = str(error)
    except Exception:  # of a __str__ that is wrong
        said = type(error).__name__
    return said[:1000].encode("utf-8", "replace").decode()


def _refused(error: BaseException, not_taken: Callable[[BaseException], bool] | None) -> tuple[bool, str]:
    """Whether an error proves that the tool did nothing, and what went wrong with ``not_taken``."""
    try:
        return isinstance(error, NotTaken) or bool(not_taken and not_taken(error)), ""
    except Exception as failed:  # the tool's own error is the one to go on, and proves nothing
        return False, f"not_taken failed: {type(failed).__name__}: {_text(failed)}"


def _outcome(error: BaseException, not_taken: Callable[[BaseException], bool] | None) -> dict[str, Any]:
    """What is told of an action whose tool has raised."""
    refused, note = _refused(error, not_taken)
    if note:
        vars(error).setdefault("__notes__", []).append(note)  # add_note came with Python 3.11
    told = {"outcome": "not_taken" if refused else "in_doubt"}
    if message := "; ".join(filter(None, [_text(error), note])):
        told["message"] = message[:1000]
    return told


def _wants_call(forward: Callable[..., Any]) -> bool:
    """Whether a tool takes a Call: it has a parameter without a default."""
    try:
        parameters = inspect.signature(forward).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)
               for p in parameters)


def _is_coroutine(function: Callable[..., Any]) -> bool:
    of = inspect.iscoroutinefunction
    return of(function) or of(getattr(function, "__call__", None))


def _check_tool(forward: Any, not_taken: Any, plain: bool = True) -> None:
    """Refuses what cannot be called, before anything is registered."""
    if not callable(forward):
        raise TypeError(f"forward: {forward!r:.100}; want a function")
    if plain and _is_coroutine(forward):
        raise TypeError("forward: a coroutine function; want a plain one, or AsyncSagenbaum")
    if not_taken is not None and (not callable(not_taken) or _is_coroutine(not_taken)):
        raise TypeError(f"not_taken: {not_taken!r:.100}; want a plain function of the error")


def _arguments(signature: inspect.Signature, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments of a call by name, with the defaults of those that are not given."""
    bound = signature.bind(*args, **kwargs)
    given = set(bound.arguments)
    bound.apply_defaults()
    empty = {name for name, p in signature.parameters.items() if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)} - given
    return {name: value for name, value in bound.arguments.items() if name not in empty}
