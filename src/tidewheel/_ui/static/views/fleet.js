import { h, put, table, badge, facts } from "../dom.js";
import { get } from "../api.js";
import { ago, count, duration } from "../format.js";

const ranges = (numbers) => {
  const spans = [];
  for (const number of numbers) {
    if (spans.length && number === spans.at(-1)[1] + 1) spans.at(-1)[1] = number;
    else spans.push([number, number]);
  }
  return spans.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`)).join(", ");
};

export async function show(main, context) {
  const box = h("div", {});
  async function load() {
    const fleet = await get("fleet", { job: context.job }, context.signal);
    if (!fleet.fleet) { put(box, h("p", { class: "quiet card" }, "this job runs by itself, not as a fleet of nodes")); return; }
    const of = (node) => fleet.shards.filter((shard) => shard.holder === node.name).map((shard) => shard.shard);
    const moving = fleet.shards.filter((shard) => shard.moving);
    put(box,
      facts([["nodes", count(fleet.nodes.length)], ["shards", count(fleet.shards.length)], ["on the move", count(moving.length)], fleet.whole ? ["events behind", `${fleet.lag_is_complete ? "" : "more than "}${count(fleet.lag)}`] : null]),
      h("h2", {}, "nodes"),
      table([
        ["node", (node) => h("b", {}, node.name)],
        ["", (node) => (fleet.whole ? badge(node.member ? (node.draining ? "draining" : "member") : "gone") : "")],
        ["run", (node) => node.run ?? "", "n"], ["shards", (node) => count(node.shards), "n"], ["holds", (node) => h("span", { class: "small" }, ranges(of(node)))],
        ["events", (node) => count(node.events), "n"],
        ["last commit", (node) => (fleet.whole ? (node.committed === null ? "never" : `${duration(node.committed)} ago`) : ago(node.committed_at)), "w"],
        ["lease renewed", (node) => (fleet.whole ? (node.renewed === null ? "no lease" : `${duration(node.renewed)} ago`) : "–"), "w"],
      ], fleet.nodes, { empty: "no node holds a shard" }),
      moving.length ? [h("h2", {}, "on the move"), table([["shard", (shard) => count(shard.shard), "n"], ["from", (shard) => shard.holder ?? "nobody"], ["to", (shard) => shard.owner ?? ""]], moving)] : null,
      fleet.whole ? null : h("p", { class: "quiet small" }, "leases and what is behind are shown when the page is started with --cells and --inbox of the fleet"));
  }
  put(main, box);
  await load();
  const timer = setInterval(() => load().catch(() => {}), 2000);
  context.signal.addEventListener("abort", () => clearInterval(timer));
}
