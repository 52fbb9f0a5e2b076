// Tables and long texts: a stop of Tab only if there is something to scroll, and names that break at their underscores.
const REGIONS = ".scroll[tabindex], .text[tabindex]";

function stops() {
  for (const box of document.querySelectorAll(REGIONS)) box.tabIndex = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1 ? 0 : -1;
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
