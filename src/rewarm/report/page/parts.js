// The other parts, each of which is one function, and the order in which they stand.

// -- the headline -------------------------------------------------------------------------------------------------

function headline() {
  const totals = data.totals;
  const first = data.starts[0];
  const subject = data.starts.length ? `${first.program}, ${moment(first.began)}` : data.directory;
  document.getElementById("subject").textContent = subject;
  document.getElementById("subject").title = subject;
  document.getElementById("made").textContent = `Made ${moment(data.made)} by rewarm ${data.rewarm} from ${data.directory}.`;
  if (!data.starts.length) return;
  const section = part("summary", "Summary");
  const cold = totals.seconds_cold;
  const told = totals.requests
    ? `${many(totals.requests, "program")} asked for, ${count(totals.hits)} found in the cache (${share(totals.hits, totals.requests)}). ` +
      (totals.seconds_saved >= 0
        ? `That saved ${seconds(totals.seconds_saved)} of ${seconds(cold)} that compiling all of it takes, by the times recorded when the entries were made.`
        : `Loading took ${seconds(-totals.seconds_saved)} longer than compiling had.`)
    : "No program was asked for.";
  section.append(make("p", {}, told));
  const ranks = first.ranks > 1 ? `, summed over ${many(data.lanes.length, "rank")}` : "";
  const figure = (name, value, more, kind) => make("div", {}, make("dt", {}, name), make("dd", { class: `value ${kind || ""}` }, value), make("dd", { class: "more" }, more));
  section.append(make("dl", { class: "figures" },
    figure("Saved", seconds(totals.seconds_saved), `${share(totals.seconds_saved, cold)} of the cold cost${ranks}`, totals.seconds_saved < 0 ? "bad" : "good"),
    figure("Hit ratio", share(totals.hits, totals.requests), `${count(totals.hits)} of ${many(totals.requests, "request")}`),
    figure("Compiling", seconds(totals.seconds_compiling), `${many(totals.misses, "miss", "misses")}, ${count(totals.stored)} stored`),
    figure("Fetching and loading", seconds(totals.seconds_loading), `${bytes(totals.bytes_read)} read`),
    figure("rewarm's own work", seconds(totals.seconds_overhead), "keys, storing, explaining, waiting"),
    figure("First to last step", seconds(first.seconds), `${many(first.lanes, "process", "processes")}, ${Object.entries(first.versions).map(([name, version]) => `${name} ${version}`).join(", ")}`),
  ));
  for (const note of data.notes) section.append(make("p", { class: "note" }, `Not in these numbers: ${note}`));
  const tuned = Object.entries(data.tuned).filter(([, times]) => times);
  if (tuned.length) section.append(make("p", { class: "soft" }, `Tuner: ${tuned.map(([name, times]) => `${name} ${times}`).join(", ")}.`));
  const rows = data.starts.length > 1 ? data.starts : isJob ? data.lanes : [];
  if (!rows.length) return;
  const isStart = data.starts.length > 1;
  table(section, "lanes-table", isStart ? "The starts" : "The ranks", [
    isStart ? { name: "Start", of: (row) => row.id } : { name: "Rank", of: (row) => row.rank, show: (row) => `${row.rank}` },
    isStart ? { name: "Program", of: (row) => row.program } : { name: "Where", of: (row) => `${row.host}, ${row.pid}` },
    isStart ? { name: "When", of: (row) => row.began, show: (row) => moment(row.began) } : { name: "State", of: (row) => row.state },
    { name: "Length", of: (row) => row.seconds, show: (row) => seconds(row.seconds), number: true },
    { name: "Requests", of: (row) => row.totals.requests, show: (row) => count(row.totals.requests), number: true },
    { name: "Hit ratio", of: (row) => row.totals.hits / (row.totals.requests || 1), show: (row) => share(row.totals.hits, row.totals.requests), number: true },
    { name: "Saved", of: (row) => row.totals.seconds_saved, show: (row) => seconds(row.totals.seconds_saved), number: true },
    { name: "Compiling", of: (row) => row.totals.seconds_compiling, show: (row) => seconds(row.totals.seconds_compiling), number: true },
    { name: "Loading", of: (row) => row.totals.seconds_loading, show: (row) => seconds(row.totals.seconds_loading), number: true },
  ], rows, { page: 16 });
}

// -- programs -----------------------------------------------------------------------------------------------------

function programs() {
  if (!data.starts.length) return;
  const section = part("programs", "Programs", "Every program that was asked for, by its key; seconds are summed over all processes.");
  const took = (name) => ({ name: name.replace("_", " "), of: (row) => row.seconds[name] || 0, show: (row) => (row.seconds[name] ? seconds(row.seconds[name]) : ""), number: true });
  const outcome = (row) => (row.misses ? (row.hits ? "both" : "miss") : "hit");
  table(section, "programs-table", "Programs", [
    { name: "Program", of: (row) => row.program, className: "name" },
    { name: "Key", of: (row) => row.key, show: (row) => key(row.key) },
    { name: "Outcome", of: outcome, show: (row) => outcomeCell(row, outcome(row)) },
    ...(isJob ? [{ name: data.starts.length > 1 ? "Processes" : "Ranks", of: (row) => row.lanes, show: (row) => count(row.lanes), number: true }] : []),
    { name: "Requests", of: (row) => row.hits + row.misses, show: (row) => count(row.hits + row.misses), number: true },
    { name: "In all", of: (row) => sum(row.seconds), show: (row) => seconds(sum(row.seconds)), number: true },
    took("trace"), took("lower"), took("key"), took("fetch"), took("load"), took("compile"), took("store"),
    { name: "Saved", of: (row) => row.seconds_saved, show: (row) => (row.hits ? seconds(row.seconds_saved) : ""), number: true },
    { name: "Size", of: (row) => row.bytes, show: (row) => (row.bytes ? bytes(row.bytes) : ""), number: true },
  ], data.programs, {
    order: isJob ? 5 : 4, search: "name, key, reason", text: (row) => `${row.program} ${row.key} ${row.reason} ${row.not_stored} ${row.options}`,
    filters: [["all", null], ["hits", (row) => row.hits > 0], ["misses", (row) => row.misses > 0], ["not stored", (row) => row.not_stored !== ""], ["loaded ahead", (row) => row.ahead > 0]],
  });
}

function outcomeCell(row, words) {
  const where = row.tier && row.hits ? ` from ${row.tier}${row.ahead ? ", ahead" : ""}` : "";
  if (words === "hit") return make("span", { class: "good outcome" }, `hit${where}`);
  const text = words === "both" ? `${count(row.misses)} of ${count(row.hits + row.misses)} missed` : "miss";
  return row.miss === null ? make("span", { class: "bad" }, text) : make("a", { href: "#misses", class: "bad", onclick: () => findMiss(row.miss) }, text);
}

// -- misses -------------------------------------------------------------------------------------------------------

let findMiss = () => {};

function change(one) {
  const where = one.component === "program" ? one.item || "source line unknown" : `${one.component}${one.item ? `: ${one.item}` : ""}`;
  const lines = [make("span", { class: "where" }, `${where}\n`)];
  if (one.before) lines.push(make("span", { class: "before" }, `- ${one.before}\n`));
  if (one.after) lines.push(make("span", { class: "after" }, `+ ${one.after}\n`));
  return lines;
}

function misses() {
  if (!data.starts.length) return;
  const section = part("misses", "Misses", data.misses.length ? "Why each program was compiled, what took longest first." : "Nothing was compiled: every program was found.");
  if (!data.misses.length) return;
  const SHOWN = 20;
  let page = 0;
  let words = "";
  const input = make("input", { type: "search", id: "misses-search", autocomplete: "off", placeholder: "name, key, explanation" });
  const status = make("p", { class: "soft", role: "status", "aria-live": "polite" });
  const list = make("div", { id: "misses-list" });
  const back = make("button", { type: "button" }, "Previous");
  const next = make("button", { type: "button" }, "Next");
  const where = make("span", { class: "soft" });
  const pages = make("div", { class: "pages" }, back, next, where);
  section.append(make("div", { class: "bar" }, make("label", { for: "misses-search" }, "Search"), input), status, list, pages);
  const textOf = (one) => `${one.program} ${one.key} ${one.reason} ${one.summary} ${one.findings.map((finding) => finding.text).join(" ")}`.toLowerCase();
  const kept = (one) => (one.stored ? "stored" : one.not_stored ? `not stored: ${one.not_stored}` : "not stored");
  function fill() {
    const found = words ? data.misses.filter((one) => textOf(one).includes(words)) : data.misses;
    const last = Math.max(0, Math.ceil(found.length / SHOWN) - 1);
    page = Math.max(0, Math.min(page, last));
    list.replaceChildren(...found.slice(page * SHOWN, (page + 1) * SHOWN).map((one) => make("article", { class: "miss" },
      make("h3", {}, one.program, " ", key(one.key)),
      make("p", { class: "soft" }, `compiled${one.times > 1 ? ` ${count(one.times)} times` : ""} in ${seconds(one.seconds_compiling)}, ${kept(one)}`),
      make("p", {}, one.summary || one.reason),
      one.changes.length ? make("pre", { class: "diff" }, ...one.changes.flatMap(change)) : null,
      ...one.findings.map((finding) => make("p", {}, `⇒ ${finding.text}`)))));
    status.textContent = `${count(found.length)} of ${many(data.misses.length, "reason")}`;
    pages.hidden = last === 0;
    back.disabled = page === 0;
    next.disabled = page === last;
    where.textContent = `page ${page + 1} of ${last + 1}`;
  }
  input.addEventListener("input", () => { words = input.value.toLowerCase().trim(); page = 0; fill(); });
  back.addEventListener("click", () => { page -= 1; fill(); });
  next.addEventListener("click", () => { page += 1; fill(); });
  findMiss = (number) => { input.value = data.misses[number].key || data.misses[number].program; words = input.value.toLowerCase(); page = 0; fill(); };
  fill();
}

function notStored() {
  if (!data.not_stored.length) return;
  const section = part("not-stored", "Not stored", "What was compiled and not kept, by reason: the next start compiles it again.");
  table(section, "not-stored-table", "Not stored", [
    { name: "Why", of: (row) => row.reason },
    { name: "Programs", of: (row) => row.programs, show: (row) => count(row.programs), number: true },
    { name: "Times", of: (row) => row.times, show: (row) => count(row.times), number: true },
    { name: "Compiling", of: (row) => row.seconds_compiling, show: (row) => seconds(row.seconds_compiling), number: true },
  ], data.not_stored, { order: 3 });
}

// -- two starts ---------------------------------------------------------------------------------------------------

function comparison() {
  const found = data.comparison;
  if (!found) return;
  const [now, then] = [data.starts[0], found.against];
  const section = part("comparison", "Comparison", `${now.program} (${now.id}) against ${then.program} (${then.id}, ${moment(then.began)}).`);
  const rows = [
    ["First to last step", now.seconds, then.seconds, seconds], ["Compiling", now.totals.seconds_compiling, then.totals.seconds_compiling, seconds],
    ["Fetching and loading", now.totals.seconds_loading, then.totals.seconds_loading, seconds], ["rewarm's own work", now.totals.seconds_overhead, then.totals.seconds_overhead, seconds],
    ["Saved", now.totals.seconds_saved, then.totals.seconds_saved, seconds], ["Hits", now.totals.hits, then.totals.hits, count],
    ["Misses", now.totals.misses, then.totals.misses, count], ["Bytes read", now.totals.bytes_read, then.totals.bytes_read, bytes],
  ].map(([name, after, before, show]) => ({ name, after, before, show }));
  const signed = (row) => { const more = row.after - row.before; return `${more > 0 ? "+" : more < 0 ? "−" : ""}${row.show(Math.abs(more))}`; };
  table(section, "comparison-totals", "Totals", [
    { name: "What", of: (row) => row.name },
    { name: "This start", of: (row) => row.after, show: (row) => row.show(row.after), number: true },
    { name: "Against", of: (row) => row.before, show: (row) => row.show(row.before), number: true },
    { name: "Difference", of: (row) => row.after - row.before, show: signed, number: true },
  ], rows);
  const outcome = (side) => (side.hits || side.misses ? `${side.hits ? many(side.hits, "hit") : ""}${side.hits && side.misses ? ", " : ""}${side.misses ? many(side.misses, "miss", "misses") : ""}` : "-");
  section.append(make("h3", {}, "Program by program"));
  table(section, "comparison-table", "Programs of both", [
    { name: "Program", of: (row) => row.program, className: "name" },
    { name: "Change", of: (row) => row.change, show: (row) => make("span", { class: row.change === "now miss" ? "bad" : row.change === "now hit" ? "good" : "" }, row.change) },
    { name: "This start", of: (row) => outcome(row.after) },
    { name: "Against", of: (row) => outcome(row.before) },
    { name: "Seconds now", of: (row) => row.after.seconds, show: (row) => seconds(row.after.seconds), number: true },
    { name: "Seconds then", of: (row) => row.before.seconds, show: (row) => seconds(row.before.seconds), number: true },
    { name: "Difference", of: (row) => row.after.seconds - row.before.seconds, show: (row) => signed({ after: row.after.seconds, before: row.before.seconds, show: seconds }), number: true },
  ], found.programs, { page: 15, search: "name", text: (row) => `${row.program} ${row.change}`, filters: [["all", null], ["changed", (row) => row.change !== "same"]] });
}

// -- the store ----------------------------------------------------------------------------------------------------

function store() {
  const held = data.store;
  const section = part("store", "Store", `${many(held.entries, "entry", "entries")}, ${bytes(held.bytes)}, ${seconds(held.seconds_compiling)} to compile them all again${held.unreadable ? `, ${count(held.unreadable)} unreadable` : ""}.`);
  const box = make("div", { class: "chart", id: "store-chart", role: "img", "aria-label": "Treemap of the store; the tables below have its numbers" });
  if (held.kinds.length || held.programs.length) {
    section.append(make("p", { class: "soft" }, "The larger a box, the more bytes. Entries are divided by program; the tables say the same."), box);
    drawStore(box, held);
  }
  section.append(make("h3", {}, "By program"));
  table(section, "store-programs", "Entries by program and device", [
    { name: "Program", of: (row) => row.program, className: "name" },
    { name: "Device", of: (row) => row.target },
    { name: "Entries", of: (row) => row.entries, show: (row) => count(row.entries), number: true },
    { name: "Bytes", of: (row) => row.bytes, show: (row) => bytes(row.bytes), number: true },
    { name: "Share", of: (row) => row.bytes, show: (row) => share(row.bytes, held.bytes), number: true },
    { name: "Compiling", of: (row) => row.seconds_compiling, show: (row) => seconds(row.seconds_compiling), number: true },
  ], held.programs, { order: 3, search: "name, device", text: (row) => `${row.program} ${row.target}` });
  section.append(make("h3", {}, "By kind of file"));
  table(section, "store-kinds", "Files by kind", [
    { name: "Kind", of: (row) => row.name },
    { name: "Files", of: (row) => row.files, show: (row) => count(row.files), number: true },
    { name: "Bytes", of: (row) => row.bytes, show: (row) => bytes(row.bytes), number: true },
  ], held.kinds, { order: 2 });
}

function drawStore(box, held) {
  const SHOWN = 300;
  const inside = held.programs.slice(0, SHOWN).map((row) => ({ name: clip(row.program, 60), value: row.bytes, entries: row.entries, target: row.target }));
  const rest = held.programs.slice(SHOWN);
  if (rest.length) inside.push({ name: `${rest.length} more programs`, value: rest.reduce((all, row) => all + row.bytes, 0) });
  const kinds = held.kinds.filter((kind) => kind.name !== "entries" && kind.bytes).map((kind) => ({ name: kind.name, value: kind.bytes, entries: kind.files }));
  box.style.height = "360px";
  const chart = echarts.init(box, null, { renderer: "canvas" });
  const draw = () => {
    const hues = isDark() ? ["#2f6fb3", "#6b4a9e", "#27806f", "#96601f", "#8f3d5e", "#5c7a1f"] : ["#9cc4ec", "#c9b5ea", "#9fd8cb", "#f0cd9c", "#efb3c7", "#cfe09b"];
    chart.setOption({
      animation: false,
      color: hues,
      tooltip: {
        renderMode: "richText", confine: true, backgroundColor: css("--panel"), borderColor: css("--line"), textStyle: { color: css("--text"), fontSize: 12 },
        formatter: ({ data: one }) => (one ? `${one.name}\n${bytes(one.value || 0)}${one.entries ? `, ${many(one.entries, "file")}` : ""}${one.target ? `\n${clip(one.target, 80)}` : ""}` : ""),
      },
      series: [{
        type: "treemap", roam: false, nodeClick: false, breadcrumb: { show: false }, left: 0, right: 0, top: 0, bottom: 0, visibleMin: 1,
        label: { color: css("--text"), overflow: "truncate", lineHeight: 15, formatter: ({ data: one }) => `${one.name}\n${bytes(one.value || 0)}` },
        upperLabel: { show: true, height: 22, color: css("--text"), formatter: ({ data: one }) => `${one.name}, ${bytes(one.value || 0)}` },
        itemStyle: { borderColor: css("--panel"), borderWidth: 1, gapWidth: 1 },
        levels: [{ itemStyle: { gapWidth: 3, borderWidth: 0 }, upperLabel: { show: false } }, { itemStyle: { borderColor: css("--line"), borderWidth: 2, gapWidth: 1 }, colorSaturation: null }, {}],
        data: [{ name: "entries", value: held.bytes, children: inside }, ...kinds].filter((one) => one.value),
      }],
    });
  };
  draw();
  redraws.push(draw);
  resized(chart, box);
}

function history() {
  const section = part("history", "History", data.history.length ? "What went from the directory: evicted, put into quarantine, or condemned after it ended a process." : "Nothing was evicted, put into quarantine or condemned, as far as it is known.");
  if (!data.history.length) return;
  table(section, "history-table", "History", [
    { name: "When", of: (row) => row.time || 0, show: (row) => moment(row.time) },
    { name: "What", of: (row) => row.what },
    { name: "Program", of: (row) => row.program || "-", className: "name" },
    { name: "Key", of: (row) => row.key, show: (row) => key(row.key) },
    { name: "Size", of: (row) => row.bytes, show: (row) => (row.bytes ? bytes(row.bytes) : ""), number: true },
    { name: "Why", of: (row) => row.why },
  ], data.history, { search: "program, key, why", text: (row) => `${row.what} ${row.program} ${row.key} ${row.why}` });
}

function tuning() {
  if (!data.tuning.length) return;
  const section = part("tuning", "Tuning coverage", "How complete XLA:GPU's tuning was when the entries were compiled.");
  table(section, "tuning-table", "Tuning", [
    { name: "Program", of: (row) => row.program, className: "name" },
    { name: "Device", of: (row) => row.target },
    { name: "States", of: (row) => Object.entries(row.states).map(([name, times]) => `${name} ${times}`).join(", ") },
    { name: "Look-ups", of: (row) => row.fusions, show: (row) => (row.fusions ? count(row.fusions) : "-"), number: true },
    { name: "Without a result", of: (row) => row.untuned, show: (row) => (row.fusions ? `${count(row.untuned)} (${share(row.untuned, row.fusions)})` : "-"), number: true },
    { name: "Missing", of: (row) => row.missing.join(", ") },
  ], data.tuning, { search: "name, device", text: (row) => `${row.program} ${row.target}` });
}

paint();
headline();
comparison();
timeline();
programs();
misses();
notStored();
store();
history();
tuning();
if (!data.lanes.length) root.setAttribute("data-ready", String(Math.round(performance.now())));
