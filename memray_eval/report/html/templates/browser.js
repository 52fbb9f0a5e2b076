// The list, its filters and its keys.
const at = (id) => document.getElementById(id);
const PAGE = 40;
const state = { text: "", candidate: null, metric: null, status: null, sort: "", places: [], page: 0, row: 0, open: null };

function options(select, entries) {
  for (const [value, text] of entries) select.append(make("option", { value, text }));
}

function fill() {
  options(at("candidate"), [["", "all"], ...INDEX.candidates.map((name, number) => [number, name])]);
  options(at("metric"), [["", "any"], ...INDEX.metrics.map((metric, number) => [number, words(metric.name)])]);
  options(at("status"), [["", "any"], ...INDEX.statuses.map((name, number) => [number, words(name)])]);
  const sorts = INDEX.metrics.flatMap((metric, number) => [[`m${number}+`, `${words(metric.name)}, lowest first`], [`m${number}-`, `${words(metric.name)}, highest first`]]);
  options(at("sort"), [["", "order of the run"], ...sorts, ["duration-", "slowest first"], ["tokens-", "longest first"], ["tokens+", "shortest first"]]);
}

function refresh() {
  const number = (id) => (at(id).value === "" ? null : Number(at(id).value));
  Object.assign(state, { text: at("find").value, candidate: number("candidate"), metric: number("metric"), status: number("status"), sort: at("sort").value, page: 0, row: 0 });
  if (state.text.trim() && !isWhole()) { later(refresh); return; }
  state.places = select(state);
  draw();
}

// Does at the end of loading what needs whole records, once.
function later(action) {
  at("count").textContent = "still loading the texts …";
  document.addEventListener("DOMContentLoaded", action, { once: true });
}

function draw() {
  const { places, page } = state;
  const pages = Math.max(1, Math.ceil(places.length / PAGE));
  const from = page * PAGE;
  const visible = places.slice(from, from + PAGE);
  const rows = visible.map((place, offset) => item(INDEX.rows[place], place, offset));
  at("list").replaceChildren(...(rows.length ? rows : [make("li", { class: "none", text: "No sample fits these filters." })]));
  at("count").textContent = `${places.length.toLocaleString("en")} of ${INDEX.rows.length.toLocaleString("en")} units`;
  at("page").textContent = `page ${page + 1} of ${pages}`;
  at("back").disabled = page === 0;
  at("next").disabled = page >= pages - 1;
  mark();
}

function item(row, place, offset) {
  const head = make("div", { class: "head" }, make("b", { text: row[ROW.id], dir: "auto" }), row[ROW.task] ? make("span", { text: words(row[ROW.task]) }) : null, INDEX.candidates.length > 1 ? make("span", { text: INDEX.candidates[row[ROW.candidate]] }) : null, badge(row));
  const node = make("li", { role: "option", id: `row-${offset}`, "data-place": place }, head, make("p", { class: "ask", text: row[ROW.ask], dir: "auto" }), make("p", { class: "said", text: row[ROW.said] || "(empty)", dir: "auto" }));
  node.addEventListener("click", () => { state.row = offset; open(); });
  return node;
}

// The score that the list is about: of the metric sorted by, else of the metric filtered by.
function badge(row) {
  const metric = state.sort.startsWith("m") ? parseInt(state.sort.slice(1), 10) : state.metric;
  const score = metric === null ? null : row[ROW.scores].find((one) => one[0] === metric);
  if (score) return make("span", { class: `score status-${INDEX.statuses[score[1]]}`, text: score.length > 2 ? shown(score[2]) : words(INDEX.statuses[score[1]]) });
  return row[ROW.failed] ? make("span", { class: "score status-error", text: "failed" }) : null;
}

function mark() {
  const rows = [...at("list").querySelectorAll("[role=option]")];
  rows.forEach((node, offset) => node.setAttribute("aria-selected", String(offset === state.row)));
  const chosen = rows[state.row];
  if (chosen) at("list").setAttribute("aria-activedescendant", chosen.id);
  return chosen;
}

function move(step) {
  const place = state.page * PAGE + state.row + step;
  if (place < 0 || place >= state.places.length) return;
  state.row = place % PAGE;
  const page = Math.floor(place / PAGE);
  if (page !== state.page) { state.page = page; draw(); }
  mark()?.scrollIntoView({ block: "nearest" });
  if (state.open !== null) open();
}

function turnTo(page) {
  if (page < 0 || page * PAGE >= state.places.length) return;
  Object.assign(state, { page, row: 0 });
  draw();
}

function open() {
  const place = state.places[state.page * PAGE + state.row];
  if (place === undefined) return;
  if (!isWhole()) { later(open); return; }
  state.open = place;
  const close = make("button", { type: "button", id: "close", text: "Close" });
  close.addEventListener("click", shut);
  const top = make("div", { class: "bar-top" }, make("h3", { text: INDEX.rows[place][ROW.id], dir: "auto" }), close);
  const panel = at("detail");
  panel.replaceChildren(top, ...detail(place));
  panel.hidden = false;
  panel.scrollTop = 0;
  document.querySelector(".browser").classList.add("open");
  mark();
}

function shut() {
  if (state.open === null) return;
  state.open = null;
  at("detail").hidden = true;
  at("detail").replaceChildren();
  document.querySelector(".browser").classList.remove("open");
  at("list").focus({ preventScroll: true });
  mark()?.scrollIntoView({ block: "nearest" });
}

const KEYS = {
  ArrowDown: () => move(1),
  ArrowUp: () => move(-1),
  ArrowRight: () => turnTo(state.page + 1),
  ArrowLeft: () => turnTo(state.page - 1),
  Enter: open,
};

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") { document.activeElement === at("find") ? at("list").focus() : shut(); return; }
  const field = event.target.closest?.("input, select, textarea, button, a, summary");
  if (event.key === "/" && !event.target.closest?.("input, select")) { event.preventDefault(); at("find").focus(); return; }
  if (event.target === at("find") && (event.key === "Enter" || event.key === "ArrowDown")) { event.preventDefault(); at("list").focus(); return; }
  const inBrowser = state.open !== null || at("list") === document.activeElement;
  if (!field && inBrowser && KEYS[event.key]) { event.preventDefault(); KEYS[event.key](); }
}

function themes() {
  const root = document.documentElement;
  const stored = (() => { try { return localStorage.getItem("memray-eval-theme"); } catch { return null; } })();
  if (stored === "light" || stored === "dark") root.dataset.theme = stored;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const name = () => { at("theme").textContent = isDark() ? "Light" : "Dark"; };
  at("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("memray-eval-theme", root.dataset.theme); } catch { /* a file without storage still changes */ }
    name();
  });
  name();
}

themes();
fill();
let waiting = 0;
at("find").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(refresh, 120); });
for (const id of ["candidate", "metric", "status", "sort"]) at(id).addEventListener("change", refresh);
at("back").addEventListener("click", () => turnTo(state.page - 1));
at("next").addEventListener("click", () => turnTo(state.page + 1));
document.addEventListener("keydown", pressed);
refresh();
document.documentElement.dataset.ready = String(Math.round(performance.now()));
