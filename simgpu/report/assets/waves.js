/* CTAs on the device over time: an area under the line of all slots. */
(function waves() {
  const root = $("#waves"), found = data("waves-data"), steps = found.steps;
  drawn(root, (width, height) => {
    const left = 52, right = 10, above = 16, below = 24, most = Math.max(found.slots, ...steps.map((s) => s[1]));
    const X = (t) => left + (t / found.cycles) * (width - left - right);
    const Y = (n) => above + (1 - n / most) * (height - above - below);
    const parts = [];
    const text = (x, y, words, anchor) => {
      const node = svg("text", { x, y, "text-anchor": anchor });
      node.textContent = words;
      parts.push(node);
    };
    let path = `M${X(steps[0][0])},${Y(0)}`;
    steps.forEach(([time, ctas], i) => {
      path += ` L${X(time)},${Y(i ? steps[i - 1][1] : 0)} L${X(time)},${Y(ctas)}`;
    });
    parts.push(svg("path", { d: path + "z", fill: color("blue"), opacity: 0.75 }));
    for (const [i, [time, ctas]] of steps.entries()) {
      const alike = i > 0 && steps[i - 1][1] === found.slots, wide = i > 0 && X(time) - X(steps[i - 1][0]) > 4;
      if (alike && wide && ctas)
        parts.push(svg("line", { x1: X(time), x2: X(time), y1: Y(ctas), y2: Y(0), stroke: color("card"), "stroke-width": 1 }));
    }
    parts.push(svg("line", { x1: left, x2: width - right, y1: Y(found.slots), y2: Y(found.slots), class: "axis", "stroke-dasharray": "4 3" }));
    parts.push(svg("line", { x1: left, x2: width - right, y1: Y(0), y2: Y(0), class: "axis" }));
    text(left - 6, Y(found.slots) + 4, found.slots.toLocaleString("en"), "end");
    text(left - 6, Y(0) + 4, "0", "end");
    const whole = found.cycles / found.clock_mhz, gap = step(whole, Math.max(2, (width - left) / 110));
    for (let t = 0; t <= whole; t += gap) text(X(t * found.clock_mhz), height - 6, `${Number(t.toPrecision(3))} µs`, t > whole - gap / 3 ? "end" : "middle");
    root.replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, ...parts));
  });
})();
