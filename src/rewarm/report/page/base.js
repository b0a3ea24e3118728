// What the parts of the page share: elements, words for numbers, colours, tables. All that users named goes into the page
// by textContent, or into canvases as plain text. The files of the page are put together in one function (`html.py`).

const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main");
const steps = Object.keys(data.steps);
const PAGE = 50;
const isJob = data.lanes.length > 1;

// -- small things -------------------------------------------------------------------------------------------------

function make(name, attributes, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...inside.filter((one) => one !== null && one !== undefined));
  return made;
}

function seconds(value) {
  if (value === null || value === undefined) return "-";
  const size = Math.abs(value);
  if (size >= 7200) return `${(value / 3600).toFixed(1)} h`;
  if (size >= 120) return `${(value / 60).toFixed(1)} min`;
  if (size >= 10) return `${value.toFixed(1)} s`;
  if (size >= 0.1) return `${value.toFixed(2)} s`;
  if (size === 0) return "0 s";
  return size >= 0.001 ? `${(value * 1000).toFixed(1)} ms` : `${(value * 1e6).toFixed(0)} µs`;
}

function bytes(value) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024 || unit === "GiB") return `${unit === "B" ? value.toFixed(0) : value.toFixed(1)} ${unit}`;
    value /= 1024;
  }
  return "";
}

const count = (value) => value.toLocaleString("en");
const share = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)} %` : "-");
const many = (value, one, more) => `${count(value)} ${value === 1 ? one : more || `${one}s`}`;
const clip = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const sum = (row) => Object.entries(row).reduce((all, [name, took]) => all + (name.startsWith("ahead") ? 0 : took), 0);

function moment(value) {
  if (value === null || value === undefined) return "-";
  const when = new Date(value * 1000);
  return Number.isNaN(when.getTime()) ? "-" : when.toISOString().replace("T", " ").slice(0, 19) + " UTC";
}

const laneName = (lane) => {
  const start = data.starts.length > 1 ? `${moment(data.starts[lane.start].began).slice(5, 19)} ` : "";
  return `${start}rank ${lane.rank}`;
};

// -- colours ------------------------------------------------------------------------------------------------------

const root = document.documentElement;
const darkness = window.matchMedia("(prefers-color-scheme: dark)");
const redraws = [];
let choice = "auto";
try { choice = localStorage.getItem("rewarm-theme") || "auto"; } catch (error) { /* a page from disk may keep nothing */ }
let printing = false;

const isDark = () => !printing && (choice === "dark" || (choice === "auto" && darkness.matches));
// One hue for each step, of different lightness, so that they are told apart without colours too.
const PALETTE = {
  trace: ["#3b7d23", "#7cc45a"], lower: ["#9aa80d", "#d3dd5c"], key: ["#8a8f98", "#9aa2ad"], fetch: ["#4aa3d8", "#7fc8f5"],
  load: ["#1f5fa8", "#4d8fe0"], compile: ["#d9541e", "#f28554"], store: ["#7a4fb0", "#b08ae6"], explain: ["#c2559d", "#ef95cf"],
  wait: ["#b58900", "#e0b93a"], ahead_read: ["#8fd0c4", "#3f8f82"], ahead_load: ["#1d8a7a", "#63d4c2"],
};
const colour = (step) => (PALETTE[step] || ["#666", "#aaa"])[isDark() ? 1 : 0];
const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();

function paint() {
  root.toggleAttribute("data-dark", isDark());
  for (const button of document.querySelectorAll("[data-theme-choice]"))
    button.setAttribute("aria-pressed", String(button.dataset.themeChoice === choice));
  for (const redraw of redraws) redraw();
}
for (const button of document.querySelectorAll("[data-theme-choice]"))
  button.addEventListener("click", () => {
    choice = button.dataset.themeChoice;
    try { localStorage.setItem("rewarm-theme", choice); } catch (error) { /* as above */ }
    paint();
  });
darkness.addEventListener("change", paint);
window.addEventListener("beforeprint", () => { printing = true; paint(); });
window.addEventListener("afterprint", () => { printing = false; paint(); });

// An observer calls once at the beginning, when nothing has changed.
function resized(chart, box) {
  let width = box.clientWidth;
  new ResizeObserver(() => {
    if (box.clientWidth !== width) { width = box.clientWidth; chart.resize(); }
  }).observe(box);
}

// -- parts --------------------------------------------------------------------------------------------------------

function part(id, title, lead) {
  const section = make("section", { id, "aria-labelledby": `${id}-title` }, make("h2", { id: `${id}-title` }, title));
  if (lead) section.append(make("p", { class: "lead" }, lead));
  main.append(section);
  document.getElementById("parts").append(make("li", {}, make("a", { href: `#${id}` }, title)));
  return section;
}

// A table that is sorted by its heads, searched and paged. Columns: {name, of, show, number, className, start}.
function table(section, id, title, columns, rows, options = {}) {
  let order = options.order || null;
  let page = 0;
  let words = "";
  let keep = null;
  const size = options.page || PAGE;
  const status = make("p", { class: options.search ? "soft" : "hidden", role: "status", "aria-live": "polite", id: `${id}-status` });
  const head = make("tr");
  const body = make("tbody");
  const shown = make("table", { id, "aria-describedby": `${id}-status` }, make("caption", {}, title), make("thead", {}, head), body);
  const bar = make("div", { class: "bar" });
  if (options.search) {
    const input = make("input", { type: "search", id: `${id}-search`, autocomplete: "off", placeholder: options.search });
    input.addEventListener("input", () => { words = input.value.toLowerCase().trim(); page = 0; fill(); });
    bar.append(make("label", { for: `${id}-search` }, "Search"), input);
  }
  if (options.filters) {
    const select = make("select", { id: `${id}-filter` }, ...options.filters.map(([name], n) => make("option", { value: n }, name)));
    select.addEventListener("change", () => { keep = options.filters[select.value][1]; page = 0; fill(); });
    bar.append(make("label", { for: `${id}-filter` }, "Show"), select);
  }
  if (bar.childNodes.length) section.append(bar);
  section.append(status, make("div", { class: "scroll" }, shown));
  const back = make("button", { type: "button" }, "Previous");
  const next = make("button", { type: "button" }, "Next");
  const where = make("span", { class: "soft" });
  back.addEventListener("click", () => { page -= 1; fill(); });
  next.addEventListener("click", () => { page += 1; fill(); });
  const pages = make("div", { class: "pages" }, back, next, where);
  section.append(pages);
  for (const column of columns) {
    const button = make("button", { type: "button" }, column.name);
    const cell = make("th", { scope: "col", class: column.number ? "number" : "" }, button);
    button.addEventListener("click", () => {
      const falls = order && order.column === column ? !order.falls : Boolean(column.number);
      order = { column, falls };
      page = 0;
      fill();
    });
    column.cell = cell;
    head.append(cell);
  }
  if (typeof order === "number") order = { column: columns[order], falls: true };

  function chosen() {
    let found = rows;
    if (keep) found = found.filter(keep);
    if (words) found = found.filter((row) => options.text(row).toLowerCase().includes(words));
    if (order) {
      const { of } = order.column;
      const sign = order.falls ? -1 : 1;
      found = [...found].sort((one, two) => {
        const [a, b] = [of(one), of(two)];
        return a === b ? 0 : sign * (typeof a === "string" ? a.localeCompare(b) : a - b);
      });
    }
    return found;
  }

  function fill() {
    const found = chosen();
    const last = Math.max(0, Math.ceil(found.length / size) - 1);
    page = Math.max(0, Math.min(page, last));
    body.replaceChildren(...found.slice(page * size, (page + 1) * size).map((row) => make("tr", {}, ...columns.map((column, n) => {
      const inside = column.show ? column.show(row) : column.of(row);
      const kind = column.number ? "number" : column.className || "words";
      return make(n === 0 ? "th" : "td", { class: n === 0 ? `${kind} name plain` : kind, scope: n === 0 ? "row" : null }, inside);
    }))));
    for (const column of columns) {
      const sorted = order && order.column === column;
      if (sorted) column.cell.setAttribute("aria-sort", order.falls ? "descending" : "ascending");
      else column.cell.removeAttribute("aria-sort");
    }
    status.textContent = found.length === rows.length ? many(rows.length, "row") : `${count(found.length)} of ${many(rows.length, "row")}`;
    pages.hidden = last === 0;
    back.disabled = page === 0;
    next.disabled = page === last;
    where.textContent = `page ${page + 1} of ${last + 1}`;
  }
  fill();
  return shown;
}

const key = (text) => (text ? make("code", { title: text }, text.slice(0, 12)) : "-");
