"""Run by TestThePythonClient of coordinator/door, against a real door whose answers are lost and
whose host is killed now and then."""

import asyncio
import base64
import concurrent.futures
import dataclasses
import decimal
import http.server
import inspect
import io
import json
import math
import os
import re
import socket
import tempfile
import threading
import time
import typing
import unittest
import unittest.mock
import urllib.error
from datetime import datetime, timedelta, timezone

from sagenbaum import (AsyncPlan, AsyncSagenbaum, Blocked, Call, CommitWaits, Conflict, NotTaken, Recorded, Refused,
                       Sagenbaum, SagenbaumError, Unauthorized, Unavailable, current_call)

sb = Sagenbaum.connect()


def instant(text):
    """The instant of an answer, which has no zeros at its end, in microseconds."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{whole}.{fraction:0<6.6}+00:00")


class Plans(unittest.TestCase):
    def test_committed_on_exit_and_each_tool_is_called_once(self):
        calls = []
        with sb.plan("book trip", id="py-good", deadline=timedelta(hours=2)) as p:
            def book(call: Call):
                calls.append(call.key)
                return {"booking": call.input["city"] + "-1"}

            hotel = p.do("hotel.book", {"city": "Rome"}, book)
            self.assertEqual(hotel, {"booking": "Rome-1"})

            @p.tool("page.read")
            def read(page, lines=3):
                return [page, lines]

            self.assertEqual(read("a", lines=1), ["a", 1])
        self.assertEqual([len(key) for key in calls], [32])
        self.assertEqual(p.get()["state"], "committed")
        self.assertEqual([a["outcome"] for a in p.get()["acts"]], ["completed", "completed"])

    def test_what_an_earlier_process_has_registered_is_not_called_again(self):
        p = Sagenbaum.connect(writer="py-stable").plan(id="py-again")
        answer = {"action": "1", "state": "accepted", "repeated": True, "key": "k"}
        p._door.ask = lambda verb, request, lost=None, **more: answer
        with self.assertRaises(Recorded):
            p.do("page.read", "a", lambda: self.fail("called"))

    def test_what_cannot_be_told_leaves_a_known_outcome(self):
        def fail(text):
            raise OSError(text)

        p = sb.plan(id="py-odd")
        with self.assertRaises(OSError):
            p.do("page.read", "a", lambda: fail("half \ud83d"))
        with self.assertRaises(TypeError):
            p.do("page.read", "b", lambda: {1, 2})
        with self.assertRaises(Refused):
            p.do("page.read", "c", lambda: "x" * 300_000)
        for _ in range(100):  # what is stored is read a moment later
            outcomes = [a["outcome"] for a in p.get()["acts"]]
            if "unknown" not in outcomes:
                break
            time.sleep(0.05)
        self.assertEqual(outcomes, ["in_doubt", "completed", "completed"])
        self.assertEqual([a.get("incomplete") for a in p.get()["acts"]], [None, True, True])
        p.fail("half \ud83d".encode("utf-8", "replace").decode())

    def test_a_commit_that_waits_for_nothing_that_is_named_says_no_more(self):
        doubts = [{"action": "a", "waits": "x"}, {"action": "b", "waits": "y"}]
        self.assertEqual(str(CommitWaits({"plan": "p", "doubts": doubts})), "the commit of p waits for a, b")
        for none in ({"plan": "p"}, {"plan": "p", "doubts": []}):
            self.assertEqual(str(CommitWaits(none)), "the commit of p waits")

    def test_undone_on_an_exception(self):
        with self.assertRaises(KeyError):
            with sb.plan(id="py-bad") as p:
                p.do("hotel.book", {"city": "Oslo"}, lambda: {"booking": "o1"}, id="hotel")

                def refused():
                    raise NotTaken("no such address")

                with self.assertRaises(NotTaken):
                    p.do("mail.send", {}, refused)
                with self.assertRaises(ValueError):
                    p.do("page.read", {}, lambda: int("x"), not_taken=lambda e: isinstance(e, ValueError))
                raise KeyError("no flight")
        self.assertEqual(p.wait()["state"], "compensated")
        self.assertEqual([a["outcome"] for a in p.get()["acts"]], ["completed", "failed", "failed"])

    def test_a_not_taken_that_fails_proves_nothing_and_hides_no_error(self):
        def decline():
            raise OSError("declined")

        async def later(error):
            self.fail("called")

        p = sb.plan(id="py-not-taken")
        for plan in (p, AsyncPlan(lambda: p)):
            asyncio.run(self.refuses(plan, decline, later))
        self.assertEqual(p.get().get("acts") or [], [])
        with self.assertRaisesRegex(OSError, "^declined$") as caught:
            p.do("page.read", "a", decline, not_taken=lambda e: e.response.status == 402)
        self.assertRegex(caught.exception.__notes__[0], "not_taken failed: AttributeError: .*response")
        with self.assertRaisesRegex(OSError, "^declined$"):
            p.tool("page.read", not_taken=lambda e: 1 / 0)(decline)()
        acts = p.get()["acts"]
        self.assertEqual([a["outcome"] for a in acts], ["in_doubt"] * 2)
        self.assertRegex(acts[0]["message"], "^declined; not_taken failed: AttributeError")
        p.fail("enough")

    async def refuses(self, plan, decline, later):
        """What cannot be called is refused before anything is registered."""
        await plan if isinstance(plan, AsyncPlan) else None
        for field, forward, options in (("not_taken", decline, {"not_taken": "x"}), ("forward", None, {}),
                                        ("not_taken", decline, {"not_taken": later}), ("forward", "read", {})):
            with self.assertRaisesRegex(TypeError, f"^{field}: "):
                done = plan.do("page.read", "a", forward, **options)
                await done if isinstance(plan, AsyncPlan) else None
            with self.assertRaisesRegex(TypeError, f"^{field}: "):
                plan.tool("page.read", **options)(forward)

    def commits_while_a_tool_runs(self, id):
        """Whether the commit was refused. A host that was killed meanwhile does not know any more that it runs."""
        release = threading.Event()

        def slow():
            release.wait(30)
            return {"booking": "o2"}

        try:
            with sb.plan(id=id) as p:
                p.do("hotel.book", {"city": "Oslo"}, lambda: {"booking": "o1"}, id="hotel")
                late = threading.Thread(target=p.do, args=("hotel.book", {"city": "Bergen"}, slow))
                late.start()
                while len(p.get().get("acts") or []) < 2:
                    time.sleep(0.02)
            self.fail("it is committed")
        except Refused as error:
            self.assertIn("still run", str(error))
            return p
        except CommitWaits:
            return None
        finally:
            release.set()
            late.join()

    def test_undone_where_the_commit_is_refused(self):
        p = self.commits_while_a_tool_runs("py-running") or self.commits_while_a_tool_runs("py-running-2")
        self.assertEqual(sb.ask("plan.wait", plan=p.id)["state"], "compensated")
        self.assertIn("the commit was refused", p.get()["reason"])
        for kind, stored, verbs in [(Conflict, "nothing", ["plan.commit", "plan.fail"]),
                                    (Conflict, "all", ["plan.commit"]), (Unavailable, "unknown", ["plan.commit"])]:
            asked = []

            def ask(verb, request):
                asked.append(verb)
                raise kind({"problem": "a part of the plan was undone", "stored": stored})

            with self.assertRaisesRegex(kind, "a part"):
                with sb.plan(id=f"py-refused-{len(asked)}-{stored}") as q:
                    real, q._door = q._door, unittest.mock.Mock(ask=ask, writer=sb.writer)
            self.assertEqual(asked, verbs)
            q._door = real
            q.cancel()

    def test_savepoints_a_report_and_a_preview(self):
        p = sb.plan(id="py-save")
        p.report("hotel.book", {"city": "Pisa"}, output={"booking": "p1"})
        p.savepoint("booked")
        p.do("hotel.book", {"city": "Bari"}, lambda: {"booking": "b1"})
        p.unwind_to("booked", "the wrong town")
        self.assertEqual(p.preview()["plan"], "py-save")
        p.fail("enough")
        self.assertEqual(p.wait()["state"], "compensated")

    def test_a_deadline_is_moved(self):
        p = sb.plan(id="py-deadline", deadline="2h")
        first = p.deadline_at
        moved = p.move_deadline(timedelta(hours=3), "it takes longer")
        self.assertEqual((p.deadline_at, p.get()["deadline_at"]), (moved["deadline_at"],) * 2)
        self.assertGreater(moved["deadline_at"], first)
        at = datetime.now(timezone.utc) + timedelta(hours=1)
        self.assertEqual(instant(p.move_deadline(at, "it is short")["deadline_at"]), at)
        other = Sagenbaum.connect(writer=sb.writer)
        seen = other.ask("plan.get", plan=p.id)["deadline_set"]
        other.ask("plan.deadline", plan=p.id, writer=sb.writer, deadline="5h", reason="a holiday", follows=seen)
        with self.assertRaises(Conflict) as caught:
            p.move_deadline("4h", "it was not seen")
        self.assertEqual(caught.exception.field, "follows")
        p.get()
        p.move_deadline("4h", "it was seen")
        with self.assertRaises(Refused) as refused:
            p.move_deadline(datetime(2001, 1, 1, tzinfo=timezone.utc), "it is late")
        self.assertEqual(refused.exception.field, "deadline_at")
        p.cancel()
        with self.assertRaises(Conflict) as ended:
            p.move_deadline("4h", "it is over")
        self.assertEqual(ended.exception.field, "plan")
        with self.assertRaises(Refused) as missing:
            p.move_deadline(None, "nothing")
        self.assertEqual(missing.exception.field, "deadline")

    def test_a_large_value_is_stored_and_read(self):
        value = os.urandom(600_000)
        with sb.plan(id="py-blob") as p:
            ref = p.put_blob(value, "image/png")
            self.assertEqual((ref["bytes"], ref["type"]), (len(value), "image/png"))
            self.assertEqual(p.put_blob(value, "image/png"), ref)
            p.do("page.read", {"page": ref}, lambda: {"page": ref})
            self.assertEqual(p.get_blob(ref), value)
            self.assertEqual(p.get_blob(p.put_blob(b"")), b"")
            with self.assertRaises(SagenbaumError) as caught:
                p.get_blob({"sagenbaum/blob/v1": "py-blob/" + "0" * 64})
            self.assertEqual((caught.exception.status, caught.exception.field), (404, "blob"))
            with self.assertRaises(Refused):
                p.put_blob(b"x", "no type")
            with self.assertRaises(Refused):
                p.do("page.read", {"page": {**ref, "sagenbaum/blob/v1": "other/" + "0" * 64}}, self.fail)

    def test_a_file_is_put_back_as_it_was_before(self):
        value = os.urandom(300_000)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "f")
            with open(path, "wb") as f:
                f.write(value)

            def write(call):
                with open(call.input["path"], "wb") as f:
                    f.write(b"other")

            p = sb.plan(id="py-before")
            p.do("disk.write", {"path": path}, write)
            p.fail("it was wrong")
            self.assertEqual(p.wait()["state"], "compensated")
            with open(path, "rb") as f:
                self.assertEqual(f.read(), value)
            q = sb.plan(id="py-nothing-before")
            with self.assertRaises(Refused) as caught:  # what was there cannot be kept
                q.do("disk.write", {"path": path + "-none"}, self.fail)
            self.assertEqual(caught.exception.field, "before")
            self.assertIn("no such file", str(caught.exception))

    def test_another_process_goes_on(self):
        p = sb.plan(id="py-resume")
        p.do("hotel.book", {"city": "Rome"}, lambda: {"booking": "r1"}, id="hotel")
        sb.ask("plan.act", plan=p.id, writer=sb.writer, action="lost", capability="hotel.book")
        q = Sagenbaum.connect().resume("py-resume")
        self.assertEqual([(a["action"], a["outcome"]) for a in q.recorded],
                         [("hotel", "completed"), ("lost", "unknown")])
        self.assertEqual(q.do("hotel.book", {"city": "Rome"}, self.fail, id="hotel"), {"booking": "r1"})
        with self.assertRaises(Recorded):
            q.do("hotel.book", None, self.fail, id="lost")
        q.settle("lost", "not_taken", message="the hotel knows of none")
        with self.assertRaises(Conflict):
            p.do("hotel.book", {}, self.fail)
        q.commit()

    def test_what_is_new_after_a_resume_is_called_though_an_answer_is_lost(self):
        sb.plan(id="py-new")
        sb.ask("plan.act", plan="py-new", writer=sb.writer, action="old", capability="page.read", input="a")
        q = Sagenbaum.connect().resume("py-new")
        real = q._door.ask

        def ask(verb, request, lost=None, **more):
            if verb == "plan.act" and lost:
                real(verb, request, **more)
                lost()  # and the same again
            return real(verb, request, lost, **more)

        q._door.ask = ask
        self.assertEqual(q.do("page.read", "b", lambda: "called", id="new"), "called")
        with self.assertRaises(Recorded):
            q.do("page.read", "a", self.fail, id="old")
        self.assertEqual([a["outcome"] for a in q.get()["acts"]], ["in_doubt", "completed"])
        q.commit()

    def test_what_no_call_is_known_of_keeps_the_plan_from_nothing(self):
        p = sb.plan(id="py-left")

        def ask(verb, request, lost=None, **more):
            if verb != "plan.act" or lost:
                return real(verb, request, lost, **more)
            raise Unavailable({"status": 503, "problem": "no answer", "stored": "unknown"})

        def interrupted(verb, request, lost=None, **more):
            real(verb, {**request, "wait": "1ms"}, lost, **more)
            p._door.ask = ask
            raise KeyboardInterrupt

        real, p._door.ask = p._door.ask, interrupted
        with self.assertRaises(KeyboardInterrupt):
            p.do("hotel.book", {}, self.fail, id="a", review=True)
        p._door.ask = real  # it is told before the commit
        Sagenbaum.connect(creds=os.environ["BOSS_CREDS"]).give_verdict(p.id, "a", "allow", "late")
        self.assertEqual(p.commit()["state"], "committed")
        self.assertEqual([(a["outcome"], a["code"]) for a in p.get()["acts"]], [("failed", "not_taken")])

    def test_a_number_that_is_taken_is_no_other_action(self):
        p = sb.plan(id="py-number")
        with self.assertRaises(Refused):
            p.do("hotel.book", {}, self.fail, after=["none"])  # it had the number 1
        self.assertEqual(p.do("page.read", "a", lambda: "first"), "first")
        q = Sagenbaum.connect().resume(p.id)
        q.cancel()
        asked, answer = [], {"state": "accepted", "key": "k"}
        q._door.ask = lambda verb, request, lost=None, **more: asked.append((verb, request["action"])) or answer
        q.do("page.read", "b", lambda: None)
        q.do("page.read", "c", lambda: None, id="4")
        q.stage("note.post", "d", id="5")
        q.report("page.read", "e", id="6")
        q.do("page.read", "f", lambda: None)
        self.assertEqual([id for verb, id in asked if verb != "plan.outcome"], ["3", "4", "5", "6", "7"])

    def test_a_program_that_begins_once_more_gets_what_is_recorded(self):
        for called in (["a", "b", "c"], []):
            calls = []
            p = Sagenbaum.connect(writer="py-once-more").plan(id="py-once-more")
            for page, id in (("a", None), ("b", "2"), ("c", None)):
                self.assertEqual(p.do("page.read", page, lambda: calls.append(page) or page, id=id), page)
            self.assertEqual(calls, called)
        p.cancel()

    def test_a_plan_waits_until_it_is_known_what_has_happened(self):
        def fail():
            raise OSError("no answer")

        p = sb.plan(id="py-doubt")
        for seat in ("12A", "12B"):
            with self.assertRaises(OSError):
                p.do("seat.hold", {"seat": seat}, fail)
        self.assertEqual(p.settled(), [])
        with self.assertRaises(OSError):
            p.do("mail.send", {"to": "ann"}, fail, id="mail")
        unknown = p.settled()
        self.assertEqual([d["action"] for d in unknown], ["mail"])
        self.assertIn("no probe", unknown[0]["waits"])
        p.fail("no")
        with self.assertRaises(Conflict):
            p.settled()

    def test_what_is_staged_is_delivered_once_the_plan_is_committed(self):
        with sb.plan(id="py-stage") as p:
            staged = p.stage("note.post", {"to": "ann"}, id="note")
            self.assertEqual((staged["state"], len(staged["key"])), ("staged", 32))
            self.assertEqual(p.stage("note.post", {"to": "ann"}, id="note"), staged)
            with self.assertRaises(Conflict):
                p.stage("note.post", {"to": "bob"}, id="note")
            with self.assertRaises(Conflict):
                p.delivered()
            with self.assertRaises(Refused) as caught:
                p.stage("mail.send", {"to": "ann"})
            self.assertEqual(caught.exception.field, "contract[mail.send].deliver")
            with self.assertRaises(TypeError):
                p.do("note.post", {"to": "ann"}, self.fail, stage=True)
        d = p.delivered()
        self.assertEqual((d["plan"], d["state"], d["delivered"]), ("py-stage~0", "delivered", ["note"]))
        q = sb.plan(id="py-unstaged")
        q.stage("letter.post", {"to": "ann"})
        q.fail("no")
        with self.assertRaises(Conflict):
            q.delivered()
        with sb.plan(id="py-none") as none:
            pass
        self.assertEqual(none.delivered(), {})

    def test_what_is_wrong_is_refused_with_its_field(self):
        p = sb.plan(id="py-wrong")
        for field, ask in (("capability", lambda: p.do("hotel.bok", {}, self.fail)),
                           ("afer", lambda: p.do("hotel.book", {}, self.fail, afer=[])),
                           ("label", lambda: sb.plan("x", id="py-wrong"))):
            with self.assertRaises(Refused) as caught:
                ask()
            self.assertEqual(caught.exception.field, field)
        with self.assertRaises(SagenbaumError) as caught:
            sb.ask("fact.put", key="k", value=1)
        self.assertEqual(caught.exception.status, 403)
        for field, ask in (("writer", lambda: Sagenbaum.connect(writer="")), ("id", lambda: sb.plan(id="")),
                           ("id", lambda: sb.put_fact("k", 1, id="")), ("id", lambda: sb.retract_fact("k", id="")),
                           ("id", lambda: sb.give_verdict(p.id, "1", "allow", id=""))):
            with self.assertRaisesRegex(TypeError, f"^{field}: empty"):
                ask()
        with self.assertRaisesRegex(Refused, "^action: no name"):
            p.do("page.read", "a", self.fail, id="")
        p.cancel()

    def test_what_json_does_not_have_is_refused_with_its_path_before_anything_is_sent(self):
        @dataclasses.dataclass
        class Page:
            name: str

        cycle: list = []
        cycle.append(cycle)
        now, p = datetime.now(timezone.utc), sb.plan(id="py-json")
        for value, kind, said in (({"a": [1, {"b": math.nan}]}, ValueError, "input.a[1].b: nan"),
                                  (-math.inf, ValueError, "input: -inf"),
                                  ({"at": (now,)}, TypeError, "input.at[0]: a datetime"),
                                  ({"price": decimal.Decimal("1.1")}, TypeError, "input.price: a Decimal"),
                                  (Page("a"), TypeError, "input: a Page"), ([{1}], TypeError, r"input[0]: a set"),
                                  ({"m": {(1, 2): 3}}, TypeError, "input.m: a key that is a tuple"),
                                  (cycle, ValueError, "Circular")):
            for ask in (lambda: p.do("page.read", value, self.fail), lambda: p.stage("note.post", value),
                        lambda: p.report("page.read", value)):
                with self.assertRaisesRegex(kind, "^" + re.escape(said)):
                    ask()
        self.assertEqual(p.get().get("acts") or [], [])
        with self.assertRaisesRegex(TypeError, r"^output\.at: a datetime"):
            p.do("page.read", {}, lambda: {"at": now}, id="done")
        [act] = p.get()["acts"]
        self.assertEqual((act["action"], act["outcome"], act["incomplete"]), ("done", "completed", True))
        p.fail("enough")


    def test_the_input_of_a_tool_are_its_arguments_and_their_defaults(self):
        p, given = sb.plan(id="py-tool"), []

        @p.tool("page.read")
        def read(page, lines=3, *more, of=None, **rest):
            return 1

        p.do = lambda capability, input, forward: given.append(input) or forward()
        self.assertEqual([read("a"), read("b", 4, 5, of="x", z=6)], [1, 1])
        self.assertEqual(given, [{"page": "a", "lines": 3, "of": None},
                                 {"page": "b", "lines": 4, "more": (5,), "of": "x", "rest": {"z": 6}}])
        p.cancel()

    def test_a_tool_has_the_key_of_its_call(self):
        with sb.plan(id="py-key") as p:
            @p.tool("page.read", id="outer")
            def outer(page):
                p.do("page.read", "b", lambda: inner.append(current_call()), id="inner")
                return current_call().key

            inner = []
            key = outer("a")
        self.assertEqual([len(key), key != inner[0].key, inner[0].action], [32, True, "inner"])
        with self.assertRaisesRegex(LookupError, "within one"):
            current_call()

    def test_a_framework_sees_the_function_in_its_tool(self):
        # The OpenAI Agents SDK, LangChain, pydantic-ai and CrewAI derive the schema from these, and give what the
        # model wants by name.
        for plan, is_async in ((sb.plan(id="py-seen"), False), (AsyncSagenbaum.connect().plan(), True)):
            def read(page: str, lines: int = 3) -> "list[str]":
                """Reads a page.

                Args:
                    page: which one
                """
                return [page, lines]

            made = plan.tool("page.read")(read)
            self.assertEqual(inspect.signature(made), inspect.signature(read))
            self.assertEqual(typing.get_type_hints(made), {"page": str, "lines": int, "return": list[str]})
            self.assertEqual((made.__name__, made.__doc__, made.__annotations__, made.__module__),
                             (read.__name__, read.__doc__, read.__annotations__, read.__module__))
            self.assertEqual(inspect.iscoroutinefunction(made), is_async)
            if not is_async:
                self.assertEqual([made(**{"page": "a", "lines": 1}), made("b")], [["a", 1], ["b", 3]])
                self.assertEqual([a["outcome"] for a in plan.get()["acts"]], ["completed"] * 2)
                plan.cancel()

    def test_a_coroutine_function_is_refused_before_anything_is_registered(self):
        async def read():
            self.fail("called")

        class Reader:
            async def __call__(self):
                pass

        p = sb.plan(id="py-coroutine")
        for tool in (read, Reader()):
            with self.assertRaisesRegex(TypeError, "coroutine function"):
                p.do("page.read", "a", tool)
            with self.assertRaisesRegex(TypeError, "coroutine function"):
                p.tool("page.read")(tool)
        self.assertEqual(p.get().get("acts") or [], [])
        p.cancel()


class Tokens(unittest.TestCase):
    """A token goes to the door that its credentials name, and nowhere else."""

    def serve(self, status, headers, body=b"{}"):
        got = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self):
                got.append(self.headers.get("Authorization"))
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = answer

            def log_message(self, *args):
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return f"http://127.0.0.1:{server.server_address[1]}", got

    def test_no_redirect_is_followed(self):
        thief, got = self.serve(200, {})
        leads, _ = self.serve(302, {"Location": thief})
        odd = Sagenbaum.connect(agent="tripper", url=leads, token="secret")
        with self.assertRaises(SagenbaumError) as caught:
            odd.ask("plan.get", plan="p")
        self.assertEqual((caught.exception.code, got), ("redirected", []))

    def test_a_token_that_is_not_good_is_not_shown_again(self):
        for status, error in [(401, {}), (403, {"field": "name", "status": 403}),
                              (429, {"field": "authorization", "status": 429, "stored": "nothing"})]:
            door, got = self.serve(status, {}, json.dumps({"error": {"problem": "no", **error}}).encode())
            sb = Sagenbaum.connect(agent="tripper", url=door, token="secret")
            with self.assertRaises(Unauthorized) as caught:
                sb.ask("plan.get", plan="p")
            self.assertEqual((caught.exception.field, caught.exception.status, caught.exception.stored, len(got)),
                             (error.get("field", "authorization"), status, "nothing", 1))

    def test_an_error_that_is_not_of_the_door_is_that_of_its_status(self):
        for body in (b"<html>no</html>", b"", b"null", b"[]", b'{"error":"invalid_token"}'):
            for status, kind in ((401, Unauthorized), (403, Unauthorized), (429, SagenbaumError)):
                door, got = self.serve(status, {}, body)
                sb = Sagenbaum.connect(agent="tripper", url=door, token="secret")
                with self.assertRaises(kind) as caught:
                    sb.ask("plan.get", plan="p")
                self.assertEqual((caught.exception.status, caught.exception.problem, len(got)),
                                 (status, f"status {status}", 1))

    def test_no_proxy_gets_it_on_this_machine(self):
        proxy, got = self.serve(200, {}, b'{"of": "proxy"}')
        door, asked = self.serve(200, {}, b'{"of": "door"}')
        with unittest.mock.patch.dict(os.environ, {"http_proxy": proxy, "HTTP_PROXY": proxy, "no_proxy": ""}):
            answer = Sagenbaum.connect(agent="tripper", url=door, token="secret").ask("plan.get", plan="p")
        self.assertEqual((answer, got, asked), ({"of": "door"}, [], ["Bearer secret"]))

    def test_credentials_without_a_door_name_none(self):
        line = base64.b64encode(json.dumps({"name": "tripper", "token": "secret"}).encode()).decode()
        with tempfile.NamedTemporaryFile("w", suffix=".creds") as file:
            file.write(f"# sagenbaum {line}\n")
            file.flush()
            with self.assertRaisesRegex(TypeError, "name no door"):
                Sagenbaum.connect(creds=file.name)


    def test_without_credentials_it_is_said_where_they_are_looked_for_and_nothing_is_waited_for(self):
        where = "creds.*SAGENBAUM_CREDS.*url and token.*SAGENBAUM_HTTP and SAGENBAUM_TOKEN"
        names = ("SAGENBAUM_CREDS", "SAGENBAUM_HTTP", "SAGENBAUM_TOKEN")
        with unittest.mock.patch.dict(os.environ):
            for name in names:
                os.environ.pop(name, None)
            with self.assertRaisesRegex(TypeError, "^agent: .*" + where):
                Sagenbaum.connect()
            sb, given = Sagenbaum.connect(agent="tripper"), Sagenbaum.connect(agent="tripper", url="http://127.0.0.1:1")

        def answers(client, *said):
            client._door._opener = unittest.mock.Mock()
            client._door._opener.open.side_effect = said
            return client._door._opener.open

        refused = urllib.error.URLError(ConnectionRefusedError("refused"))
        answers(sb, refused)
        with self.assertRaisesRegex(Unavailable, "^creds: .*http://127.0.0.1:4270.*" + where) as caught:
            sb.plan()
        self.assertEqual((caught.exception.field, caught.exception.stored), ("creds", "nothing"))
        missing = {"error": {"status": 401, "field": "authorization", "problem": "the token is missing"}}
        answers(sb, urllib.error.HTTPError("", 401, "", None, io.BytesIO(json.dumps(missing).encode())))
        with self.assertRaisesRegex(Unauthorized, "the token is missing: no credentials were given.*" + where) as known:
            sb.plan()
        self.assertEqual(known.exception.field, "authorization")
        for client in (sb, given):  # a door that has answered comes again, and so may one whose address was given
            asked = answers(client, refused, io.BytesIO(b'{"state": "open", "plan": "p"}'))
            client.plan()
            self.assertEqual(asked.call_count, 2)

    def test_a_token_or_an_address_that_is_none_is_refused_at_once(self):
        for field, options in (("token", {"token": "secret\n"}), ("token", {"token": "t\u00f6ken"}),
                               ("token", {"token": "two words"}), ("url", {"url": "http://127.0.0.1:abc"}),
                               ("url", {"url": "127.0.0.1:4270"}), ("url", {"url": "http://127.0.0.1\n"}),
                               ("timeout", {"timeout": 0}), ("timeout", {"timeout": float("nan")})):
            with self.assertRaisesRegex(TypeError, f"^{field}: ") as caught:
                Sagenbaum(**{"agent": "tripper", "url": "http://127.0.0.1:1", "token": "secret", **options})
            self.assertNotIn("secret", str(caught.exception))


class Timeouts(unittest.TestCase):
    """A call ends when its timeout is over, whatever the door does."""

    def setUp(self):
        self.silent = socket.create_server(("127.0.0.1", 0))  # it takes connections, and answers none
        self.addCleanup(self.silent.close)

    def connect(self, timeout):
        return Sagenbaum(agent="tripper", url=f"http://127.0.0.1:{self.silent.getsockname()[1]}", token="t",
                         timeout=timeout)

    def test_a_door_that_does_not_answer(self):
        quiet = self.connect(0.3)
        for ask in (quiet.plan, lambda: quiet.ask("plan.wait", plan="p"),
                    lambda: quiet._door.blob("p", "0" * 64, b"x")):
            began = time.monotonic()
            with self.assertRaises(Unavailable):
                ask()
            self.assertLess(time.monotonic() - began, 5)

    def test_a_door_that_never_ends_its_answer(self):
        for begins in (b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n",
                       b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9999\r\n",
                       b"HTTP/1.1 500 No\r\nContent-Length: 9999\r\n\r\n"):
            over = threading.Event()

            def trickle():
                conn, _ = self.silent.accept()
                with conn:
                    conn.recv(1 << 16)
                    conn.sendall(begins)
                    for _ in range(100):
                        if over.wait(0.05):
                            break
                        try:
                            conn.sendall(b" ")
                        except OSError:
                            break

            server = threading.Thread(target=trickle)
            server.start()
            began = time.monotonic()
            with self.assertRaises(SagenbaumError, msg=begins):
                self.connect(0.3).ask("plan.get", plan="p")
            self.assertLess(time.monotonic() - began, 3, begins)
            over.set()
            server.join()

    def test_a_request_waits_no_longer_than_its_answer_is_waited_for(self):
        door, asked = self.connect(2)._door, []
        door._once = lambda opener, request, within: asked.append((json.loads(request.data), within)) or b"{}"
        for verb, given in (("plan.wait", {}), ("plan.act", {"wait": "1m0.5s"}), ("plan.get", {})):
            door.ask(verb, given)
        self.assertEqual([request for request, _ in asked], [{"wait": "1000ms"}, {"wait": "1m0.5s"}, {}])
        for (_, within), most in zip(asked, (2, 62.5, 2)):
            self.assertTrue(most - 1 < within <= most, within)


class AsyncPlans(unittest.IsolatedAsyncioTestCase):
    async def test_plans_and_verdicts(self):
        asb, boss = AsyncSagenbaum.connect(), Sagenbaum.connect(creds=os.environ["BOSS_CREDS"])

        async def book(call):
            await asyncio.sleep(0)
            return {"booking": call.key[:4]}

        async with asb.plan("book trip", id="py-async") as p:
            await p.do("hotel.book", {"city": "Rome"}, book)
            asked = asyncio.create_task(p.do("hotel.book", {"city": "Oslo"}, book, id="a", review=True))
            while not any(r["plan"] == "py-async" for r in boss.reviews()["reviews"]):
                await asyncio.sleep(0.02)
            await asyncio.to_thread(boss.give_verdict, "py-async", "a", "block", "too dear")
            with self.assertRaises(Blocked):
                await asked
        self.assertEqual((await p.get())["state"], "committed")
        with self.assertRaises(ZeroDivisionError):
            async with asb.plan(id="py-async-bad") as p:
                await p.do("hotel.book", {}, book)
                await p.do("page.read", {}, lambda: 1 / 0)
        self.assertEqual((await p.wait())["state"], "compensated")

    async def test_an_action_that_is_given_up_during_its_review_was_not_taken(self):
        boss = Sagenbaum.connect(creds=os.environ["BOSS_CREDS"])
        async with AsyncSagenbaum.connect().plan(id="py-async-left") as p:
            given_up = asyncio.create_task(p.do("hotel.book", {}, self.fail, id="a", review=True))
            while not any(r["plan"] == p.id for r in boss.reviews()["reviews"]):
                await asyncio.sleep(0.02)
            given_up.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await given_up
            await asyncio.to_thread(boss.give_verdict, p.id, "a", "allow", "late")
        self.assertEqual([(a["outcome"], a["code"]) for a in (await p.get())["acts"]], [("failed", "not_taken")])

    async def test_a_plan_that_is_given_up_while_it_begins_is_failed(self):
        asb = AsyncSagenbaum.connect()
        real, asked, go_on = asb._sync._door.ask, threading.Event(), threading.Event()

        def slow(verb, request, *more, **options):
            if verb == "plan.begin":
                asked.set()
                go_on.wait(30)
            return real(verb, request, *more, **options)

        async def work():
            async with asb.plan(id="py-async-begin"):
                self.fail("it began")

        asb._sync._door.ask = slow
        working = asyncio.create_task(work())
        await asyncio.to_thread(asked.wait, 30)
        working.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await working
        go_on.set()
        asb._threads._stores.shutdown()  # once all is told
        self.assertTrue(sb.ask("plan.wait", plan="py-async-begin")["ended"])

    async def test_calls_that_wait_hold_up_none_that_stores(self):
        asb = AsyncSagenbaum.connect()
        asyncio.get_running_loop().set_default_executor(concurrent.futures.ThreadPoolExecutor(1))
        p = await asb.plan(id="py-async-waits")
        waits = [asyncio.create_task(p.wait()) for _ in range(8)]
        asked = [asyncio.create_task(p.do("page.read", n, lambda: n, id=f"r{n}", review=True)) for n in range(8)]
        given_up = asyncio.create_task(p.wait())
        await asyncio.sleep(0.2)
        given_up.cancel()
        self.assertEqual(await asyncio.wait_for(p.do("page.read", "a", lambda: "read"), 15), "read")
        await asyncio.wait_for(p.fail("enough"), 15)
        self.assertTrue(all(state["ended"] for state in await asyncio.gather(*waits)))
        for error in await asyncio.gather(*asked, return_exceptions=True):
            self.assertIsInstance(error, (Conflict, Recorded))
        with self.assertRaises(asyncio.CancelledError):
            await given_up

    async def test_tools_are_awaited_or_run_in_a_thread(self):
        async with AsyncSagenbaum.connect().plan(id="py-async-tool") as p:
            loop_thread = threading.get_ident()

            @p.tool("page.read")
            async def read(page, lines=3):
                await asyncio.sleep(0)
                self.assertEqual((threading.get_ident(), current_call().input["page"]), (loop_thread, page))
                return [page, lines]

            @p.tool("page.read", id="plain")
            def plain(page):
                self.assertNotEqual(threading.get_ident(), loop_thread)
                return current_call().action

            self.assertEqual(await asyncio.gather(read("a"), read("b", 1)), [["a", 3], ["b", 1]])
            self.assertEqual(await plain("b"), "plain")
        acts = (await p.get())["acts"]
        told = sorted((a["action"], a["outcome"]) for a in acts)  # the ledger may have the second before the first
        self.assertEqual(told, [(a, "completed") for a in ("1", "2", "plain")])


if __name__ == "__main__":
    unittest.main()
