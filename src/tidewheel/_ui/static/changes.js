// A change to a job: the server says what would happen, and only a second yes makes it happen.

import { h, notice } from "./dom.js";
import { ask, confirm, hasToken } from "./api.js";

let allowed = false;
export const allow = (yes) => { allowed = yes; };
export const mayChange = () => allowed && hasToken();

export async function change(wanted) {
  try {
    const { code, says } = await ask(wanted);
    const sure = await new Promise((answer) => {
      const dialog = h("dialog", { "aria-label": "are you sure?" },
        h("h2", {}, "Are you sure?"), h("p", {}, says),
        h("div", { class: "bar" },
          h("button", { type: "button", onclick: () => { dialog.close(); answer(false); } }, "no"),
          h("button", { type: "button", class: "primary", id: "sure", onclick: () => { dialog.close(); answer(true); } }, "yes, do it")));
      dialog.addEventListener("cancel", () => answer(false));
      dialog.addEventListener("close", () => dialog.remove());
      document.body.append(dialog);
      dialog.showModal();
    });
    if (!sure) return false;
    notice((await confirm(code)).done);
    return true;
  } catch (error) {
    notice(error.message);
    return false;
  }
}
