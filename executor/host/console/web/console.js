// What the pages do beyond links and forms: times that go on, a page that follows the
// fold, and keys. Without this script every page works; it only does not change by itself.
"use strict";

const minute = 60, hour = 3600, day = 86400;
const skew = Date.now() - Number(document.body.dataset.now) / 1e6; // of this clock against the server's

function rough(seconds) {
  if (seconds < minute) return Math.floor(seconds) + " s";
  if (seconds < hour) return Math.floor(seconds / minute) + " min";
  if (seconds < 2 * day) return Math.floor(seconds / hour) + " h " + String(Math.floor(seconds % hour / minute)).padStart(2, "0") + " min";
  return Math.floor(seconds / day) + " d";
}

function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// tick keeps times and undo windows going.
function tick() {
  const now = (Date.now() - skew) / 1000;
  for (const t of document.querySelectorAll("time[data-ns]")) {
    const away = Number(t.dataset.ns) / 1e9 - now;
    put(t, away <= 0 ? rough(-away) + " ago" : "in " + rough(away));
  }
  for (const p of document.querySelectorAll("progress[data-until]")) {
    const from = Number(p.dataset.from) / 1e9, until = Number(p.dataset.until) / 1e9;
    p.value = Math.max(0, Math.min(1000, (now - from) / (until - from) * 1000));
  }
}

// alike reports whether two nodes are the same thing at two times.
function alike(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");
}

// typed reports whether a form is being filled in: it is left alone then.
function typed(form) {
  if (form.contains(document.activeElement) && document.activeElement.matches("input, select, textarea")) return true;
  return [...form.elements].some((e) => e.type === "checkbox" || e.type === "radio" ? e.checked !== e.defaultChecked
    : e.matches("input:not([type=hidden]), textarea") && e.value !== e.defaultValue);
}

// become changes a node into another with as few changes as that takes, so that what is
// open, focused or selected stays so.
function become(from, to) {
  if (from.nodeType !== Node.ELEMENT_NODE) {
    if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
    return;
  }
  if (from.matches("form") && typed(from)) return;
  for (const a of [...from.attributes]) {
    if (!to.hasAttribute(a.name) && a.name !== "open" && !(from.matches("progress") && a.name === "value")) from.removeAttribute(a.name);
  }
  for (const a of to.attributes) {
    if (from.getAttribute(a.name) !== a.value && !(from.matches("progress") && a.name === "value")) {
      if (from.localName === "span" && a.name === "class" && from.matches(".state")) flash(from);
      from.setAttribute(a.name, a.value);
    }
  }
  if (from.matches("time[data-ns]")) return;
  const had = [...from.childNodes], want = [...to.childNodes];
  let i = 0;
  for (const w of want) {
    let j = i;
    while (j < had.length && j < i + 8 && !alike(had[j], w)) j++;
    if (j < had.length && alike(had[j], w)) {
      for (; i < j; i++) had[i].remove();
      become(had[i++], w);
    } else if (i < had.length) {
      had[i].before(document.adoptNode(w));
    } else {
      from.append(document.adoptNode(w));
    }
  }
  for (; i < had.length; i++) had[i].remove();
}

function flash(node) {
  node.classList.remove("changed");
  requestAnimationFrame(() => node.classList.add("changed"));
}

// follow has the page ask for itself again when the fold has touched what it shows.
function follow(live) {
  const pulse = document.getElementById("pulse");
  let wait = 0, busy = false, again = false, last = 0;
  const say = (state, text) => {
    pulse.hidden = false;
    pulse.className = "pulse " + state;
    put(pulse, text);
  };
  async function load() {
    clearTimeout(wait);
    wait = 0;
    if (busy || document.hidden) { again = true; return; }
    busy = true;
    again = false;
    try {
      const answer = await fetch(location.href, {headers: {"X-Requested-With": "console"}, redirect: "error"});
      if (answer.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        document.title = page.title;
        for (const part of ["main", ".side nav"]) {
          const from = document.querySelector(part), to = page.querySelector(part);
          if (from && to) become(from, to);
        }
        tick();
      }
    } catch (e) {
      say("lost", "connecting again");
    }
    busy = false;
    last = Date.now();
    if (again) soon();
  }
  function soon() {
    if (!wait) wait = setTimeout(load, Math.max(0, last + (live.includes("plan=") ? 250 : 1000) - Date.now()));
  }
  // A page in the background gets no events: a browser opens six connections to one
  // place and no more. It connects again by itself, with the last id that it has seen.
  let events = null, seen = "";
  function connect() {
    if (document.hidden) {
      if (events) events.close();
      events = null;
      return;
    }
    if (events) return;
    events = new EventSource(seen ? live.replace(/seen=\d+/, "seen=" + seen) : live);
    events.onopen = () => say("on", "live");
    events.onerror = () => {
      say("lost", "connecting again");
      if (events.readyState === EventSource.CLOSED) setTimeout(back, 2000);
    };
    events.addEventListener("change", (e) => { seen = e.lastEventId; soon(); });
  }
  // A server that has refused the events is asked again later. If the page is not what it was,
  // because the session has ended or the server is starting, it is loaded again.
  async function back() {
    if (!events || events.readyState !== EventSource.CLOSED) return;
    events = null;
    const same = await fetch(location.href, {redirect: "manual"}).then(async (answer) => {
      const as = (page) => new URLSearchParams((page.body.dataset.live || "").split("?")[1]).get("as");
      return answer.ok && as(new DOMParser().parseFromString(await answer.text(), "text/html")) === as(document);
    }, () => true);
    if (same) setTimeout(connect, 5000);
    else location.reload();
  }
  connect();
  document.addEventListener("visibilitychange", () => {
    connect();
    if (!document.hidden && again) soon();
  });
}

// keys: "/" searches, "g" and a letter goes to a page, "j" and "k" go through rows.
function keys() {
  const pages = {o: "overview", p: "plans", q: "quarantine", v: "verdicts", l: "leases", m: "memory", w: "workers", e: "ledger", h: "health"};
  let going = 0;
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches("input, select, textarea")) {
      if (e.key === "Escape") e.target.blur();
      return;
    }
    const search = document.querySelector("[data-key='/']");
    if (e.key === "/" && search) {
      e.preventDefault();
      search.focus();
    } else if (e.key === "g") {
      going = Date.now();
    } else if (pages[e.key] && Date.now() - going < 1500) {
      const to = [...document.querySelectorAll(".side nav a")].find((a) => a.textContent.trim().toLowerCase().startsWith(pages[e.key]));
      if (to) to.click();
    } else if (e.key === "j" || e.key === "k") {
      const rows = [...document.querySelectorAll("main .rows a.plan, main .tree summary, main table td:first-child a")];
      const at = rows.indexOf(document.activeElement) + (e.key === "j" ? 1 : -1);
      if (rows[at]) rows[at].focus();
    }
  });
}

// evidence is asked for where the answer is a claim.
function claims() {
  const form = document.querySelector("form[data-answer]");
  if (!form) return;
  form.addEventListener("change", () => {
    const chosen = form.querySelector("input[name=as]:checked");
    form.elements.evidence.required = Boolean(chosen && chosen.hasAttribute("data-evidence"));
  });
}

tick();
setInterval(tick, 1000);
keys();
claims();
if (document.body.dataset.live) {
  follow(document.body.dataset.live);
} else if (document.querySelector(".door") && document.title.startsWith("Cannot") && document.querySelector("h1").textContent === "One moment") {
  setTimeout(() => location.reload(), 2000);
}
