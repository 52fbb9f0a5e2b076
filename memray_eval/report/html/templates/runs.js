// The list of runs: filtered, sorted and picked from here; what changes in the folder comes by itself.
const at = (id) => document.getElementById(id);
const ADDRESS = "#runs?";
const NAMED = 3; // candidates of a row whose figures are shown; the others are counted
const list = { rows: new Map(), nodes: new Map(), picked: [], sort: "started-", isTyping: false };

const titleOf = (row) => row.title || row.id;
const best = (row) => Math.max(...(row.figures || []).map((one) => one.place ?? -1), -1);
const SORTS = {
  name: { texts: ["by name, A to Z", "by name, Z to A"], of: (row) => titleOf(row).toLowerCase() },
  status: { texts: ["by status, A to Z", "by status, Z to A"], of: (row) => row.status },
  figure: { texts: ["lowest figure first", "highest figure first"], of: best },
  units: { texts: ["fewest answers first", "most answers first"], of: (row) => row.n_units ?? row.n_done ?? 0 },
  cost: { texts: ["cheapest first", "dearest first"], of: (row) => row.cost_usd ?? -1 },
  started: { texts: ["oldest first", "newest first"], of: (row) => row.started_s ?? row.written_s ?? 0 },
  took: { texts: ["shortest first", "longest first"], of: (row) => row.took_s ?? -1 },
};

function build(row) {
  const cell = (name, data) => make("td", { class: name, role: "cell", ...(data ? { "data-name": data } : {}) });
  const node = { row: make("tr", { role: "row" }), pick: make("input", { type: "checkbox" }), link: make("a"), id: make("small"), badge: make("b"), note: make("small"), bar: make("progress", { "aria-label": "Answers done" }), status: cell("status"), figure: cell("figure"), units: cell("number", "units"), cost: cell("number", "cost"), started: cell("started"), took: cell("number", "took") };
  const [picking, name] = [cell("pick"), cell("name")];
  picking.append(make("label", {}, node.pick, make("span", { class: "unseen", text: `Compare ${row.id}` })));
  name.append(node.link, node.id);
  node.status.append(node.badge, node.note, node.bar);
  node.row.append(picking, name, node.status, node.figure, node.units, node.cost, node.started, node.took);
  node.link.href = `run/${encodeURIComponent(row.id)}/`;
  node.link.addEventListener("click", () => history.replaceState({ opened: row.id }, ""));
  node.pick.addEventListener("change", () => pick(row.id, node.pick.checked));
  return node;
}

// Sets what a row shows. Its link and its box stay the same nodes, so that none loses the focus.
function fill(node, row) {
  setText(node.link, titleOf(row));
  setText(node.id, titleOf(row) === row.id ? "" : row.id);
  node.link.title = (row.models || []).join(", ");
  node.badge.className = `badge ${row.status}`;
  setText(node.badge, row.status);
  const failed = !row.is_so_far && row.n_failed ? `${counted(row.n_failed)} ${row.n_failed === 1 ? "answer" : "answers"} failed` : "";
  const told = [row.note, failed, ...(row.is_so_far ? progressTexts(row) : [])].filter(Boolean).join(" · ");
  setText(node.note, told);
  node.note.title = told;
  node.note.className = row.status === "damaged" || row.status === "failed" || failed ? "bad" : "";
  showProgress(node.bar, row);
  node.figure.replaceChildren(...figures(row));
  setText(node.units, row.is_so_far || row.n_units === undefined ? "" : counted(row.n_units));
  setText(node.cost, costs(row));
  setText(node.started, row.started_s === undefined ? "" : new Date(row.started_s * 1000).toISOString().slice(0, 16).replace("T", " "));
  setText(node.took, row.took_s === undefined ? "" : lasting(row.took_s));
}

function figures(row) {
  const found = row.figures || [];
  if (!found.length) return [make("p", { class: "quiet", text: isLive(row) ? "no figure yet" : row.status === "damaged" ? "" : "no figure" })];
  const several = found.length > 1;
  const lines = found.slice(0, several && found.length > NAMED ? NAMED - 1 : NAMED).map((one) => {
    const rest = [one.between ? ` [${one.between}]` : "", ` n\u00a0${counted(one.n)}`, one.mark ? `, ${one.mark}` : "", one.was ? ` · was ${one.was} ${one.trend}` : ""].join("");
    return make("p", {}, several ? make("span", { text: `${one.candidate} ` }) : null, make("b", { text: one.figure }), make("span", { class: "quiet", text: rest }));
  });
  if (found.length > NAMED) lines.push(make("p", { class: "quiet", text: `and ${found.length - NAMED + 1} more` }));
  return [make("small", { text: found[0].metric }), ...lines];
}

// Takes up rows that are new or have changed, and drops those that are gone.
function hearRows({ rows, gone, all }) {
  const names = new Set(rows.map((row) => row.id));
  const dropped = all ? [...list.rows.keys()].filter((id) => !names.has(id)) : gone;
  for (const id of dropped) { list.rows.delete(id); list.nodes.get(id)?.row.remove(); list.nodes.delete(id); }
  for (const row of rows) {
    list.rows.set(row.id, row);
    if (!list.nodes.has(row.id)) list.nodes.set(row.id, build(row));
    fill(list.nodes.get(row.id), row);
  }
  show();
}

const haystack = (row) => [row.id, row.suite, ...(row.models || []), row.status, row.note, ...(row.figures || []).map((one) => one.metric)].join("\n").toLowerCase();

// Shows the rows that fit, in the order asked for.
function show() {
  const wanted = at("find").value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const [by, sign] = [SORTS[list.sort.slice(0, -1)], list.sort.endsWith("-") ? -1 : 1];
  const keyed = [...list.rows.values()].map((row) => [by.of(row), row]);
  keyed.sort(([a, one], [b, other]) => (a < b ? -sign : a > b ? sign : one.id < other.id ? 1 : -1));
  const body = at("runs").tBodies[0];
  const nodes = keyed.map(([, row]) => list.nodes.get(row.id).row);
  if (nodes.some((node, place) => body.children[place] !== node)) {
    const focused = document.activeElement;
    body.replaceChildren(...nodes);
    if (body.contains(focused)) focused.focus({ preventScroll: true });
  }
  let n = 0;
  for (const [, row] of keyed) {
    const text = haystack(row);
    const fits = wanted.every((word) => text.includes(word));
    list.nodes.get(row.id).row.hidden = !fits;
    n += fits;
  }
  setText(at("count"), `${n === keyed.length ? "" : `${counted(n)} of `}${counted(keyed.length)} ${keyed.length === 1 ? "run" : "runs"}`);
  at("none").hidden = n > 0;
  setText(at("none"), keyed.length ? "No runs match." : "No run yet: what `memray-eval run` and `memray-eval evaluate` write here appears by itself.");
  for (const head of document.querySelectorAll("th[data-sort]")) {
    if (head.dataset.sort === list.sort.slice(0, -1)) head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
  }
  at("sort").value = list.sort;
  showPicked();
}

function pick(id, isPicked) {
  list.picked = [...list.picked.filter((one) => one !== id), ...(isPicked ? [id] : [])];
  showPicked();
  remember();
}

function showPicked() {
  const there = list.picked.filter((id) => list.rows.has(id));
  for (const [id, node] of list.nodes) { node.pick.checked = there.includes(id); node.row.classList.toggle("chosen", node.pick.checked); }
  at("picked").hidden = !there.length;
  const names = there.map((id, place) => make("li", {}, make("b", { text: String.fromCharCode(65 + place) }), ` ${[...new Set([titleOf(list.rows.get(id)), id])].join(", ")}${place ? "" : " (baseline)"}`));
  at("picked").querySelector("ol").replaceChildren(...names);
  if (there.length > 1) at("compare").href = `compare?${new URLSearchParams(there.map((id) => ["run", id]))}`;
  else at("compare").removeAttribute("href");
}

// Puts the filter, the order and the picked runs into the address; a step is one that the back button takes back.
function remember(isStep = false, isTyping = false) {
  list.isTyping = isTyping;
  const parts = new URLSearchParams();
  if (at("find").value.trim()) parts.set("find", at("find").value.trim());
  if (list.sort !== "started-") parts.set("sort", list.sort);
  for (const id of list.picked) parts.append("pick", id);
  const told = String(parts);
  if (!told && !location.hash.startsWith(ADDRESS)) return;
  if (isStep) history.pushState(null, "", told ? ADDRESS + told : "#runs");
  else history.replaceState(history.state, "", told ? ADDRESS + told : "#runs");
}

function recall() {
  const told = new URLSearchParams(location.hash.startsWith(ADDRESS) ? location.hash.slice(ADDRESS.length) : "");
  at("find").value = told.get("find") || "";
  const sort = told.get("sort") || "";
  list.sort = /[+-]$/.test(sort) && Object.hasOwn(SORTS, sort.slice(0, -1)) ? sort : "started-";
  list.picked = [...new Set(told.getAll("pick"))];
  list.isTyping = false;
}

function sortBy(sort) {
  list.sort = sort;
  show();
  remember(true);
}

for (const [key, { texts }] of Object.entries(SORTS)) ["+", "-"].forEach((sign, place) => at("sort").append(make("option", { value: key + sign, text: texts[place] })));
at("sort").addEventListener("change", () => sortBy(at("sort").value));
for (const head of document.querySelectorAll("th[data-sort]")) {
  const key = head.dataset.sort;
  const first = key === "name" || key === "status" ? "+" : "-"; // the order of the first click
  head.querySelector("button").addEventListener("click", () => sortBy(key + (list.sort === key + first ? (first === "+" ? "-" : "+") : first)));
}
at("find").addEventListener("input", () => { show(); remember(!list.isTyping, true); });
at("unpick").addEventListener("click", () => { list.picked = []; showPicked(); remember(); at("find").focus(); });
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest?.("input, select")) { event.preventDefault(); at("find").focus(); }
});
window.addEventListener("popstate", () => { if (location.hash === "#main") { remember(); return; } recall(); show(); });
recall();
hearRows({ rows: JSON.parse(at("rows").textContent), gone: [], all: true });
list.nodes.get(history.state?.opened)?.link.focus(); // back from a run: where the reader was
listen("events", hearRows, (problem) => { setText(at("problem"), problem); at("problem").hidden = !problem; });
document.documentElement.dataset.ready = "yes";
