// One record in full. Every text is set through textContent: none is ever read as HTML.
const ROW = { id: 0, candidate: 1, task: 2, failed: 3, ask: 4, said: 5, duration: 6, tokens: 7, scores: 8, epoch: 9 };

const shown = (value) => (Math.abs(value - Math.round(value)) < 1e-9 ? String(Math.round(value)) : (Number(value.toFixed(3)) || 0).toFixed(3));
const titled = (title, ...nodes) => [make("h4", { text: title }), ...nodes];

function detail(row, record, session = []) {
  const forbidden = new Set(record.forbidden || []);
  const scores = (record.scores || []).map((score) => ({ ...score, name: INDEX.metrics[score.m].name, told: score.judgment ? parsed(score.judgment) : null }));
  const nodes = [...titled("Question", make("p", { class: "text asked", dir: "auto", tabindex: "0", text: record.query }))];
  nodes.push(...answer(record, scores, forbidden));
  if (session.length) nodes.push(...titled("Session", ...chat(record, session)));
  if (scores.length) nodes.push(...titled("Judgments", ...scores.map((score) => judgment(score))));
  if (record.memory || forbidden.size) nodes.push(...titled("Memory", memory(record, forbidden, scores)));
  if (record.history && !session.length) nodes.push(...titled("Earlier turns", ...record.history.map(turn)));
  if (record.answers) nodes.push(...titled("Accepted answers", make("p", { class: "text", text: record.answers.join("\n") })));
  if (record.thinking) nodes.push(make("details", {}, make("summary", { text: "Thinking" }), make("p", { class: "text thought", dir: "auto", text: record.thinking })));
  if (record.raw) nodes.push(make("details", {}, make("summary", { text: "Whole output, before thinking was split off" }), make("p", { class: "text thought", dir: "auto", text: record.raw })));
  nodes.push(...titled("About", about(row, record)));
  return nodes;
}

function turn([role, content]) {
  return make("div", { class: "turn" }, make("small", { text: role }), make("p", { class: "text", dir: "auto", text: content }));
}

// The rows of the session that a record is a turn of, in its epoch, by turn; none of a single question.
async function sessionOf(row, record) {
  const { session, turn: now } = record.about || {};
  if (!session || !now) return [];
  const rows = await SOURCE.session(`${session}#`, row[ROW.candidate]);
  const epochOf = (of) => of[ROW.epoch] || 1;
  return rows.filter((other) => epochOf(other) === epochOf(row)).sort((a, b) => turnOf(a) - turnOf(b));
}

const turnOf = (row) => Number(row[ROW.id].slice(row[ROW.id].lastIndexOf("#") + 1));

// The session as a chat, the scores of each turn beside its reply. Turns after the record's are cut as in the list.
function chat(record, rows) {
  const now = Number(record.about.turn);
  const history = record.history || [];
  const before = history.length - 2 * (now - 1); // what was said before the session began
  const said = [...history, ["user", record.query], ["assistant", record.response || record.error || "(no answer)"]];
  for (const row of rows) if (turnOf(row) > now) said.push(["user", row[ROW.ask]], ["assistant", row[ROW.said]]);
  const byTurn = new Map(rows.map((row) => [turnOf(row), row]));
  return said.map(([role, text], place) => {
    const number = place < before ? null : Math.floor((place - before) / 2) + 1;
    const scored = role === "assistant" && byTurn.has(number) ? turnMarks(byTurn.get(number)) : null;
    const name = number === null ? role : `${role}, turn ${number}`;
    return make("div", { class: `turn chat ${role}${number === now ? " now" : ""}` }, make("small", { text: name }), make("p", { class: "text", dir: "auto", text }), scored);
  });
}

// A mark for each score that applies to a turn; one in the lower half of its scale is held against it.
function turnMarks(row) {
  const box = make("div", { class: "key" });
  for (const [metric, status, value, estimate] of row[ROW.scores]) {
    const { name, scale: [low, high] } = INDEX.metrics[metric];
    const state = INDEX.statuses[status];
    if (state === "not_applicable") continue;
    const isLow = value !== undefined && value < (low + high) / 2;
    const told = value === undefined ? words(state) : `${shown(value)}${estimate ? " estimate" : ""}`;
    box.append(make("span", { class: value === undefined ? `status-${state}` : isLow ? "bad" : "", text: `${name} ${told}` }));
  }
  return box;
}

function memory(record, forbidden, scores) {
  const cited = new Set(scores.flatMap((score) => citedKeys(score.told)));
  const required = new Set(record.required || []);
  const values = new Map(record.memory || []);
  for (const key of forbidden) if (!values.has(key)) values.set(key, null);
  const box = make("div", { class: "memory" });
  for (const [key, value] of values) {
    const role = forbidden.has(key) ? "forbidden" : required.has(key) ? "required" : "";
    const kind = cited.has(key) ? (forbidden.has(key) ? "broken" : "cited") : "";
    const said = [role, cited.has(key) ? "cited" : role === "required" ? "not cited" : ""].filter(Boolean).join(", ");
    const text = value === null ? "not in memory" : Array.isArray(value) ? value.join(", ") : String(value);
    box.append(make("div", { class: kind }, make("span", { text: words(key) }), make("span", { text, dir: "auto" }), make("em", { text: said })));
  }
  return box;
}

function answer(record, scores, forbidden) {
  if (record.error) return titled("Answer", make("p", { class: "text status-error", text: record.error }));
  const marks = scores.flatMap((score) => quotes(score.told, forbidden).map((mark) => ({ ...mark, metric: score.name })));
  const box = make("div", { class: "text answer", "data-answer": "", dir: "auto", tabindex: "0", "aria-label": "Answer" });
  box.append(...marked(record.response || "", marks));
  const kinds = new Set([...box.querySelectorAll("mark")].flatMap((mark) => [...mark.classList]));
  const legend = { cited: "memory cited", broken: "forbidden memory", evidence: "evidence", against: "held against it" };
  const key = make("div", { class: "key" }, ...Object.entries(legend).filter(([kind]) => kinds.has(kind)).map(([kind, text]) => make("mark", { class: kind, text })));
  return titled("Answer", record.response ? box : make("p", { class: "named", text: record.no_answer ? `no answer: ${words(record.no_answer)}` : "(empty)" }), record.refusal ? make("p", { class: "text", text: record.refusal, dir: "auto" }) : null, kinds.size ? key : null).filter(Boolean);
}

function judgment(score) {
  const status = INDEX.statuses[score.s];
  const scale = INDEX.metrics[score.m].scale[1];
  const value = score.v === undefined || score.v === null
    ? make("span", { class: `value status-${status}`, text: words(status) })
    : make("span", { class: "value", text: shown(score.v) }, make("small", { text: ` of ${shown(scale)}${score.estimate ? ", estimate" : ""}` }));
  const by = [score.judge, score.served ? `answered by ${score.served}` : "", score.cached ? "cached" : "", score.usd ? `$${score.usd.toFixed(4)}` : "", score.unpriced ? (score.usd ? "and calls of unknown price" : "cost unknown") : "", score.latency ? `${score.latency} s` : ""].filter(Boolean).join(", ");
  const left = make("div", {}, make("b", { text: score.name }), value, by ? make("small", { class: "by", text: by }) : null);
  const right = make("div");
  if (score.error) right.append(make("p", { class: status === "error" ? "status-error" : "named", text: score.error }));
  right.append(...judgmentTable(score.told, INDEX.metrics[score.m].total));
  if (score.parts) right.append(make("p", { class: "named", text: Object.entries(score.parts).map(([name, part]) => `${words(name)} ${shown(part ?? NaN)}`).join(", ") }));
  return make("div", { class: "score-row" }, left, right);
}

function about(row, record) {
  const [asked, said] = record.tokens || [];
  const [first, took] = record.times || [];
  const shares = (of) => Object.entries(of).map(([name, share]) => `${name} ${share}`).join(", ");
  const facts = {
    unit: record.unit, candidate: INDEX.candidates[row[ROW.candidate]], "model that answered": record.served, task: INDEX.tasks[row[ROW.task]], ...(record.about || {}),
    traits: record.traits && shares(record.traits), emotion: record.emotion && shares(record.emotion),
    tokens: asked == null && said == null ? null : `${asked ?? "?"} in, ${said ?? "?"} out`,
    time: took == null ? null : `${took.toFixed(2)} s${first == null ? "" : `, first token ${first.toFixed(2)} s`}`,
    ended: record.ended, "prompt cut by": record.cut ? `${record.cut} tokens` : null,
  };
  const box = make("dl", { class: "plain" });
  for (const [name, text] of Object.entries(facts)) if (text) box.append(make("div", {}, make("dt", { text: words(name) }), make("dd", { text })));
  return box;
}
