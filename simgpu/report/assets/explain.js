/* The stepper: one row of Q through FlashAttention-2, an operation at a time. */
(function stepper() {
  const found = data("recurrence-data"), moments = found.moments, root = $("#steps"), slider = $("#moment");
  const tiles = found.length / found.block;
  const words = {
    load: "A copy brings a tile into shared memory", init: "Nothing seen yet: m = −∞, ℓ = 0, o = 0",
    scores: "The tensor cores multiply Q by a K tile: scores of this tile only",
    maximum: "The row maximum rises, or stays",
    softmax: "Exponentials under the new maximum; what was summed under the old one is multiplied by α",
    products: "P times the V tile is added to o; o/ℓ is attention over the keys seen so far",
    normalize: "o is divided by ℓ once, at the end; ℓ becomes the log-sum-exp",
  };
  const text = (value) => (value == null ? "–" : String(value));
  $("#strip").append(...Array.from({ length: tiles }, (_, i) => make("i", {}, String(i))));
  const ends = moments.filter((m) => m.kind === "products");
  ends.forEach((m, i) => {
    const alpha = moments.find((x) => x.kind === "softmax" && x.tile === i).alpha;
    $("#history").append(make("tr", {}, make("th", { scope: "row" }, String(i)),
      ...[m.m, alpha, m.l, m.error.toPrecision(3)].map((v) => make("td", { class: "n" }, text(v)))));
  });

  /* Columns from a middle line; `high` is the greatest value that fits. */
  function columns(root, lists, high) {
    root.replaceChildren(make("hr"), ...lists[0].map((_, i) => make("div", {}, ...lists.map((list, n) => {
      const v = list[i], size = v == null ? 0 : Math.min(50, (Math.abs(v) / high) * 50);
      return make("i", { class: n ? "exact" : "", style: `height:${size}%;${v < 0 ? "top:50%" : "bottom:50%"}`, title: text(v) });
    }))));
  }
  const kept = moments.map((m, i) => ({ ...m, alpha: latest(i) }));
  function latest(i) {
    for (; i >= 0; i--) if (moments[i].kind === "softmax") return moments[i].alpha;
    return null;
  }

  function show(number) {
    const at = Math.min(Math.max(0, number), moments.length - 1), now = kept[at], before = kept[at - 1] || {};
    slider.value = at;
    $("#count").textContent = `${at + 1} of ${moments.length}`;
    const tile = now.tile < 0 ? "" : `Tile ${now.tile}. `;
    $("#doing").textContent = `${tile}${words[now.kind] || now.kind}: ${now.op}`;
    $$("#strip i").forEach((node, i) => {
      node.className = i < now.tile || (i === now.tile && ["products", "normalize"].includes(now.kind)) ? "done" : "";
      if (i === now.tile && now.kind !== "normalize") node.classList.add("now");
    });
    for (const name of ["m", "m_new", "alpha", "l"]) {
      const empty = name === "alpha" ? "–" : name === "l" ? "–" : "−∞";
      $(`#v-${name}`).textContent = now[name] == null ? empty : now[name];
      $(`#v-${name}`).parentElement.classList.toggle("changed", at > 0 && now[name] !== before[name]);
    }
    $("#sram").replaceChildren(...Object.entries(now.sram).map(([slot, tile]) =>
      make("span", { class: tile ? "" : "free" }, slot, make("b", {}, tile || "free"))));
    const after = ["softmax", "products"].includes(now.kind);
    $("#s-name").textContent = after ? "(now exponentials)" : "";
    columns($("#scores"), [after ? now.p : now.s], after ? 1 : 4);
    const high = Math.max(...found.exact.map(Math.abs), ...now.out.map((v) => Math.abs(v || 0)), 0.05);
    const done = ["products", "normalize"].includes(now.kind);
    columns($("#output"), [done ? now.out : now.out.map(() => null), found.exact], high);
    $("#error").textContent = done ? `distance ${now.error.toPrecision(2)}` : "";
    const whole = done ? now.tile : now.tile - 1;
    $$("#history tr").forEach((row, i) => {
      row.className = i === whole ? "now" : i < whole ? "" : "later";
    });
    root.dataset.at = at;
  }
  const at = () => Number(slider.value);
  const nextTile = () => show(moments.findIndex((m, i) => i > at() && m.kind === "products") > 0
    ? moments.findIndex((m, i) => i > at() && m.kind === "products") : moments.length - 1);
  root.addEventListener("keydown", (event) => {
    const keys = { ArrowLeft: at() - 1, ArrowRight: at() + 1, Home: 0, End: moments.length - 1 };
    if (!(event.key in keys)) return;
    event.preventDefault();
    show(keys[event.key]);
  });
  slider.addEventListener("input", () => show(at()));
  $("#back").addEventListener("click", () => show(at() - 1));
  $("#forth").addEventListener("click", () => show(at() + 1));
  $("#next-tile").addEventListener("click", nextTile);
  show(0);
})();

/* Ping-pong: two timelines that move together. */
(function pingpong() {
  const found = [data("on-data"), data("off-data")], width = Math.min(...found.map((f) => f.cycles - f.start)) / 4;
  const lines = ["on", "off"].map((id, i) => timeline($("#" + id), found[i], { units: false }));
  const place = (share) => lines.forEach((line) => {
    const [first, last] = line.span, from = first + share * (last - first - width);
    line.view(from, from + width);
  });
  place(0.45);
  const us = found.map((f) => ((f.cycles - f.start) / f.clock_mhz).toFixed(2));
  $("#pingpong-said").textContent = `The first CTA lives ${us[0]} µs with ping-pong and ${us[1]} µs without.`;
  let playing = null;
  const button = $("#play");
  button.addEventListener("click", () => {
    if (playing) {
      cancelAnimationFrame(playing);
      playing = null;
    } else {
      const start = performance.now();
      const frame = (now) => {
        const share = (now - start) / 20000;
        place(Math.min(1, share));
        playing = share < 1 ? requestAnimationFrame(frame) : null;
        button.textContent = playing ? "Stop" : "Play";
      };
      playing = requestAnimationFrame(frame);
    }
    button.textContent = playing ? "Stop" : "Play";
  });
})();
