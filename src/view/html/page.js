// How the page is used: which case is shown, sorting, filtering, the theme, printing.
const root = document.documentElement;
const sections = [...document.querySelectorAll(".case")];
const caseTable = document.querySelector("#overview table");
const picker = document.getElementById("picker");
let shown = -1;
root.classList.add("js");

const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
document.getElementById("theme").onclick = () => { root.dataset.theme = isDark() ? "light" : "dark"; refresh(); };
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);

function showCase(index) {
  if (index === shown || !sections[index]) return;
  if (sections[shown]) { sections[shown].classList.remove("shown"); discard(sections[shown].querySelector(".charts")); }
  shown = index;
  sections[index].classList.add("shown");
  if (picker) picker.value = index;
  caseTable.querySelectorAll("tbody tr").forEach((row) => row.classList.toggle("current", row.dataset.case === sections[index].dataset.case));
  drawCase(sections[index].querySelector(".charts"));
}

// The fragment: `#case-3` shows a case; `#dark` and `#light` choose the theme; a comma joins several.
function followFragment() {
  for (const word of location.hash.slice(1).split(",")) {
    if (word === "dark" || word === "light") { root.dataset.theme = word; refresh(); }
    const found = /^case-(\d+)$/.exec(word);
    if (found) { showCase(Number(found[1])); sections[shown].scrollIntoView(); }
  }
}

function step(by) {
  const options = [...picker.options].filter((option) => !option.hidden).map((option) => Number(option.value));
  const next = options[options.indexOf(shown) + by];
  if (next != null) showCase(next);
}
if (sections.length) {
  sections.forEach((section, index) => { const option = element("option", picker, section.dataset.case); option.value = index; });
  picker.onchange = () => showCase(Number(picker.value));
  document.getElementById("previous").onclick = () => step(-1);
  document.getElementById("next").onclick = () => step(1);
}

// A case passes where it holds every word that is asked for.
const filter = document.getElementById("filter");
if (filter) filter.oninput = () => {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const passes = (id) => words.every((word) => id.toLowerCase().includes(word));
  const rows = [...caseTable.tBodies[0].rows];
  rows.forEach((row) => { row.hidden = !passes(row.dataset.case); });
  [...picker.options].forEach((option) => { option.hidden = !passes(option.textContent); });
  document.getElementById("found").textContent = words.length ? `${rows.filter((row) => !row.hidden).length} of ${rows.length}` : "";
};

// A click on a head sorts by that column, a second one the other way; what has no value comes last.
function sort(table, column) {
  const heads = [...table.tHead.rows[0].cells], head = heads[column];
  const down = head.getAttribute("aria-sort") === "ascending";
  heads.forEach((other) => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const key = (row) => { const cell = row.cells[column]; return cell.dataset.value != null ? Number(cell.dataset.value) : head.classList.contains("n") ? null : cell.textContent; };
  const order = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
  const rows = [...table.tBodies[0].rows].map((row) => [key(row), row]);
  rows.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : down ? order(b, a) : order(a, b)));
  table.tBodies[0].append(...rows.map(([, row]) => row));
}
document.querySelectorAll("table.sorts").forEach((table) => [...table.tHead.rows[0].cells].forEach((head, column) => {
  head.tabIndex = 0;
  head.onclick = () => sort(table, column);
  head.onkeydown = (event) => { if (event.key === "Enter") sort(table, column); };
}));

// On paper everything is open and light; of very many cases only the one that is shown has charts.
const PRINTED = 24;
let folded = [];
addEventListener("beforeprint", () => {
  printing = true;
  folded = [...document.querySelectorAll("details:not([open])")];
  folded.forEach((own) => { own.open = true; });
  root.dataset.before = root.dataset.theme || "";
  root.dataset.theme = "light";
  if (sections.length <= PRINTED) sections.forEach((section, index) => { if (index !== shown) drawCase(section.querySelector(".charts")); });
  refresh();
});
addEventListener("afterprint", () => {
  printing = false;
  folded.forEach((own) => { own.open = false; });
  root.dataset.theme = root.dataset.before;
  sections.forEach((section, index) => { if (index !== shown) discard(section.querySelector(".charts")); });
  refresh();
});

addEventListener("hashchange", followFragment);

document.querySelectorAll("[data-search]").forEach(drawSearch);
if (cases.sweep) drawSweep(document.getElementById("sweep"));
followFragment();
if (shown < 0) showCase(0);
