"use strict";
// What every page with charts needs to fill a specification and to unpack its data.
window.emul = (() => {
  // As emul.report.palette.fill: "$name" becomes a value, ["$name"] a list.
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

  // On a phone names at an axis take little more than half of the width, as in a figure for a column of a paper, and a
  // legend, of two columns at most, begins at the left edge of the chart and not of its axes.
  function narrowed(value, width) {
    if (Array.isArray(value)) return value.map((item) => narrowed(item, width));
    if (!value || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [
      key, key === "labelLimit" ? Math.min(item, 0.55 * width) : key === "columns" ? Math.min(item, 2)
        : narrowed(item, width)]));
  }
  const NARROW = 480;
  function fitted(spec, config, width) {
    if (!(width > 0 && width < NARROW)) return { spec, config };
    const top = { anchor: "start", bounds: "full" };
    return { spec: narrowed(spec, width), config: { ...config, legend: {
      ...config.legend, columnPadding: 8, layout: { top } } } };
  }

  return { fill, rows, fitted };
})();
