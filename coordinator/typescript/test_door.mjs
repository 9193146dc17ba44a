// Run by TestTheTypeScriptClient of coordinator/door: what the client asks of a door, and how long, against
// servers of its own.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { test } from "node:test";

import { Sagenbaum, SagenbaumError, Unauthorized, Unavailable } from "./index.js";

test("a call ends when its timeout is over, and waits no longer", async () => {
  const silent = createServer(() => {}).listen(0, "127.0.0.1");
  try {
    await once(silent, "listening");
    const url = `http://127.0.0.1:${silent.address().port}`, began = Date.now();
    const quiet = await Sagenbaum.connect({ agent: "tripper", url, token: "t", timeout: 300 });
    const asks = [quiet.begin(), quiet.ask("plan.wait", { plan: "p" }), quiet.blob("p", "0")];
    await Promise.all(asks.map((asked) => assert.rejects(asked, Unavailable)));
    assert.ok(Date.now() - began < 10_000);
    const asked = [], fetch = async (_, { body }) => { asked.push(JSON.parse(body)); return Response.json({}); };
    const short = await Sagenbaum.connect({ agent: "tripper", url, token: "t", timeout: 2000, fetch });
    for (const [verb, given] of [["plan.wait", {}], ["plan.act", { wait: "60s" }], ["plan.get", {}]]) {
      await short.ask(verb, given);
    }
    assert.deepEqual(asked, [{ wait: "1000ms" }, { wait: "60s" }, {}]);
  } finally {
    silent.close();
    silent.closeAllConnections();
  }
});

test("a stream of which nothing is heard is connected again", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const event = (name, data) => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
  const quiet = (signal, ...texts) => new Response(new ReadableStream({ start(c) {
    for (const text of texts) c.enqueue(new TextEncoder().encode(text));
    signal?.addEventListener("abort", () => c.error(signal.reason));
  } }));
  const unanswered = (signal) => new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));
  const streams = [
    (signal) => quiet(signal, event("state", { state: "open" }) + event("notice", { state: "unwinding" }), ": nothing new\n\n"),
    unanswered, () => new Response(event("state", { state: "compensated", ended: true }))];
  const fetch = (_, { signal }) => Promise.resolve(streams.shift()(signal));
  const sb = await Sagenbaum.connect({ agent: "tripper", url: "http://127.0.0.1:1", token: "secret", fetch });
  sb.ask = async () => ({ state: "open", plan: "p" });
  const p = await sb.begin({ id: "p" }), seen = [];
  const following = (async () => {
    for await (const e of p.events()) {
      seen.push(e.data.state);
      t.mock.timers.tick(60_000); // what has come is not lost to a program that takes its time
    }
  })();
  for (let turn = 0; turn < 200 && seen.length < 3; turn++) {
    t.mock.timers.tick(1000);
    await new Promise(setImmediate);
  }
  assert.deepEqual([seen, streams.length], [["open", "unwinding", "compensated"], 0]);
  await following;
  streams.push(unanswered);
  let failed;
  const first = p.events().next().catch((error) => { failed = error; });
  for (let turn = 0; turn < 60 && !failed; turn++) {
    t.mock.timers.tick(1000);
    await new Promise(setImmediate);
  }
  assert.ok(failed instanceof Unavailable, String(failed));
  await first;
});

test("a wrong token, address or timeout is refused at once", async () => {
  const good = { agent: "tripper", url: "http://127.0.0.1:1", token: "secret" };
  for (const [field, wrong] of [["token", "secret\n"], ["token", "t\u00f6ken"], ["token", "a\nb"], ["url", "127.0.0.1"],
    ["url", "http://127.0.0.1:abc"], ["timeout", 0], ["timeout", NaN], ["timeout", "5s"]]) {
    await assert.rejects(Sagenbaum.connect({ ...good, [field]: wrong }),
      (e) => e instanceof TypeError && e.message.startsWith(`${field}: `) && !e.message.includes("secret"));
  }
});

test("without credentials it is said where they are looked for, and nothing is waited for", async () => {
  const before = { ...process.env };
  const where = /creds.*SAGENBAUM_CREDS.*url and token.*SAGENBAUM_HTTP and SAGENBAUM_TOKEN/;
  for (const name of ["SAGENBAUM_CREDS", "SAGENBAUM_HTTP", "SAGENBAUM_TOKEN"]) delete process.env[name];
  try {
    await assert.rejects(Sagenbaum.connect(), (e) => /^agent: /.test(e.message) && where.test(e.message));
    let answers = [], asked = 0;
    const fetch = async () => { asked++; return answers.shift()(); };
    const refused = () => { throw new TypeError("fetch failed", { cause: { code: "ECONNREFUSED", message: "no" } }); };
    const ofBun = () => { throw Object.assign(new TypeError("ECONNREFUSED: Unable to connect."), { code: "ECONNREFUSED" }); };
    const ofDeno = () => {
      throw new TypeError("fetch failed", { cause: new Error("tcp connect error: Connection refused (os error 111)") });
    };
    const sb = await Sagenbaum.connect({ agent: "tripper", fetch });
    for (const of of [refused, ofBun, ofDeno]) {
      answers = [of];
      await assert.rejects(sb.begin(), (e) => e instanceof Unavailable && e.field === "creds" && e.stored === "nothing" &&
        e.message.includes("http://127.0.0.1:4270") && where.test(e.message));
    }
    const error = { status: 401, field: "authorization", problem: "the token is missing" };
    answers = [() => Response.json({ error }, { status: 401 })];
    await assert.rejects(sb.begin(), (e) => e instanceof Unauthorized && e.field === "authorization" &&
      /the token is missing: no credentials were given/.test(e.message) && where.test(e.message));
    assert.equal(asked, 4);
    answers = [refused, () => Response.json({ state: "open" })]; // a door that has answered comes again
    await sb.begin();
    assert.equal(asked, 6);
    answers = [refused, () => Response.json({ state: "open" })]; // and so may one whose address was given
    await (await Sagenbaum.connect({ agent: "tripper", url: "http://127.0.0.1:1", fetch })).begin();
  } finally {
    Object.assign(process.env, before);
  }
});

test("a token that is not good is not shown again", async () => {
  for (const [status, error] of [[401, {}], [403, { field: "name", status: 403 }],
    [429, { field: "authorization", status: 429, stored: "nothing" }]]) {
    let asked = 0;
    const fetch = async () => { asked++; return Response.json({ error: { problem: "no", ...error } }, { status }); };
    const sb = await Sagenbaum.connect({ agent: "tripper", url: "http://127.0.0.1:1", token: "secret", fetch });
    await assert.rejects(sb.ask("plan.get", { plan: "p" }), (e) => e instanceof Unauthorized && e.status === status &&
      e.field === (error.field ?? "authorization") && e.stored === "nothing");
    assert.equal(asked, 1);
  }
});

test("an error that is not of the door is that of its status", async () => {
  for (const body of ["<html>no</html>", "", "null", "[]", '{"error":"invalid_token"}']) {
    for (const [status, kind] of [[401, Unauthorized], [403, Unauthorized], [429, SagenbaumError]]) {
      let asked = 0;
      const fetch = async () => { asked++; return new Response(body, { status }); };
      const sb = await Sagenbaum.connect({ agent: "tripper", url: "http://127.0.0.1:1", token: "secret", fetch });
      const wanted = (e) => e instanceof kind && e.status === status && e.problem === `status ${status}`;
      await assert.rejects(sb.ask("plan.get", { plan: "p" }), wanted);
      sb.ask = async () => ({ state: "open", plan: "p" });
      const p = await sb.begin({ id: "p" });
      await assert.rejects(p.events().next(), wanted);
      assert.equal(asked, 2);
    }
  }
});

test("a token goes to the door that its credentials name, and nowhere else", async () => {
  const got = [];
  const thief = createServer((request, response) => {
    got.push(request.headers.authorization);
    response.writeHead(200, { "content-type": "application/json" }).end("{}");
  }).listen(0, "127.0.0.1");
  const leads = createServer((_, response) => {
    response.writeHead(307, { location: `http://127.0.0.1:${thief.address().port}/` }).end();
  }).listen(0, "127.0.0.1");
  try {
    for (const server of [thief, leads]) if (!server.listening) await once(server, "listening");
    const url = `http://127.0.0.1:${leads.address().port}`;
    const odd = await Sagenbaum.connect({ agent: "tripper", url, token: "secret" });
    await assert.rejects(odd.ask("plan.get", { plan: "p" }), (e) => e instanceof SagenbaumError && e.code === "redirected");
    assert.deepEqual(got, []);
    const file = `${await mkdtemp(`${tmpdir()}/sb-`)}/creds`;
    await writeFile(file, `# sagenbaum ${btoa(JSON.stringify({ name: "tripper", tenant: "default", token: "secret" }))}\n`);
    await assert.rejects(Sagenbaum.connect({ creds: file }), /name no door/);
    const before = { ...process.env };
    Object.assign(process.env, { NODE_USE_ENV_PROXY: "1", HTTP_PROXY: "http://proxy.example:1", NO_PROXY: "", no_proxy: "" });
    try {
      await assert.rejects(Sagenbaum.connect({ agent: "tripper", url, token: "secret" }), /HTTP_PROXY: a proxy would/);
      process.env.NO_PROXY = "127.0.0.1";
      await Sagenbaum.connect({ agent: "tripper", url, token: "secret" });
    } finally {
      for (const name of ["NODE_USE_ENV_PROXY", "HTTP_PROXY", "NO_PROXY", "no_proxy"]) {
        if (before[name] === undefined) delete process.env[name]; else process.env[name] = before[name];
      }
    }
  } finally {
    thief.close();
    leads.close();
  }
});
