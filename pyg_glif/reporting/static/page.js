// Draws charts, sorts and searches tables. Data comes from the page, never from code:
// a chart's specification is JSON in a script element that no browser runs.
(function () {
  "use strict";

  // Evaluated without 'eval', and drawn without style elements: a strict content
  // policy allows all of it.
  const OPTIONS = {
    mode: "vega-lite", renderer: "svg", actions: false, ast: true, defaultStyle: false,
    tooltip: { disableDefaultStyle: true },
  };

  const SHOWN = /^[<>]?(-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)%?(?: \[.*\])?$/;

  // Draws the specification in a figure, or another one in its place.
  function draw(figure, spec) {
    const place = figure.querySelector(".drawing");
    const text = figure.querySelector('script[type="application/json"]').textContent;
    return window.vegaEmbed(place, spec || JSON.parse(text), OPTIONS).then(
      function (view) { figure.dataset.drawn = "yes"; return view; },
      function (error) {
        figure.dataset.drawn = "failed";
        place.textContent = "This chart could not be drawn: " + error.message;
      },
    );
  }

  function value(row, column) {
    const cell = row.cells[column];
    const text = cell.dataset.value === undefined ? cell.textContent : cell.dataset.value;
    const number = Number(text);
    if (text.trim() !== "" && !Number.isNaN(number)) return number;
    // A number as it is shown: thousands apart, as a percentage, with its interval.
    const shown = text.trim().match(SHOWN);
    return shown ? Number(shown[1].replaceAll(",", "")) : text.trim();
  }

  // Numbers before texts, empty cells last in both directions.
  function compare(first, second, sign) {
    if (first === second) return 0;
    if (first === "") return 1;
    if (second === "") return -1;
    if (typeof first === "number" && typeof second === "number") {
      return sign * (first - second);
    }
    if (typeof first === "number") return -sign;
    if (typeof second === "number") return sign;
    return sign * first.localeCompare(second);
  }

  function sort(table, column, head) {
    const falling = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const body = table.tBodies[0];
    const rows = Array.from(body.rows, (row) => [value(row, column), row]);
    rows.sort((a, b) => compare(a[0], b[0], falling ? -1 : 1));
    body.append(...rows.map((entry) => entry[1]));
  }

  function makeSortable(table) {
    Array.from(table.tHead.rows[0].cells).forEach(function (head, column) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(table, column, head));
      head.append(button);
    });
  }

  function makeSearchable(box) {
    const table = document.getElementById(box.dataset.table);
    const input = box.querySelector("input");
    const found = box.querySelector("output");
    const rows = Array.from(table.tBodies[0].rows);
    box.hidden = false;
    input.addEventListener("input", function () {
      const wanted = input.value.trim().toLowerCase();
      let shown = 0;
      for (const row of rows) {
        row.hidden = !row.textContent.toLowerCase().includes(wanted);
        shown += row.hidden ? 0 : 1;
      }
      found.textContent = wanted ? shown + " of " + rows.length : "";
    });
  }

  function start() {
    document.querySelectorAll("table[data-sortable]").forEach(makeSortable);
    document.querySelectorAll(".search[data-table]").forEach(makeSearchable);
    if (window.vegaEmbed) document.querySelectorAll("figure.chart").forEach((f) => draw(f));
  }

  // On paper nothing can be opened: pairs of people are printed side by side.
  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("details.pair").forEach((one) => { one.open = true; });
  });

  window.pygGlif = { draw: draw };
  if (document.readyState === "loading") {
    document.addEventListener("DOMContentLoaded", start);
  } else {
    start();
  }
})();
