// The page: which view is shown, the keys, the theme, and one stream of news for the view.

import { h, put } from "./dom.js";
import { follow, get, takeToken } from "./api.js";
import { allow } from "./changes.js";

const VIEWS = { overview: "Overview", batches: "Batches", shards: "Shards", checkpoints: "Checkpoints", state: "State", cells: "Cells", fleet: "Fleet", errors: "Errors" };
const main = document.getElementById("main"), top = document.getElementById("top"), tabs = document.getElementById("tabs");
let current = new AbortController(), about = { state: "" };

function themed(theme) {
  document.documentElement.dataset.theme = theme;
  document.dispatchEvent(new Event("theme"));
}

function turn() {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("tidewheel-theme", theme);
  themed(theme);
}

function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [job, view] = path.split("/");
  return { job: job ? decodeURIComponent(job) : null, view: view in VIEWS ? view : "overview", query: new URLSearchParams(query) };
}

async function route() {
  current.abort();
  current = new AbortController();
  const { job, view, query } = place(), signal = current.signal, handlers = {};
  document.title = job ? `${job} · ${VIEWS[view]} · Tidewheel` : "Tidewheel";
  const live = h("span", { class: "quiet small", id: "live" });
  put(top, h("a", { class: "brand", href: "#/" }, h("img", { src: "/static/icon.svg", alt: "" }), "Tidewheel"), job ? h("h1", {}, job) : null,
    h("span", { class: "where", title: about.state }, about.state), live,
    h("button", { class: "icon", title: "light or dark (t)", "aria-label": "light or dark", onclick: turn }, "◐"));
  put(tabs, job ? Object.entries(VIEWS).map(([key, name], at) => h("a", { href: `#/${encodeURIComponent(job)}/${key}`, title: `key ${at + 1}`, "aria-current": key === view ? "page" : null }, name)) : null);
  // Each view has a place of its own, so that a slow one that is left cannot write into the next.
  const own = h("div", {}, h("p", { class: "quiet" }, "loading …"));
  put(main, own);
  const tell = (error) => { if (!signal.aborted) put(own, h("div", { class: "trouble" }, error.message)); };
  const context = {
    job, query, signal,
    on: (kind, act) => { handlers[kind] = (data) => !signal.aborted && Promise.resolve(act(data)).catch(tell); },
  };
  try {
    const module = await import(job ? `./views/${view}.js` : "./views/jobs.js");
    await module.show(own, context);
  } catch (error) {
    tell(error);
  }
  if (signal.aborted) return;
  document.body.dataset.view = job ? view : "jobs";
  follow(job, {
    ...handlers,
    trouble: ({ error }) => tell(new Error(error)),
    online: (yes) => { live.textContent = yes ? "live" : "the server does not answer"; },
  }, signal);
}

function key(event) {
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const { job } = place();
  const number = Number(event.key);
  if (job && number >= 1 && number <= Object.keys(VIEWS).length) location.hash = `#/${encodeURIComponent(job)}/${Object.keys(VIEWS)[number - 1]}`;
  else if (event.key === "g") location.hash = "#/";
  else if (event.key === "t") turn();
  else if (event.key === "/") { event.preventDefault(); document.getElementById("search")?.focus(); }
}

takeToken();
themed(localStorage.getItem("tidewheel-theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
addEventListener("hashchange", route);
addEventListener("keydown", key);
get("about").then((told) => { about = told; allow(told.changes); }).catch(() => {}).finally(route);
