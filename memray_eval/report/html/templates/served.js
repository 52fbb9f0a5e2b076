// The records that a server holds (memray-eval view), asked for a page or a record at a time.
const INDEX = JSON.parse(document.getElementById("index").textContent);
let asking = null; // the last question for a page: a newer one ends it

const SOURCE = {
  total: () => INDEX.total,
  // `fresh` has the server look for new records first. What it says of names, and of what it could not read, comes along.
  async page(query, start, size, fresh = false) {
    asking?.abort();
    asking = new AbortController();
    const asked = Object.entries({ ...query, start, size, fresh: fresh || null }).filter(([, value]) => value !== null && value !== "");
    const found = await ask(`data/units?${new URLSearchParams(asked)}`, asking.signal);
    Object.assign(INDEX, found.index);
    return found;
  },
  async session(start, candidate) {
    const found = await ask(`data/units?${new URLSearchParams({ session: start, candidate, size: 200 })}`);
    Object.assign(INDEX, found.index);
    return found.rows.map(([, row]) => row);
  },
  whole: (key) => ask(`data/unit?${new URLSearchParams({ id: key })}`),
};

async function ask(path, signal) {
  let answer;
  try {
    answer = await fetch(path, { signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("memray-eval view does not answer: is it still running?");
  }
  const told = await answer.json().catch(() => ({ error: `memray-eval view answered with ${answer.status}; its terminal says why` }));
  if (!answer.ok) throw new Error(told.error);
  return told;
}
