// What the pages do beside htmx: a table of new messages stays short and can be paused, and a part
// of a page that the user reads or has the focus in is not replaced meanwhile.
"use strict";

const ROWS_MAX = 200;

document.addEventListener("htmx:beforeRequest", (event) => {
  const part = event.target;
  if (part.id !== "live") return;
  const selection = document.getSelection();
  const selects = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  const focused = part.contains(document.activeElement) && document.activeElement !== part;
  if (document.hidden || selects || focused) event.preventDefault();
});

// A part that can't be loaded says why: what it shows may be old.
const PARTS = ["live", "found"];
const stale = document.getElementById("stale");

const reasonIn = (xhr) => {
  if (!xhr || !xhr.status) return "The console does not answer.";
  const page = new DOMParser().parseFromString(xhr.responseText, "text/html");
  const said = page.querySelector("[role=alert]");
  return said ? said.textContent.trim() : `The console answers with the status ${xhr.status}.`;
};

for (const each of ["htmx:responseError", "htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(each, ({ detail }) => {
    if (!PARTS.includes(detail.target.id)) return;
    const old = " What this page shows may be old; it tries again in a few seconds.";
    stale.textContent = reasonIn(detail.xhr) + (detail.target.id === "live" ? old : "");
    stale.hidden = false;
  });
}

document.addEventListener("htmx:afterSwap", ({ detail }) => {
  // Rows of a stream come without a target.
  if (detail.target && PARTS.includes(detail.target.id)) stale.hidden = true;
});

document.addEventListener("htmx:configRequest", (event) => {
  // A form without JavaScript sends empty fields, too; addresses are shorter without them.
  for (const [name, value] of Object.entries(event.detail.parameters)) {
    if (value === "") delete event.detail.parameters[name];
  }
});

const rows = document.getElementById("rows");
const state = document.getElementById("state");
const pause = document.getElementById("pause");

if (rows && state && pause) {
  const stream = document.getElementById("stream");
  let paused = false;
  let missed = 0;

  const say = (text) => {
    state.textContent = text;
  };

  pause.addEventListener("click", () => {
    paused = !paused;
    missed = 0;
    pause.setAttribute("aria-pressed", String(paused));
    say(paused ? "Paused." : "Following.");
  });

  stream.addEventListener("htmx:sseOpen", () => say("Following."));
  stream.addEventListener("htmx:sseError", () => say("The connection was lost; trying again."));
  stream.addEventListener("htmx:sseClose", () => say("Ended. Press Follow to begin again."));
  stream.addEventListener("htmx:sseBeforeMessage", (event) => {
    if (!paused || event.detail.type !== "row") return;
    event.preventDefault();
    missed += 1;
    say(`Paused: ${missed} messages were not shown.`);
  });
  stream.addEventListener("htmx:sseMessage", () => {
    while (rows.rows.length > ROWS_MAX) rows.deleteRow(-1);
  });
}
