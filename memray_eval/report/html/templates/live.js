// The head of a run's page while the run goes on. What the reader has open or typed stays as it is.
const LIST_EVERY_MS = 4000; // at most so often the list looks for new records by itself
const live = { box: at("live"), wasUnfinished: at("live").dataset.unfinished === "yes", lookedAt: 0 };

function hearRun(row) {
  const hasEnded = live.wasUnfinished && !isLive(row) && !row.is_so_far && row.status !== "damaged";
  live.box.hidden = !hasEnded && row.status === "finished";
  at("live-status").className = `badge ${row.status}`;
  setText(at("live-status"), row.status);
  const cost = row.cost_usd && row.is_so_far ? [`${costs(row)} so far`] : [];
  const took = isLive(row) && row.took_s !== undefined ? [`running for ${lasting(row.took_s)}`] : [];
  const texts = row.is_so_far ? [...progressTexts(row), ...cost, ...took] : [];
  setText(at("live-text"), [row.note, ...texts].filter(Boolean).join(" · "));
  showProgress(at("live-progress"), row);
  const goOn = row.is_so_far && !isLive(row) ? `Go on with: memray-eval resume ${live.box.dataset.path}` : "";
  setText(at("live-ended"), hasEnded ? `The run has ended: ${row.status}.` : goOn);
  at("live-show").hidden = !hasEnded;
  showFigures(row.all_figures || []);
  if (live.wasUnfinished) followRecords(row);
}

function showFigures(figures) {
  const body = at("live-figures").querySelector("tbody");
  at("live-figures").hidden = !figures.length;
  const rows = figures.map((one) => {
    const rest = [one.between ? ` [${one.between}]` : "", ` n\u00a0${counted(one.n)}`, one.mark ? `, ${one.mark}` : ""].join("");
    return make("tr", {}, make("th", { scope: "row", text: one.metric }), make("td", { text: one.candidate }), make("td", {}, make("b", { text: one.figure }), rest));
  });
  body.replaceChildren(...rows);
}

// The list takes new records up by itself unless the reader is at work in it; then its button says how many there are.
function followRecords(row) {
  const fresh = (row.n_done || 0) - SOURCE.total();
  const isAtWork = state.open !== null || document.activeElement?.closest("#samples") || !getSelection().isCollapsed;
  setText(at("reload"), fresh > 0 && isAtWork ? `Reload: ${counted(fresh)} new` : "Reload");
  if (fresh <= 0 || isAtWork || performance.now() - live.lookedAt < LIST_EVERY_MS) return;
  live.lookedAt = performance.now();
  refresh(true, state.page * PAGE + state.row);
}

// A file of the rows that the filters leave: the address follows the filters as the list does.
for (const form of ["csv", "jsonl"]) {
  const link = at(`save-${form}`);
  const follow = () => {
    const { sort, ...query } = state.query || {};
    const asked = Object.entries(query).filter(([, value]) => value !== null && value !== "");
    link.href = `data/export?${new URLSearchParams([["form", form], ...asked])}`;
  };
  for (const event of ["pointerdown", "focus", "click"]) link.addEventListener(event, follow);
}

// The page with figures may have another order of its own: the address says which one the reader has.
at("live-show").addEventListener("click", () => {
  const told = new URLSearchParams(location.hash.startsWith(ADDRESS) ? location.hash.slice(ADDRESS.length) : "");
  if (told.size && !told.has("sort")) { told.set("sort", "run"); history.replaceState(null, "", ADDRESS + told); }
  location.reload();
});
listen("events", hearRun, (problem) => {
  if (problem && live.box.hidden && !live.wasUnfinished) return; // nothing was to come
  setText(at("live-ended"), problem || at("live-ended").textContent);
});
