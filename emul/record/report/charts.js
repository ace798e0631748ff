"use strict";
// What every page with charts needs to fill a specification and to unpack its data.
window.emul = (() => {
  // As emul.record.report.palette.fill: "$name" becomes a value, ["$name"] a list.
  function fill(value, tokens) {
    if (Array.isArray(value)) {
      const only = value.length === 1 && typeof value[0] === "string" && value[0][0] === "$" && tokens[value[0].slice(1)];
      return Array.isArray(only) ? only : value.map((item) => fill(item, tokens));
    }
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, fill(item, tokens)]));
    }
    if (typeof value === "string" && value[0] === "$" && value.slice(1) in tokens) return tokens[value.slice(1)];
    return value;
  }

  function rows({ n, columns }) {
    const found = Array.from({ length: n }, () => ({}));
    for (const [name, column] of Object.entries(columns)) {
      for (let i = 0; i < n; i++) {
        found[i][name] = Array.isArray(column) ? column[i] : column.at[i] < 0 ? null : column.of[column.at[i]];
      }
    }
    return found;
  }

  return { fill, rows };
})();
