// The page on which a person labels units: one at a time, by keys, blind to what the judge said.
const ABOUT = JSON.parse(document.getElementById("about").textContent);
const at = (id) => document.getElementById(id);
const kept = (store, name, value) => {
  try { if (value === undefined) return store.getItem(name); store.setItem(name, value); } catch { /* a browser without storage asks again */ }
  return value ?? null;
};
const fresh = () => [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
// A tab keeps its name over a reload, and so the unit that it shows. A tab that was duplicated has both: it takes a new one.
const isReload = performance.getEntriesByType("navigation")[0]?.type === "reload";
const TAB = (isReload && kept(sessionStorage, "memray-eval-tab")) || fresh();
kept(sessionStorage, "memray-eval-tab", TAB);

let rater = kept(localStorage, "memray-eval-rater") || "";
let unit = null; // the one that is shown
let judgeQuotes = null; // what the judge quotes of it, once asked for
let isBusy = false;
let isAided = false;

function make(tag, options = {}, ...children) {
  const node = document.createElement(tag);
  const { text, ...attributes } = options;
  if (text !== undefined) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.filter(Boolean));
  return node;
}

async function ask(path, body) {
  let answer;
  try {
    const how = body ? { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) } : {};
    answer = await fetch(path, { ...how, cache: "no-store" });
  } catch {
    throw new Error("memray-eval view does not answer: is it still running? The label was not kept; give it again.");
  }
  const told = await answer.json().catch(() => ({ error: `memray-eval view answered with ${answer.status}` }));
  if (!answer.ok) throw new Error(told.error);
  return told;
}

async function attempt(work) {
  at("trouble").hidden = true;
  try {
    await work();
  } catch (error) {
    at("trouble").textContent = error.message;
    at("trouble").hidden = false;
  }
}

// One request at a time: a key that is held down, or pressed while the next unit comes, labels nothing.
async function exclusively(work) {
  if (isBusy) return;
  isBusy = true;
  await attempt(work);
  isBusy = false;
}

const who = () => ({ rater, tab: TAB });
const load = () => exclusively(async () => show(await ask(`state?${new URLSearchParams(who())}`)));
const words = () => Object.fromEntries(["answer", "comment"].map((id) => [id, at(id).value.trim()]));
const give = (value) => unit && exclusively(async () => show(await ask("answer", { ...who(), id: fresh(), unit: unit.id, value, aided: isAided, ...words() })));
const undo = () => exclusively(async () => show(await ask("undo", { ...who(), id: fresh() })));

function show(state) {
  unit = state.unit;
  judgeQuotes = null;
  isAided = false;
  at("quoted").setAttribute("aria-pressed", "false");
  at("progress").textContent = `${rater}: ${state.labelled} labelled${state.skipped ? `, ${state.skipped} passed over` : ""}, of ${state.total}`;
  at("undo").disabled = !state.can_undo;
  at("answer").value = at("comment").value = "";
  at("words").hidden = !unit;
  for (const button of [at("skip"), at("quoted"), ...at("choices").children]) button.disabled = !unit;
  draw();
  at("unit").focus({ preventScroll: true });
  scrollTo({ top: 0 });
  if (!unit) agreement();
}

function draw() {
  const box = at("unit");
  if (!unit) {
    box.replaceChildren(make("div", { class: "done" }, make("p", { text: "Nothing is left to label: you have been through all units." })));
    return;
  }
  const said = unit.other === null
    ? [make("h2", { text: "Answer" }), marked(unit.response, "said")]
    : [make("div", { class: "sides" },
      make("div", {}, make("h2", { text: "The first answer" }), marked(unit.response, "said")),
      make("div", {}, make("h2", { text: "The second answer" }), marked(unit.other, "said")))];
  const main = make("div", {}, make("h2", { text: "Question" }), make("p", { class: "text", dir: "auto", text: unit.query }), ...said);
  const known = [];
  if (unit.answers.length) known.push(make("h2", { text: "Right answers" }), make("p", { class: "text", dir: "auto", text: unit.answers.join("\n") }));
  if (unit.memory.length) known.push(make("h2", { text: "Known of the user" }), memory());
  if (unit.history.length) known.push(make("h2", { text: "Earlier turns" }), ...unit.history.map(([role, text]) => make("p", { class: "text", dir: "auto", text: `${role}: ${text}` })));
  box.replaceChildren(main, ...(known.length ? [make("div", {}, ...known)] : []));
  box.style.gridTemplateColumns = known.length ? "" : "minmax(0, 1fr)";
}

function memory() {
  const role = (key) => (unit.forbidden.includes(key) ? " (not to be used)" : unit.required.includes(key) ? " (to be used)" : "");
  return make("dl", {}, ...unit.memory.map(([key, value]) => make("div", {}, make("dt", { text: key.replaceAll("_", " ") + role(key) }), make("dd", { text: value, dir: "auto" }))));
}

// The evidence of the sample itself: its right answers and what is known of the user, where the answer has them; on demand what the judge quotes.
function marked(text, name) {
  const own = [...unit.answers.map((quote) => ({ quote, kind: "cited", note: "answer" })),
    ...unit.memory.map(([key, value]) => ({ quote: value, kind: unit.forbidden.includes(key) ? "broken" : "cited", note: key }))];
  const marks = [...own.filter((one) => one.quote.trim().length > 1), ...(judgeQuotes || []).map((quote) => ({ quote, kind: "evidence", note: "quoted by the judge" }))];
  const box = make("p", { class: `text ${name}`, dir: "auto" });
  for (const piece of pieces(text, marks)) {
    box.append(piece.kinds.size ? make("mark", { class: [...piece.kinds].join(" "), text: piece.text }) : piece.text);
  }
  return box;
}

const toggleQuotes = () => unit && exclusively(async () => {
  judgeQuotes = judgeQuotes ? null : await ask(`quotes?${new URLSearchParams({ unit: unit.id })}`);
  isAided = isAided || judgeQuotes !== null;
  at("quoted").setAttribute("aria-pressed", String(judgeQuotes !== null));
  draw();
});

const NAMES = { exact: "the same label", kappa: "weighted kappa", alpha_ordinal: "alpha, ordinal", alpha_nominal: "alpha, nominal" };
const agreement = () => attempt(async () => {
  const found = await ask("agreement");
  const raters = Object.entries(found.raters).map(([name, n]) => `${name} ${n}`).join(", ") || "nobody yet";
  const lines = [`Labelled by: ${raters}.`];
  const left = Object.entries(found.left);
  if (left.some(([, n]) => n)) lines.push(`Labels and agreement are shown once all are done. Left: ${left.map(([name, n]) => `${name} ${n}`).join(", ")}.`);
  else if (!found.figures) lines.push("No unit has two labels yet: let a second person label in this queue.");
  else {
    lines.push(`On ${found.n_shared} units with two labels or more:`);
    for (const [key, name] of Object.entries(NAMES)) {
      const one = found.figures[key];
      const digits = (value) => (Number(value.toFixed(2)) || 0).toFixed(2);
      const ends = one.low === null ? "" : ` [${digits(one.low)}, ${digits(one.high)}]`;
      lines.push(`${name}: ${one.value === null ? "cannot be told" : digits(one.value) + ends}`);
    }
    if (found.note) lines.push(found.note);
  }
  if (found.n_unknown) lines.push(`${found.n_unknown} labels are of units that this run does not have.`);
  at("agreement").replaceChildren(...lines.map((text) => make("p", { text })));
});

function begin() {
  const name = at("rater").value.trim().replace(/\s+/g, " ");
  if (!name) { at("rater").focus(); return; }
  rater = name;
  kept(localStorage, "memray-eval-rater", rater);
  at("who").hidden = true;
  at("work").hidden = false;
  load();
}

function press(event) {
  if (event.target.tagName === "TEXTAREA") { if (event.key === "Escape") event.target.blur(); return; }
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || at("work").hidden) return;
  const chosen = ABOUT.choices.find((one) => one.key === event.key);
  const acts = { s: () => give(null), u: undo, e: toggleQuotes, "?": () => { const rubric = at("rubric"); if (rubric) rubric.open = !rubric.open; } };
  const act = chosen ? () => give(chosen.value) : acts[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

for (const one of ABOUT.choices) {
  const button = make("button", { type: "button", "data-key": one.key }, one.label === one.key ? null : make("kbd", { text: one.key }), one.label);
  button.addEventListener("click", () => give(one.value));
  at("choices").append(button);
}
for (const [id, act] of Object.entries({ begin, skip: () => give(null), undo, quoted: toggleQuotes, agree: agreement })) at(id).addEventListener("click", act);
at("rater").addEventListener("keydown", (event) => { if (event.key === "Enter") begin(); });
at("other").addEventListener("click", () => { at("who").hidden = false; at("work").hidden = true; at("rater").select(); });
document.addEventListener("keydown", press);
at("rater").value = rater;
if (rater && isReload) begin();
else at("rater").focus();
