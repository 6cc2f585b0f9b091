"use strict";
/* Helpers that every picture uses, and the switch between light and dark. */
const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const data = (id) => JSON.parse($("#" + id).textContent);

function make(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

/** Draw now, when the size of `root` changes, and when the theme does. */
function drawn(root, draw) {
  const again = () => draw(root.clientWidth, root.clientHeight);
  new ResizeObserver(again).observe(root);
  document.addEventListener("theme", again);
  again();
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

/** Text of a number: three digits, with thousands apart. */
function short(value) {
  if (value >= 100) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

function bytes(value) {
  for (const [power, unit] of [[4, "TB"], [3, "GB"], [2, "MB"], [1, "KB"]])
    if (value >= 1000 ** power) return (value / 1000 ** power).toFixed(2) + " " + unit;
  return Math.round(value) + " B";
}

/** 1, 2 or 5 times a power of ten, so that about `count` steps fill `span`. */
function step(span, count) {
  const rough = span / count, power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((x) => x * power >= rough);
}

(function theme() {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  const set = (name) => {
    root.dataset.theme = name;
    document.dispatchEvent(new Event("theme"));
  };
  set(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => set(dark.matches ? "dark" : "light"));
  $("#theme").addEventListener("click", () => set(root.dataset.theme === "dark" ? "light" : "dark"));
})();
