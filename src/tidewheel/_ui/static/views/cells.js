import { h, put, table, notice } from "../dom.js";
import { get } from "../api.js";
import { count, json, moment } from "../format.js";
import { change, mayChange } from "../changes.js";

export async function show(main, context) {
  const job = context.job, list = h("div", {});
  // What somebody is typing, or has typed and not sent, is not drawn over.
  let fields = [];
  const editing = () => fields.some(({ field, was }) => field === document.activeElement || field.value !== was);
  async function load() {
    if (editing()) return;
    const cells = await get("cells", { job }, context.signal);
    if (editing()) return;
    fields = [];
    put(list, table([
      ["cell", (cell) => h("b", {}, cell.name)],
      ["type", (cell) => h("span", { class: "mono" }, cell.type ?? "")],
      ["value", (cell) => (cell.error ? h("span", { class: "badge damaged" }, cell.error) : cell.version ? h("div", { class: "mono value" }, json(cell.value)) : h("span", { class: "quiet" }, `never written; the default is ${json(cell.default)}`))],
      ["version", (cell) => (cell.version ? count(cell.version) : "–"), "n"],
      ["changed by", (cell) => (cell.version ? who(cell.author) : "")],
      ["the job works with", (cell) => (!cell.declared ? h("span", { class: "quiet" }, "not declared by the job") : cell.seen_version ? h("span", { class: "mono" }, `${json(cell.seen_value)} (version ${cell.seen_version})`) : "the default")],
      ["since", (cell) => (cell.seen_since ? `commit ${count(cell.seen_sequence)}, ${moment(cell.seen_since)}` : ""), "w"],
      ["", (cell) => (mayChange() && cell.declared ? edit(cell) : "")],
    ], cells, { empty: "this job declares no cell" }));
  }
  const who = (author) => (author ? [`${author.user} on ${author.host}, by ${author.program}`, h("div", { class: "quiet small" }, moment(author.at))] : h("span", { class: "quiet" }, "unknown"));
  const edit = (cell) => {
    const was = cell.value === null || cell.value === undefined ? "" : JSON.stringify(cell.value);
    const field = h("input", { size: "12", value: was, "aria-label": `new value of ${cell.name}` });
    fields.push({ field, was });
    const set = async () => {
      let value;
      try { value = JSON.parse(field.value); } catch { if (cell.type !== "str") { notice(`${field.value} is not JSON`); return; } value = field.value; }
      if (!(await change({ job, what: "set_cell", name: cell.name, value }))) return;
      fields = [];
      await load();
    };
    return [field, " ", h("button", { id: `set-${cell.name}`, onclick: set }, "set …")];
  };
  put(main, list, h("p", { class: "quiet small" }, "a change is seen by the job's next batch, by all its tasks at once"));
  await load();
  context.on("job", load);
}
