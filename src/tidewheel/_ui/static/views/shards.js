import { h, put, facts } from "../dom.js";
import { get } from "../api.js";
import { ago, count, size } from "../format.js";
import { Heat } from "../heat.js";

const sum = (values) => values.reduce((a, b) => a + b, 0);

export async function show(main, context) {
  const heat = new Heat(), top = h("div", {});
  let data = null;
  const by = h("select", { "aria-label": "what to show", onchange: () => heat.set(data, by.value) }, h("option", { value: "keys" }, "keys"), h("option", { value: "bytes" }, "bytes"));
  async function load() {
    data = await get("shards", { job: context.job }, context.signal);
    if (data.holders.length && by.options.length < 3) by.append(h("option", { value: "holders" }, "who holds it"));
    put(top, facts([
      ["shards", count(data.n_shards)], ["keys", count(sum(data.keys))], ["bytes in local copies", size(sum(data.bytes))],
      ["largest against the mean", data.skew === null ? "–" : data.skew.toFixed(2)], ["as of", data.known_at ? ago(data.known_at) : "not known yet"],
    ]));
    heat.set(data, by.value);
  }
  put(main, top, h("div", { class: "bar" }, h("label", {}, "show ", by)), heat.node);
  await load();
  context.on("commits", load);
}
