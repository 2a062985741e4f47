// What the pages do beside htmx: a table of new messages stays short and can be paused, and a part
// of a page that the user reads or has the focus in is not replaced meanwhile.
"use strict";

const ROWS_MAX = 200;
const AGAIN_MS = 5000;

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

// A page of servers that are away is loaded again when they answer.
const again = document.getElementById("again");
if (again) {
  again.hidden = false;
  const tryAgain = async () => {
    const answer = document.hidden ? null : await fetch(location.href).catch(() => null);
    if (answer && answer.status !== 503) location.reload();
    else setTimeout(tryAgain, AGAIN_MS);
  };
  setTimeout(tryAgain, AGAIN_MS);
}

const rows = document.getElementById("rows");
const state = document.getElementById("state");
const pause = document.getElementById("pause");

if (rows && state && pause) {
  const stream = document.getElementById("stream");
  let paused = false;
  let missed = 0;
  let said = state.innerHTML;
  let reached = "";
  const counted = () => (missed === 1 ? "1 row was not shown" : `${missed} rows were not shown`);


  // A browser that connects again says how far the page is. htmx opens a new stream instead if the
  // answer was an error: its address says it.
  htmx.createEventSource = (address) => {
    const url = new URL(address, location.href);
    if (reached) url.searchParams.set("reached", reached);
    return new EventSource(url);
  };

  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    state.innerHTML = paused ? "Paused." : said;  // The console has escaped it.
    if (paused || !missed) return;
    const cell = rows.insertRow(0).insertCell();
    cell.colSpan = 7;
    cell.parentElement.className = "gap";
    cell.textContent = `The page was paused: ${counted()}.`;
    missed = 0;
  });

  stream.addEventListener("htmx:sseError", () => {
    said = "The connection was lost; trying again.";
    if (!paused) state.textContent = said;
  });
  stream.addEventListener("htmx:sseBeforeMessage", (event) => {
    const { type, data, lastEventId } = event.detail;
    reached = lastEventId || reached;
    if (type !== "row") said = data;
    if (!paused || type === "ended") return;
    event.preventDefault();
    if (type !== "row") return;
    missed += 1;
    state.textContent = `Paused: ${counted()}.`;
  });
  stream.addEventListener("htmx:sseMessage", () => {
    while (rows.rows.length > ROWS_MAX) rows.deleteRow(-1);
  });
}
