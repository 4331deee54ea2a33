"use strict";
// Shared by report.html and compare.html: theme, sortable tables, unfolding for print.
const root = document.documentElement;
root.classList.add("js");

const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
function setTheme(name) {
  root.dataset.theme = name;
  dispatchEvent(new Event("theme"));
}
document.getElementById("theme").onclick = () => setTheme(isDark() ? "light" : "dark");
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("theme")));

// The URL fragment `#dark` or `#light` sets the theme.
function followTheme() {
  const theme = location.hash.slice(1).split(",").find((part) => part === "dark" || part === "light");
  if (theme) setTheme(theme);
}
addEventListener("hashchange", followTheme);
followTheme();

// A click on a column head sorts the table, a second click reverses the order. Missing values come last.
function sort(table, column) {
  const heads = [...table.tHead.rows[0].cells], head = heads[column];
  const down = head.getAttribute("aria-sort") === "ascending";
  heads.forEach((other) => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const key = (row) => { const cell = row.cells[column]; return cell.dataset.sort != null ? Number(cell.dataset.sort) : cell.dataset.value != null ? Number(cell.dataset.value) : head.classList.contains("n") ? null : cell.textContent; };
  const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
  const rows = [...table.tBodies[0].rows].map((row) => [key(row), row]);
  rows.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : down ? order(b, a) : order(a, b)));
  table.tBodies[0].append(...rows.map(([, row]) => row));
}
document.querySelectorAll("table.sorts").forEach((table) => [...table.tHead.rows[0].cells].forEach((head, column) => {
  head.tabIndex = 0;
  head.onclick = () => sort(table, column);
  head.onkeydown = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(table, column); } };
}));

// A click anywhere in a row of the matrix leads to its case; the link in the row does it by keyboard.
document.querySelectorAll("tr[data-go]").forEach((row) => { row.onclick = (event) => { if (!event.target.closest("a")) location.hash = row.dataset.go; }; });

// The header stays at the top. On a narrow screen only its navigation does.
const header = document.querySelector("header"), nav = header.querySelector("nav");
function measureHeader() {
  root.style.setProperty("--header", header.offsetHeight + "px");
  root.style.setProperty("--heading", header.offsetHeight - nav.offsetHeight + "px");
}
addEventListener("resize", measureHeader);
measureHeader();

// A link to a folded section unfolds it.
function unfold() {
  const target = document.getElementById(location.hash.slice(1)), box = target && target.closest("details");
  if (box) box.open = true;
}
addEventListener("hashchange", unfold);
unfold();

// Printed pages are unfolded and light.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  folded.forEach((section) => { section.open = true; });
  root.dataset.before = root.dataset.theme || "";
  root.dataset.theme = "light";
});
addEventListener("afterprint", () => {
  folded.forEach((section) => { section.open = false; });
  root.dataset.theme = root.dataset.before;
});
