// The console in a real Chromium: what people do with it, and what others must not.
import assert from "node:assert/strict";
import {launch, signIn} from "./browser.mjs";

const base = process.env.CONSOLE, stage = process.env.STAGE, token = process.env.TOKEN;
const scene = async (name) => assert.equal((await fetch(stage + "/" + name)).status, 200, "scene " + name);

const browser = await launch();
const context = await browser.newContext({viewport: {width: 1600, height: 1000}});
const wrong = []; // what a browser's console would show in red
let expected = 0; // answers with an error that a test asks for

function watch(page) {
  page.on("console", (m) => { if (m.type() === "error" && !(expected > 0 && m.text().startsWith("Failed to load resource"))) wrong.push(page.url() + ": " + m.text()); });
  page.on("pageerror", (e) => wrong.push(page.url() + ": " + e));
  page.on("dialog", (d) => { wrong.push(page.url() + ": a dialog"); d.dismiss(); });
  page.on("request", (r) => { if (!r.url().startsWith(base) && !r.url().startsWith(stage) && !r.url().startsWith("data:")) wrong.push("a request to " + r.url()); });
  return page;
}

const page = watch(await context.newPage());
const text = (selector) => page.locator(selector).first().innerText();
const live = () => page.waitForFunction(() => document.getElementById("pulse").textContent === "live");

async function test(name, body) {
  const began = Date.now();
  await body();
  assert.deepEqual(wrong, [], name);
  console.log("ok", name, Date.now() - began + " ms");
}

await test("who has not signed in reads, and changes nothing", async () => {
  await page.goto(base);
  assert.equal(await text("h1"), "Tenants of this host");
  await page.click("main >> text=default");
  assert.equal(await text("h1"), "Overview");
  await page.goto(base + "t/default/plans/offsite-june");
  assert.equal(await page.locator("form[method=post]").count(), 0, "forms to act");
  expected = 1;
  for (const path of ["plans/offsite-june/cancel", "plans/offsite-june/unwind", "quarantine/release-2-4/6", "memory/fact", "health/clock"]) {
    const status = await page.evaluate(async (to) => (await fetch(to, {method: "POST", body: new URLSearchParams({reason: "x", as: "skipped", csrf: "x"})})).status, base + "t/default/" + path);
    assert.equal(status, 401, path);
  }
  expected = 0;
  assert.match(await text("#plan-state"), /open/);
});

await test("a wrong token signs nobody in, the right one leads back", async () => {
  expected = 1;
  await page.goto(base + "t/default/quarantine");
  await page.click("text=Sign in to act");
  await page.fill("input[name=name]", "ana");
  await page.fill("input[name=token]", "wrong");
  await page.keyboard.press("Enter");
  await page.waitForSelector("text=No user has that name and token");
  assert.equal(await page.inputValue("input[name=name]"), "ana", "the name is kept");
  expected = 0;
  await page.fill("input[name=token]", token);
  await page.keyboard.press("Enter");
  await page.waitForURL(base + "t/default/quarantine");
  assert.match(await text(".who"), /ana/);
});

await test("another site's form is refused, with the operator's cookie and without the page's token", async () => {
  const other = watch(await context.newPage());
  expected = 1;
  const [answer] = await Promise.all([
    other.waitForResponse((r) => r.request().method() === "POST"),
    other.goto(stage + "/foreign?to=" + encodeURIComponent(base + "t/default/plans/offsite-june/cancel")),
  ]);
  assert.equal(answer.status(), 403);
  await other.close();
  await page.goto(base + "t/default/plans/offsite-june");
  const status = await page.evaluate(async (to) => (await fetch(to, {method: "POST", body: new URLSearchParams({reason: "x", csrf: "guessed"})})).status, base + "t/default/plans/offsite-june/cancel");
  assert.equal(status, 403);
  expected = 0;
  await page.reload();
  assert.match(await text("#plan-state"), /open/);
});

await test("a server on another port of this machine gets no cookie", async () => {
  const other = await context.newPage();
  await other.goto(stage + "/cookies");
  assert.equal(await other.locator("body").innerText(), "none");
  await other.goto(new URL("/cookies", stage.replace("127.0.0.1", "localhost")).href);
  assert.equal(await other.locator("body").innerText(), "none");
  await other.close();
  const cookies = await context.cookies();
  assert.deepEqual(cookies.map((c) => [c.domain, c.httpOnly, c.sameSite]), [["sagenbaum.localhost", true, "Lax"]]);
});

await test("a plan fails before the eyes of the page", async () => {
  await scene("lively");
  await page.goto(base + "t/default/plans/live-1");
  await live();
  await page.evaluate(() => { window.sameDocument = true; });
  await page.locator("summary").nth(1).click(); // what is open stays open
  assert.match(await text("#plan-state"), /open/);
  await scene("fail");
  await page.waitForFunction(() => /unwinding/.test(document.getElementById("plan-state").textContent));
  for (const number of [4, 3, 2, 1]) {
    const node = page.locator(".tree > .node").nth(number - 1);
    await node.locator("summary .state", {hasText: "undoing"}).waitFor();
    await scene("step");
    await node.locator("summary .state", {hasText: "compensated"}).waitFor();
  }
  await page.waitForFunction(() => /compensated/.test(document.getElementById("plan-state").textContent));
  assert.equal(await page.evaluate(() => window.sameDocument), true, "the page was loaded anew");
  assert.equal(await page.locator("details[open]").count(), 1);
  assert.equal(await page.locator(".tlbars").count(), 4, "lines of the timeline");
  assert.match(await text("#why"), /the new mapping loses accents/);
});

await test("each mark leads to the record behind it", async () => {
  await page.locator(".tlbars a").last().click();
  await page.waitForURL("**/ledger/*");
  assert.match(await text("main"), /compensation succeeded/);
  assert.match(await text("main"), /same in the second copy/);
  await page.locator("dt:text-is('about') + dd a").first().click();
  await page.waitForURL("**/ledger/*");
  assert.match(await text("main"), /forward registered/);
});

await test("a page that loses its server finds it again", async () => {
  await page.goto(base + "t/default/");
  await live();
  expected = 1;
  await scene("detach");
  await page.waitForFunction(() => document.getElementById("pulse").textContent === "connecting again");
  await scene("attach");
  await page.waitForFunction(() => document.getElementById("pulse").textContent === "live", null, {timeout: 30000});
  expected = 0;
});

await test("a quarantine is resolved by clicks", async () => {
  await page.click(".side nav >> text=Quarantine");
  await page.click(".inbox >> text=registry.publish");
  await page.waitForSelector("text=the registry answers 403");
  assert.equal(await page.locator("table tbody tr").count(), 3, "attempts");
  await page.click(".choice >> text=Done");
  await page.fill("input[name=reason]", "taken back by the registry's own staff");
  await page.click("text=Answer as ana");
  assert.equal(await page.locator("input[name=evidence]:invalid").count(), 1, "evidence is asked for");
  await page.fill("input[name=evidence]", "ticket:OPS-91");
  await page.click("text=Answer as ana");
  assert.equal(await page.locator("input[name=token]:invalid").count(), 1, "the token is asked for once more");
  expected = 1;
  await page.fill("input[name=token]", "another one");
  await page.click("text=Answer as ana");
  await page.waitForSelector("text=this needs your token once more");
  expected = 0;
  await page.goBack();
  await page.click(".choice >> text=Done");
  await page.fill("input[name=reason]", "taken back by the registry's own staff");
  await page.fill("input[name=evidence]", "ticket:OPS-91");
  await page.fill("input[name=token]", token);
  await page.click("text=Answer as ana");
  await page.waitForSelector("text=Your record is in the ledger and folded");
  assert.match(await text("#undo-state"), /resolved/);
  await page.click(".banner >> css=a");
  assert.match(await text("main"), /operator ana/);
  assert.match(await text("main"), /ticket:OPS-91/);
  await page.goto(base + "t/default/plans/release-2-4");
  await page.waitForFunction(() => /resolved/.test(document.getElementById("plan-state").textContent));
});

await test("a verdict is given by clicks", async () => {
  await page.click(".side nav >> text=Verdicts");
  await page.click(".inbox >> text=git.push");
  await page.waitForSelector("text=What a block would undo");
  await page.click(".choice >> text=Block");
  await page.fill("input[name=reason]", "not on a Friday");
  if (await page.locator("input[name=token]").count()) await page.fill("input[name=token]", token);
  await page.click("text=Give the verdict as ana");
  await page.waitForSelector("text=Your record is in the ledger");
  assert.equal(await page.locator(".inbox .row").count(), 1, "actions that still wait");
});

await test("a skip claims nothing, and an answer that comes late is refused", async () => {
  await page.goto(base + "t/default/quarantine/thank-you/2");
  const late = watch(await context.newPage());
  expected = 1;
  await late.route("**/events?*", (r) => r.abort()); // it does not see what the other one does
  await late.goto(page.url());
  for (const p of [page, late]) {
    await p.click(".choice >> text=Skip");
    await p.fill("input[name=reason]", "nobody has read it");
    assert.equal(await p.locator("input[name=token]").count(), 0, "who has shown the token a moment ago need not again");
  }
  await page.click("text=Answer as ana");
  await page.waitForSelector("text=Your record is in the ledger and folded");
  await late.locator("form[data-answer]").evaluate((f) => f.requestSubmit());
  await late.waitForSelector("text=The log decided otherwise");
  expected = 0;
  await late.close();
});

await test("hostile texts stay texts in every field of every page", async () => {
  await scene("menace");
  const seen = new Set(), next = [
    "", "plans", "plans/evil-1", "plans/evil-1/preview", "quarantine", "quarantine/evil-1/1", "quarantine/evil-1/2", "leases", "memory", "memory/fact?key=" + encodeURIComponent("evil<script>"), "capabilities", "ledger", "health",
    "plans?q=" + encodeURIComponent(`"><script>window.pwned=4</script>`), "plans?label=" + encodeURIComponent(`k="><script>window.pwned=5</script>`), "memory?prefix=" + encodeURIComponent(`"><img src=x onerror=window.pwned=6>`),
  ].map((p) => base + "t/default/" + p);
  while (next.length && seen.size < 45) {
    const url = next.shift();
    if (seen.has(url)) continue;
    seen.add(url);
    await page.goto(url);
    assert.equal(await page.evaluate(() => window.pwned), undefined, url);
    assert.equal(await page.locator("main script, main img, main iframe").count(), 0, url);
    for (const details of await page.locator("summary").all()) await details.click();
    if (/ledger/.test(url)) next.push(...(await page.locator("main a[href*='/ledger/']").evaluateAll((all) => all.map((a) => a.href))).slice(0, 25));
    const bad = await page.locator("a[href]").evaluateAll(
      (all, to) => all.map((a) => new URL(a.getAttribute("href"), document.baseURI).href).filter((h) => !h.startsWith(to)), base);
    assert.deepEqual(bad, [], "links of " + url);
  }
  await page.goto(base + "t/default/plans/evil-1");
  assert.match(await text("h1"), /<script>window\.pwned=1<\/script>.*\\u202e\\u0007/s, "shown as it is, what is invisible as an escape");
  console.log("  pages looked at:", seen.size);
});

await test("nothing but the console's own script runs", async () => {
  const runs = await page.evaluate(() => new Promise((done) => {
    document.addEventListener("securitypolicyviolation", (e) => done(e.violatedDirective));
    const s = document.createElement("script");
    s.textContent = "window.pwned = 7";
    document.body.append(s);
    setTimeout(() => done("ran"), 2000);
  }));
  assert.match(runs, /script-src/);
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  wrong.length = 0; // the violation that was asked for
});

await test("by keys alone", async () => {
  await page.goto(base + "t/default/");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the page");
  await page.keyboard.press("g");
  await page.keyboard.press("p");
  await page.waitForURL("**/plans");
  await page.keyboard.press("/");
  await page.keyboard.type("offsite");
  await page.keyboard.press("Enter");
  await page.waitForURL("**q=offsite*");
  assert.equal(await page.locator(".planrow").count(), 2);
  await page.keyboard.press("Escape");
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/plans/offsite-*");
  await page.goto(base + "t/default/plans?state=open&agent=travel&capability=hotel.book&age=1h");
  assert.equal(await page.locator(".planrow").count(), 1);
  await page.locator(".planrow a.plan").click();
  await page.fill("input[name=reason]", "the house burned down");
  await page.focus("text=Cancel the plan");
  await page.keyboard.press("Enter");
  await page.waitForSelector("text=Your record is in the ledger and folded");
  await page.waitForFunction(() => /compensated/.test(document.getElementById("plan-state").textContent));
});

await test("every page fits 390 and 1600 px, in light and dark", async () => {
  for (const width of [390, 1600]) {
    for (const scheme of ["light", "dark"]) {
      await page.setViewportSize({width, height: 844});
      await page.emulateMedia({colorScheme: scheme});
      for (const path of ["", "plans", "plans/release-2-4", "plans/evil-1", "plans/offsite-june/preview", "quarantine", "quarantine/evil-1/1", "verdicts", "verdicts/summer-party/3", "leases", "memory", "memory/fact?key=fare.lis-ber", "capabilities", "ledger", "ledger/20", "health", "/sessions", "/login", "/tenants"]) {
        await page.goto(base + (path.startsWith("/") ? path.slice(1) : "t/default/" + path));
        const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        assert.ok(over <= 0, `${path} is ${over} px too wide at ${width} px`);
        const faint = await page.evaluate(contrast);
        assert.deepEqual(faint, [], `${path} at ${width} px, ${scheme}: texts that are hard to read`);
      }
    }
  }
});

await test("a session that an admin ends is over on every page of it", async () => {
  await page.setViewportSize({width: 1600, height: 1000});
  await page.goto(base + "sessions");
  await page.waitForSelector("text=this one");
  const own = page.locator(".sessions .row", {hasText: "this one"});
  const other = watch(await context.newPage());
  await other.goto(base + "t/default/plans/offsite-june");
  await other.waitForFunction(() => document.getElementById("pulse").textContent === "live");
  expected = 1;
  await own.locator("button").click();
  await page.waitForURL("**/login?next=*");
  await other.waitForSelector("text=Sign in to act", {timeout: 20000});
  assert.equal(await other.locator("form[method=post]").count(), 0, "forms to act");
  expected = 0;
  await other.close();
  await signIn(page, base, token);
});

await test("signing out ends it", async () => {
  await page.setViewportSize({width: 1600, height: 1000});
  await page.goto(base + "t/default/");
  await page.click("text=Sign out");
  await page.waitForSelector("text=Sign in to act");
});

await browser.close();

// contrast lists the texts of a page whose contrast is below 4.5 : 1.
function contrast() {
  const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return c.startsWith("color(") ? [m[0] * 255, m[1] * 255, m[2] * 255, m[3] ?? 1] : [m[0], m[1], m[2], m[3] ?? 1]; };
  const light = ([r, g, b]) => [r, g, b].map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
  const over = (top, under) => top.slice(0, 3).map((v, i) => v * top[3] + under[i] * (1 - top[3]));
  const bad = new Set();
  for (const e of document.querySelectorAll("main *, .side *")) {
    if (!e.checkVisibility() || e.closest("svg, .hide, .choice.off") || ![...e.childNodes].some((n) => n.nodeType === 3 && n.nodeValue.trim())) continue;
    const layers = [];
    for (let p = e; p; p = p.parentElement) layers.push(parse(getComputedStyle(p).backgroundColor));
    const under = layers.reverse().reduce((at, l) => over(l, at), [255, 255, 255]);
    const ink = over(parse(getComputedStyle(e).color), under);
    const [a, b] = [light(ink), light(under)].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) bad.add(`${e.className || e.localName}: ${((a + 0.05) / (b + 0.05)).toFixed(2)}`);
  }
  return [...bad];
}
