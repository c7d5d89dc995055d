"use strict";
(() => {
  const known = JSON.parse(document.getElementById("known").textContent);
  const { words, edges, near, D, topics, profile, admissions } = known;
  const at = (id) => document.getElementById(id);
  const colours = { disease: "#0072b2", procedure: "#d55e00", word: "#0072b2" };
  const symbols = { disease: "circle", procedure: "square", word: "circle" };
  const all = words.map((_, n) => n);
  const short = (text, size) => (text.length <= size ? text : text.slice(0, size - 1) + "…");
  const label = (n) => `${words[n].code} · ${words[n].name}`;
  const plain = { displayModeBar: false, responsive: true };
  const axes = { visible: false, fixedrange: false };
  const bare = { margin: { l: 8, r: 8, t: 8, b: 8 }, xaxis: axes, yaxis: axes, showlegend: false, hovermode: "closest", font: { size: 12 } };

  function dots(some, size, opacity) {
    return {
      type: "scatter", mode: "markers", x: some.map((n) => words[n].x), y: some.map((n) => words[n].y),
      customdata: some, text: some.map(label), hovertemplate: "%{text}<extra></extra>",
      marker: { size, opacity, color: some.map((n) => colours[words[n].kind]), symbol: some.map((n) => symbols[words[n].kind]), line: { color: "white", width: 1 } },
    };
  }

  function lines(pairs, colour, width) {
    const path = (axis) => pairs.flatMap(([a, b]) => [words[a][axis], words[b][axis], null]);
    return { type: "scatter", mode: "lines", x: path("x"), y: path("y"), hoverinfo: "skip", line: { color: colour, width } };
  }

  // Places for names beside dots: the first of eight where no name is yet.
  function names(some, width, height) {
    const taken = some.map((n) => ({ x: words[n].x * width, y: -words[n].y * height, half: 4 }));
    const sides = [[1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [-1, 1], [1, -1], [-1, -1]];
    return some.map((n) => {
      const text = short(words[n].name, 26), half = text.length * 3.3;
      const place = (reach) => sides.map(([dx, dy]) => ({ dx: dx * (half + 10) * (dy ? 0.6 : 1), dy: -dy * 14 * reach - (dx ? 0 : dy * 3) }));
      const box = (p) => ({ x: words[n].x * width + p.dx, y: -words[n].y * height + p.dy, half });
      const free = (p) => taken.every((t) => Math.abs(t.x - box(p).x) > t.half + half || Math.abs(t.y - box(p).y) > 15);
      const inside = (p) => { const b = box(p); return b.x - half > -20 && b.x + half < width + 20; };
      const options = [1, 2, 3].flatMap(place);
      const best = options.find((p) => free(p) && inside(p)) || options.find(free) || options[0];
      taken.push(box(best));
      return { x: words[n].x, y: words[n].y, ax: best.dx, ay: best.dy, text, showarrow: true, arrowhead: 0, arrowwidth: 0.7, arrowcolor: "#7a828c", standoff: 4, bgcolor: "rgba(255,255,255,.75)", borderpad: 1, font: { size: 11.5, color: colours[words[n].kind] } };
    });
  }

  function bar(kind, width, text, value, click) {
    const made = document.createElement("button");
    made.className = `bar ${kind}`;
    for (const name of ["fill", "text", "value"]) made.append(Object.assign(document.createElement("span"), { className: name }));
    made.children[0].style.width = `${width}%`;
    made.children[1].textContent = text;
    made.children[2].textContent = value;
    made.title = text;
    if (click) made.addEventListener("click", click);
    return made;
  }

  // Search, map, neighbours, topics of a code.
  function choose(n) {
    const close = near[n].slice(0, 8), shown = [n, ...close.slice(0, 6)];
    const box = at("map").getBoundingClientRect();
    const ring = { ...dots([n], 17, 1), hoverinfo: "skip" };
    ring.marker = { size: 21, color: "rgba(0,0,0,0)", line: { color: "#111", width: 2 } };
    Plotly.react("map", [lines(edges, "#dde1e6", 0.8), lines(close.map((m) => [n, m]), "#7a828c", 1.6), dots(all, 9, 0.45), dots([n, ...close], 12, 1), ring],
      { ...bare, annotations: names(shown, box.width - 40, box.height - 40), xaxis: { ...axes, range: [-0.04, 1.04] }, yaxis: { ...axes, range: [-0.04, 1.04] } }, plain);
    at("chosen-name").textContent = label(n);
    at("search").value = words[n].code;
    const far = D[n][close[close.length - 1]];
    at("nearest").replaceChildren(...close.map((m) => bar(words[m].kind, (100 * D[n][m]) / far, label(m), (D[n][m] / 1000).toFixed(2), () => choose(m))));
    const order = topics.map((_, k) => k).sort((a, b) => profile[n][b] - profile[n][a]).slice(0, 4);
    at("chosen-topics").replaceChildren(...order.map((k) => {
      const first = topics[k].words.slice(0, 3).map(([m]) => words[m].name).join(", ");
      return bar("disease", 100 * profile[n][k], `${k + 1}: ${first}`, `${Math.round(100 * profile[n][k])} %`, null);
    }));
  }

  function find(text) {
    const wanted = text.trim().toLowerCase();
    if (!wanted) return -1;
    const exact = all.findIndex((n) => [words[n].code, label(n)].some((t) => t.toLowerCase() === wanted));
    return exact >= 0 ? exact : words.findIndex((w) => `${w.code} ${w.name}`.toLowerCase().includes(wanted));
  }

  function search() {
    const n = find(at("search").value), typed = at("search").value;
    at("search-status").textContent = n < 0 ? (typed ? "no such code" : "") : "";
    if (n >= 0) { choose(n); at("search").value = typed; }
  }

  // Equal masses on both sides; Sinkhorn in logs, with epsilon lowered until it is nearly exact.
  function plan(a, b) {
    const cost = a.map((i) => b.map((j) => D[i][j] / 1000));
    const la = -Math.log(a.length), lb = -Math.log(b.length);
    const lse = (list) => { const top = Math.max(...list); return top + Math.log(list.reduce((s, v) => s + Math.exp(v - top), 0)); };
    let f = a.map(() => 0), g = b.map(() => 0), eps = 0.3;
    for (; ; eps /= 3) {
      for (let step = 0; step < 200; step++) {
        f = f.map((_, i) => eps * (la - lse(g.map((v, j) => (v - cost[i][j]) / eps))));
        g = g.map((_, j) => eps * (lb - lse(f.map((v, i) => (v - cost[i][j]) / eps))));
      }
      if (eps < 0.002) break;
    }
    const T = f.map((u, i) => g.map((v, j) => Math.exp((u + v - cost[i][j]) / eps)));
    return { T, cost: T.reduce((s, row, i) => s + row.reduce((r, t, j) => r + t * cost[i][j], 0), 0) };
  }

  const ticked = { a: new Set(), b: new Set() };

  function drawPlan() {
    const [a, b] = ["a", "b"].map((side) => [...ticked[side]].sort((x, y) => x - y));
    if (!a.length || !b.length) {
      at("plan-status").textContent = "Tick at least one code on each side.";
      for (const id of ["plan", "arrows"]) Plotly.purge(id);
      return;
    }
    const { T, cost } = plan(a, b);
    at("plan-status").textContent = `Transport costs ${cost.toFixed(3)} of the mean distance between codes.`;
    const text = T.map((row) => row.map((t) => (t >= 0.005 ? `${Math.round(100 * t)} %` : "")));
    Plotly.react("plan", [{ type: "heatmap", z: T, x: b.map((n) => short(label(n), 30)), y: a.map((n) => short(label(n), 30)), text, texttemplate: "%{text}", colorscale: [[0, "#f4f8fc"], [1, "#0b5fa5"]], showscale: false, xgap: 2, ygap: 2, hovertemplate: "%{y} → %{x}: %{z:.3f}<extra></extra>" }],
      { margin: { l: 10, r: 10, t: 10, b: 10 }, font: { size: 11 }, xaxis: { automargin: true, tickangle: -38 }, yaxis: { automargin: true, autorange: "reversed" } }, plain);
    const both = [...new Set([...a, ...b])], box = at("arrows").getBoundingClientRect();
    const moves = [];
    T.forEach((row, i) => row.forEach((t, j) => {
      if (t >= 0.01 && a[i] !== b[j]) moves.push({ x: words[b[j]].x, y: words[b[j]].y, ax: words[a[i]].x, ay: words[a[i]].y, axref: "x", ayref: "y", showarrow: true, arrowhead: 3, arrowsize: 0.8, arrowwidth: 0.8 + 14 * t, arrowcolor: "#6b7480", opacity: 0.6, standoff: 6, startstandoff: 6, text: "" });
    }));
    Plotly.react("arrows", [dots(all, 6, 0.18), dots(both, 12, 1)],
      { ...bare, annotations: [...moves, ...names(both, box.width - 40, box.height - 40)], xaxis: { ...axes, range: [-0.06, 1.06] }, yaxis: { ...axes, range: [-0.04, 1.04] } }, plain);
  }

  function side(name, start) {
    const pick = at(`pick-${name}`), list = at(`ticks-${name}`), filter = at(`filter-${name}`);
    pick.add(new Option("made by ticking", "-1"));
    admissions.forEach((one, i) => pick.add(new Option(one.name, String(i))));
    const boxes = all.map((n) => {
      const row = document.createElement("label"), box = Object.assign(document.createElement("input"), { type: "checkbox", value: String(n) });
      row.append(box, ` ${label(n)}`);
      row.title = words[n].name;
      box.addEventListener("change", () => {
        if (box.checked) ticked[name].add(n); else ticked[name].delete(n);
        pick.value = "-1";
        drawPlan();
      });
      list.append(row);
      return box;
    });
    const take = (i) => {
      ticked[name] = new Set(i < 0 ? ticked[name] : admissions[i].words);
      boxes.forEach((box, n) => { box.checked = ticked[name].has(n); });
      const rows = boxes.map((box) => box.parentElement);
      list.append(...rows.filter((_, n) => ticked[name].has(n)), ...rows.filter((_, n) => !ticked[name].has(n)));
      list.scrollTop = 0;
    };
    pick.addEventListener("change", () => { take(Number(pick.value)); drawPlan(); });
    filter.addEventListener("input", () => {
      const wanted = filter.value.trim().toLowerCase();
      boxes.forEach((box, n) => { box.parentElement.hidden = !label(n).toLowerCase().includes(wanted); });
    });
    if (start < admissions.length) { pick.value = String(start); take(start); }
  }

  at("codes").append(...all.map((n) => new Option(label(n), words[n].code)));
  at("search").addEventListener("input", search);
  document.querySelectorAll(".topic .bar").forEach((button) => button.addEventListener("click", () => {
    choose(words.findIndex((w) => w.code === button.dataset.code));
    at("explorer").scrollIntoView();
  }));
  const first = near.map((row, n) => D[n][row[3]]);
  choose(first.indexOf(Math.min(...first)));
  at("map").on("plotly_click", (event) => {
    const n = event.points[0].customdata;
    if (Number.isInteger(n)) choose(n);
  });
  side("a", 0);
  side("b", 1);
  drawPlan();
})();
