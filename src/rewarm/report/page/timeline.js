// The timeline: by rank, or program by program.

// -- the timeline -------------------------------------------------------------------------------------------------

async function unpack() {
  const text = document.getElementById("spans").textContent;
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const numbers = new Int32Array(await new Response(stream).arrayBuffer()); // little end first, as all that run browsers are
  let at = 0;
  const take = (length) => numbers.subarray(at, (at += length));
  return data.lanes.map(() => {
    const length = take(1)[0];
    const lane = { program: take(length), step: take(length), at: take(length), took: take(length) };
    for (let n = 1; n < length; n += 1) lane.at[n] += lane.at[n - 1];
    return lane;
  });
}

const TICK = 1e5; // of the packed times, in a second
const AHEAD = new Set(["ahead_read", "ahead_load"].map((name) => steps.indexOf(name)));

function timeline() {
  if (!data.lanes.length) return;
  const section = part("timeline", "Timeline", "What each process did when, in seconds after its start began. Drag to move, Ctrl and the wheel to zoom; the buttons do the same.");
  const view = make("select", { id: "timeline-view" });
  if (isJob) view.append(make("option", { value: "all" }, data.starts.length > 1 ? "all processes" : "all ranks"));
  data.lanes.forEach((lane, n) => view.append(make("option", { value: n }, `${laneName(lane)}, program by program`)));
  const bar = make("div", { class: "bar" }, make("label", { for: "timeline-view" }, "Show"), view);
  const chartBox = make("div", { class: "chart", id: "timeline-chart", role: "img", "aria-label": "Timeline; the table below has its sums" });
  const action = (name, words, act) => bar.append(make("button", { type: "button", "aria-label": words, onclick: act }, name));
  const legend = make("ul", { class: "legend", "aria-label": "Steps; press one to hide it" });
  section.append(bar, legend, chartBox);
  const hidden = new Set();
  let lanes = null;
  let rows = [];
  let chart = null;
  let pointer = [0, 0];
  let total = 1;

  const used = new Set();
  for (const program of data.programs) for (const name of Object.keys(program.seconds)) used.add(name);
  const swatches = steps.filter((name) => used.has(name)).map((name) => {
    const swatch = make("span", { class: "swatch", "aria-hidden": "true" });
    const button = make("button", { type: "button", "aria-pressed": "true", title: data.steps[name] }, swatch, name.replace("_", " "));
    button.addEventListener("click", () => {
      const index = steps.indexOf(name);
      if (!hidden.delete(index)) hidden.add(index);
      button.setAttribute("aria-pressed", String(!hidden.has(index)));
      draw();
    });
    legend.append(make("li", {}, button));
    return [swatch, name];
  });

  // A row for each lane, or for each program of one lane. `spans`: indices in the lane's columns.
  function rowsOf(choice) {
    if (choice === "all") return data.lanes.map((lane, n) => ({ name: laneName(lane), lane: lanes[n], spans: null }));
    const lane = lanes[Number(choice)];
    const found = new Map();
    for (let n = 0; n < lane.at.length; n += 1) {
      const program = lane.program[n];
      if (!found.has(program)) found.set(program, []);
      found.get(program).push(n);
    }
    return [...found].map(([program, spans]) => ({ name: data.programs[program].program, lane, spans }));
  }

  // Of a lane of many steps: for each pixel the step that took most of it. Steps ahead are drawn below the others.
  function binned(row, from, until, width) {
    const bins = Math.max(1, Math.min(width, rows.length > 16 ? 400 : 1200));
    const each = (until - from) / bins;
    const sums = [new Float64Array(bins * steps.length), new Float64Array(bins * steps.length)];
    const { at, took, step } = row.lane;
    for (let n = 0; n < at.length; n += 1) {
      const [first, last] = [at[n], at[n] + took[n]];
      if (first > until) break;
      if (last < from || hidden.has(step[n])) continue;
      const part = sums[AHEAD.has(step[n]) ? 1 : 0];
      const a = Math.max(0, (first - from) / each);
      const b = Math.min(bins, (last - from) / each);
      for (let bin = Math.floor(a); bin < b; bin += 1)
        part[bin * steps.length + step[n]] += Math.min(b, bin + 1) - Math.max(a, bin);
    }
    const found = [];
    sums.forEach((part, ahead) => {
      let before = null;
      for (let bin = 0; bin < bins; bin += 1) {
        let most = -1;
        let best = 0.004;
        for (let s = 0; s < steps.length; s += 1)
          if (part[bin * steps.length + s] > best) { best = part[bin * steps.length + s]; most = s; }
        if (most < 0) { before = null; continue; }
        const heavy = best > 0.5 ? 1 : best > 0.1 ? 0.7 : 0.45;
        if (before && before.step === most && before.heavy === heavy) before.until = from + (bin + 1) * each;
        else { before = { step: most, from: from + bin * each, until: from + (bin + 1) * each, ahead, heavy }; found.push(before); }
      }
    });
    return found;
  }

  function exact(row, from, until) {
    const found = [];
    for (const n of row.spans || row.lane.at.keys()) {
      const [first, last, step] = [row.lane.at[n], row.lane.at[n] + row.lane.took[n], row.lane.step[n]];
      if (last >= from && first <= until && !hidden.has(step))
        found.push({ step, from: Math.max(first, from), until: Math.min(last, until), ahead: AHEAD.has(step) ? 1 : 0, heavy: 1 });
    }
    return found;
  }

  function rectangles(parameters, api) {
    const index = parameters.dataIndex;
    const row = rows[index];
    const box = parameters.coordSys;
    const from = chart.range[0] * TICK;
    const until = chart.range[1] * TICK;
    const few = (row.spans || row.lane.at).length < 400;
    const scale = box.width / (until - from || 1);
    const height = Math.max(2, Math.min(22, api.size([0, 1])[1] * 0.8));
    const middle = api.coord([0, index])[1];
    // All rectangles of one look are one path: a row has thousands of them, and the library pays for each element.
    const paths = new Map();
    for (const one of few ? exact(row, from, until) : binned(row, from, until, Math.round(box.width))) {
      const look = `${one.step} ${one.heavy}`;
      const x = (box.x + (one.from - from) * scale).toFixed(1);
      const y = (middle - height / 2 + (one.ahead ? height * 0.7 : 0)).toFixed(1);
      const wide = Math.max(1, (one.until - one.from) * scale).toFixed(1);
      const high = (height * (one.ahead ? 0.3 : 0.68)).toFixed(1);
      const drawn = `M${x} ${y}h${wide}v${high}h-${wide}z`;
      if (paths.has(look)) paths.get(look).drawn.push(drawn);
      else paths.set(look, { one, drawn: [drawn] });
    }
    const children = [...paths.values()].map(({ one, drawn }) => ({
      type: "path", silent: true, shape: { pathData: drawn.join("") }, style: { fill: colour(steps[one.step]), opacity: one.heavy },
    }));
    // So that the whole row answers to the pointer.
    children.unshift({ type: "rect", shape: { x: box.x, y: middle - height / 2, width: box.width, height }, style: { fill: "transparent" } });
    return { type: "group", children };
  }

  function told(parameters) {
    const row = rows[parameters.dataIndex];
    const when = chart.convertFromPixel({ xAxisIndex: 0 }, pointer[0]) * TICK;
    const slack = ((chart.range[1] - chart.range[0]) * TICK) / Math.max(100, chart.getWidth()) * 2;
    const lines = [clip(row.name, 80)];
    const near = [];
    for (const n of row.spans || row.lane.at.keys()) {
      const first = row.lane.at[n];
      if (first - slack > when && !row.spans) break;
      if (first - slack <= when && first + row.lane.took[n] + slack >= when && !hidden.has(row.lane.step[n])) near.push(n);
    }
    for (const n of near.slice(0, 8)) {
      const name = row.spans ? "" : ` ${clip(data.programs[row.lane.program[n]].program, 60)}`;
      lines.push(`${steps[row.lane.step[n]].replace("_", " ")}${name}: ${seconds(row.lane.took[n] / TICK)} at ${seconds(row.lane.at[n] / TICK)}`);
    }
    if (near.length > 8) lines.push(`and ${near.length - 8} more here; zoom in`);
    if (!near.length) lines.push("nothing here");
    return lines.join("\n");
  }

  function choose() {
    rows = rowsOf(view.value);
    total = 1e-5;
    for (const row of rows)
      for (const n of row.spans || row.lane.at.keys()) total = Math.max(total, (row.lane.at[n] + row.lane.took[n]) / TICK);
    const most = rows.length > 40 && view.value !== "all" ? 40 : rows.length;
    const height = Math.min(900, Math.max(110, most * (view.value === "all" ? 20 : 22))) + 90;
    chartBox.style.height = `${height}px`;
    if (!chart) {
      chart = echarts.init(chartBox, null, { renderer: "canvas" });
      chart.on("datazoom", () => zoomed());
      chart.getZr().on("mousemove", (event) => { pointer = [event.offsetX, event.offsetY]; });
    } else chart.resize();
    chart.range = [0, total];
    chart.scrolls = most < rows.length;
    chart.most = most;
    draw(true);
  }

  function zooms(fresh) {
    const rowsShown = fresh ? { startValue: 0, endValue: chart.most - 1 } : {};
    const line = { borderColor: css("--line"), textStyle: { color: css("--soft") } };
    const found = [
      { id: "x", type: "slider", xAxisIndex: 0, filterMode: "none", bottom: 8, height: 22, showDataShadow: false, labelFormatter: (value) => seconds(value), ...line },
      { id: "in", type: "inside", xAxisIndex: 0, filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false },
    ];
    if (chart.scrolls) {
      found.push({ id: "y", type: "slider", yAxisIndex: 0, filterMode: "empty", ...rowsShown, right: 6, width: 14, showDetail: false, showDataShadow: false, zoomLock: true, brushSelect: false, ...line });
      found.push({ id: "yin", type: "inside", yAxisIndex: 0, filterMode: "empty", ...rowsShown, zoomOnMouseWheel: false, moveOnMouseMove: false, moveOnMouseWheel: "shift", zoomLock: true });
    }
    return found;
  }

  function draw(fresh) {
    if (!chart) return;
    for (const [swatch, name] of swatches) swatch.style.background = colour(name);
    const text = css("--text");
    chart.setOption({
      animation: false,
      aria: { enabled: false },
      textStyle: { fontFamily: "system-ui, sans-serif" },
      grid: { left: 8, right: 30, top: 8, bottom: 44, containLabel: true, outerBoundsMode: "same", outerBoundsContain: "axisLabel" },
      tooltip: { renderMode: "richText", trigger: "item", formatter: told, backgroundColor: css("--panel"), borderColor: css("--line"), textStyle: { color: text, fontSize: 12 }, transitionDuration: 0, confine: true },
      xAxis: { type: "value", min: 0, max: total, axisLabel: { color: css("--soft"), formatter: (value) => seconds(value), hideOverlap: true }, splitLine: { lineStyle: { color: css("--line") } }, axisLine: { lineStyle: { color: css("--line") } } },
      yAxis: { type: "category", inverse: true, data: rows.map((row) => row.name), axisLabel: { color: text, width: 200, overflow: "truncate", interval: rows.length > 48 && view.value === "all" ? "auto" : 0 }, axisTick: { show: false }, axisLine: { lineStyle: { color: css("--line") } } },
      series: [{ type: "custom", renderItem: rectangles, data: rows.map((row, n) => [0, n, total]), encode: { x: [0, 2], y: 1 }, clip: true, progressive: 0 }],
      dataZoom: zooms(fresh),
    }, fresh ? { replaceMerge: ["dataZoom"] } : undefined);
  }

  function zoomed() {
    const option = chart.getOption().dataZoom.find((one) => one.id === "x") || chart.getOption().dataZoom[0];
    chart.range = [(option.start / 100) * total, (option.end / 100) * total];
    chart.setOption({ series: [{ data: rows.map((row, n) => [0, n, total]) }] });
  }

  function move(scale, shift) {
    const [from, until] = chart.range;
    const width = Math.min(total, (until - from) * scale);
    const middle = (from + until) / 2 + shift * (until - from);
    const first = Math.max(0, Math.min(total - width, middle - width / 2));
    chart.dispatchAction({ type: "dataZoom", dataZoomIndex: 0, start: (100 * first) / total, end: (100 * (first + width)) / total });
  }
  action("+", "Zoom in", () => move(0.5, 0));
  action("−", "Zoom out", () => move(2, 0));
  action("←", "Earlier", () => move(1, -0.5));
  action("→", "Later", () => move(1, 0.5));
  action("All", "Show all of it", () => move(1e9, 0));

  const rowsOfTable = data.lanes.map((lane, n) => ({ name: laneName(lane), lane, n }));
  const alternative = make("details", {}, make("summary", {}, "The timeline as a table"));
  section.append(alternative);

  unpack().then((found) => {
    lanes = found;
    view.addEventListener("change", choose);
    choose();
    redraws.push(() => draw(false));
    resized(chart, chartBox);
    const sums = lanes.map((lane) => {
      const found = new Float64Array(steps.length);
      for (let n = 0; n < lane.at.length; n += 1) found[lane.step[n]] += lane.took[n] / TICK;
      return found;
    });
    table(alternative, "timeline-table", "Seconds by step", [
      { name: isJob ? "Rank" : "Process", of: (row) => row.n, show: (row) => row.name },
      { name: "Begins", of: (row) => row.lane.began, show: (row) => seconds(row.lane.began), number: true },
      { name: "Ends", of: (row) => row.lane.began + row.lane.seconds, show: (row) => seconds(row.lane.began + row.lane.seconds), number: true },
      ...steps.filter((name) => used.has(name)).map((name) => {
        const index = steps.indexOf(name);
        return { name: name.replace("_", " "), of: (row) => sums[row.n][index], show: (row) => seconds(sums[row.n][index]), number: true };
      }),
    ], rowsOfTable, { page: 16 });
    root.setAttribute("data-ready", String(Math.round(performance.now())));
  }).catch((error) => {
    chartBox.replaceWith(make("p", { class: "note" }, `The timeline cannot be drawn by this browser: ${error.message}`));
    root.setAttribute("data-ready", String(Math.round(performance.now())));
  });
}
