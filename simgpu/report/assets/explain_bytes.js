/** Bars: label, bytes and a colour each. */
function byteBars(root, rows) {
  const most = Math.max(...rows.map((row) => row[1] || 0));
  const body = make("tbody");
  for (const [label, size, kind, note] of rows) {
    const bar = make("i", { class: kind, style: `width:${(100 * (size || 0)) / most}%` });
    body.append(make("tr", {}, make("th", { scope: "row" }, label),
      make("td", {}, make("div", { class: "track" }, bar), make("span", {}, note || bytes(size)))));
  }
  root.replaceChildren(make("table", { class: "bars" }, body));
}

(function traffic() {
  const found = data("traffic-data"), axes = found.axes, names = ["n", "d", "tile", "gpu"];
  const inputs = names.map((name) => $("#s-" + name));
  inputs.forEach((input, i) => {
    input.min = 0;
    input.max = axes[names[i]].length - 1;
    input.value = i === 0 ? axes.n.length - 1 : i === 1 ? axes.d.length - 1 : Math.min(1, axes[names[i]].length - 1);
    input.addEventListener("input", show);
  });
  function show() {
    const chosen = Object.fromEntries(names.map((name, i) => [name, axes[name][inputs[i].value]]));
    inputs.forEach((input, i) => {
      input.nextElementSibling.textContent = chosen[names[i]];
      input.setAttribute("aria-valuetext", chosen[names[i]]);
    });
    const point = found.points[`${chosen.gpu}/${chosen.n}/${chosen.d}/${chosen.tile}`];
    const rows = [["Q, K, V and O once", point.least, "c-Q"]];
    for (const name of ["standard", "fa1", "fa2"]) {
      const it = point[name];
      rows.push([`${name}: HBM`, it.hbm, "c-hbm", it.refused], [`${name}: asked for by CTAs`, it.asked, "c-l2", it.refused]);
    }
    byteBars($("#bytes"), rows);
    const times = (name) => (point[name].hbm ? `${(point[name].hbm / point.least).toFixed(1)} ×` : "–");
    $("#bytes-said").textContent = `Through HBM go ${times("standard")} the bytes of Q, K, V and O in standard attention, ` +
      `${times("fa1")} in FA1, ${times("fa2")} in FA2; S alone has ${bytes(point.scores)}. What CTAs ask for and HBM does not move, L2 holds.`;
  }
  show();
})();

(function partitions() {
  const found = data("exchange-data").partitions, rows = [];
  for (const [name, sizes] of Object.entries(found).sort()) {
    for (const what of ["between warps", "operands of products", "filled by copies"])
      rows.push([`${name}: ${what}`, sizes[what], { "between warps": "c-hbm", "operands of products": "c-smem" }[what] || "c-fma"]);
    rows.push([`${name}: barriers`, 0, "c-Q", `${sizes.barriers.toLocaleString("en")} arrivals and waits`]);
  }
  byteBars($("#partitions"), rows);
})();

(function orders() {
  const found = data("orders-data"), slider = $("#s-order"), root = $("#orders");
  const boards = Object.entries(found).map(([name, { tiles, visits, least }]) => {
    const cells = Array.from({ length: tiles * tiles }, () => make("i"));
    const said = make("p", { class: "dim", id: `said-${name}` });
    root.append(make("div", {}, make("h3", {}, name), make("div", { class: "meet", style: `grid-template-columns:repeat(${tiles},1fr)`, "aria-hidden": "true" }, ...cells), said));
    return { name, tiles, visits, least, cells, said };
  });
  slider.max = Math.max(...boards.map((b) => b.visits.length));
  function show() {
    const at = Number(slider.value);
    $("#order-count").textContent = `${at} of ${slider.max}`;
    for (const board of boards) {
      board.cells.forEach((cell) => {
        cell.className = "";
        cell.textContent = "";
      });
      let read = 0, written = 0;
      board.visits.slice(0, at).forEach(([cta, q, kv, r, w], i) => {
        const cell = board.cells[q * board.tiles + kv];
        cell.className = `done c${cta % 4}${i === at - 1 ? " now" : ""}`;
        cell.textContent = i + 1;
        read += r;
        written += w;
      });
      board.said.textContent = `read ${bytes(read)}, written ${bytes(written)}: ${((read + written) / board.least).toFixed(2)} × Q, K, V and O`;
    }
  }
  let timer = null;
  $("#play-order").addEventListener("click", () => {
    clearInterval(timer);
    slider.value = 0;
    timer = setInterval(() => {
      slider.value = Number(slider.value) + 1;
      show();
      if (slider.value === slider.max) clearInterval(timer);
    }, 450);
  });
  slider.addEventListener("input", show);
  slider.value = slider.max;
  show();
})();
