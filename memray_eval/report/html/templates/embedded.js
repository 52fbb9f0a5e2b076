// The records that stand in this page: an index of all rows, and chunks of whole records that are parsed when they are needed.
const INDEX = JSON.parse(document.getElementById("index").textContent);
const CHUNKS = document.getElementsByClassName("chunk");
const KEPT = 8; // chunks kept parsed
const kept = new Map();
let haystacks = null; // a lower-case text a record, made at the first search
let last = { asked: null, places: [] }; // the places found last: a page is turned without a second search

// The rows that fit, a page of them: {n, rows: [[key, row], ...]}; a key opens its record.
const SOURCE = {
  total: () => INDEX.rows.length,
  async page(query, start, size) {
    if (query.text) await loaded();
    const asked = JSON.stringify(query);
    if (last.asked !== asked) last = { asked, places: select(query) };
    return { n: last.places.length, rows: last.places.slice(start, start + size).map((place) => [place, INDEX.rows[place]]) };
  },
  session: async (start, candidate) => INDEX.rows.filter((row) => row[ROW.candidate] === candidate && row[ROW.id].startsWith(start)),
  async whole(place) {
    await loaded();
    return chunk(Math.floor(place / INDEX.chunk))[place % INDEX.chunk];
  },
};

// The chunks stand after the script: the list need not wait for them.
async function loaded() {
  if (document.readyState === "loading") await new Promise((done) => document.addEventListener("DOMContentLoaded", done, { once: true }));
}

function chunk(number) {
  if (!kept.has(number)) {
    kept.set(number, JSON.parse(CHUNKS[number].textContent));
    if (kept.size > KEPT) kept.delete(kept.keys().next().value);
  }
  return kept.get(number);
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

// The places of the rows that pass, in the order asked for. Rows without the figure sorted by come last.
function select({ text, candidate, task, metric, status, low, high, sort }) {
  const needle = text.toLowerCase();
  const texts = needle ? textsToSearch() : null;
  const ofScore = [metric, status, low, high].some((asked) => asked !== null);
  const within = (value) => (low === null && high === null) || (value !== undefined && (low === null || value >= low) && (high === null || value <= high));
  const fits = (score) => (metric === null || score[0] === metric) && (status === null || score[1] === status) && within(score[2]);
  const places = [];
  INDEX.rows.forEach((row, place) => {
    if (candidate !== null && row[ROW.candidate] !== candidate) return;
    if (task !== null && row[ROW.task] !== task) return;
    if (ofScore && !row[ROW.scores].some(fits)) return;
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

function scoreOf(row, metric) {
  const found = row[ROW.scores].find((score) => score[0] === metric);
  return found && found.length > 2 ? found[2] : null;
}
