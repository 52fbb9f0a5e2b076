// How a run stands, in words, and the streams of events that say so.

// Hears a stream while the page is looked at: a browser keeps few connections to one server.
function listen(address, hear, told) {
  let source = null;
  const close = () => { source?.close(); source = null; };
  const open = () => {
    if (document.hidden || source) return;
    source = new EventSource(address);
    source.onmessage = (event) => { const news = JSON.parse(event.data); told(news.error || ""); if (!news.error) hear(news); };
    source.onerror = () => told("memray-eval view does not answer: is it still running?");
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);
  open();
}

const isLive = (row) => row.status === "running" || row.status === "preparing";
const counted = (n) => n.toLocaleString("en");
// With calls of unknown price, whose cost nobody knows.
const costs = (row) => (row.unpriced_calls ? (row.cost_usd ? `${dollars(row.cost_usd)} and more` : "unknown") : dollars(row.cost_usd));
const dollars = (usd) => (usd === undefined ? "" : usd && usd < 0.01 ? `$${usd.toFixed(4)}` : `$${usd.toFixed(2)}`);

// Seconds as 42 s, 7 min, 3 h 20 min, 2 d 4 h.
function lasting(seconds) {
  if (seconds < 99.5) return `${seconds < 9.95 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 100) return `${minutes} min`;
  const [hours, days] = [Math.floor(minutes / 60), Math.floor(minutes / 1440)];
  return days < 2 ? `${hours} h ${minutes % 60} min` : `${days} d ${hours % 24} h`;
}

// How far a run is: units, failures, rate, time left.
function progressTexts(row) {
  const done = row.n_done || 0;
  const texts = [row.n_units === undefined ? `${counted(done)} answers` : `${counted(done)} of ${counted(row.n_units)} answers`];
  if (row.n_failed) texts.push(`${counted(row.n_failed)} failed`);
  if (row.n_answered > done) texts.push(`${counted(row.n_answered)} answered`);
  if (!isLive(row)) return texts;
  if (row.units_per_s !== undefined) texts.push(`${row.units_per_s < 10 ? row.units_per_s.toFixed(1) : counted(Math.round(row.units_per_s))} answers/s`);
  if (row.left_s !== undefined) texts.push(`about ${lasting(row.left_s)} left`);
  return texts;
}

function showProgress(bar, row) {
  bar.hidden = !(isLive(row) && row.n_units);
  if (bar.hidden) return;
  bar.max = row.n_units;
  bar.value = row.n_done || 0;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
