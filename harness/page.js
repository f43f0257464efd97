"use strict";
// The theme button, and the sorting and filtering of the table of results. Without this script the page can be read.
(() => {
  const root = document.documentElement;
  const store = { get: () => { try { return localStorage.getItem("ptxmotion-theme"); } catch { return null; } },
                  set: (value) => { try { localStorage.setItem("ptxmotion-theme", value); } catch { /* not kept */ } } };
  const kept = store.get();
  if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  const theme = document.getElementById("theme");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    store.set(root.dataset.theme);
  });

  // A link to a program opens its part.
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.tagName === "DETAILS") { target.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", reveal);
  reveal();

  const table = document.getElementById("results");
  if (!table) return;
  document.querySelector(".controls").hidden = false;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const words = document.getElementById("filter");
  const verdict = document.getElementById("verdict");
  const shown = document.getElementById("shown");
  const filter = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !(wanted.every((word) => text.includes(word)) &&
                     (!verdict.value || row.dataset.verdict === verdict.value));
      count += row.hidden ? 0 : 1;
    }
    shown.textContent = `${count} of ${rows.length} rows`;
  };
  words.addEventListener("input", filter);
  verdict.addEventListener("change", filter);
  for (const link of document.querySelectorAll("a[data-verdict]")) {
    link.addEventListener("click", () => { verdict.value = link.dataset.verdict; words.value = ""; filter(); });
  }
  filter();

  const key = (row, column) => row.cells[column].dataset.key ?? row.cells[column].textContent;
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const numeric = rows.some((row) => row.cells[column].dataset.key !== undefined);
      const order = (a, b) => {
        const [x, y] = [key(a, column), key(b, column)];
        if (!numeric) return x.localeCompare(y);
        if (x === "" || y === "") return (x === "") - (y === "") || 0;
        return x - y;
      };
      body.append(...rows.sort((a, b) => (up ? order(a, b) : order(b, a))));
    });
  });
})();
