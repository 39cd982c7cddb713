import { h, put, table, badge } from "../dom.js";
import { get } from "../api.js";
import { ago, behind, count, duration, rate } from "../format.js";
import { spark } from "../charts.js";

const link = (name) => `#/${encodeURIComponent(name)}/overview`;

export async function show(main, context) {
  const draw = (jobs) => {
    const wanted = filter.value.toLowerCase();
    put(list, table([
      ["job", (job) => h("a", { href: link(job.name) }, job.name), "name"],
      ["", (job) => [badge(job.state), job.phase ? h("span", { class: "quiet small" }, ` ${job.phase}`) : null]],
      ["rows", (job) => rate(job.rate), "n"],
      ["", (job) => spark(job.spark ?? [])],
      ["behind", (job) => behind(job), "n"],
      ["data's clock behind", (job) => (job.clock ? duration(job.now - job.clock) : "–"), "n"],
      ["commit", (job) => count(job.sequence), "n"],
      ["last commit", (job) => ago(job.committed_at, job.now), "w"],
      ["where", (job) => job.host ?? "", "w"],
      ["last error", (job) => (job.error ? h("span", { class: "small", title: job.error.text }, job.error.text.length > 160 ? `${job.error.text.slice(0, 160)} …` : job.error.text) : "")],
    ], jobs.filter((job) => job.name.toLowerCase().includes(wanted)), { link: (job) => link(job.name), empty: "there is no job here yet: start one with this state URL, and it appears by itself" }));
  };
  let jobs = [];
  const filter = h("input", { class: "grow", type: "search", id: "search", placeholder: "filter by name  ( / )", "aria-label": "filter by name", oninput: () => draw(jobs) });
  const list = h("div", {});
  jobs = await get("jobs", {}, context.signal);
  put(main, h("div", { class: "bar" }, filter), list);
  draw(jobs);
  context.on("jobs", (fresh) => { jobs = fresh; draw(fresh); });
}
