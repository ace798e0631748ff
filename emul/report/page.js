"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const setup = read("setup");
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const figures = new Map();                      // key -> its data, parsed when it is first drawn
  const views = new Map();                        // chart element -> what vegaEmbed returned
  const themeButton = document.getElementById("theme");

  const theme = () => root.dataset.theme || (dark.matches ? "dark" : "light");

  const { fill, rows, fitted } = window.emul;

  function figure(key) {
    if (!figures.has(key)) {
      const data = read("data-" + key);
      figures.set(key, { ...data, picked: data.first });
    }
    return figures.get(key);
  }

  async function draw(box) {
    const data = figure(box.dataset.key);
    const one = data.shown ? data.shown[data.picked] : data;
    const spec = fill(data.spec, { ...setup[theme()], ...(one.tokens || {}) });
    if (data.shown) {
      spec.height = one.height;
      spec.description = one.text;
    }
    const fit = fitted(spec, fill(setup.config, setup[theme()]), box.clientWidth);
    fit.spec.datasets = Object.fromEntries(Object.entries(one.frames).map(([name, frame]) => [name, rows(frame)]));
    try {
      if (views.has(box)) views.get(box).finalize();
      views.set(box, await window.vegaEmbed(box, fit.spec, {
        mode: "vega-lite", actions: false, renderer: "svg", config: fit.config,
      }));
      box.dataset.drawn = data.shown ? String(data.picked) : "yes";
    } catch (error) {
      box.classList.add("failed");
      box.textContent = "This chart could not be drawn: " + error.message + ". Its data is in the table below.";
      console.error(box.dataset.key, error);
    }
  }

  // One chart after the other, with room for the browser in between: the page never stands still for long.
  const waiting = [];
  let running = false;
  function ask(box, first) {
    const at = waiting.indexOf(box);
    if (at >= 0) waiting.splice(at, 1);
    if (first) waiting.unshift(box); else waiting.push(box);
    if (!running) run();
  }
  async function run() {
    running = true;
    while (waiting.length) {
      await draw(waiting.shift());
      await new Promise((done) => setTimeout(done, 0));
    }
    running = false;
  }

  const boxes = [...document.querySelectorAll(".chart")];
  const folded = (box) => box.closest("details:not([open])") !== null;
  const asked = new Set();                        // charts that are drawn, or will be
  function begin(box, first) {
    observer.unobserve(box);
    asked.add(box);
    ask(box, first);
  }
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting && !asked.has(entry.target)) begin(entry.target, true);
  }, { rootMargin: "300px" });
  boxes.forEach((box) => observer.observe(box));
  // The rest when there is nothing to do, for printing and searching; what is folded up waits until it is opened.
  const idle = window.requestIdleCallback || ((call) => setTimeout(call, 200));
  function drawRest() {
    const next = boxes.find((box) => !asked.has(box) && !folded(box));
    if (next) {
      begin(next, false);
      idle(drawRest);
    }
  }
  window.addEventListener("load", () => idle(drawRest));
  document.addEventListener("toggle", () => idle(drawRest), true);

  // --- rounds

  function short(value) {                         // as emul.report.page.shown
    const large = Number.isInteger(value) || Math.abs(value) >= 1000;
    return value.toLocaleString("en", large ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 4 });
  }

  function table(key, frame) {
    const body = document.querySelector(`[id="${key}-data"] tbody`);
    const names = Object.keys(frame.columns);
    body.replaceChildren(...rows(frame).map((row) => {
      const line = document.createElement("tr");
      for (const name of names) {
        const cell = line.insertCell();
        const value = row[name];
        if (typeof value === "number") cell.className = "n";
        cell.textContent = typeof value === "number" ? short(value) : value;
      }
      return line;
    }));
  }

  function pick(picker, index) {
    const select = picker.querySelector("select");
    const picked = Math.max(0, Math.min(select.length - 1, index));
    select.selectedIndex = picked;
    picker.querySelector('[data-step="-1"]').disabled = picked === 0;
    picker.querySelector('[data-step="1"]').disabled = picked === select.length - 1;
    for (const key of picker.dataset.for.split(" ").reverse()) {       // the last one asked is drawn first
      const data = figure(key);
      data.picked = picked;
      const said = document.getElementById(key + "-said");
      if (said) said.textContent = data.shown[picked].text;
      table(key, data.shown[picked].table);
      ask(document.querySelector(`.chart[data-key="${key}"]`), true);
    }
  }

  for (const picker of document.querySelectorAll(".picker[data-for]")) {
    const select = picker.querySelector("select");
    select.addEventListener("change", () => pick(picker, select.selectedIndex));
    for (const button of picker.querySelectorAll("button")) {
      button.addEventListener("click", () => pick(picker, select.selectedIndex + Number(button.dataset.step)));
      button.disabled = (button.dataset.step === "1" ? select.length - 1 : 0) === select.selectedIndex;
    }
  }

  // --- theme

  function keep(value) {
    try { window.localStorage.setItem("emul-theme", value); } catch { /* a file may have no storage */ }
  }
  function kept() {
    try { return window.localStorage.getItem("emul-theme"); } catch { return null; }
  }
  function themed() {
    const name = theme();
    themeButton.textContent = name === "dark" ? "Light colours" : "Dark colours";
    themeButton.setAttribute("aria-pressed", String(name === "dark"));
    for (const box of [...asked]) {
      if (folded(box)) {                          // it has no width now: drawn when it is opened
        asked.delete(box);
        observer.observe(box);
      } else {
        ask(box, false);
      }
    }
  }
  if (["light", "dark"].includes(kept())) root.dataset.theme = kept();
  themeButton.hidden = false;
  themeButton.addEventListener("click", () => {
    root.dataset.theme = theme() === "dark" ? "light" : "dark";
    keep(root.dataset.theme);
    themed();
  });
  dark.addEventListener("change", themed);
  themed();

  // --- links into what is folded up

  function unfold() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let box = target; box; box = box.parentElement) if (box.tagName === "DETAILS") box.open = true;
    if (target) target.scrollIntoView();
  }
  window.addEventListener("hashchange", unfold);
  if (location.hash) unfold();
})();
