// Which stretches of an answer a judgment speaks of. Pure functions: no page here.
const AGAINST = new Set(["flagged_content", "impolite_phrases", "grammar_issues", "contradictions", "issues"]);
const FREE = new Set(["reasoning", "explanation", "tone_notes", "tailoring_notes", "verdict", "category", "source"]);
const QUOTES = new Set(["quote", "claim"]);
const SHORTEST = 8; // of a text that no field calls a quote: a shorter one stands in an answer by chance

// Where a quote stands, as judges quote: any case, spacing or punctuation. Returns [start, end] or null.
function locate(quote, text) {
  const exact = text.indexOf(quote);
  if (exact >= 0) return [exact, exact + quote.length];
  const words = quote.match(/[\p{L}\p{N}]+/gu);
  if (!words || words.length > 400) return null;
  const found = new RegExp(words.join("[^\\p{L}\\p{N}]+"), "iu").exec(text);
  return found && [found.index, found.index + found[0].length];
}

// Every text of a judgment that may quote the answer: {quote, kind, note}.
function quotes(judgment, forbidden) {
  const found = [];
  const walk = (value, field, against) => {
    if (typeof value === "string") {
      if (!FREE.has(field) && (QUOTES.has(field) || value.length >= SHORTEST)) found.push({ quote: value, kind: against ? "against" : "evidence", note: field });
    } else if (Array.isArray(value)) {
      for (const part of value) walk(part, field, against || AGAINST.has(field));
    } else if (value && typeof value === "object") {
      if (typeof value.key === "string" && typeof value.quote === "string") {
        found.push({ quote: value.quote, kind: forbidden.has(value.key) ? "broken" : "cited", note: value.key });
      } else {
        const unfounded = against || value.source === "none";
        for (const [name, part] of Object.entries(value)) walk(part, name, unfounded || AGAINST.has(name));
      }
    }
  };
  walk(judgment, "", false);
  return found.filter((one) => one.quote.trim());
}

// The answer cut at the ends of all marks: [{text, kinds, notes}], in order; overlapping marks share a piece.
function pieces(text, marks) {
  const placed = [];
  for (const mark of marks) {
    const at = locate(mark.quote, text);
    if (at) placed.push({ start: at[0], end: at[1], mark });
  }
  const cuts = [...new Set([0, text.length, ...placed.flatMap((one) => [one.start, one.end])])].sort((a, b) => a - b);
  return cuts.slice(0, -1).map((start, place) => {
    const over = placed.filter((one) => one.start <= start && one.end > start).map((one) => one.mark);
    return { text: text.slice(start, cuts[place + 1]), kinds: new Set(over.map((one) => one.kind)), notes: over.map((one) => `${one.metric}: ${one.note}`), quotes: over.map((one) => one.quote) };
  });
}

function parsed(text) {
  try { return JSON.parse(text); } catch { return text; }
}

// Keys that a judgment says the answer used.
function citedKeys(judgment) {
  if (!judgment || typeof judgment !== "object") return [];
  const evidence = Array.isArray(judgment.evidence) ? judgment.evidence.map((one) => one && one.key) : [];
  return [...(Array.isArray(judgment.cited_keys) ? judgment.cited_keys : []), ...evidence].filter((key) => typeof key === "string");
}
