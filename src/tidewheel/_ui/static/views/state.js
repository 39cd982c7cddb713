import { h, put, table } from "../dom.js";
import { get } from "../api.js";
import { count, json, moment } from "../format.js";

export async function show(main, context) {
  const job = context.job, answer = h("div", { id: "answer" });
  const steps = await get("steps", { job }, context.signal);
  if (!steps.length) { put(main, h("p", { class: "quiet card" }, "no step of this job has state yet")); return; }
  const step = h("select", { "aria-label": "step", id: "step", onchange: () => browse() }, steps.map((each) => h("option", { value: each.name }, `${each.name} (${each.kind})`)));
  if (steps.some((each) => each.name === context.query.get("step"))) step.value = context.query.get("step");
  const at = h("input", { size: "12", placeholder: "checkpoint", "aria-label": "checkpoint or savepoint; empty for the newest" });
  const prefix = h("input", { type: "search", placeholder: "keys that begin with …", "aria-label": "prefix", onkeydown: (event) => event.key === "Enter" && browse() });
  const key = h("input", { type: "search", class: "grow", id: "search", placeholder: 'a key: ada, 7, ["a", 1]  ( / )', "aria-label": "key", onkeydown: (event) => event.key === "Enter" && look(key.value) });
  const value = (held) => h("div", { class: "mono value" }, json(held));
  const guarded = async (work) => {
    put(answer, h("p", { class: "quiet card" }, "reading …"));
    try { put(answer, await work()); } catch (error) { if (!context.signal.aborted) put(answer, h("div", { class: "trouble" }, error.message)); }
  };
  const browse = () => guarded(async () => {
    const found = await get("browse", { job, step: step.value, prefix: prefix.value, at: at.value }, context.signal);
    return [
      h("p", { class: "quiet" }, `${count(found.rows.length)} keys${found.complete ? "" : " and more"}, as of commit ${count(found.sequence)}`),
      table([["key", (row) => h("a", { href: "#", class: "mono", onclick: (event) => { event.preventDefault(); key.value = JSON.stringify(row.key); look(key.value); } }, json(row.key))], ["value", (row) => value(row.value)]], found.rows, { empty: "no such keys" }),
    ];
  });
  const origin = (row) => (row.source === null ? `from step ${row.place.step ?? "–"}` : [row.source, ...Object.entries(row.place).map(([name, where]) => `${name} ${where}`)].join(", "));
  const effect = (row) => (row.dropped ? h("span", { class: "quiet" }, `dropped by ${row.dropped}`) : [value(row.before), "→ ", value(row.after)]);
  const trace = async (text, sequence) => {
    const place = document.getElementById("records");
    place.dataset.commit = sequence;
    put(place, h("p", { class: "quiet card" }, `the batch of commit ${count(sequence)} runs again …`));
    try {
      let found;
      do { found = await get("records", { job, step: step.value, key: text, at: sequence }, context.signal); } while (found.running && place.isConnected && place.dataset.commit === `${sequence}`);
      if (place.dataset.commit !== `${sequence}` || !found.records) return;
      put(
        place,
        h("h2", {}, `records in the batch of commit ${count(sequence)}`),
        table([["record", (row) => value(row.value)], ["state before → after", effect], ["from", (row) => h("span", { class: "mono" }, origin(row))]], found.records, { empty: "no record of this key" }),
      );
    } catch (error) { if (!context.signal.aborted) put(place, h("div", { class: "trouble" }, error.message)); }
  };
  const look = (text) => guarded(async () => {
    if (!text) throw new Error("type a key");
    const found = await get("key", { job, step: step.value, key: text, at: at.value }, context.signal);
    const past = await get("past", { job, step: step.value, key: text }, context.signal);
    return [
      h("section", { class: "card" }, h("h2", {}, json(found.key)), found.found ? value(found.value) : h("p", { class: "quiet" }, "it has no state"), h("p", { class: "quiet small" }, `as of commit ${count(found.sequence)}`)),
      h("h2", {}, "at the kept checkpoints"),
      table([["commit", (row) => count(row.sequence), "n"], ["made", (row) => moment(row.created), "w"], ["value", (row) => (row.error ? row.error : h("a", { href: "#", title: "show the records of this batch", class: "at-commit", onclick: (event) => { event.preventDefault(); trace(text, row.sequence); } }, row.found ? value(row.value) : h("span", { class: "quiet" }, "none")))]], past),
      h("div", { id: "records" }),
    ];
  });
  put(main, h("div", { class: "bar" }, step, key, h("button", { id: "look", class: "primary", onclick: () => look(key.value) }, "look up"), prefix, at, h("button", { id: "browse", onclick: () => browse() }, "browse")), answer);
  key.value = context.query.get("key") ?? "";
  await (key.value ? look(key.value) : browse());
}
