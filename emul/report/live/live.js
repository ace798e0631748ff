"use strict";
(() => {
  const setup = JSON.parse(document.getElementById("setup").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const theme = () => setup[dark.matches ? "dark" : "light"];
  const charts = new Map();                       // key -> { spec, view }
  const at = (id) => document.getElementById(id);
  let newest = null;
  let drawing = false;

  function element(tag, text, attributes = {}) {
    const found = document.createElement(tag);
    found.textContent = text;
    for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, value);
    return found;
  }

  function table(id, rows, right) {
    at(id).replaceChildren(...rows.map((cells) => {
      const row = document.createElement("tr");
      row.append(...cells.map((cell, i) => element("td", cell, right.includes(i) ? { class: "n" } : {})));
      return row;
    }));
  }

  function frame(figure) {
    const box = element("figure", "", { id: "figure-" + figure.key, ...(figure.key.startsWith("bytes") ? { "data-wide": "" } : {}) });
    const chart = element("div", "", { class: "chart", "data-key": figure.key, style: `min-width:${figure.width}px` });
    const scroll = element("div", "", { class: "scroll" });
    scroll.append(chart);
    box.append(element("h3", figure.title), scroll, element("figcaption", figure.text));
    at("figures").append(box);
    return chart;
  }

  async function draw(figure) {
    const known = charts.get(figure.key);
    const { description, ...spec } = figure.spec;
    const said = JSON.stringify(spec) + dark.matches;
    const data = Object.fromEntries(Object.entries(figure.frames).map(([name, f]) => [name, window.emul.rows(f)]));
    if (known && known.said === said) {           // only the data have grown
      for (const [name, rows] of Object.entries(data)) known.view.data(name, rows);
      await known.view.runAsync();
      known.box.setAttribute("aria-label", description);
      return;
    }
    const box = known ? known.box : frame(figure);
    if (known) known.finalize();
    const filled = window.emul.fill(spec, theme());
    filled.datasets = data;
    const made = await window.vegaEmbed(box, filled, {
      mode: "vega-lite", actions: false, renderer: "svg", config: window.emul.fill(setup.config, theme()),
    });
    box.setAttribute("aria-label", description);
    box.dataset.drawn = "yes";
    charts.set(figure.key, { said, box, view: made.view, finalize: () => made.finalize() });
  }

  function show(state) {
    at("said").textContent = state.said;
    at("said").classList.toggle("cut", state.status === "stopped" || state.status === "damaged");
    if (state.status === "stopped") {
      const link = element("a", "What it did until then", { href: "report" });
      at("said").append(" ", link);
    }
    at("share").hidden = state.share === null || state.status !== "running";
    if (state.share !== null) at("share").value = state.share;
    at("cards").replaceChildren(...state.cards.map(([name, value]) => {
      const card = document.createElement("div");
      card.append(element("dt", name), element("dd", value));
      return card;
    }));
    at("none").hidden = state.figures.length > 0;
    at("counts").textContent = state.counts.map(([role, doing, n]) => `${n} ${role}${n > 1 ? "s" : ""} ${doing}`).join(", ");
    at("nodes").replaceChildren(...state.nodes.map((node) => {
      const entry = element("li", "", { "data-state": node.state });
      entry.append(element("b", node.name), element("span", node.doing ? `computes ${node.doing}` : node.state
        + (node.round ? `, round ${node.round}` : "")));
      return entry;
    }), ...(state.more_nodes ? [element("li", `${state.more_nodes} more`)] : []));
    table("rounds", state.rounds, [0, 2, 3, 4, 5, 6]);
    table("refused", state.refused, [3]);
    at("refused-section").hidden = state.refused.length === 0;
    document.body.dataset.status = state.status;
  }

  async function update() {                       // one at a time, and then the newest
    if (drawing) return;
    drawing = true;
    while (newest) {
      const state = newest;
      newest = null;
      show(state);
      for (const figure of state.figures) {
        try {
          await draw(figure);
        } catch (error) {
          console.error(figure.key, error);
        }
      }
      document.body.dataset.shown = String(1 + Number(document.body.dataset.shown || 0));
      if (state.status === "ended") {
        source.close();
        at("said").textContent = "The run has ended; its report is being written ...";
        location.replace("report");
      }
    }
    drawing = false;
  }

  const source = new EventSource("events");
  source.onmessage = (event) => {
    newest = JSON.parse(event.data);
    update();
  };
  source.onerror = () => {
    if (document.body.dataset.status !== "ended") at("said").textContent = "The server does not answer any more.";
  };
  dark.addEventListener("change", () => {
    for (const { finalize } of charts.values()) finalize();
    charts.clear();
    at("figures").replaceChildren();
  });
})();
