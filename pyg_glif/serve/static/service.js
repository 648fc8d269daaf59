// The service's own behaviour: it waits, moves sliders and asks about newcomers.
(function () {
  "use strict";

  function byId(id) { return document.getElementById(id); }

  function data(id) { return JSON.parse(byId(id).textContent); }

  function short(value) {
    if (value === null || value === undefined) return "none";
    if (Array.isArray(value)) return value.map(short).join(", ");
    return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4)));
  }

  // A page that waits for something looks again.
  function wait() {
    if (document.querySelector("[data-wait]")) {
      setTimeout(() => window.location.reload(), 1000);
    }
  }

  // ------------------------------------------------------------------ what if
  function specOf(name) {
    const figure = byId("chart-" + name);
    if (!figure) return null;
    const text = figure.querySelector('script[type="application/json"]').textContent;
    return { figure: figure, spec: JSON.parse(text), busy: false, next: null };
  }

  // Rows in place of those of a chart, wherever its layers keep them. Their keys are
  // the roles that 'reporting/charts.py' gives to values, not what they are called.
  function withRows(spec, rows) {
    const out = JSON.parse(JSON.stringify(spec));
    const set = (part) => { if (part.data) part.data = { values: rows }; };
    set(out);
    (out.layer || []).forEach(set);
    return out;
  }

  // Draws the last of what was asked for, and nothing that is out of date.
  function redraw(chart, rows) {
    chart.next = rows;
    if (chart.busy) return;
    chart.busy = true;
    const now = chart.next;
    chart.next = null;
    if (chart.view) chart.view.finalize();
    window.pygGlif.draw(chart.figure, withRows(chart.spec, now)).then(function (view) {
      chart.view = view;
      chart.busy = false;
      chart.figure.dataset.rows = JSON.stringify(now).length + ":" + now.length;
      if (chart.next) redraw(chart, chart.next);
    });
  }

  function frontRows(grid, chosen) {
    const served = grid.points[grid.at[0] * grid.lams.length + grid.at[1]];
    const rows = [];
    const add = (point, kind) => rows.push({
      x: point.disagreement, y: point.kept_or_near, kind: kind, setting: "strength " + short(point.lam) + ", radius " + short(point.tau),
    });
    for (const point of grid.points) {
      add(point, point.tau === chosen.tau ? grid.words.kinds[1] : grid.words.kinds[0]);
    }
    add(served, grid.words.kinds[2]);
    add(chosen, grid.words.kinds[3]);
    return rows;
  }

  function groupRows(grid, point) {
    return point.groups.flatMap((one) => [
      { value: one.up, name: one.group, kind: grid.words.up },
      { value: -one.down, name: one.group, kind: grid.words.down },
    ]);
  }

  function barRows(grid, point) {
    return point.bars.map((count, k) => ({
      low: grid.edges[k], high: grid.edges[k + 1], count: count, group: "everybody",
    }));
  }

  function words(grid, point) {
    const parts = [];
    const all = point.groups[0];
    if (all) {
      parts.push(all.up + all.down + " of " + all.people + " decisions differ from the model's"
        + (grid.words.down ? " (" + all.up + " " + grid.words.up + ", " + all.down + " "
          + grid.words.down + ")" : "") + ".");
    }
    parts.push(point.affected + " of " + grid.num_people + " people move by more than "
      + short(grid.least) + ", everybody by " + short(point.mean_moved) + " on average.");
    if (point.status !== "CONVERGED") {
      parts.push("No solution with an error bound was found for this setting (" + point.status + ").");
    }
    return parts.join(" ");
  }

  function moved(grid, point) {
    const table = byId("moved");
    if (!table) return;
    const rows = point.people.map(function (one) {
      const row = document.createElement("tr");
      const head = document.createElement("th");
      head.scope = "row";
      const link = document.createElement("a");
      link.href = grid.person + one.row;
      link.textContent = one.id;
      head.append(link);
      row.append(head);
      for (const value of [one.before, one.after]) {
        const cell = document.createElement("td");
        cell.className = "number";
        cell.textContent = short(value);
        row.append(cell);
      }
      return row;
    });
    table.tBodies[0].replaceChildren(...rows);
  }

  function whatIf() {
    const form = byId("sliders");
    if (!form) return;
    const grid = data("grid");
    const charts = ["front", "decisions", "movement"].map(specOf);
    const makers = [frontRows, groupRows, barRows];

    function show(event) {
      const lam = Number(byId("lam").value), tau = Number(byId("tau").value);
      const point = grid.points[tau * grid.lams.length + lam];
      const limit = grid.taus[tau] === null ? "no limit" : short(grid.taus[tau]) + " " + grid.unit;
      byId("lam-value").textContent = short(grid.lams[lam]);
      byId("lam").setAttribute("aria-valuetext", short(grid.lams[lam]));
      byId("tau-value").textContent = limit;
      byId("tau").setAttribute("aria-valuetext", limit);
      byId("said").textContent = words(grid, point);
      moved(grid, point);
      if (!event) return;  // the page came with the charts of the fit
      charts.forEach((chart, k) => { if (chart) redraw(chart, makers[k](grid, point)); });
    }

    form.addEventListener("input", show);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", (event) => setTimeout(() => show(event)));
    show();
  }

  // ----------------------------------------------------------------- newcomer
  function cell(field) {
    const input = field.querySelector("input, select, textarea");
    const kind = field.dataset.kind;
    if (kind === "vector") {
      return input.value.split(/[\s,;]+/).filter((part) => part !== "").map(Number);
    }
    if (kind === "option") return JSON.parse(input.value);
    if (input.value.trim() === "") return null;
    return kind === "number" ? Number(input.value) : input.value;
  }

  function mark(form, name, message) {
    const field = Array.from(form.querySelectorAll(".field")).find((one) =>
      one.dataset.field === name || (name.startsWith("y_hat") && one.dataset.output !== undefined));
    if (!field) return false;
    const told = field.querySelector(".error");
    const input = field.querySelector("input, select, textarea");
    field.dataset.wrong = "yes";
    told.textContent = message;
    told.hidden = false;
    told.id = input.id + "-error";
    input.setAttribute("aria-invalid", "true");
    input.setAttribute("aria-describedby", told.id);
    return true;
  }

  function clear(form) {
    for (const field of form.querySelectorAll(".field")) {
      delete field.dataset.wrong;
      field.querySelector(".error").hidden = true;
      const input = field.querySelector("input, select, textarea");
      input.removeAttribute("aria-invalid");
      input.removeAttribute("aria-describedby");
    }
    byId("fault").hidden = true;
    byId("answer").hidden = true;
  }

  function blame(form, detail) {
    const rest = [];
    for (const one of Array.isArray(detail) ? detail : [{ field: "", msg: String(detail) }]) {
      const name = one.field.replace(/^rows\[0\]\.?/, "").replace(/^x\[.*$/, "x");
      if (!mark(form, name, one.msg)) rest.push((name ? name + ": " : "") + one.msg);
    }
    byId("fault").textContent = rest.join(". ");
    byId("fault").hidden = rest.length === 0;
    const first = form.querySelector("[data-wrong] input, [data-wrong] select, [data-wrong] textarea");
    if (first) first.focus();
  }

  async function post(url, body) {
    const response = await fetch(url, {
      method: "POST", headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    return [response.ok, await response.json()];
  }

  function fact(list, title, value) {
    const name = document.createElement("dt"), told = document.createElement("dd");
    name.textContent = title;
    told.textContent = value;
    list.append(name, told);
  }

  function answered(body, found) {
    const before = body.y_hat[0], after = found.y_fair[0];
    // Where people are not shown, nobody is counted.
    const peers = found.num_neighbors ? found.num_neighbors[0] : null;
    const withheld = found.withheld && found.withheld[0];
    const who = peers === null ? "people" : peers + (peers === 1 ? " person" : " people");
    byId("words").textContent = withheld
      ? "Too few of the fitted people are similar to tell, so the output stays " + short(before) + "."
      : peers === 0
      ? "Nobody among the fitted people is similar, so the output stays " + short(before) + "."
      : "The output goes from " + short(before) + " to " + short(after) + ", because of "
        + who + " who are similar.";
    const list = byId("facts");
    list.replaceChildren();
    fact(list, "output of the model", short(before));
    fact(list, "corrected", short(after));
    if (peers !== null) fact(list, "similar people", short(peers));
    for (const note of found.notes) fact(list, "note", note);
    byId("explanation").replaceChildren();
    byId("answer").hidden = false;
  }

  function explained(found) {
    const box = document.createElement("div");
    box.className = "explanation";
    for (const text of found.text.split(/\n\s*\n/)) {
      const part = document.createElement("p");
      part.textContent = text;
      box.append(part);
    }
    byId("explanation").replaceChildren(box);
  }

  function newcomer() {
    const form = byId("newcomer");
    if (!form) return;
    form.addEventListener("submit", async function (event) {
      event.preventDefault();
      clear(form);
      const outputs = Array.from(form.querySelectorAll("[data-output] input"), (input) =>
        input.value.trim() === "" ? null : Number(input.value));
      const body = { y_hat: [form.dataset.many ? outputs : outputs[0]] };
      const vector = form.querySelector('[data-kind="vector"]');
      if (vector) {
        body.x = [cell(vector)];
      } else {
        const fields = Array.from(form.querySelectorAll("[data-field]"));
        body.rows = [Object.fromEntries(fields.map((one) => [one.dataset.field, cell(one)]))];
      }
      try {
        const [ok, found] = await post(form.dataset.correct, body);
        if (!ok) return blame(form, found.detail);
        answered(body, found);
        const [fine, why] = await post(form.dataset.explain, body);
        if (fine) explained(why);
      } catch (error) {
        blame(form, "The service does not answer.");
      }
    });
  }

  document.addEventListener("DOMContentLoaded", function () {
    wait();
    whatIf();
    newcomer();
  });
})();
