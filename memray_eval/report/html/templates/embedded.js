// The embedded records: an index of all rows, and chunks of whole records that are parsed when they are needed.
const INDEX = JSON.parse(document.getElementById("index").textContent);
const CHUNKS = document.getElementsByClassName("chunk");
const KEPT = 8; // chunks kept parsed
const ROW = { id: 0, candidate: 1, task: 2, failed: 3, ask: 4, said: 5, duration: 6, tokens: 7, scores: 8 };
const kept = new Map();
const isWhole = () => document.readyState !== "loading"; // the chunks stand after the script: the list need not wait for them
let haystacks = null; // a lower-case text a record, made at the first search

function chunk(number) {
  if (!kept.has(number)) {
    kept.set(number, JSON.parse(CHUNKS[number].textContent));
    if (kept.size > KEPT) kept.delete(kept.keys().next().value);
  }
  return kept.get(number);
}

function whole(place) {
  return chunk(Math.floor(place / INDEX.chunk))[place % INDEX.chunk];
}

function textsToSearch() {
  if (!haystacks) {
    haystacks = [];
    for (let number = 0; number < CHUNKS.length; number += 1) {
      for (const one of JSON.parse(CHUNKS[number].textContent)) {
        haystacks.push([INDEX.rows[haystacks.length][ROW.id], one.query, one.response, one.error].join("\n").toLowerCase());
      }
    }
  }
  return haystacks;
}

function scoreOf(row, metric) {
  const found = row[ROW.scores].find((score) => score[0] === metric);
  return found && found.length > 2 ? found[2] : null;
}

// The places of the rows that pass, in the order asked for. Rows without the figure sorted by come last.
function select({ text, candidate, metric, status, sort }) {
  const needle = text.trim().toLowerCase();
  const texts = needle ? textsToSearch() : null;
  const places = [];
  INDEX.rows.forEach((row, place) => {
    if (candidate !== null && row[ROW.candidate] !== candidate) return;
    if (metric !== null || status !== null) {
      const fits = (score) => (metric === null || score[0] === metric) && (status === null || score[1] === status);
      if (!row[ROW.scores].some(fits)) return;
    }
    if (texts && !texts[place].includes(needle)) return;
    places.push(place);
  });
  const figure = sorter(sort);
  if (!figure) return places;
  const sign = sort.endsWith("-") ? -1 : 1;
  const keyed = places.map((place) => [figure(INDEX.rows[place]), place]);
  keyed.sort(([a, x], [b, y]) => (a === null ? (b === null ? x - y : 1) : b === null ? -1 : sign * (a - b) || x - y));
  return keyed.map((pair) => pair[1]);
}

function sorter(sort) {
  if (sort.startsWith("duration")) return (row) => row[ROW.duration];
  if (sort.startsWith("tokens")) return (row) => row[ROW.tokens];
  if (sort.startsWith("m")) { const metric = parseInt(sort.slice(1), 10); return (row) => scoreOf(row, metric); }
  return null;
}
