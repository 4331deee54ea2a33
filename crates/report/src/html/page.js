// Interaction: selecting a case, filtering, printing.
const sections = [...document.querySelectorAll(".case")];
const caseTable = document.querySelector("#overview table");
const picker = document.getElementById("picker");
let shown = -1;
addEventListener("theme", refresh);

function showCase(index) {
  if (index === shown || !sections[index]) return;
  if (sections[shown]) { sections[shown].classList.remove("shown"); discard(sections[shown].querySelector(".charts")); }
  shown = index;
  sections[index].classList.add("shown");
  if (picker) picker.value = index;
  caseTable.querySelectorAll("tbody tr").forEach((row) => row.classList.toggle("current", row.dataset.case === sections[index].dataset.case));
  drawCase(sections[index].querySelector(".charts"));
}

// The URL fragment `#case-3` shows a case; a theme may follow after a comma.
function followFragment() {
  for (const part of location.hash.slice(1).split(",")) {
    const found = /^case-(\d+)$/.exec(part);
    if (found) { showCase(Number(found[1])); sections[shown].scrollIntoView(); sections[shown].focus({ preventScroll: true }); }
  }
}

const more = document.getElementById("more");
if (more) more.onclick = () => { const on = document.getElementById("overview").classList.toggle("all"); more.setAttribute("aria-pressed", on); };

// Without the permission to write to the clipboard, the text is selected instead.
document.querySelectorAll("[data-copy]").forEach((button) => {
  button.onclick = async () => {
    const source = document.getElementById(button.dataset.copy), said = document.getElementById("copied");
    try { await navigator.clipboard.writeText(source.textContent); said.textContent = "Copied."; }
    catch { source.closest("details")?.setAttribute("open", ""); getSelection().selectAllChildren(source); said.textContent = "Selected: copy it with your keyboard."; }
  };
});

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

// The filter keeps the cases whose id contains every typed word.
const filter = document.getElementById("filter");
if (filter) filter.oninput = () => {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (id) => words.every((word) => id.toLowerCase().includes(word));
  const rows = [...caseTable.tBodies[0].rows];
  rows.forEach((row) => { row.hidden = !matches(row.dataset.case); });
  [...picker.options].forEach((option) => { option.hidden = !matches(option.textContent); });
  document.getElementById("found").textContent = words.length ? `${rows.filter((row) => !row.hidden).length} of ${rows.length}` : "";
};

// Printed pages have the charts of every case, up to this number of cases; beyond it only those of the selected case.
const MAX_PRINTED_CASES = 24;
addEventListener("beforeprint", () => {
  printing = true;
  if (sections.length <= MAX_PRINTED_CASES) sections.forEach((section, index) => { if (index !== shown) drawCase(section.querySelector(".charts")); });
  refresh();
});
addEventListener("afterprint", () => {
  printing = false;
  sections.forEach((section, index) => { if (index !== shown) discard(section.querySelector(".charts")); });
  refresh();
});

addEventListener("hashchange", followFragment);

document.querySelectorAll("[data-search]").forEach(drawSearch);
if (cases.sweep) drawSweep(document.getElementById("sweep"));
const times = document.getElementById("times");
if (times) drawTimes(times, seriesOf(cases.times), cases.times);
followFragment();
if (shown < 0) showCase(Number(document.getElementById("cases")?.dataset.first || 0));
