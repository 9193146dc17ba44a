// Run by TestTheTypeScriptClient of coordinator/door, against a real door whose answers are lost and
// whose host is killed now and then.
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { Blocked, CommitWaits, Conflict, NotTaken, Recorded, Refused, Sagenbaum, SagenbaumError,
  Unavailable } from "./index.js";

const sb = await Sagenbaum.connect();
const boss = await Sagenbaum.connect({ creds: process.env.BOSS_CREDS });
const scanner = await Sagenbaum.connect({ creds: process.env.SCANNER_CREDS });

test("a plan is committed when its function returns, and each tool is called once", async () => {
  let calls = 0;
  const got = await sb.plan({ id: "js-good", label: "book trip", deadline: "2h" }, async (p) => {
    const hotel = await p.do("hotel.book", { city: "Rome" }, ({ key, input }) => {
      calls++;
      assert.match(key, /^[0-9a-f]{32}$/);
      return { booking: `${input.city}-1` };
    });
    const read = p.tool("page.read", async (page) => ({ page }));
    await read("a");
    await read("b");
    return hotel;
  });
  assert.deepEqual([got, calls], [{ booking: "Rome-1" }, 1]);
  const plan = await sb.ask("plan.get", { plan: "js-good" });
  assert.deepEqual([plan.state, plan.acts.length], ["committed", 3]);
});

test("a commit that waits for nothing that is named says no more than that", () => {
  const doubts = [{ action: "a", waits: "x" }, { action: "b", waits: "y" }];
  assert.equal(new CommitWaits({ plan: "p", doubts }).message, "the commit of p waits for a, b");
  for (const none of [{ plan: "p" }, { plan: "p", doubts: [] }]) {
    assert.equal(new CommitWaits(none).message, "the commit of p waits");
  }
});

test("a tool takes its input, and a signal, and nothing else of what a framework gives it", async () => {
  const p = await sb.begin({ id: "js-tool" });
  const own = new AbortController(), late = new AbortController();
  let seen;
  const read = p.tool("page.read", async (page, { signal }) => { seen = signal; return page; },
    { branch: true, signal: own.signal });
  for (const beside of [[], [undefined, null], ["a", 1], [{ signal: "none", id: "x", stage: true }],
    [{ toolCallId: "call_1", messages: [], abortSignal: late.signal }], [{ context: {} }, { signal: late.signal }]]) {
    assert.equal(await read("a", ...beside), "a");
    assert.equal(seen.aborted, false);
  }
  assert.deepEqual((await p.get()).acts.map((a) => a.action), ["1", "2", "3", "4", "5", "6"]);
  late.abort();
  assert.equal(seen.aborted, true);
  await assert.rejects(read("b", { abortSignal: late.signal }), { name: "AbortError" });
  own.abort();
  await assert.rejects(read("b"), { name: "AbortError" });
  await p.cancel();
});

test("a plan is undone when its function throws", async () => {
  const failed = new Error("no flight");
  await assert.rejects(sb.plan({ id: "js-bad", owner: "travel" }, async (p) => {
    await p.do("hotel.book", { city: "Oslo" }, () => ({ booking: "o1" }), { id: "hotel" });
    await assert.rejects(p.do("mail.send", {}, () => { throw new NotTaken("no such address"); }), NotTaken);
    await assert.rejects(p.do("page.read", {}, () => { throw Object.assign(new Error("402"), { status: 402 }); },
      { notTaken: (e) => e.status === 402 }));
    throw failed;
  }), failed);
  const p = await sb.ask("plan.wait", { plan: "js-bad" });
  assert.equal(p.state, "compensated");
  const { acts } = await sb.ask("plan.get", { plan: "js-bad" });
  assert.deepEqual(acts.map((a) => a.outcome), ["completed", "failed", "failed"]);
});

/**
 * Whether a commit was refused while a tool ran. A host that was killed meanwhile does not know any more that it
 * runs.
 */
async function refusedWhileRunning(id) {
  let late, release;
  const released = new Promise((resolve) => { release = resolve; });
  const error = await sb.plan({ id }, async (p) => {
    await p.do("hotel.book", { city: "Oslo" }, () => ({ booking: "o1" }));
    await new Promise((called) => {
      late = p.do("hotel.book", { city: "Bergen" }, () => { called(); return released; }); // and it is not awaited
    });
  }).catch((e) => e);
  release({ booking: "o2" });
  await late;
  if (error instanceof CommitWaits) return false;
  assert.ok(error instanceof Refused && /still run/.test(error.message), String(error));
  return true;
}

test("a plan is undone when its commit is refused", async () => {
  const plan = await refusedWhileRunning("js-running") ? "js-running" : "js-running-2";
  if (plan !== "js-running") assert.ok(await refusedWhileRunning(plan));
  const p = await sb.ask("plan.wait", { plan });
  assert.deepEqual([p.state, /the commit was refused/.test(p.reason)], ["compensated", true]);
  for (const [kind, stored, verbs] of [[Conflict, "nothing", ["commit", "fail"]], [Conflict, "all", ["commit"]],
    [Unavailable, "unknown", ["commit"]]]) {
    const asked = [];
    const refused = new kind({ problem: "a part of the plan was undone", stored });
    await assert.rejects(sb.plan({ id: `js-refused-${kind.name}-${stored}` }, async (q) => {
      q.commit = async () => { asked.push("commit"); throw refused; };
      q.fail = async () => { asked.push("fail"); };
      await q.cancel();
    }), refused);
    assert.deepEqual(asked, verbs);
  }
});

test("a notTaken that fails proves nothing, and hides no error", async () => {
  const p = await sb.begin({ id: "js-not-taken" });
  const never = () => assert.fail("called");
  for (const [field, options, forward] of [["notTaken", { notTaken: "x" }, never],
    ["notTaken", { notTaken: true }, never], ["forward", {}, undefined], ["forward", {}, "read"]]) {
    const wanted = (e) => e instanceof TypeError && e.message.startsWith(`${field}: `);
    await assert.rejects(p.do("page.read", "a", forward, options), wanted);
    assert.throws(() => p.tool("page.read", forward, options), wanted);
  }
  assert.deepEqual((await p.get()).acts ?? [], []);
  const wrong = (e) => e.response.status === 402;
  const cause = new Error("of its own");
  for (const [failed, kept] of [[new Error("declined"), undefined], [new Error("declined", { cause }), cause],
    [Object.freeze(new Error("declined")), undefined], ["declined", undefined]]) {
    const got = await p.do("page.read", "a", () => { throw failed; }, { notTaken: wrong }).catch((e) => e);
    assert.equal(got, failed);
    if (Object.isExtensible(failed)) assert.ok(kept ? got.cause === kept : got.cause instanceof TypeError);
  }
  await assert.rejects(p.do("page.read", "b", () => { throw new Error("401"); }, { notTaken: async () => false }), /401/);
  await assert.rejects(p.do("page.read", "b", () => { throw new Error("402"); }, { notTaken: async () => true }), /402/);
  const { acts } = await p.get();
  assert.deepEqual(acts.map((a) => a.outcome), ["in_doubt", "in_doubt", "in_doubt", "in_doubt", "in_doubt", "failed"]);
  assert.match(acts[0].message, /^declined; notTaken failed: /);
  await p.fail("enough");
});

test("savepoints, a report, a timeout, a preview and events", async () => {
  const p = await sb.begin({ id: "js-save" });
  await p.report("hotel.book", { city: "Pisa" }, { output: { booking: "p1" } });
  await p.savepoint("booked");
  await p.do("hotel.book", { city: "Bari" }, () => ({ booking: "b1" }));
  await p.unwindTo("booked", "the wrong town");
  await assert.rejects(p.do("page.read", {}, () => new Promise(() => {}), { timeout: 20 }), { name: "TimeoutError" });
  const events = [];
  const following = (async () => { for await (const e of p.events()) events.push(e); })().catch(() => {});
  assert.equal((await p.preview()).plan, "js-save");
  await p.fail("enough");
  assert.equal((await p.wait()).state, "compensated");
  await Promise.race([following, new Promise((done) => setTimeout(done, 2000).unref())]);
});

test("a deadline is moved", async () => {
  const p = await sb.begin({ id: "js-deadline", deadline: "2h" });
  const first = p.deadlineAt;
  const moved = await p.moveDeadline("3h", "it takes longer");
  assert.deepEqual([p.deadlineAt, (await p.get()).deadline_at], [new Date(moved.deadline_at), moved.deadline_at]);
  assert.ok(p.deadlineAt > first);
  const at = new Date(Date.now() + 3_600_000);
  await p.moveDeadline(at, "it is short");
  assert.deepEqual(p.deadlineAt, at);
  const { deadline_set: follows } = await sb.ask("plan.get", { plan: p.id });
  await sb.ask("plan.deadline", { plan: p.id, writer: sb.writer, deadline: "5h", reason: "a holiday", follows });
  await assert.rejects(p.moveDeadline("4h", "it was not seen"), (e) => e instanceof Conflict && e.field === "follows");
  await p.get();
  await p.moveDeadline("4h", "it was seen");
  await assert.rejects(p.moveDeadline(new Date(0), "it is late"), (e) => e instanceof Refused && e.field === "deadline_at");
  await p.cancel();
  await assert.rejects(p.moveDeadline("4h", "it is over"), (e) => e instanceof Conflict && e.field === "plan");
});

test("a large value is stored and read", async () => {
  const value = crypto.getRandomValues(new Uint8Array(60_000));
  const p = await sb.begin({ id: "js-blob" });
  const ref = await p.putBlob(value, { type: "image/png" });
  assert.deepEqual([ref.bytes, ref.type, await p.putBlob(value, { type: "image/png" })], [60_000, "image/png", ref]);
  await p.do("page.read", { page: ref }, () => ({ page: ref }));
  assert.deepEqual(await p.getBlob(ref), value);
  assert.equal(new TextDecoder().decode(await p.getBlob(await p.putBlob("é"))), "é");
  await assert.rejects(p.getBlob({ "sagenbaum/blob/v1": `js-blob/${"0".repeat(64)}`, bytes: 1 }),
    (e) => e.status === 404 && e.field === "blob");
  await assert.rejects(p.putBlob("x", { type: "no type" }), Refused);
  await p.commit();
});

test("a file is put back as it was before", async () => {
  const folder = await mkdtemp(join(tmpdir(), "sagenbaum-"));
  try {
    const path = join(folder, "f"), value = crypto.getRandomValues(new Uint8Array(60_000));
    await writeFile(path, value);
    const p = await sb.begin({ id: "js-before" });
    await p.do("disk.write", { path }, (call) => writeFile(call.input.path, "other"));
    await p.fail("it was wrong");
    assert.equal((await p.wait()).state, "compensated");
    assert.deepEqual(new Uint8Array(await readFile(path)), value);
    const q = await sb.begin({ id: "js-nothing-before" });
    await assert.rejects(q.do("disk.write", { path: `${path}-none` }, () => assert.fail("it was called")),
      (e) => e instanceof Refused && e.field === "before" && /no such file/.test(e.message)); // it cannot be kept
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("events go on where a stream ends before the plan", async () => {
  const state = (s, ended) => `event: state\ndata: ${JSON.stringify({ state: s, ended })}\n\n`;
  const cut = () => new ReadableStream({ start(c) {
    c.enqueue(new TextEncoder().encode(`: nothing new\n\n${state("open", false)}event: not`));
    setTimeout(() => c.error(new TypeError("terminated")), 20);
  } });
  const refused = { error: { status: 503, code: "unavailable", problem: "no host", stored: "nothing" } };
  const streams = [() => new Response(state("open", false)), () => Response.json(refused, { status: 503 }),
    () => { throw new TypeError("fetch failed"); }, () => new Response(cut()),
    () => new Response(state("open", false) + state("compensated", true)), () => assert.fail("it has ended")];
  const client = await Sagenbaum.connect({ agent: "tripper", url: "http://127.0.0.1:1", token: "secret",
    fetch: async () => streams.shift()() });
  client.ask = async () => ({ state: "open", plan: "p" });
  const seen = [];
  for await (const e of (await client.begin({ id: "p" })).events()) seen.push([e.event, e.data.state]);
  assert.deepEqual(seen, [["state", "open"], ["state", "compensated"]]);
  assert.equal(streams.length, 1);
});

test("another process goes on, and the one before is refused", async () => {
  const p = await sb.begin({ id: "js-resume" });
  await p.do("hotel.book", { city: "Rome" }, () => ({ booking: "r1" }), { id: "hotel" });
  await p.client.ask("plan.act", { plan: p.id, writer: sb.writer, action: "lost", capability: "hotel.book" });
  const next = await Sagenbaum.connect();
  const q = await next.resume("js-resume");
  assert.deepEqual(q.recorded.map((a) => [a.action, a.outcome]), [["hotel", "completed"], ["lost", "unknown"]]);
  const never = () => assert.fail("it was called already");
  assert.deepEqual(await q.do("hotel.book", { city: "Rome" }, never, { id: "hotel" }), { booking: "r1" });
  await assert.rejects(q.do("hotel.book", undefined, never, { id: "lost" }), Recorded);
  await q.settle("lost", "not_taken", { message: "the hotel knows of none" });
  await assert.rejects(p.do("hotel.book", {}, never), Conflict);
  await q.commit();
});

test("what is new after a resume is called, though an answer is lost", async () => {
  const p = await sb.begin({ id: "js-new" });
  await sb.ask("plan.act", { plan: p.id, writer: sb.writer, action: "old", capability: "page.read", input: "a" });
  let lose = true;
  const next = await Sagenbaum.connect({ fetch: async (url, init) => {
    const response = await fetch(url, init);
    if (!lose || !url.endsWith("plan.act") || !response.ok) return response;
    lose = false;
    throw new TypeError("terminated");
  } });
  const q = await next.resume(p.id);
  assert.equal(await q.do("page.read", "b", () => "called", { id: "new" }), "called");
  await assert.rejects(q.do("page.read", "a", () => assert.fail("called"), { id: "old" }), Recorded);
  assert.deepEqual((await q.get()).acts.map((a) => a.outcome), ["in_doubt", "completed"]);
  await q.commit();
});

test("an action that is given up during its review was not taken", async () => {
  const p = await sb.begin({ id: "js-left" });
  const never = () => assert.fail("called"), late = new AbortController();
  const asked = p.do("hotel.book", {}, never, { id: "a", review: true, signal: late.signal });
  const left = assert.rejects(asked, { name: "AbortError" });
  while (!(await boss.reviews()).reviews.some((r) => r.plan === p.id));
  late.abort();
  await left;
  await boss.giveVerdict(p.id, "a", "allow", "late");
  assert.equal((await p.commit()).state, "committed");
  assert.deepEqual((await p.get()).acts.map((a) => [a.outcome, a.code]), [["failed", "not_taken"]]);
});

test("a number that is taken is no other action", async () => {
  const p = await sb.begin({ id: "js-number" });
  const never = () => assert.fail("it was called");
  await assert.rejects(p.do("hotel.book", {}, never, { after: ["none"] }), Refused); // it had the number 1
  assert.equal(await p.do("page.read", "a", () => "first"), "first");
  const q = await (await Sagenbaum.connect()).resume(p.id);
  await q.cancel();
  const asked = [];
  q.client = { ask: async (verb, request) => {
    if (verb !== "plan.outcome") asked.push(request.action);
    return { state: "accepted", key: "k" };
  } };
  await q.do("page.read", "b", () => {});
  await q.do("page.read", "c", () => {}, { id: "4" });
  await q.stage("note.post", "d", { id: "5" });
  await q.report("page.read", "e", { id: "6" });
  await q.do("page.read", "f", () => {});
  assert.deepEqual(asked, ["3", "4", "5", "6", "7"]);
});

test("a program that begins once more gets what is recorded", async () => {
  for (const called of [["a", "b", "c"], []]) {
    const calls = [];
    const p = await (await Sagenbaum.connect({ writer: "js-once-more" })).begin({ id: "js-once-more" });
    for (const [page, id] of [["a"], ["b", "2"], ["c"]]) {
      assert.equal(await p.do("page.read", page, () => { calls.push(page); return page; }, { id }), page);
    }
    assert.deepEqual(calls, called);
    if (calls.length === 0) await p.cancel();
  }
});

test("a supervisor's verdict, and a fact", async () => {
  const p = await sb.begin({ id: "js-review" });
  const asked = p.do("hotel.book", { city: "Rome" }, () => ({}), { id: "a", review: true });
  const blocked = assert.rejects(asked, (e) => e instanceof Blocked && e.by === "boss");
  for (let found = []; found.length === 0;) {
    found = (await boss.reviews()).reviews.filter((r) => r.plan === p.id);
  }
  await boss.giveVerdict(p.id, "a", "block", "too dear");
  await blocked;
  await p.commit();
  assert.equal((await scanner.putFact("order/7", { status: "placed" })).fact.value.status, "placed");
  await scanner.retractFact("order/7");
});

test("what is wrong is refused with its field", async () => {
  const p = await sb.begin({ id: "js-wrong" });
  const never = () => assert.fail("called");
  await assert.rejects(p.do("hotel.bok", {}, never), (e) => e instanceof Refused && e.field === "capability");
  await assert.rejects(p.do("hotel.book", {}, never, { afer: [] }), (e) => e instanceof Refused && e.field === "afer");
  await assert.rejects(sb.begin({ id: "js-wrong", label: "x" }), (e) => e.field === "label");
  await assert.rejects(sb.ask("fact.put", { key: "k", value: 1 }), (e) => e instanceof SagenbaumError && e.status === 403);
  for (const spec of [5, null, true, () => {}, Symbol("s")]) {
    const wanted = (e) => e instanceof TypeError && e.message.startsWith("spec: ");
    await assert.rejects(sb.begin(spec), wanted);
    await assert.rejects(p.begin(spec), wanted);
    await assert.rejects(sb.plan(spec, never), wanted);
  }
  await assert.rejects(sb.begin({ deadlineAt: new Date(0) }), /deadline_at: .*want .*, after 1970-01-01T00:00:00Z/);
  await assert.rejects(Sagenbaum.connect({ writer: "" }), (e) => e instanceof TypeError && e.message.startsWith("writer: empty"));
  for (const ask of [() => sb.begin({ id: "" }), () => p.do("page.read", "a", never, { id: "" })]) {
    await assert.rejects(ask, (e) => e instanceof Refused && /^(plan|action): no name/.test(e.message));
  }
  for (const ask of [() => scanner.putFact("k", 1, { id: "" }), () => scanner.retractFact("k", { id: "" }),
    () => boss.giveVerdict(p.id, "1", "allow", "", { id: "" })]) {
    await assert.rejects(ask, (e) => e instanceof TypeError && e.message.startsWith("id: empty"));
  }
  await p.cancel();
});

test("an action that an earlier process has registered is not called again", async () => {
  const options = { writer: "js-stable" };
  const before = await Sagenbaum.connect(options);
  const request = { plan: "js-again", writer: "js-stable", action: "1", capability: "page.read", input: "a" };
  await before.begin({ id: "js-again" });
  await before.ask("plan.act", request); // and the process is killed
  const answers = [{ state: "open" }, { ...request, state: "accepted", repeated: true, key: "k" }];
  const after = await Sagenbaum.connect({ ...options, fetch: async () => Response.json(answers.shift()) });
  const p = await after.begin({ id: "js-again" });
  await assert.rejects(p.do("page.read", "a", () => assert.fail("called")), Recorded);
});

test("errors and outputs that cannot be told as they are leave a known outcome", async () => {
  const p = await sb.begin({ id: "js-odd" });
  await assert.rejects(p.do("page.read", "a", () => { throw new Error("x".repeat(999) + "\u{1f600}"); }), Error);
  await assert.rejects(p.do("page.read", "b", () => { throw new Error("half \ud83d"); }), Error);
  await assert.rejects(p.do("page.read", "c", () => 1n), TypeError);
  await assert.rejects(p.do("page.read", "d", () => "x".repeat(300_000)), Refused);
  const cycle = {};
  cycle.of = cycle;
  await assert.rejects(p.do("page.read", "e", () => cycle), TypeError);
  const { acts } = await p.get();
  assert.deepEqual(acts.map((a) => a.outcome), ["in_doubt", "in_doubt", "completed", "completed", "completed"]);
  assert.deepEqual(acts.map((a) => a.incomplete), [undefined, undefined, true, true, true]);
  await p.fail("enough");
  await assert.rejects(sb.plan({ id: "js-half" }, async () => { throw new Error("half \ud83d"); }), /half/);
  assert.equal((await sb.ask("plan.wait", { plan: "js-half" })).ended, true);
});

test("what JSON does not have is refused with its path, before anything is sent", async () => {
  const p = await sb.begin({ id: "js-json" });
  const never = () => assert.fail("called");
  for (const [value, path] of [[{ a: [1, { b: NaN }] }, "input.a[1].b"], [-Infinity, "input"],
    [[new Number(NaN)], "input[0]"], [{ n: 1n }, "input.n"], [{ f() {} }, "input.f"], [[Symbol("s")], "input[0]"], [never, "input"],
    [{ at: [new Date(NaN)] }, "input.at[0]"], [new Date("never"), "input"]]) {
    const wanted = (e) => e instanceof TypeError && e.message.startsWith(`${path}: `);
    await assert.rejects(p.do("page.read", value, never), wanted);
    await assert.rejects(async () => p.stage("note.post", value), wanted);
    await assert.rejects(async () => p.report("page.read", value), wanted);
    await assert.rejects(async () => scanner.putFact("k", value),
      (e) => e instanceof TypeError && e.message.startsWith(path.replace("input", "value")));
  }
  await assert.rejects(sb.begin({ deadlineAt: new Date(NaN) }), /^TypeError: deadline_at: /);
  await assert.rejects(p.moveDeadline(new Date(NaN), "no"), /^TypeError: deadline_at: /);
  await assert.rejects(p.do("page.read", {}, never, { timeout: NaN }), /^TypeError: timeout: NaN/);
  await assert.rejects(p.do("page.read", {}, never, { timeout: "5s" }), /^TypeError: timeout: 5s/);
  assert.deepEqual((await p.get()).acts ?? [], []);
  await assert.rejects(p.do("page.read", {}, () => ({ price: NaN }), { id: "done" }), /output.price: NaN/);
  const [act] = (await p.get()).acts;
  assert.deepEqual([act.action, act.outcome, act.incomplete], ["done", "completed", true]);
  const at = new Date(0), both = { n: 1.5, none: undefined };
  assert.deepEqual(await p.do("page.read", { at, a: both, b: [both, null] }, ({ input }) => input.b), [both, null]);
  await p.fail("enough");
});

test("a timeout may be longer than one timer waits", async (t) => {
  const p = await sb.begin({ id: "js-long" });
  const slow = () => new Promise((resolve) => setTimeout(resolve, 30, "done"));
  assert.equal(await p.do("page.read", "a", slow, { timeout: 30 * 24 * 3600_000 }), "done");
  assert.equal(await p.do("page.read", "b", slow, { timeout: Infinity }), "done");
  const waits = [], set = globalThis.setTimeout;
  t.mock.method(globalThis, "setTimeout", (call, ms, ...more) => {
    if (ms > 1e6) waits.push(ms);
    return set(call, ms > 1e6 ? 1 : ms, ...more);
  });
  await assert.rejects(p.do("page.read", "c", () => new Promise(() => {}), { timeout: 2 ** 32 }),
    { name: "TimeoutError" });
  assert.deepEqual(waits, [2 ** 31 - 1, 2 ** 31 - 1]);
  await p.cancel();
});

test("a plan waits until it is known what has happened", async () => {
  const fail = () => { throw new Error("no answer"); };
  const p = await sb.begin({ id: "js-doubt" });
  for (const seat of ["12A", "12B"]) await assert.rejects(p.do("seat.hold", { seat }, fail), /no answer/);
  assert.deepEqual(await p.settled(), []);
  await assert.rejects(p.do("mail.send", { to: "ann" }, fail, { id: "mail" }), /no answer/);
  const unknown = await p.settled();
  assert.deepEqual(unknown.map((d) => d.action), ["mail"]);
  assert.match(unknown[0].waits, /no probe/);
  await p.fail("no");
  await assert.rejects(p.settled(), Conflict);
});

test("what is staged is delivered once the plan is committed", async () => {
  const never = () => assert.fail("called");
  const p = await sb.begin({ id: "js-stage" });
  const staged = await p.stage("note.post", { to: "ann" }, { id: "note" });
  assert.deepEqual([staged.state, staged.key.length], ["staged", 32]);
  assert.deepEqual(await p.stage("note.post", { to: "ann" }, { id: "note" }), staged);
  await assert.rejects(p.stage("note.post", { to: "bob" }, { id: "note" }), Conflict);
  await assert.rejects(p.delivered(), Conflict);
  await assert.rejects(p.stage("mail.send", { to: "ann" }), (e) => e.field === "contract[mail.send].deliver");
  await assert.rejects(p.do("note.post", { to: "ann" }, never, { stage: true }), TypeError);
  await p.commit();
  const d = await p.delivered();
  assert.deepEqual([d.plan, d.state, d.delivered], ["js-stage~0", "delivered", ["note"]]);
  const q = await sb.begin({ id: "js-unstaged" });
  await q.stage("letter.post", { to: "ann" });
  await q.fail("no");
  await assert.rejects(q.delivered(), Conflict);
  const none = await sb.begin({ id: "js-none" });
  await none.commit();
  assert.equal(await none.delivered(), undefined);
});
