// Takes the pictures of docs/pictures: PICTURES names the folder, CONSOLE the console's URL.
import {mkdirSync, statSync} from "node:fs";
import {join} from "node:path";
import {launch, signIn} from "./browser.mjs";

const base = process.env.CONSOLE, folder = process.env.PICTURES;
mkdirSync(folder, {recursive: true});

const shots = [
  ["overview", "t/default/"],
  ["plan", "t/default/plans/release-2-4"],
  ["open-plan", "t/default/plans/offsite-june"],
  ["quarantine", "t/default/quarantine/release-2-4/6"],
  ["plans", "t/default/plans"],
  ["ledger", "t/default/ledger"],
  ["memory", "t/default/memory"],
  ["workers", "t/default/capabilities"],
  ["health", "t/default/health"],
  ["inbox", "t/default/quarantine"],
  ["verdicts", "t/default/verdicts"],
  ["verdict", "t/default/verdicts/summer-party/3"],
  ["leases", "t/default/leases"],
  ["fact", "t/default/memory/fact?key=fare.lis-ber"],
  ["preview", "t/default/plans/offsite-june/preview"],
  ["record", "t/default/ledger/20"],
  ["sessions", "sessions"],
  ["login", "login"],
];
const kept = new Set((process.env.KEEP || shots.map((s) => s[0]).join()).split(","));

for (const scheme of ["light", "dark"]) {
  for (const width of [1600, 390]) {
    const browser = await launch();
    const context = await browser.newContext({viewport: {width, height: width > 1000 ? 1000 : 844}, colorScheme: scheme, reducedMotion: "reduce"});
    const page = await context.newPage();
    await signIn(page, base, process.env.TOKEN);
    for (const [name, path] of shots) {
      if (!kept.has(name)) continue;
      await page.goto(base + path);
      await page.waitForFunction(() => document.getElementById("pulse").hidden || document.getElementById("pulse").textContent === "live");
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      if (wide > 0) throw new Error(`${name} is ${wide} px wider than ${width} px`);
      const file = join(folder, `${name}-${width}-${scheme}.png`);
      const height = Math.min(await page.evaluate(() => Math.max(document.documentElement.scrollHeight, innerHeight)), 1600);
      await page.screenshot({path: file, clip: {x: 0, y: 0, width, height}, fullPage: true});
      console.log(file, statSync(file).size);
    }
    await browser.close();
  }
}
