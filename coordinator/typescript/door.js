// Requests of the door for index.js: why one was not carried out, where the door is, and what is sent.

/** Why a request was not carried out. */
export class SagenbaumError extends Error {
  constructor(error) {
    const field = error.field ? `${error.field}: ` : "";
    const want = error.want ? `; want ${error.want}` : "";
    super(`${field}${error.problem}${want}`);
    this.name = new.target.name;
    this.status = error.status;
    this.code = error.code;
    this.field = error.field;
    this.problem = error.problem;
    this.want = error.want;
    this.limit = error.limit;
    this.agent = error.agent;
    this.stored = error.stored;
  }
}

/** `field` of the request is wrong, and `want` would be right. Nothing is stored. */
export class Refused extends SagenbaumError {}

/** It was decided before: the plan has ended, or another process goes on with it. */
export class Conflict extends SagenbaumError {}

/** No answer in time. `stored` says whether anything is in the ledger. */
export class Unavailable extends SagenbaumError {}

/**
 * The token is missing, not good, or of a user that may not do this; or too many that were not good
 * were shown. Asking again with it does not help. `field` is `authorization` where the token itself
 * is what is wrong.
 */
export class Unauthorized extends SagenbaumError {}

/** Throw it where the tool's answer proves that it did nothing. Everything else is doubt. */
export class NotTaken extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = "NotTaken";
  }
}

/** The action is recorded and did not complete: its tool is not called. */
export class Recorded extends Error {
  constructor(answer) {
    super(`action ${answer.action}: ${answer.code ?? answer.outcome}: ${answer.message ?? "as recorded"}`);
    this.name = new.target.name;
    this.action = answer.action;
    this.outcome = answer.outcome ?? "unknown";
    this.code = answer.code;
    this.by = answer.by;
  }
}

/** A supervisor kept the action from being done, or none has said a word in time. */
export class Blocked extends Recorded {}

/** The commit is stored and waits: it is not known of some actions whether they happened. */
export class CommitWaits extends Error {
  constructor(state) {
    const named = (state.doubts ?? []).map((d) => d.action).join(", ");
    super(`the commit of ${state.plan} waits${named && ` for ${named}`}`);
    this.name = "CommitWaits";
    this.doubts = state.doubts ?? [];
  }
}

/** A text of at most so many code points, without halves of surrogate pairs. */
export function told(error) {
  let text;
  try { text = String(error?.message ?? error); } catch { text = "an error without a text"; }
  return [...text.slice(0, 2000)].slice(0, 1000).join("").replace(/\p{Surrogate}/gu, "\ufffd");
}

export const credentialsWanted = "creds or SAGENBAUM_CREDS, a file of sagenbaum user add, or url and token, " +
  "or SAGENBAUM_HTTP and SAGENBAUM_TOKEN";

const errors = { 401: Unauthorized, 403: Unauthorized, 409: Conflict, 422: Refused, 429: Unavailable,
  503: Unavailable };

export function errorOf(status, error, withToken) {
  if (status === 401 && !withToken) {
    error = { ...error, problem: `${error.problem}: no credentials were given`, want: credentialsWanted };
  }
  if (status === 401 || status === 403)
    error = { status, code: "unauthorized", field: "authorization", stored: "nothing", ...error };
  if (status === 429 && error.field === "authorization") return new Unauthorized(error); // of bad tokens
  return new (errors[status] ?? SagenbaumError)(error);
}

/** What an answer says of its error; a proxy before the door may answer with any text. */
export async function errorIn(response) {
  const answer = await response.json().catch(() => undefined);
  const error = answer?.error;
  const known = typeof error === "object" && error !== null && !Array.isArray(error);
  return known ? error : { problem: `status ${response.status}`, status: response.status };
}

/** Whether an error of fetch says that nothing listens at its address: of Node, Bun or Deno, in this order. */
export function nothingListens(error) {
  return [error.cause?.code, error.code, error.cause?.message].some((said) => /ECONNREFUSED|Connection refused/.test(said));
}

/** JSON of a request, without what JSON would leave out or make null without a word. */
export function jsonOf(request) {
  const paths = new Map(); // of what is being written
  return JSON.stringify(request, function (name, value) {
    const within = paths.get(this);
    const path = within === undefined ? name : Array.isArray(this) ? `${within}[${name}]` : `${within}.${name}`;
    const plain = value instanceof Number ? Number(value) : value;
    if (this[name] instanceof Date && Number.isNaN(this[name].getTime())) {
      throw new TypeError(`${path}: an invalid Date; want a valid one, or null`);
    }
    if (typeof plain === "number" && !Number.isFinite(plain)) {
      throw new TypeError(`${path}: ${plain}; want a finite number, or null`);
    }
    if (["bigint", "function", "symbol"].includes(typeof plain)) {
      throw new TypeError(`${path}: a ${typeof plain}, which JSON does not have`);
    }
    if (typeof plain === "object" && plain !== null && this[""] !== plain) paths.set(plain, path);
    return plain;
  });
}

/** Calls a function after so many ms, which may be more than one timer waits. Returns what stops it. */
export function after(ms, call) {
  let timer;
  const wait = (left) => {
    const part = Math.min(left, 2 ** 31 - 1);
    timer = setTimeout(() => (left > part ? wait(left - part) : call()), part);
  };
  wait(ms);
  return () => clearTimeout(timer);
}

export const longest = 20_000; // ms that the door waits where a request does not say
export const requestMax = 100_000; // ms that one request may take
export const waits = ["plan.act", "plan.unwind_to", "plan.wait"]; // verbs whose answers may wait

/** A duration as in "1m30s" in ms; the door refuses any other text. */
export function msOf(wait) {
  const units = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };
  const parts = [...String(wait).matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h)/g)];
  return parts.reduce((sum, [, n, unit]) => sum + n * units[unit], 0);
}

/** Refuses at once what no request could be made with. */
export function check(url, token, timeout) {
  if (!/^https?:$/.test(URL.canParse(url) ? new URL(url).protocol : "") || /[\s\p{Cc}]/u.test(url)) {
    throw new TypeError(`url: ${url}; want the address of a door, as in http://127.0.0.1:4270`);
  }
  if (token && /[^!-~]/.test(token)) { // a secret, which is not shown
    const problem = /[\r\n]$/.test(token) ? "it ends in a newline" : "a character that no token has";
    throw new TypeError(`token: ${problem}; want the token alone, as sagenbaum user token prints it`);
  }
  if (!(typeof timeout === "number" && timeout > 0)) {
    throw new TypeError(`timeout: ${told(timeout)}; want a number of ms, more than 0`);
  }
}

/** A name that is given, or one that is made. */
export function named(field, given, made) {
  if (given === "") throw new TypeError(`${field}: empty; want a name, or undefined for a random one`);
  return given ?? made();
}

export function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    }, { once: true });
  });
}

/** Reads the line that `sagenbaum user add` writes into a file of credentials. */
export function parseCredentials(text) {
  const line = /^# sagenbaum (\S+)$/m.exec(text);
  if (!line) throw new TypeError("no file of credentials of sagenbaum user add");
  const bytes = Uint8Array.from(atob(line[1]), (c) => c.charCodeAt(0));
  return JSON.parse(new TextDecoder().decode(bytes));
}

export async function credentials(options) {
  const env = envOf();
  const file = options.creds ?? env.SAGENBAUM_CREDS;
  if (!file) return { door: env.SAGENBAUM_HTTP, token: env.SAGENBAUM_TOKEN };
  const { readFile } = await import("node:fs/promises");
  return parseCredentials(await readFile(file, "utf8"));
}

export const envOf = () => globalThis.process?.env ?? {};

/** Refuses that a proxy of the environment gets the token of a door on this machine. */
export function unproxied(url) {
  const { hostname } = new URL(url);
  const env = envOf();
  const takes = globalThis.Bun || globalThis.Deno || env.NODE_USE_ENV_PROXY === "1" ||
    /--use-env-proxy/.test(`${globalThis.process?.execArgv ?? ""} ${env.NODE_OPTIONS ?? ""}`);
  const proxy = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"].find((v) => env[v]);
  const own = hostname === "localhost" || hostname === "[::1]" || /^127\./.test(hostname);
  const past = `${env.no_proxy ?? ""},${env.NO_PROXY ?? ""}`.split(",").map((v) => v.trim());
  if (own && takes && proxy && !past.includes("*") && !past.includes(hostname)) {
    throw new TypeError(`${proxy}: a proxy would get the token of the door on this machine; want NO_PROXY=${hostname}`);
  }
}

/** Refuses a redirect: what it leads to is not the door, and must not get the token. */
export function direct(response) {
  const { status, type } = response;
  if (type !== "opaqueredirect" && !(status >= 300 && status < 400)) return response;
  throw new SagenbaumError({ status, code: "redirected", stored: "unknown", field: "url",
    problem: "the answer is a redirect, which is not followed", want: "the address of the door itself" });
}

export function anyOf(...signals) {
  const given = signals.filter(Boolean);
  return given.length === 1 ? given[0] : AbortSignal.any(given);
}
