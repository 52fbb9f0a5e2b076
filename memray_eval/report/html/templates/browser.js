// The list, its filters and its keys.
const at = (id) => document.getElementById(id);
const PAGE = 40;
const SLOW_MS = 250; // past this the list says that it is at work
const FILTERS = ["candidate", "task", "metric", "status", "low", "high", "sort"];
const state = { query: null, n: 0, rows: [], page: 0, row: 0, open: null, asked: 0, opening: 0, names: -1, isOrdered: false, filters: "", isStep: false, isTyping: false };

function options(select, entries) {
  const chosen = select.value;
  select.replaceChildren(...entries.map(([value, text]) => make("option", { value, text })));
  select.value = chosen;
}

// The choices, by the names there are: a run that is being written may bring more.
function fill() {
  const names = INDEX.candidates.length + INDEX.tasks.length + INDEX.metrics.length;
  if (names === state.names) return;
  state.names = names;
  options(at("candidate"), [["", "all"], ...INDEX.candidates.map((name, number) => [number, name])]);
  options(at("task"), [["", "all"], ...INDEX.tasks.map((name, number) => [number, words(name) || "no task"])]);
  at("task").disabled = INDEX.tasks.length < 2;
  options(at("metric"), [["", "any"], ...INDEX.metrics.map((metric, number) => [number, metric.name])]);
  options(at("status"), [["", "any"], ...INDEX.statuses.map((name, number) => [number, words(name)])]);
  const sorts = INDEX.metrics.flatMap((metric, number) => [[`m${number}+`, `${metric.name}, lowest first`], [`m${number}-`, `${metric.name}, highest first`]]);
  options(at("sort"), [["", "order of the run"], ...sorts, ["duration-", "slowest first"], ["tokens-", "longest first"], ["tokens+", "shortest first"]]);
}

// Worst first, until another order is chosen: by the metric filtered by, else by the one that stands for quality.
function worstFirst() {
  const { worst } = at("sort").dataset;
  const filtered = at("metric").value;
  const metric = filtered === "" ? INDEX.metrics.findIndex((one) => one.name === worst) : Number(filtered);
  return worst && metric >= 0 ? `m${metric}+` : "";
}

// Reads the filters anew and shows the page of what fits that holds a place, the first unless told.
function refresh(fresh = false, place = 0) {
  const number = (id) => (at(id).value === "" ? null : Number(at(id).value));
  if (!state.isOrdered) at("sort").value = worstFirst();
  const query = { text: at("find").value.trim(), sort: at("sort").value };
  for (const id of FILTERS.slice(0, -1)) query[id] = number(id);
  Object.assign(state, { query, page: Math.floor(place / PAGE), row: place % PAGE });
  return draw(fresh);
}

// The filters and the open row as they stand in the page's address, by names: numbers may be others in another file.
const LISTS = { candidate: () => INDEX.candidates, task: () => INDEX.tasks, metric: () => INDEX.metrics.map((one) => one.name), status: () => INDEX.statuses };
const ADDRESS = "#samples?";

// Puts them there: a step is one that the back button takes back.
function remember() {
  const parts = new URLSearchParams();
  const place = state.page * PAGE + state.row;
  if (state.query.text) parts.set("find", state.query.text);
  for (const [id, names] of Object.entries(LISTS)) if (state.query[id] !== null) parts.set(id, names()[state.query[id]]);
  for (const id of ["low", "high"]) if (state.query[id] !== null) parts.set(id, state.query[id]);
  if (state.isOrdered) parts.set("sort", (state.query.sort || "run").replace(/^m(\d+)/, (_, number) => `${INDEX.metrics[number].name} `));
  if (state.open !== null && state.rows[state.row]?.[0] === state.open) { parts.set("row", place); parts.set("id", state.rows[state.row][1][ROW.id]); } else if (state.page) parts.set("row", place);
  const filters = String(parts);
  const hash = filters ? [ADDRESS + filters] : location.hash.startsWith(ADDRESS) ? ["#samples"] : [];
  history[state.isStep && filters !== state.filters ? "pushState" : "replaceState"]({ filters }, "", ...hash);
  Object.assign(state, { filters, isStep: false });
}

// Marks what the reader does next as a step; typing in a field is one until something else is done.
function step(isTyping = false) {
  state.isStep ||= !(isTyping && state.isTyping);
  state.isTyping = isTyping;
}

// Shows what the address says; a row that is elsewhere by now is looked for by its id.
async function recall(isScrolled = true) {
  const isOurs = location.hash.startsWith(ADDRESS);
  const told = new URLSearchParams(isOurs ? location.hash.slice(ADDRESS.length) : history.state?.filters || "");
  Object.assign(state, { filters: String(told), isStep: false, isTyping: false });
  hide();
  const numbered = (names, name) => (names.includes(name) ? String(names.indexOf(name)) : "");
  at("find").value = told.get("find") || "";
  for (const id of ["low", "high"]) at(id).value = told.get(id) || "";
  for (const [id, names] of Object.entries(LISTS)) at(id).value = numbered(names(), told.get(id));
  const [, metric, sign] = /^(.*) ([+-])$/.exec(told.get("sort") || "") || [];
  state.isOrdered = told.has("sort");
  at("sort").value = metric ? `m${numbered(LISTS.metric(), metric)}${sign}` : (told.get("sort") || "").replace("run", "");
  if (at("sort").selectedIndex < 0) at("sort").value = ""; // an order that this run does not have
  await refresh(false, Math.max(0, parseInt(told.get("row"), 10) || 0));
  if (state.n && !state.rows.length) await refresh(); // fewer rows than the address knew
  if (isOurs && isScrolled) at("samples").scrollIntoView();
  if (!told.has("id")) return true;
  if (state.rows[state.row]?.[1][ROW.id] !== told.get("id")) { at("find").value = told.get("id"); await refresh(); }
  await open();
  return true;
}

// Shows the page that the state names; true when it did, false when a newer question came first or there is no answer.
async function draw(fresh = false) {
  const asked = ++state.asked;
  const slow = setTimeout(() => { at("count").textContent = "searching …"; }, SLOW_MS);
  let found;
  try {
    found = await SOURCE.page(state.query, state.page * PAGE, PAGE, fresh);
  } catch (error) {
    if (asked === state.asked) fail(error);
    return false;
  } finally {
    clearTimeout(slow);
  }
  if (asked !== state.asked) return false;
  Object.assign(state, { n: found.n, rows: found.rows });
  fill();
  notice(found.notice || "");
  const rows = found.rows.map(([, row], offset) => item(row, offset));
  at("list").replaceChildren(...(rows.length ? rows : [make("li", { class: "none", text: "No sample fits these filters." })]));
  at("count").textContent = `${found.n.toLocaleString("en")} of ${SOURCE.total().toLocaleString("en")} answers`;
  pages();
  mark();
  remember();
  return true;
}

function pages() {
  const last = Math.max(1, Math.ceil(state.n / PAGE));
  at("page").textContent = `page ${(state.page + 1).toLocaleString("en")} of ${last.toLocaleString("en")}`;
  at("back").disabled = state.page === 0;
  at("next").disabled = state.page >= last - 1;
}

function fail(error) {
  Object.assign(state, { n: 0, rows: [], page: 0, row: 0 });
  at("list").replaceChildren(make("li", { class: "none status-error", role: "alert", text: error.message }));
  at("count").textContent = "";
  pages();
}

function notice(text) {
  at("notice").textContent = text;
  at("notice").hidden = !text;
}

function item(row, offset) {
  const head = make("div", { class: "head" }, make("b", { text: row[ROW.id], dir: "auto" }), INDEX.tasks[row[ROW.task]] ? make("span", { text: words(INDEX.tasks[row[ROW.task]]) }) : null, INDEX.candidates.length > 1 ? make("span", { text: INDEX.candidates[row[ROW.candidate]] }) : null, row[ROW.epoch] ? make("span", { text: `epoch ${row[ROW.epoch]}` }) : null, badge(row));
  const scored = row[ROW.scores].filter((one) => one.length > 2).map((one) => `${INDEX.metrics[one[0]].name} ${shown(one[2])}`);
  const scores = scored.length ? make("p", { class: "scores", text: scored.join(" · ") }) : null;
  const node = make("li", { role: "option", id: `row-${offset}` }, head, make("p", { class: "ask", text: row[ROW.ask], dir: "auto" }), make("p", { class: "said", text: row[ROW.said] || "(empty)", dir: "auto" }), scores);
  node.addEventListener("click", () => { state.row = offset; enter(); });
  return node;
}

// The score that the list is about: of the metric sorted by, else of the metric filtered by.
function badge(row) {
  const { sort, metric: filtered } = state.query;
  const metric = sort.startsWith("m") ? parseInt(sort.slice(1), 10) : filtered;
  const score = metric === null ? null : row[ROW.scores].find((one) => one[0] === metric);
  if (score) return make("span", { class: `score status-${INDEX.statuses[score[1]]}`, text: score.length > 2 ? shown(score[2]) + (score[3] ? " estimate" : "") : words(INDEX.statuses[score[1]]) });
  if (row[ROW.scores].some((one) => INDEX.statuses[one[1]] === "no_answer")) return make("span", { class: "score status-no_answer", text: "no answer" });
  return row[ROW.failed] ? make("span", { class: "score status-error", text: "failed" }) : null;
}

function mark() {
  const rows = [...at("list").querySelectorAll("[role=option]")];
  rows.forEach((node, offset) => node.setAttribute("aria-selected", String(offset === state.row)));
  const chosen = rows[state.row];
  if (chosen) at("list").setAttribute("aria-activedescendant", chosen.id);
  return chosen;
}

async function move(step) {
  const place = state.page * PAGE + state.row + step;
  if (place < 0 || place >= state.n) return;
  state.row = place % PAGE;
  const page = Math.floor(place / PAGE);
  if (page !== state.page) {
    state.page = page;
    if (!(await draw())) return;
  }
  mark()?.scrollIntoView({ block: "nearest" });
  if (state.open !== null) await open();
}

async function turnTo(page) {
  if (page < 0 || page * PAGE >= state.n) return;
  step();
  Object.assign(state, { page, row: 0 });
  await draw();
}

async function whole(key, row) {
  const record = await SOURCE.whole(key);
  return detail(row, record, await sessionOf(row, record));
}

// Opens the row for a reader who has none open yet: a step.
function enter() {
  if (state.open === null) step();
  return open();
}

async function open() {
  const chosen = state.rows[state.row];
  if (!chosen) return;
  const [key, row] = chosen;
  const opening = ++state.opening;
  state.open = key;
  mark();
  const nodes = await whole(key, row).catch((error) => [make("p", { class: "text status-error", role: "alert", text: error.message })]);
  if (opening === state.opening) { show(row, nodes); remember(); }
}

function show(row, nodes) {
  const close = make("button", { type: "button", id: "close", text: "Close" });
  close.addEventListener("click", shut);
  const step = (text, by, id) => { const button = make("button", { type: "button", id, text }); button.addEventListener("click", () => move(by)); return button; };
  const place = state.page * PAGE + state.row;
  const [before, after] = [step("Previous", -1, "previous-row"), step("Next", 1, "next-row")];
  before.disabled = place === 0;
  after.disabled = place >= state.n - 1;
  const top = make("div", { class: "bar-top" }, make("h3", { text: row[ROW.id], dir: "auto" }), make("span", { class: "steps" }, before, after, close));
  const panel = at("detail");
  const focused = panel.contains(document.activeElement) ? document.activeElement.id : null;
  panel.replaceChildren(top, ...nodes);
  panel.hidden = false;
  if (focused !== null) (panel.querySelector(`#${focused || "close"}:enabled`) || at("close")).focus();
  else if (getComputedStyle(panel).position === "fixed") at("close").focus({ preventScroll: true }); // it covers the page
  panel.scrollTop = 0;
  document.querySelector(".browser").classList.add("open");
}

function shut() {
  if (state.open === null) return;
  hide();
  at("list").focus({ preventScroll: true });
  mark()?.scrollIntoView({ block: "nearest" });
  remember();
}

function hide() {
  state.open = null;
  state.opening += 1; // what is still on its way stays closed
  at("detail").hidden = true;
  at("detail").replaceChildren();
  document.querySelector(".browser").classList.remove("open");
}

// Back, forward, and links within the page: those of its sections keep the filters, in the entry's state.
function travel(event) {
  if (event.state || location.hash.startsWith(ADDRESS)) recall(!event.state);
  else history.replaceState({ filters: state.filters }, "");
}

const KEYS = {
  ArrowDown: () => move(1),
  ArrowUp: () => move(-1),
  ArrowRight: () => turnTo(state.page + 1),
  ArrowLeft: () => turnTo(state.page - 1),
  Enter: enter,
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

fill();
let waiting = 0;
const soon = () => { step(true); clearTimeout(waiting); waiting = setTimeout(refresh, 120); };
for (const id of ["find", "low", "high"]) at(id).addEventListener("input", soon);
at("sort").addEventListener("change", () => { state.isOrdered = true; });
for (const id of ["candidate", "task", "metric", "status", "sort"]) at(id).addEventListener("change", () => { step(); refresh(); });
at("back").addEventListener("click", () => turnTo(state.page - 1));
at("next").addEventListener("click", () => turnTo(state.page + 1));
at("reload")?.addEventListener("click", () => refresh(true));
document.addEventListener("keydown", pressed);
window.addEventListener("popstate", travel);
recall().then(() => { document.documentElement.dataset.ready = String(Math.round(performance.now())); });
