// Numbers, sizes and times for people.

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (value) => (value === null || value === undefined ? "–" : whole.format(Math.round(value)));
export const brief = (value) => (value === null || value === undefined ? "–" : Math.abs(value) < 10000 ? whole.format(Math.round(value)) : short.format(value));
export const rate = (value) => (value === null || value === undefined ? "–" : `${brief(value)}/s`);
export const percent = (value) => (value === null || value === undefined ? "–" : `${Math.round(value * 100)} %`);

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (bytes >= 1024 && at < units.length - 1) { bytes /= 1024; at += 1; }
  return `${at && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)} ${units[at]}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const sign = seconds < 0 ? "-" : "";
  const value = Math.abs(seconds);
  if (value < 1) return `${sign}${Math.round(value * 1000)} ms`;
  if (value < 60) return `${sign}${value.toFixed(1)} s`;
  if (value < 3600) return `${sign}${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
  if (value < 86400) return `${sign}${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60)} min`;
  return `${sign}${Math.floor(value / 86400)} d ${Math.floor((value % 86400) / 3600)} h`;
}

// What waits in a job's sources: rows, and files whose rows nobody has counted.
export function behind(job) {
  const known = (value) => value !== null && value !== undefined;
  const parts = [known(job.rows_behind) ? `${brief(job.rows_behind)} rows` : null, known(job.files_behind) ? `${brief(job.files_behind)} files` : null];
  return parts.filter(known).join(", ") || "–";
}

const two = (value) => String(value).padStart(2, "0");

export function moment(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const at = new Date(seconds * 1000);
  if (Number.isNaN(at.getTime())) return "–";
  return `${at.getUTCFullYear()}-${two(at.getUTCMonth() + 1)}-${two(at.getUTCDate())} ${clock(seconds)}`;
}

export function clock(seconds) {
  const at = new Date(seconds * 1000);
  return `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}:${two(at.getUTCSeconds())}`;
}

export const ago = (seconds, now) => (seconds === null || seconds === undefined ? "–" : `${duration(Math.max(0, (now ?? Date.now() / 1000) - seconds))} ago`);

export function json(value) {
  if (typeof value === "string") return value;
  const flat = JSON.stringify(value);
  return flat === undefined ? "–" : flat.length > 80 ? JSON.stringify(value, null, 1) : flat;
}
