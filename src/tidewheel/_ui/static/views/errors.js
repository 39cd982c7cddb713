import { h, put, table, badge } from "../dom.js";
import { get } from "../api.js";
import { ago, count, moment } from "../format.js";

export async function show(main, context) {
  const box = h("div", {});
  async function load() {
    const data = await get("errors", { job: context.job }, context.signal);
    const dead = Object.entries(data.dead);
    put(box,
      h("h2", {}, "errors"),
      data.errors.length ? data.errors.map((each) => h("section", { class: "card" },
        h("div", { class: "bar" }, badge(each.restarted ? "restarted" : "failed"), h("b", {}, each.kind), h("span", { class: "quiet" }, `${moment(each.at)} UTC, ${ago(each.at, data.now)}`),
          each.batch === null ? null : h("span", { class: "quiet" }, `batch ${each.batch}`), each.sequence === null ? null : h("span", { class: "quiet" }, `after commit ${each.sequence}`), each.node ? h("span", { class: "quiet" }, each.node) : null),
        h("pre", {}, each.text), each.traceback ? h("details", {}, h("summary", {}, "traceback"), h("pre", {}, each.traceback)) : null))
        : h("p", { class: "quiet card" }, "no error is in the history"),
      h("h2", {}, "dead letters, of late"),
      table([["step", ([name]) => name], ["records put aside", ([, number]) => count(number), "n"]], dead, { empty: "none" }),
      data.letters.length ? table([
        ["commit", (letter) => count(letter.sequence), "n"], ["step", (letter) => letter.step], ["key", (letter) => h("span", { class: "mono" }, letter.key ?? "")],
        ["record", (letter) => h("div", { class: "mono value" }, letter.record)],
        ["error", (letter) => [letter.error, letter.traceback ? h("details", {}, h("summary", {}, "traceback"), h("pre", {}, letter.traceback)) : null]],
      ], data.letters) : null);
  }
  put(main, box);
  await load();
  context.on("job", load);
}
