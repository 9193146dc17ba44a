"""An action on its way into the ledger, and what is recorded of one."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from ._door import _Door


class Recorded(Exception):
    """The action is recorded and did not complete: its tool is not called."""

    def __init__(self, answer: dict[str, Any]):
        self.action: str = answer["action"]
        self.outcome: str = answer.get("outcome", "unknown")
        self.code: str | None = answer.get("code")
        self.by: str | None = answer.get("by")
        said = answer.get("message") or "as recorded"
        super().__init__(f"action {self.action}: {self.code or self.outcome}: {said}")


class Blocked(Recorded):
    """A supervisor kept the action from being done, or none has said a word in time."""


_Asks = Generator[tuple[Any, ...], Any, Any]  # requests that may wait, as given to ask; their answers are sent


def _led(door: _Door, asks: _Asks) -> Any:
    """What requests that may wait lead to."""
    try:
        request = next(asks)
        while True:
            request = asks.send(door.ask(*request))
    except StopIteration as end:
        return end.value


class _Act:
    """An action on its way into the ledger, before its tool is called."""

    def __init__(self, fields: dict[str, Any], earlier: bool, own: bool | None):
        self.fields = fields  #: of plan.act
        self.earlier = earlier  #: a process before has registered it
        self.own = own  #: a request of this call has, as far as known

    def registered(self) -> _Asks:
        """Leads to whether the tool is to be called, what is recorded, and the key."""
        lost: list[bool] = []
        while True:
            answer = yield "plan.act", self.fields, lambda: lost.append(True)
            if self.own is None:
                self.own = bool(lost) or not answer.get("repeated")
            if answer["state"] != "waiting":
                return *self._read(answer), answer.get("key", "")

    def _read(self, answer: dict[str, Any]) -> tuple[bool, Any]:
        if answer["state"] == "recorded" and answer.get("outcome") == "completed":
            return False, answer.get("output")
        if answer["state"] == "recorded" or answer.get("repeated") and not self.is_own():
            blocked = answer.get("code") in ("blocked", "redirected", "no_verdict")
            raise (Blocked if blocked else Recorded)(answer)
        return True, None

    def is_own(self) -> bool:
        """Whether only this call may call the tool."""
        return self.own is not False and not self.earlier

    def left(self) -> dict[str, Any]:
        """What is known of it where its tool is not called."""
        if self.is_own():
            return {"outcome": "not_taken", "message": "it was given up before its tool was called"}
        return {"outcome": "in_doubt", "message": "a process before has registered it, and it was not called again"}
