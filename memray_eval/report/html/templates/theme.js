// Light and dark, as the button or the system says.
function themes() {
  const root = document.documentElement;
  const stored = (() => { try { return localStorage.getItem("memray-eval-theme"); } catch { return null; } })();
  if (stored === "light" || stored === "dark") root.dataset.theme = stored;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const name = () => { document.getElementById("theme").textContent = isDark() ? "Light" : "Dark"; };
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("memray-eval-theme", root.dataset.theme); } catch { /* a file without storage still changes */ }
    name();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  name();
}

themes();
