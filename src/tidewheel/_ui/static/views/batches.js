import { h, put, table } from "../dom.js";
import { get } from "../api.js";
import { count, duration, moment, size } from "../format.js";
import { lineCharts, Timeline } from "../charts.js";

const SPANS = [["15 minutes", 900], ["1 hour", 3600], ["6 hours", 21600], ["1 day", 86400], ["7 days", 604800], ["all", 0]];

export async function show(main, context) {
  const charts = lineCharts(), list = h("div", {}), timeline = new Timeline();
  const span = h("select", { "aria-label": "span of time", onchange: () => load() }, SPANS.map(([name, seconds]) => h("option", { value: String(seconds) }, name)));
  span.value = "0";
  const told = h("span", { class: "quiet" });
  const newest = () => put(list, table([
    ["commit", (bar) => count(bar.sequence), "n"], ["made", (bar) => moment(bar.at), "w"], ["kind", (bar) => bar.kind], ["took", (bar) => duration(bar.seconds), "n"],
    ["rows", (bar) => count(bar.rows), "n"], ["keys changed", (bar) => count(bar.changed), "n"], ["tasks", (bar) => count(bar.tasks), "n"],
    ["deltas", (bar) => size(bar.delta_bytes), "n"], ["snapshots", (bar) => size(bar.snapshot_bytes), "n"], ["late", (bar) => count(bar.late), "n"], ["dead", (bar) => count(bar.dead), "n"], ["node", (bar) => bar.node],
  ], [...timeline.bars].reverse().slice(0, 50), { empty: "no batch is in the history yet" }));

  async function load() {
    const now = Date.now() / 1000;
    const data = await get("batches", { job: context.job, since: Number(span.value) ? now - Number(span.value) : null }, context.signal);
    told.textContent = `${count(data.commits)} commits${data.damaged ? `, ${count(data.damaged)} damaged pieces of history were passed over` : ""}${data.unreached ? `, ${count(data.unreached)} pieces could not be read just now: the store did not give them` : ""}`;
    charts.set(data.charts);
    timeline.set(data.bars);
    newest();
  }

  put(main, h("div", { class: "bar" }, span, told), timeline.node, h("div", { class: "grid" }, charts.nodes), h("h2", {}, "newest"), list);
  await load();
  context.on("commits", async (fresh) => {
    timeline.add(fresh);
    newest();
    await load();
  });
}
