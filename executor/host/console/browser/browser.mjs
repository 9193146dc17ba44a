// What every script here needs: a Chromium of this machine, and a sign-in.
import {mkdtempSync} from "node:fs";
import {tmpdir} from "node:os";
import {join} from "node:path";
import {chromium} from "playwright-core";

const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

export async function launch() {
  const context = await chromium.launchPersistentContext(mkdtempSync(join(tmpdir(), "console-browser-")), {
    executablePath: process.env.CHROMIUM || "/usr/bin/chromium", headless: true, args,
  });
  return context.browser() ?? {newContext: () => context, close: () => context.close()};
}

export async function signIn(page, base, token) {
  await page.goto(base + "login");
  await page.fill("input[name=name]", "ana");
  await page.fill("input[name=token]", token);
  await page.click("text=Sign in >> nth=-1");
  await page.waitForURL(base + "**");
}
