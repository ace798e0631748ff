"use strict";
// The film of a run: the map of its network over virtual time, drawn on a canvas as the slider stands.
(() => {
  const { rows } = window.emul;
  const root = document.documentElement;
  const LOST_AT = 0.8;                            // of its way, where the cross of a lost message stands
  const BESIDE = 4;                               // px, from the middle of a link: both directions are told apart
  const COLOURS = { message: "s1", "of no use": "late", lost: "lost" };

  function player(box) {
    const data = JSON.parse(document.getElementById("film-" + box.dataset.key).textContent);
    const film = Object.fromEntries(Object.entries(data.frames).map(([name, frame]) => [name, rows(frame)]));
    const canvas = box.querySelector("canvas");
    const slider = box.querySelector("input");
    const button = box.querySelector(".play");
    const said = box.querySelector(".now");
    const lasts = box.querySelector("select");
    const ways = new Map();                       // vertex -> its places over time, of those that move
    for (const one of film.moves) {
      if (!ways.has(one.vertex)) ways.set(one.vertex, []);
      ways.get(one.vertex).push(one);
    }
    const whole = film.windows.reduce((sum, part) => sum + part.to - part.from, 0);
    let place = 0;                                // 0..1, of all windows one after the other
    let before = null;                            // when the last picture was drawn, while it plays

    function time() {
      let left = place * whole;
      for (const part of film.windows) {
        if (left <= part.to - part.from) return part.from + left;
        left -= part.to - part.from;
      }
      return film.windows[film.windows.length - 1].to;
    }

    function standing(v, t) {                     // straight on between two places; over the edge of a globe
      const way = ways.get(v);
      if (!way) return film.vertices[v];
      let low = 0, high = way.length - 1;
      if (t <= way[0].t) return way[0];
      if (t >= way[high].t) return way[high];
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (way[middle].t <= t) low = middle; else high = middle;
      }
      const a = way[low], b = way[high], part = (t - a.t) / (b.t - a.t);
      let far = b.x - a.x;
      if (data.globe && Math.abs(far) > 0.5) far -= Math.sign(far);
      const x = a.x + part * far;
      return { x: data.globe ? x - Math.floor(x) : x, y: a.y + part * (b.y - a.y) };
    }

    const now = (list, t) => list.filter((one) => one.from <= t && t <= one.to);

    function paint() {
      const width = canvas.clientWidth;
      if (!width) return;                         // folded up
      const height = Math.round(Math.min(560, Math.max(240, width * data.aspect)));
      const scale = window.devicePixelRatio || 1;
      canvas.style.height = height + "px";
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      const pen = canvas.getContext("2d");
      pen.setTransform(scale, 0, 0, scale, 0, 0);
      const css = getComputedStyle(root);
      const colour = (name) => css.getPropertyValue("--" + name).trim();
      const many = film.vertices.length;
      const size = many > 60 ? 4 : 8;
      const t = time();
      const places = film.vertices.map((_, v) => standing(v, t));
      const broad = width - 88, high = height - 56;
      const at = (v) => {
        const one = places[v];
        return [44 + one.x * broad, 30 + one.y * high];
      };
      // px to the place of the other end beyond the edge, if that is nearer on a globe
      const around = (dx) => data.globe && Math.abs(dx) > broad / 2 ? -Math.sign(dx) * broad : 0;
      const segment = (x, y, x2, y2) => {
        pen.beginPath();
        pen.moveTo(x, y);
        pen.lineTo(x2, y2);
        pen.stroke();
      };
      const line = (u, v) => {
        const [x, y] = at(u), [x2, y2] = at(v), turn = around(x2 - x);
        segment(x, y, x2 + turn, y2);
        if (turn) segment(x - turn, y, x2, y2);
      };
      const cross = (x, y, half) => {
        pen.beginPath();
        pen.moveTo(x - half, y - half);
        pen.lineTo(x + half, y + half);
        pen.moveTo(x + half, y - half);
        pen.lineTo(x - half, y + half);
        pen.stroke();
      };
      const hops = now(film.hops, t), work = now(film.work, t), away = now(film.away, t), down = now(film.down, t);
      const met = now(film.met, t);

      pen.lineWidth = 1;
      pen.save();
      if (data.globe) {                           // every 30 degrees a line; nothing lies beyond the edges
        pen.strokeStyle = colour("line");
        for (let k = 0; k <= 12; k++) segment(44 + broad * k / 12, 30, 44 + broad * k / 12, 30 + high);
        for (let k = 0; k <= 6; k++) segment(44, 30 + high * k / 6, 44 + broad, 30 + high * k / 6);
        pen.beginPath();
        pen.rect(44, 30, broad, high);
        pen.clip();
      }
      pen.strokeStyle = colour("muted");
      pen.globalAlpha = many > 60 ? 0.25 : 0.6;
      for (const link of film.links) line(link.u, link.v);
      pen.globalAlpha = 1;
      pen.strokeStyle = colour("s7");             // contacts: the link is there now
      for (const link of met) line(link.u, link.v);
      pen.strokeStyle = colour("lost");
      pen.setLineDash([4, 4]);
      for (const link of down) line(link.u, link.v);
      pen.setLineDash([]);
      pen.restore();

      pen.lineWidth = 2;
      for (const hop of hops) {
        const [x, y] = at(hop.u), [end, y2] = at(hop.v);
        const x2 = end + around(end - x);
        const far = Math.hypot(x2 - x, y2 - y) || 1;
        const gone = hop.to > hop.from ? (t - hop.from) / (hop.to - hop.from) : 1;
        const lost = hop.kind === "lost" && gone >= LOST_AT;
        const part = lost ? LOST_AT : gone;
        let px = x + part * (x2 - x) - (y2 - y) / far * BESIDE;
        if (px < 44 - BESIDE || px > 44 + broad + BESIDE) px += around(px - width / 2);
        const py = y + part * (y2 - y) + (x2 - x) / far * BESIDE;
        pen.fillStyle = pen.strokeStyle = colour(COLOURS[hop.kind]);
        if (lost) {
          cross(px, py, 4);
        } else {
          pen.beginPath();
          pen.arc(px, py, 3.5, 0, 2 * Math.PI);
          pen.fill();
        }
      }

      const done = new Map(work.map((one) => [one.vertex, (t - one.from) / (one.to - one.from)]));
      const gone = new Set(away.map((one) => one.vertex));
      pen.font = "11px " + css.getPropertyValue("--font");
      pen.textAlign = "center";
      film.vertices.forEach((one, v) => {
        const [x, y] = at(v);
        pen.beginPath();
        pen.arc(x, y, size, 0, 2 * Math.PI);
        pen.fillStyle = colour("card");
        pen.fill();
        if (done.has(v)) {
          pen.fillStyle = colour("s3");
          pen.beginPath();
          pen.moveTo(x, y);
          pen.arc(x, y, size, -Math.PI / 2, -Math.PI / 2 + 2 * Math.PI * Math.max(done.get(v), 0.03));
          pen.fill();
        }
        pen.strokeStyle = colour(gone.has(v) ? "lost" : done.has(v) ? "s3" : "muted");
        pen.beginPath();
        pen.arc(x, y, size, 0, 2 * Math.PI);
        pen.stroke();
        if (gone.has(v)) cross(x, y, size);
        if (many * 30 <= width) {
          pen.strokeStyle = colour("card");       // a rim: links run behind the name
          pen.lineWidth = 3;
          pen.strokeText(one.name, x, y - size - 5);
          pen.lineWidth = 2;
          pen.fillStyle = colour("text");
          pen.fillText(one.name, x, y - size - 5);
        }
      });

      const rounds = now(film.rounds, t).map((one) => one.number);
      const round = rounds.length ? "round " + (rounds.length > 3 ? rounds[0] + " to " + rounds[rounds.length - 1]
        : rounds.join(", ")) : "between rounds";
      const clock = "t = " + t.toLocaleString("en", { maximumSignificantDigits: 5 }) + " " + data.unit;
      const parts = [`${hops.length} ${hops.length === 1 ? "message" : "messages"} on links`,
                     `${done.size} ${done.size === 1 ? "node computes" : "nodes compute"}`];
      const joined = new Set(met.map((link) => link.u + " " + link.v)).size;       // both directions as one
      if (film.met.length) parts.push(`${joined} ${joined === 1 ? "link" : "links"} in contact`);
      if (gone.size) parts.push(`${gone.size} away`);
      if (down.length) parts.push(`${down.length} ${down.length === 1 ? "link" : "links"} down`);
      said.textContent = `${clock}, ${round}: ${parts.join(", ")}.`;
      slider.value = String(Math.round(place * 1000));
      slider.setAttribute("aria-valuetext", `${clock}, ${round}`);
    }

    function step(moment) {
      if (before === null) return;
      place = Math.min(1, place + Math.max(0, moment - before) / 1000 / Number(lasts.value));
      before = moment;
      paint();
      if (place < 1) requestAnimationFrame(step); else play(false);
    }

    function play(on) {
      if (on && place >= 1) place = 0;
      before = on ? performance.now() : null;
      button.textContent = on ? "Pause" : "Play";
      if (on) requestAnimationFrame(step);
    }

    button.addEventListener("click", () => play(before === null));
    slider.addEventListener("input", () => {
      play(false);
      place = Number(slider.value) / 1000;
      paint();
    });
    let drawn = 0;
    new ResizeObserver(() => {                    // another width, or unfolded
      if (canvas.clientWidth !== drawn) {
        drawn = canvas.clientWidth;
        paint();
      }
    }).observe(box);
    new MutationObserver(paint).observe(root, { attributes: true, attributeFilter: ["data-theme"] });
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
    paint();
  }

  document.querySelectorAll(".film").forEach(player);
})();
