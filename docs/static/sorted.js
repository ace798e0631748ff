// The page of leagues: a click on the head of a column sorts its table, and the field above a table leaves the rows with a text.
// Without a script the tables stand there as they are.
document.addEventListener("DOMContentLoaded", () => {
  if (!location.pathname.endsWith("/atlas.html")) return;
  const number = (text) => {
    const found = text.replace(/,/g, "").match(/^-?\d+(\.\d+)?(e[+-]?\d+)?/);
    return found ? parseFloat(found[0]) : NaN;
  };
  const before = (a, b) => {                    // numbers ascending, then texts; empty cells last
    if (!a || !b) return (a ? 0 : 1) - (b ? 0 : 1);
    const [x, y] = [number(a), number(b)];
    if (isNaN(x) || isNaN(y)) return (isNaN(x) ? 1 : 0) - (isNaN(y) ? 1 : 0) || a.localeCompare(b);
    return x - y;
  };
  for (const table of document.querySelectorAll("table")) {
    const body = table.tBodies[0];
    if (!body || !table.tHead) continue;
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      head.style.cursor = "pointer";
      head.title = "sort";
      head.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        [...head.parentNode.cells].forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const text = (row) => row.cells[column].textContent.trim();
        const rows = [...body.rows].sort((a, b) => (text(a) && text(b) && down ? -1 : 1) * before(text(a), text(b)));
        body.append(...rows);
      });
    });
    if (body.rows.length < 12) continue;
    const field = document.createElement("input");
    field.type = "search";
    field.placeholder = "leave rows with this text";
    field.size = field.placeholder.length + 4;          // with the cross that empties it
    field.setAttribute("aria-label", "leave rows of the table below that have this text");
    field.addEventListener("input", () => {
      const wanted = field.value.toLowerCase();
      for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
    table.before(field);
  }
});
