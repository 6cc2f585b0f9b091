/* One SM over time. Zoom by wheel, pinch or + and -, move by drag or arrows, choose by click or n and p. */
function timeline(root, found, options = {}) {
  const canvas = $("canvas", root), said = $(".said", root), context = canvas.getContext("2d");
  const first = found.start, last = found.cycles, whole = last - first;
  const kinds = {
    work: "green", contended: "yellow", wait_copy: "orange", wait_mma: "blue", wait_barrier: "purple",
    dispatch: "pink", copy: "teal", mma: "blue",
  };
  const hollow = new Set(["wait_copy", "wait_mma", "wait_barrier", "dispatch"]);
  const words = {
    work: "works", contended: "works, slowed by others", wait_copy: "waits for a copy", wait_mma: "waits for a product",
    wait_barrier: "waits for other warps", dispatch: "starts", copy: "copy in flight", mma: "product in flight",
  };
  const rows = found.rows.map(() => []);
  for (const span of found.spans) rows[span[0]].push(span);
  for (const row of rows) row.sort((a, b) => a[1] - b[1]);
  const units = options.units === false ? [] : found.units;
  const ROW = 24, UNIT = 34, HEAD = 26;
  let from = first, to = options.until ? Math.min(last, options.until) : last, chosen = null, left = 130;
  root.style.height = HEAD + rows.length * ROW + units.length * UNIT + 8 + "px";

  const view = (a, b) => {
    const span = Math.min(whole, Math.max(20, b - a));
    from = Math.min(Math.max(first, a), last - span);
    to = from + span;
    root.dataset.from = from;
    root.dataset.to = to;
    draw();
  };
  const zoom = (factor, at = (from + to) / 2) => view(at - (at - from) * factor, at + (to - at) * factor);
  const X = (t) => left + ((t - from) / (to - from)) * (canvas.clientWidth - left);
  const T = (x) => from + ((x - left) / (canvas.clientWidth - left)) * (to - from);

  function draw() {
    const width = canvas.clientWidth, height = canvas.clientHeight, scale = devicePixelRatio || 1;
    if (!width) return;
    left = width < 600 ? 74 : 130;
    canvas.width = width * scale;
    canvas.height = height * scale;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    const ink = color("ink"), dim = color("dim"), line = color("line"), card = color("card");
    context.font = (width < 600 ? "10px " : "12px ") + getComputedStyle(root).fontFamily;
    context.textBaseline = "middle";
    const gap = step(to - from, Math.max(2, (width - left) / 110));
    context.fillStyle = dim;
    context.strokeStyle = line;
    for (let t = Math.ceil((from - first) / gap) * gap + first; t <= to; t += gap) {
      const x = X(t);
      context.beginPath();
      context.moveTo(x, HEAD - 6);
      context.lineTo(x, height);
      context.stroke();
      context.textAlign = x > width - 30 ? "right" : "center";
      context.fillText(((t - first) / found.clock_mhz).toPrecision(3) * 1 + " µs", x, 9);
    }
    context.textAlign = "left";
    context.save();
    context.beginPath();
    context.rect(left, 0, width - left, height);
    context.clip();
    rows.forEach((row, number) => {
      const y = HEAD + number * ROW;
      for (const span of row) {
        if (span[2] < from || span[1] > to) continue;
        const x = X(span[1]), w = Math.max(0.6, X(span[2]) - x), fill = color(kinds[span[3]]);
        const flying = span.length > 6, pale = hollow.has(span[3]);
        context.globalAlpha = pale ? 0.28 : flying ? 0.35 : 1;
        context.fillStyle = fill;
        context.fillRect(x, y + 2, w, ROW - 5);
        context.globalAlpha = 1;
        if (flying) context.fillRect(X(span[6]), y + 2, Math.max(0.6, X(span[7]) - X(span[6])), ROW - 5);
        if (w > 46) {
          context.save();
          context.beginPath();
          context.rect(x, y, w - 4, ROW);
          context.clip();
          context.fillStyle = pale ? ink : card;
          context.fillText(found.texts[span[4]], Math.max(x, left) + 4, y + ROW / 2);
          context.restore();
        }
        if (span === chosen) {
          context.strokeStyle = ink;
          context.lineWidth = 2;
          context.strokeRect(x, y + 2, w, ROW - 5);
          context.lineWidth = 1;
        }
      }
    });
    units.forEach(([, steps], number) => {
      const y = HEAD + rows.length * ROW + (number + 1) * UNIT, high = UNIT - 10;
      context.fillStyle = color({ tensor: "blue", mufu: "purple", issue: "teal", smem: "green", l2: "yellow", hbm: "orange" }[units[number][0]]);
      steps.forEach(([time, value], i) => {
        const end = i + 1 < steps.length ? steps[i + 1][0] : last;
        if (end < from || time > to || !value) return;
        const x = X(time);
        context.fillRect(x, y - high * Math.min(1, value), Math.max(0.4, X(end) - x), high * Math.min(1, value));
      });
      context.fillStyle = line;
      context.fillRect(left, y, width, 1);
    });
    arrow(ink);
    context.restore();
    context.fillStyle = ink;
    found.rows.forEach((label, number) => {
      const text = width < 600 ? label.replace("CTA ", "").replace("consumer", "cons.").replace("producer", "prod.") : label;
      context.fillText(text, 0, HEAD + number * ROW + ROW / 2);
    });
    units.forEach(([name], number) => context.fillText(name, 0, HEAD + rows.length * ROW + (number + 1) * UNIT - 10));
  }

  /* What released the chosen wait. */
  function released(span) {
    return span && found.flows.find(([row, time]) => row === span[0] && Math.abs(time - span[2]) < 0.3);
  }
  function arrow(ink) {
    const flow = released(chosen);
    if (!flow || flow[2] == null || flow[2] === flow[0]) return;
    const x = X(flow[1]), a = HEAD + flow[2] * ROW + ROW / 2, b = HEAD + flow[0] * ROW + ROW / 2, up = Math.sign(a - b);
    context.strokeStyle = context.fillStyle = ink;
    context.beginPath();
    context.moveTo(x, a);
    context.lineTo(x, b);
    context.stroke();
    context.beginPath();
    context.moveTo(x, b);
    context.lineTo(x - 4, b + 8 * up);
    context.lineTo(x + 4, b + 8 * up);
    context.fill();
  }

  function choose(span) {
    chosen = span;
    if (span) {
      if (span[2] < from || span[1] > to) view(span[1] - (to - from) / 3, span[1] + ((to - from) * 2) / 3);
      const us = (t) => ((t - first) / found.clock_mhz).toFixed(3);
      const flow = released(span), by = flow && flow[2] != null ? `; released by ${found.rows[flow[2]]}` : "";
      said.textContent = `${found.rows[span[0]]} ${words[span[3]]}: ${found.texts[span[5]]}. ` +
        `${us(span[1])} to ${us(span[2])} µs, ${Math.round(span[2] - span[1])} cycles${by}.`;
    }
    draw();
  }
  const move = (by) => {
    const row = rows[chosen ? chosen[0] : 0];
    const now = chosen ? row.indexOf(chosen) + by : row.findIndex((s) => s[2] > from);
    choose(row[Math.min(Math.max(0, now), row.length - 1)]);
  };
  const jump = (by) => {
    const number = Math.min(Math.max(0, (chosen ? chosen[0] : 0) + by), rows.length - 1), at = chosen ? chosen[1] : from;
    choose(rows[number].find((s) => s[2] > at) || rows[number][rows[number].length - 1]);
  };
  const keys = {
    "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "0": () => view(first, last),
    ArrowLeft: () => view(from - (to - from) / 5, to - (to - from) / 5),
    ArrowRight: () => view(from + (to - from) / 5, to + (to - from) / 5),
    Home: () => view(first, first + to - from), End: () => view(last - to + from, last),
    ArrowDown: () => jump(1), ArrowUp: () => jump(-1), n: () => move(1), p: () => move(-1),
  };
  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  for (const button of $$("[data-key]", root.parentElement)) button.addEventListener("click", () => keys[button.dataset.key]());
  root.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = canvas.getBoundingClientRect();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const by = (event.deltaX / box.width) * (to - from);
      view(from + by, to + by);
    } else zoom(Math.exp(Math.sign(event.deltaY) * Math.min(0.5, Math.abs(event.deltaY) / 300)), T(event.clientX - box.left));
  }, { passive: false });

  /* One finger or the mouse moves, two fingers zoom. */
  const held = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    held.set(event.pointerId, event.clientX);
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!held.has(event.pointerId)) return;
    const before = [...held.values()];
    moved += Math.abs(event.clientX - held.get(event.pointerId));
    held.set(event.pointerId, event.clientX);
    const after = [...held.values()], perPixel = (to - from) / (canvas.clientWidth - left);
    if (after.length === 1) {
      const by = (before[0] - after[0]) * perPixel;
      view(from + by, to + by);
    } else {
      const wide = (x) => Math.max(8, Math.abs(x[0] - x[1]));
      zoom(wide(before) / wide(after), T((after[0] + after[1]) / 2 - canvas.getBoundingClientRect().left));
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    held.delete(event.pointerId);
    if (moved > 4) return;
    const box = canvas.getBoundingClientRect(), t = T(event.clientX - box.left);
    const row = rows[Math.floor((event.clientY - box.top - HEAD) / ROW)];
    const span = row && row.find((s) => s[1] <= t && t <= s[2]);
    if (span) choose(span);
  });
  canvas.addEventListener("pointercancel", (event) => held.delete(event.pointerId));
  drawn(root, () => view(from, to));
  return { view, range: () => [from, to], span: [first, last] };
}
