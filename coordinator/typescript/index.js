// The client of Sagenbaum's door (docs/door.md), over HTTP with fetch and nothing else: it runs on
// Node 20, Deno, Bun and edges. It has no rules of its own; what is wrong, the door says.

import { after, anyOf, Blocked, check, CommitWaits, Conflict, credentials, credentialsWanted,
  direct, envOf, errorIn, errorOf, jsonOf, longest, msOf, named, nothingListens, NotTaken, pause,
  Recorded, Refused, requestMax, SagenbaumError, told, Unavailable, unproxied, waits } from "./door.js";

export { Blocked, CommitWaits, Conflict, NotTaken, Recorded, Refused, SagenbaumError, Unauthorized,
  Unavailable, parseCredentials } from "./door.js";

/** An id for one fact or verdict: a UUID of version 7 (RFC 9562). The ledger knows it for good. */
export function newID() {
  const random = crypto.randomUUID().slice(15); // behind the version
  const ms = Date.now().toString(16).padStart(12, "0");
  return `${ms.slice(0, 8)}-${ms.slice(8)}-7${random}`;
}

const leaveMax = 5000; // ms to tell of an action that is given up; later its commit tells it
const quietMax = 45_000; // ms of a stream in which nothing is heard: the door says every 15 s that nothing is new

export class Sagenbaum {
  /** Finds the door by the options, by SAGENBAUM_CREDS, or by SAGENBAUM_HTTP and SAGENBAUM_TOKEN. */
  static async connect(options = {}) {
    const found = options.url && options.token ? {} : await credentials(options);
    const tenant = options.tenant ?? (found.tenant === "*" ? undefined : found.tenant) ?? "default";
    const name = options.agent ?? (found.role === "local" ? undefined : found.name);
    const token = options.token ?? found.token;
    if (!name) {
      throw new TypeError(`agent: missing; want the name of the agent${token || found.role ? "" : `, or ${credentialsWanted}`}`);
    }
    const url = options.url ?? (found.door || envOf().SAGENBAUM_HTTP);
    if (token && !url) { // whoever has the default address must not get it
      throw new TypeError("url: the credentials name no door; want url, SAGENBAUM_HTTP, or a server with --http");
    }
    const client = new Sagenbaum({ ...options, tenant, name, url: url ?? "http://127.0.0.1:4270", token });
    client.#guessed = !url;
    return client;
  }

  #guessed = false; // the address, and no door has answered there

  constructor({ url, token, tenant, name, writer, timeout = 60_000, fetch }) {
    check(url, token, timeout);
    if (token && !fetch) unproxied(url);
    this.base = `${url.replace(/\/$/, "")}/v1/${encodeURIComponent(tenant)}/${encodeURIComponent(name)}`;
    this.tenant = tenant;
    this.name = name;
    this.writer = named("writer", writer, () => `js-${crypto.randomUUID()}`);
    this.timeout = timeout;
    this.headers = { "content-type": "application/json", ...(token && { authorization: `Bearer ${token}` }) };
    this.fetch = fetch ?? globalThis.fetch;
  }

  /**
   * Asks the door. Every verb may be repeated with the same ids, so that no answer is no reason to
   * give up: it is asked again until `timeout` (ms) has passed, beside a `wait` that is given.
   */
  async ask(verb, request, { signal, lost, within = this.timeout } = {}) {
    let ms = within;
    if (waits.includes(verb)) {
      if (request.wait !== undefined) ms += msOf(request.wait);
      else if (ms < 2 * longest) request = { ...request, wait: `${Math.ceil(ms / 2)}ms` }; // to be there in time
    }
    const body = jsonOf(request);
    return await (await this.#send(verb, { method: "POST", headers: this.headers, body }, ms, signal, lost)).json();
  }

  /** Stores a value, or reads it. */
  blob(plan, digest, init = {}, { signal } = {}) {
    const path = ["plans", plan, "blobs", digest].map(encodeURIComponent).join("/");
    return this.#send(path, { ...init, headers: { ...this.headers, ...init.headers } }, this.timeout, signal);
  }

  async #send(path, init, ms, signal, lost) {
    const end = Date.now() + ms;
    for (let delay = 50; ; delay = Math.min(2 * delay, 1000)) {
      let failed;
      try {
        const left = AbortSignal.timeout(Math.ceil(Math.max(Math.min(end - Date.now(), requestMax), 1)));
        const response = direct(await this.fetch(`${this.base}/${path}`, {
          ...init, redirect: "manual", signal: anyOf(signal, left),
        }));
        this.#guessed = false;
        if (response.ok) return new Response(await response.arrayBuffer());
        failed = errorOf(response.status, await errorIn(response), this.headers.authorization);
        if (failed.stored !== "nothing") lost?.();
      } catch (error) {
        if (!(error instanceof SagenbaumError)) lost?.();
        signal?.throwIfAborted();
        if (error instanceof SagenbaumError) throw error;
        if (this.#guessed && nothingListens(error)) throw nowhere(this.base, error);
        failed = new Unavailable({ status: 503, code: "unavailable", stored: "unknown",
          problem: `no answer of ${this.base}: ${error.cause?.message ?? error.message}`, want: "the same again" });
      }
      const lasting = failed.status === 429 && failed.stored !== "nothing"; // a limit of the tenant
      if (!(failed instanceof Unavailable) || lasting || Date.now() + delay > end) throw failed;
      await pause(delay, signal);
    }
  }

  /** Opens a plan. */
  async begin(spec = {}) {
    const { id = crypto.randomUUID(), ...rest } = fieldsOf(spec);
    const request = { plan: id, writer: this.writer };
    for (const [name, value] of Object.entries(rest)) {
      const at = name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`);
      request[at] = value;
    }
    const state = await this.ask("plan.begin", request);
    if (state.state !== "open") {
      throw new Conflict({ status: 409, code: "conflict", field: "plan", problem: `it is ${state.state} already` });
    }
    return new Plan(this, id, state);
  }

  /**
   * Runs a function under a plan, which is committed when it returns and failed when it throws, or when
   * the commit is refused.
   */
  async plan(spec, work) {
    const p = await this.begin(spec);
    const failed = (error, reason) => p.fail(reason).catch((second) => {
      if (!(second instanceof Conflict)) throw new AggregateError([error, second], error?.message);
    });
    let value;
    try {
      value = await work(p);
    } catch (error) {
      await failed(error, told(error));
      throw error;
    }
    try {
      await p.commit();
    } catch (error) {
      const refused = error instanceof Refused || error instanceof Conflict; // no commit is stored
      if (refused && error.stored === "nothing") await failed(error, `the commit was refused: ${told(error)}`);
      throw error;
    }
    return value;
  }

  /** Goes on with a plan of a process that has ended. `recorded` says what is known of it. */
  async resume(id) {
    const answer = await this.ask("plan.resume", { plan: id, writer: this.writer });
    return new Plan(this, id, answer, answer.acts);
  }

  find(question = {}) { return this.ask("plan.find", question); }

  /** For a source: asserts a fact. */
  async putFact(key, value, { id, plan, action } = {}) {
    return this.ask("fact.put", { id: named("id", id, newID), key, value, plan, action });
  }

  /** For a source: ends a fact. */
  async retractFact(key, { id } = {}) { return this.ask("fact.retract", { id: named("id", id, newID), key }); }

  /** For a supervisor: "allow", "block" or "redirect". */
  async giveVerdict(plan, action, verdict, reason, { id, scope } = {}) {
    return this.ask("verdict.give", { id: named("id", id, newID), plan, action, verdict, reason, scope });
  }

  /** For a supervisor: the actions that wait for a verdict. */
  reviews(question = {}) { return this.ask("review.list", question); }
}

/** The error where nothing was given, and no door is at the address that is the default. */
function nowhere(base, cause) {
  const error = new Unavailable({ status: 503, code: "unavailable", field: "creds", stored: "nothing",
    problem: `no credentials were given, and there is no door at ${base}`, want: credentialsWanted });
  error.cause = cause;
  return error;
}

/** The fields of a plan, of which a text is the label. */
function fieldsOf(spec) {
  if (typeof spec === "string") return { label: spec };
  if (typeof spec === "object" && spec !== null) return spec;
  throw new TypeError(`spec: ${told(spec)}; want a label, or the fields of a plan`);
}

export class Plan {
  #count;
  #known; // ids, which no number is
  #rewinds;
  #deadlineSet = 0;
  #busy = new Set(); // actions whose calls of do have not ended
  #left = new Map(); // actions that are not called, and of which this is not told yet

  constructor(client, id, state, recorded) {
    this.client = client;
    this.id = id;
    this.#see(state);
    this.recorded = recorded ?? [];
    this.resumed = recorded !== undefined;
    this.#known = new Set(this.recorded.map((act) => act.action));
    this.#count = this.recorded.length;
    this.#rewinds = state.rewinds ?? 0;
  }

  /** Notes the deadline that an answer shows. */
  #see(state) {
    if (state.deadline_set > this.#deadlineSet) {
      this.deadlineAt = state.deadline_at && new Date(state.deadline_at);
      this.#deadlineSet = state.deadline_set;
    }
    return state;
  }

  /** The id of an action: that which is given, or the next number that no action has. */
  #number(given) {
    while (given === undefined) {
      const next = String(++this.#count);
      if (!this.#known.has(next)) given = next;
    }
    this.#known.add(given);
    return given;
  }

  #ask(verb, request, options) {
    return this.client.ask(verb, { plan: this.id, writer: this.client.writer, ...request }, options);
  }

  /**
   * Registers an action, and calls its tool once the ledger has taken it. What the function returns
   * is its output; what it throws is doubt, unless it is a NotTaken or `notTaken(error)` says so.
   */
  async do(capability, input, forward, options = {}) {
    if ("stage" in options) throw new TypeError("stage: given to what is called; want plan.stage");
    const { id: given, notTaken, timeout, signal, ...rest } = options;
    checkTool(forward, notTaken);
    if (timeout != null && !(typeof timeout === "number" && timeout >= 0)) {
      throw new TypeError(`timeout: ${told(timeout)}; want a number of ms`);
    }
    signal?.throwIfAborted();
    const id = this.#number(given);
    const first = !this.#busy.has(id); // no other call of do will tell of it
    this.#busy.add(id);
    try {
      const answer = await this.#registered({ action: id, capability, input, ...rest }, first, signal);
      if (answer.state === "recorded") return answer.output;
      const call = { key: answer.key, plan: this.id, action: id, input, signal };
      return await this.#called(call, forward, notTaken, timeout);
    } finally {
      if (first) this.#busy.delete(id);
    }
  }

  /** Registers an action: accepted, or recorded as completed. */
  async #registered(request, first, signal) {
    const id = request.action, left = this.#left.get(id);
    this.#left.delete(id);
    // own: a request of this call has registered it, as far as known; earlier: a process before has
    const act = { request, own: left && isOwn(left), earlier: this.recorded.some((past) => past.action === id) };
    let noAnswer = false;
    const lost = () => { noAnswer = true; };
    try {
      let answer;
      do {
        answer = await this.#ask("plan.act", request, { signal, lost });
        act.own ??= noAnswer || !answer.repeated;
      } while (answer.state === "waiting");
      const done = answer.state === "recorded" && answer.outcome === "completed";
      if (done || answer.state === "accepted" && (!answer.repeated || isOwn(act))) return answer;
      const blocked = ["blocked", "redirected", "no_verdict"].includes(answer.code);
      throw new (blocked ? Blocked : Recorded)({ outcome: "unknown", ...answer });
    } catch (error) {
      if (first) await this.#leave(act, error);
      throw error;
    }
  }

  /** Calls the tool of an action, and tells its outcome. */
  async #called({ signal, ...given }, forward, notTaken, timeout) {
    const late = new AbortController();
    const stop = timeout && after(timeout, () => late.abort(new DOMException(
      `no answer within ${timeout} ms`, "TimeoutError"))); // AbortSignal.timeout keeps no process alive
    const call = { ...given, signal: anyOf(signal, late.signal) };
    let output;
    try {
      output = await until(call.signal, Promise.resolve().then(() => forward(call)));
    } catch (error) {
      const [refused, message] = await refusalIn(error, notTaken);
      await this.#told(call.action, { outcome: refused ? "not_taken" : "in_doubt" }, message);
      throw error;
    } finally {
      stop?.();
    }
    await this.#completed(call.action, output);
    return output;
  }

  /** Tells of an action that is not called for an error: its plan would wait for it. */
  async #leave(act, error) {
    const over = error instanceof Unavailable && error.status !== 429 && error.stored !== "nothing";
    const known = error instanceof Recorded && error.outcome !== "unknown";
    if (known || error instanceof SagenbaumError && !over) return; // nothing is registered, or all is recorded
    this.#left.set(act.request.action, act);
    if (!over) await this.#tellLeft(Math.min(leaveMax, this.client.timeout)); // otherwise there is no time left
  }

  /** Tells of what is not called, and returns how many of so many ms are left. */
  async #tellLeft(ms) {
    const end = Date.now() + ms, left = () => Math.max(end - Date.now(), 1);
    for (const [action, act] of [...this.#left]) {
      const told = isOwn(act) ? { outcome: "not_taken", message: "it was given up before its tool was called" } :
        { outcome: "in_doubt", message: "a process before has registered it, and it was not called again" };
      try {
        // A request that is still on its way would register it after it is told.
        await this.#ask("plan.act", { ...act.request, wait: "1ms" }, { within: left() });
        await this.#ask("plan.outcome", { action, ...told }, { within: left() });
      } catch (error) {
        if (error instanceof Unavailable) continue; // later; else nothing is registered, or something is recorded
      }
      this.#left.delete(action);
    }
    return left();
  }

  /**
   * Stores a value that is too large for a record, of at most 64 MiB: a Uint8Array or a text. What it
   * returns takes its place.
   */
  async putBlob(value, { type = "application/octet-stream", signal } = {}) {
    const body = typeof value === "string" ? new TextEncoder().encode(value) : value;
    const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", body));
    const digest = Array.from(sum, (b) => b.toString(16).padStart(2, "0")).join("");
    const headers = { "content-type": type };
    return (await this.client.blob(this.id, digest, { method: "PUT", headers, body }, { signal })).json();
  }

  /** Reads a value by what putBlob has returned. */
  async getBlob(ref, options) {
    const [plan, digest = ""] = ref["sagenbaum/blob/v1"].split("/");
    return new Uint8Array(await (await this.client.blob(plan, digest, {}, options)).arrayBuffer());
  }

  /** Tells an outcome, and where its message is refused, tells it without. */
  async #told(action, outcome, message) {
    try {
      await this.#ask("plan.outcome", { action, ...outcome, message: message || undefined });
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      await this.#ask("plan.outcome", { action, ...outcome });
    }
  }

  /** Tells that the tool has done it, and where its output cannot be told, tells that. */
  async #completed(action, output) {
    try {
      await this.#ask("plan.outcome", { action, outcome: "completed", output });
    } catch (error) {
      if (error instanceof SagenbaumError && !(error instanceof Refused)) throw error;
      await this.#told(action, { outcome: "completed", incomplete: true }, told(error));
      throw error;
    }
  }

  /**
   * A tool that is an action each time it is called, with its input. Of what a framework gives beside
   * that, the call is aborted by a `signal` or `abortSignal`, and the rest is not looked at.
   */
  tool(capability, forward, options = {}) {
    checkTool(forward, options.notTaken);
    return (input, ...beside) => {
      const found = beside.map((b) => b?.abortSignal ?? b?.signal).filter((s) => s instanceof AbortSignal);
      const signal = anyOf(options.signal, ...found);
      return this.do(capability, input, (call) => forward(input, call), { ...options, signal });
    };
  }

  /**
   * Registers an act that a worker makes once the plan is committed, for what cannot be undone. What
   * undoes the plan before drops it, and nothing was called.
   */
  stage(capability, input, { id, signal, ...rest } = {}) {
    return this.#ask("plan.act", { action: this.#number(id), capability, input, stage: true, ...rest }, { signal });
  }

  /**
   * Waits until what is staged has been delivered, dropped or left to its owner, after the commit;
   * undefined where nothing was staged. A Conflict where the plan is still open, or was undone.
   */
  async delivered({ signal } = {}) {
    const conflict = (problem) => new Conflict({ status: 409, code: "conflict", field: "plan", stored: "nothing", problem });
    const now = await this.client.ask("plan.wait", { plan: this.id, wait: "1ms" }, { signal });
    if (now.state === "open") throw conflict("the plan is open; want delivered after a commit");
    for (;;) {
      const state = await this.client.ask("plan.wait", { plan: this.id, delivered: true }, { signal });
      if (state.ended && state.state !== "committed") throw conflict(`the plan is ${state.state}`);
      if (state.ended && !["staged", "delivering"].includes(state.delivery?.state)) return state.delivery;
    }
  }

  /** Registers what has happened. */
  report(capability, input, { id, externalRef, ...rest } = {}) {
    const action = this.#number(id);
    return this.#ask("plan.report", { action, capability, input, external_ref: externalRef, ...rest });
  }

  /** Tells what became of an action of a process that has ended. */
  settle(action, outcome, { externalRef, ...rest } = {}) {
    return this.#ask("plan.outcome", { action, outcome, external_ref: externalRef, ...rest });
  }

  savepoint(name) { return this.#ask("plan.savepoint", { savepoint: name }); }

  /** Undoes what came after a savepoint, and returns when the plan is open again. */
  async unwindTo(savepoint, reason) {
    const request = { savepoint, reason, number: this.#rewinds + 1 };
    let state;
    do state = await this.#ask("plan.unwind_to", request); while (state.state === "unwinding");
    this.#rewinds++;
    if (state.state !== "open") throw new Conflict({ status: 409, code: "conflict", problem: `the plan is ${state.state}` });
  }

  /**
   * Moves the deadline of the open plan: to so long from now, as in "2h", or to a Date. A Conflict with
   * the field "follows" where an operator has moved the one that this process saw last: `get` shows it,
   * and then it may be moved.
   */
  async moveDeadline(to, reason) {
    const at = to instanceof Date ? { deadline_at: to } : { deadline: to };
    return this.#see(await this.#ask("plan.deadline", { ...at, reason, follows: this.#deadlineSet }));
  }

  /** Ends the plan well. */
  async commit() {
    const within = this.#left.size > 0 ? await this.#tellLeft(this.client.timeout) : undefined;
    const state = await this.#ask("plan.commit", {}, { within });
    if (state.state === "committing") throw new CommitWaits(state);
    return state;
  }

  /** Ends the plan badly: what happened is undone. */
  fail(reason) { return this.#ask("plan.fail", { reason }); }

  cancel(reason) { return this.#ask("plan.cancel", { reason }); }

  /** Waits for the end. */
  async wait({ signal } = {}) {
    for (;;) {
      const state = await this.client.ask("plan.wait", { plan: this.id }, { signal });
      if (state.ended) return state;
    }
  }

  async settled({ signal } = {}) {
    if (this.#left.size > 0) await this.#tellLeft(this.client.timeout);
    for (;;) {
      const state = await this.client.ask("plan.wait", { plan: this.id, settled: true }, { signal });
      if (state.settled) return state.unknown ?? [];
    }
  }

  async get() { return this.#see(await this.client.ask("plan.get", { plan: this.id })); }

  preview(to, { sequence, action } = {}) {
    return this.client.ask("plan.preview", { plan: this.id, to, action, sequence });
  }

  /** Opens a plan that is a part of this one. */
  async begin(spec = {}) {
    return this.client.begin({ ...fieldsOf(spec), parent: this.id });
  }

  /**
   * What becomes of the plan, until its end: {event, data}. It connects again where the stream ends before, or
   * nothing is heard of the door for 45 s.
   */
  async *events({ signal } = {}) {
    let last; // state that was seen, as text
    let silent; // since when nothing has been heard
    for (let delay = 50; ; delay = Math.min(2 * delay, 1000)) {
      try {
        for await (const { event, text } of this.#stream(signal)) {
          silent = undefined;
          delay = 50;
          if (event === undefined || event === "state" && text === last) continue;
          const data = JSON.parse(text);
          if (event === "state") last = text;
          yield { event, data };
          if (event === "state" && data.ended) return;
        }
      } catch (error) {
        signal?.throwIfAborted();
        const lasting = error instanceof SagenbaumError && !(error instanceof Unavailable);
        if (lasting || last === undefined || Date.now() - (silent ??= Date.now()) > this.client.timeout) throw error;
      }
      await pause(delay, signal);
    }
  }

  /** One stream of events: {event, text}, and {} for a sign of life. */
  async *#stream(signal) {
    const quiet = new AbortController();
    const listen = () => after(quietMax, () => quiet.abort(new Unavailable({
      status: 503, code: "unavailable", stored: "nothing", want: "the same again",
      problem: `nothing was heard of ${this.client.base} for ${quietMax} ms`,
    })));
    let stop = listen(); // while something is waited for, and not while it is worked on
    try {
      const response = direct(await this.client.fetch(`${this.client.base}/plans/${this.id}/events`,
        { headers: this.client.headers, signal: anyOf(signal, quiet.signal), redirect: "manual" }));
      if (!response.ok) throw errorOf(response.status, await errorIn(response), this.client.headers.authorization);
      let text = "";
      for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
        stop();
        text += chunk;
        for (let at; (at = text.indexOf("\n\n")) >= 0; text = text.slice(at + 2)) {
          const found = /^event: (.*)\ndata: (.*)$/.exec(text.slice(0, at));
          yield found ? { event: found[1], text: found[2] } : {};
        }
        stop = listen();
      }
    } finally {
      stop();
    }
  }
}

/** Refuses what cannot be called, before anything is registered. */
function checkTool(forward, notTaken) {
  if (typeof forward !== "function") throw new TypeError(`forward: ${told(forward)}; want a function`);
  if (notTaken != null && typeof notTaken !== "function") {
    throw new TypeError(`notTaken: ${told(notTaken)}; want a function of the error`);
  }
}

/**
 * Whether an error proves that the tool did nothing, and what is told of it. Where `notTaken` fails, the
 * error of the tool is the one to go on, and proves nothing.
 */
async function refusalIn(error, notTaken) {
  try {
    return [error instanceof NotTaken || Boolean(await notTaken?.(error)), told(error)];
  } catch (failed) {
    if (error instanceof Error && error.cause === undefined && Object.isExtensible(error)) error.cause = failed;
    return [false, told(`${told(error)}; notTaken failed: ${told(failed)}`)];
  }
}

/** Whether only the call that registers an action may call its tool. */
function isOwn({ own, earlier }) { return own !== false && !earlier; }

/** The value of a promise, or the reason of a signal that ends first. */
function until(signal, promise) {
  return new Promise((resolve, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    promise.then(resolve, reject);
  });
}
