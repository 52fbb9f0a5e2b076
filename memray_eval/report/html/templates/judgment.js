// A judgment as a table whose quotes light up in the answer. Every text is set through textContent.
function make(tag, options = {}, ...children) {
  const node = document.createElement(tag);
  const { text, ...attributes } = options;
  if (text !== undefined) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.filter(Boolean));
  return node;
}

const words = (name) => name.replaceAll("_", " ");
const isEmpty = (value) => value === null || value === "" || (typeof value === "object" && !Object.keys(value).length);

// A judgment's explanation, then a table of its parts: what was found, the quotes, and why; at last the total, if it has a formula.
function judgmentTable(value, total = "") {
  if (value === null) return [];
  if (typeof value !== "object" || Array.isArray(value)) return [make("p", { text: plain(value) })];
  const fields = Object.entries(value).filter(([, part]) => !isEmpty(part));
  const free = fields.filter(([name]) => FREE.has(name) && name !== "category" && name !== "verdict");
  const rows = fields.filter((field) => !free.includes(field)).flatMap(([name, part]) => (Array.isArray(part) ? part : [part]).map((one) => [name, finding(one)]));
  const nodes = free.map(([, part]) => make("p", { text: plain(part) }));
  if (total && fields.some(([, part]) => "level" in Object(part))) nodes.push(make("p", { class: "named", text: `Total: ${total}` }));
  if (!rows.length) return nodes;
  const columns = [["finding", "Finding"], ["quotes", "Quote"], ["reason", "Reason"]].filter(([column]) => rows.some(([, found]) => found[column]?.length));
  const head = make("tr", {}, ...["Part", ...columns.map(([, title]) => title)].map((text) => make("th", { scope: "col", text })));
  const body = rows.map(([name, found], place) => make("tr", {}, make("th", { scope: "row", text: place && rows[place - 1][0] === name ? "" : words(name) }), ...columns.map(([column]) => make("td", {}, ...(column === "quotes" ? (found.quotes || []).map(quoteButton) : [found[column]])))));
  return [...nodes, make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Judgment" }, make("table", { class: "told" }, make("thead", {}, head), make("tbody", {}, ...body)))];
}

// One entry of a judgment as cells: a text of several words is a quote.
function finding(one) {
  if (typeof one === "string") return /\s/.test(one) ? { quotes: [one] } : { finding: words(one) };
  if (one === null || typeof one !== "object" || Array.isArray(one)) return { finding: plain(one) };
  const fields = Object.entries(one).filter(([, part]) => !isEmpty(part));
  const isQuote = ([name, part]) => (QUOTES.has(name) && typeof part === "string") || (name === "evidence" && Array.isArray(part) && part.every((text) => typeof text === "string"));
  const isReason = ([name]) => FREE.has(name) && name !== "source" && name !== "category" && name !== "verdict" || name === "reason";
  const rest = fields.filter((field) => !isQuote(field) && !isReason(field));
  return {
    quotes: fields.filter(isQuote).flatMap(([, part]) => part),
    reason: fields.filter(isReason).map(([, part]) => plain(part)).join(" "),
    finding: rest.length === 1 && rest[0][0] !== "level" ? words(plain(rest[0][1])) : rest.map(([name, part]) => `${words(name)} ${plain(part)}`).join("; "),
  };
}

// A quote that lights up where it stands in the answer.
function quoteButton(quote) {
  const button = make("button", { class: "quote", type: "button", text: `“${quote}”` });
  const marks = () => [...(button.closest("#detail, .both > div")?.querySelectorAll("[data-answer] mark") || [])].filter((mark) => mark.quotes.includes(quote));
  const light = (is) => marks().forEach((mark) => mark.classList.toggle("lit", is));
  for (const name of ["mouseenter", "focus"]) button.addEventListener(name, () => light(true));
  for (const name of ["mouseleave", "blur"]) button.addEventListener(name, () => light(false));
  button.addEventListener("click", () => marks().slice(0, 1).forEach((mark) => mark.scrollIntoView({ block: "center" })));
  return button;
}

// An answer's text with its marks.
function marked(text, marks) {
  return pieces(text, marks).map((piece) => {
    if (!piece.kinds.size) return piece.text;
    const classes = [...piece.kinds, ...(piece.kinds.has("cited") || piece.kinds.has("broken") ? ["evidence"] : [])];
    const mark = make("mark", { class: classes.join(" "), title: piece.notes.join("\n"), text: piece.text });
    mark.quotes = piece.quotes;
    return mark;
  });
}

function plain(value) {
  if (Array.isArray(value)) return value.map(plain).join(typeof value[0] === "object" || value.some((one) => String(one).length > 30) ? "\n" : ", ");
  if (value && typeof value === "object") return Object.entries(value).map(([name, part]) => `${words(name)}: ${plain(part)}`).join("; ");
  return typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
}

// Judgments that the page holds as text: a table in its place, and their quotes marked in the answer beside them.
for (const side of document.querySelectorAll(".both > div")) {
  const text = side.querySelector("[data-answer]");
  const marks = [];
  for (const box of side.querySelectorAll("[data-total]")) {
    const value = parsed(box.textContent);
    marks.push(...quotes(value, new Set()).map((mark) => ({ ...mark, kind: mark.kind === "cited" ? "evidence" : mark.kind, metric: box.dataset.metric })));
    box.replaceChildren(...judgmentTable(value, box.dataset.total));
  }
  if (marks.length) text.replaceChildren(...marked(text.textContent, marks));
}
