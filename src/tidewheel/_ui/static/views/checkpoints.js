import { h, put, table, badge, facts } from "../dom.js";
import { get } from "../api.js";
import { count, json, moment, size } from "../format.js";
import { change, mayChange } from "../changes.js";

export async function show(main, context) {
  const job = context.job, detail = h("div", { id: "detail" }), lists = h("div", {});
  const busy = async (node, work) => {
    node.disabled = true;
    put(detail, h("p", { class: "quiet card" }, "reading …"));
    try { put(detail, await work()); } catch (error) { put(detail, h("div", { class: "trouble" }, error.message)); }
    node.disabled = false;
    detail.scrollIntoView({ block: "nearest" });
  };
  const pairs = (object) => h("table", {}, h("tbody", {}, Object.entries(object).map(([name, value]) => h("tr", {}, h("td", { class: "quiet" }, name), h("td", { class: "mono" }, typeof value === "string" ? value : json(value))))));
  const one = async (at) => {
    const found = await get("checkpoint", { job, at });
    return h("section", { class: "card" }, h("h2", {}, `checkpoint ${found.sequence}`), pairs(found));
  };
  const changes = async (before, after) => {
    const found = await get("diff", { job, before, after });
    return h("section", { class: "card" }, h("h2", {}, `what changed from ${found.before} to ${found.after}`),
      found.tables.length ? found.tables.map((each) => [
        h("p", {}, h("b", {}, each.table), `: ${count(each.added)} added, ${count(each.changed)} changed, ${count(each.dropped)} dropped`),
        table([["key", (row) => h("span", { class: "mono" }, json(row.key))], ["before", (row) => h("div", { class: "mono value" }, json(row.before))], ["after", (row) => h("div", { class: "mono value" }, json(row.after))]], each.samples),
      ]) : h("p", { class: "quiet" }, "nothing"));
  };
  const verified = async (at) => {
    const found = await get("verify", { job, at });
    return h("section", { class: "card" }, h("h2", {}, found.problems.length ? `${found.problems.length} problems` : "all good"),
      facts([["checkpoints", count(found.checkpoints)], ["files", count(found.files)], ["read", size(found.bytes)]]),
      found.problems.length ? table([["what", (row) => row.what], ["found", (row) => row.found], ["needed by", (row) => row.checkpoints.join(", ")]], found.problems) : null);
  };
  const before = h("input", { size: "9", placeholder: "from", "aria-label": "from checkpoint" }), after = h("input", { size: "9", placeholder: "to", "aria-label": "to checkpoint" });
  const compare = h("button", { onclick: (event) => busy(event.target, () => changes(before.value, after.value)) }, "what changed");
  const check = h("button", { id: "verify", onclick: (event) => busy(event.target, () => verified(null)) }, "check all files");
  const name = h("input", { size: "14", placeholder: "name", "aria-label": "name of the savepoint" });
  const keep = h("button", { onclick: async () => { if (await change({ job, what: "savepoint", name: name.value })) await load(); } }, "make a savepoint …");

  async function load() {
    const data = await get("checkpoints", { job }, context.signal);
    const actions = (row) => (row.error ? row.error : [
      h("button", { onclick: (event) => busy(event.target, () => one(row.name ?? row.sequence)) }, "show"), " ",
      row.parent !== null && !row.name ? h("button", { onclick: (event) => busy(event.target, () => changes(row.parent, row.sequence)) }, "changes") : null, " ",
      mayChange() ? h("button", { class: "bad", onclick: async () => { if (await change({ job, what: "restore", at: row.name ?? row.sequence })) await load(); } }, "go back here …") : null,
    ]);
    const columns = [
      ["commit", (row) => count(row.sequence), "n"], ["kind", (row) => (row.error ? badge("damaged") : row.kind)], ["made", (row) => moment(row.created), "w"], ["events", (row) => count(row.events), "n"],
      ["tasks", (row) => count(row.parallelism), "n"], ["files", (row) => count(row.files), "n"], ["state", (row) => size(row.bytes), "n"], ["", actions],
    ];
    put(lists,
      data.savepoints.length ? [h("h2", {}, "savepoints"), table([["name", (row) => row.name], ...columns], data.savepoints)] : null,
      h("h2", {}, `kept checkpoints: ${count(data.kept)}`), table(columns, data.checkpoints));
  }
  put(main, h("div", { class: "bar" }, before, after, compare, check, mayChange() ? [name, keep] : null), detail, lists);
  await load();
  context.on("commits", load);
}
