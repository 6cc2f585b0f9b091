/* The roofline: log–log, a slope for each level, a flat roof at the tensor peak. */
(function roofline() {
  const root = $("#roofline"), found = data("roofline-data");
  const roofs = found.roofs_tb_per_s, peak = found.peak_tflops, points = found.points;
  const all = points.flatMap((p) => Object.values(p.intensity));
  const ridges = Object.values(roofs).map((r) => peak / r);
  const low = Math.min(...all, ...ridges) / 2.5, high = Math.max(...all, ...ridges) * 2.5;
  const bottom = Math.min(...points.map((p) => p.tflops), peak / 20) / 2, top = peak * 1.9;

  drawn(root, (width, height) => {
    const left = 46, right = 12, above = 10, below = 40;
    const X = (v) => left + (Math.log(v / low) / Math.log(high / low)) * (width - left - right);
    const Y = (v) => above + (Math.log(top / v) / Math.log(top / bottom)) * (height - above - below);
    const parts = [];
    const text = (x, y, words, more = {}) => {
      const node = svg("text", { x, y, ...more });
      node.textContent = words;
      parts.push(node);
    };
    const line = (x1, y1, x2, y2, kind) => parts.push(svg("line", { x1, y1, x2, y2, class: kind }));
    for (let e = Math.ceil(Math.log10(low)); 10 ** e <= high; e++) {
      line(X(10 ** e), above, X(10 ** e), height - below, "grid");
      text(X(10 ** e), height - below + 16, short(10 ** e), { "text-anchor": "middle" });
    }
    for (let e = Math.ceil(Math.log10(bottom)); 10 ** e <= top; e++) {
      line(left, Y(10 ** e), width - right, Y(10 ** e), "grid");
      text(left - 6, Y(10 ** e) + 4, short(10 ** e), { "text-anchor": "end" });
    }
    text((left + width) / 2, height - 6, "useful FLOP for each byte of the level", { "text-anchor": "middle" });
    text(left + 4, above + 10, "TFLOP/s");

    for (const [level, rate] of Object.entries(roofs)) {
      const start = Math.max(low, bottom / rate);
      parts.push(svg("path", {
        class: "roof " + level,
        d: `M${X(start)},${Y(start * rate)} L${X(peak / rate)},${Y(peak)} L${X(high)},${Y(peak)}`,
      }));
    }
    text(width - right - 4, Y(peak) - 7, `tensor cores: ${short(peak)} TFLOP/s`, { "text-anchor": "end", class: "strong halo" });
    label(roofs, "hbm", 0.42);
    label(roofs, "l2", 0.3);
    label(roofs, "smem", 0.55, -8);

    /* Along its slope, so that it is clear whose it is. */
    function label(rates, level, share, lift = 14) {
      const rate = rates[level], start = Math.max(low, bottom / rate);
      const v = start * (peak / rate / start) ** share;
      const dx = X(v * 1.1) - X(v), dy = Y(v * 1.1 * rate) - Y(v * rate);
      const angle = (Math.atan2(dy, dx) * 180) / Math.PI;
      text(0, 0, `${found.levels[level]} ${short(rate)} TB/s`, {
        transform: `translate(${X(v)},${Y(v * rate)}) rotate(${angle}) translate(0,${lift})`,
        class: "halo", "text-anchor": "middle",
      });
    }

    for (const p of points) {
      const y = Y(p.tflops), xs = Object.values(p.intensity).map(X);
      const fill = color({ standard: "gray", fa1: "orange", fa2: "blue", fa3: "green" }[p.name] || "purple");
      parts.push(svg("line", { x1: Math.min(...xs), x2: Math.max(...xs), y1: y, y2: y, stroke: fill, "stroke-width": 1.5, opacity: 0.5 }));
      for (const [level, value] of Object.entries(p.intensity)) {
        const x = X(value);
        const node = level === "hbm" ? svg("circle", { cx: x, cy: y, r: 5.5, fill })
          : level === "l2" ? svg("rect", { x: x - 5, y: y - 5, width: 10, height: 10, fill })
            : svg("path", { d: `M${x},${y - 6} l6,11 h-12z`, fill });
        const title = svg("title");
        title.textContent = `${p.name}, ${found.levels[level]}: ${short(value)} FLOP a byte, ${(100 * p.use[level]).toFixed(1)} % used`;
        node.append(title);
        parts.push(node);
      }
    }
    /* Names at the right end of each line; of two that are close, the lower goes below its line. */
    let last = -Infinity;
    for (const p of [...points].sort((a, b) => b.tflops - a.tflops)) {
      const x = Math.max(...Object.values(p.intensity).map(X)), y = Y(p.tflops);
      const far = x > width - 120, near = y - last < 22;
      last = y;
      const node = svg("text", {
        x: far ? x + 6 : x + 10, y: far ? (near ? y + 19 : y - 10) : near ? y + 13 : y + 4,
        class: "strong halo", "text-anchor": far ? "end" : "start",
      });
      node.textContent = `${p.name} ${short(p.tflops)}`;
      parts.push(node);
    }
    root.replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, ...parts));
  });
})();
