// Tables and long texts: a stop of Tab only if there is something to scroll, and names that break at their underscores.
const REGIONS = document.querySelectorAll(".scroll[tabindex], .text[tabindex]");

function stops() {
  const stays = [...REGIONS].map((box) => box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1);
  REGIONS.forEach((box, place) => { box.tabIndex = stays[place] ? 0 : -1; }); // after all are measured
}

function breakable() {
  for (const head of document.querySelectorAll(".grid th")) {
    for (const node of [...head.childNodes].filter((one) => one.nodeType === Node.TEXT_NODE && one.data.includes("_"))) {
      node.replaceWith(...node.data.split(/(?<=_)/).flatMap((part, place) => (place ? [document.createElement("wbr"), part] : [part])));
    }
  }
}

breakable();
stops();
window.addEventListener("resize", stops);
document.addEventListener("toggle", stops, true); // what is opened has a size only then
