// Long lists of units a page at a time; without this script they stand there whole.
const PAGE = 10;

function paged(list) {
  const items = [...list.children];
  const pages = Math.ceil(items.length / PAGE);
  if (pages < 2) return;
  let page = 0;
  const pager = document.createElement("div");
  pager.className = "pager";
  const [back, where, next] = ["button", "span", "button"].map((tag) => pager.appendChild(document.createElement(tag)));
  back.type = next.type = "button";
  back.textContent = "← Back";
  next.textContent = "Next →";
  const turn = (by) => {
    page = Math.min(Math.max(page + by, 0), pages - 1);
    items.forEach((item, place) => { item.hidden = Math.floor(place / PAGE) !== page; });
    where.textContent = `page ${page + 1} of ${pages}`;
    back.disabled = page === 0;
    next.disabled = page === pages - 1;
  };
  back.addEventListener("click", () => turn(-1));
  next.addEventListener("click", () => turn(1));
  list.after(pager);
  turn(0);
}

document.querySelectorAll(".changes").forEach(paged);
document.documentElement.dataset.ready = String(Math.round(performance.now()));
