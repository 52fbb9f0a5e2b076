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
  if (live.wasUnfinished) followRecords(row);
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
