"use strict";
// Sorts tables by the column whose heading is pressed; makes the rows of the long table when they come into view.
(() => {
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  // Numbers in names count as numbers: blk.2 comes before blk.10.
  const natural = (text) => text.replace(/\d+/g, (digits) => digits.padStart(16, "0"));

  // Gives the headings of `table` buttons that call `sort(column, descending)`.
  const headings = (table, sort) => {
    const cells = [...table.tHead.rows[0].cells];
    cells.forEach((cell, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...cell.childNodes);
      cell.append(button);
      button.addEventListener("click", () => {
        const was = cell.getAttribute("aria-sort");
        const down = was === null ? cell.classList.contains("number") : was === "ascending";
        cells.forEach((other) => other.removeAttribute("aria-sort"));
        cell.setAttribute("aria-sort", down ? "descending" : "ascending");
        sort(column, down);
      });
    });
  };

  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    const value = (row, column) => {
      const cell = row.cells[column];
      return "value" in cell.dataset ? Number(cell.dataset.value) : natural(cell.textContent);
    };
    headings(table, (column, down) => {
      const rows = [...body.rows].map((row) => [value(row, column), row]);
      rows.sort((a, b) => (down ? compare(b[0], a[0]) : compare(a[0], b[0])));
      body.append(...rows.map((row) => row[1]));
    });
  }

  const all = document.getElementById("all");
  if (!all) return;
  all.hidden = false;
  const rows = [];
  // A name is its parts with numbers between them; a cell is a text, or a text and the number that it sorts by.
  for (const [parts, numbers, ...cells] of JSON.parse(document.getElementById("data").textContent)) {
    const holes = parts.length - 1;
    const count = holes ? numbers.length / holes : 1;
    for (let i = 0; i < count; i += 1) {
      let name = parts[0];
      for (let hole = 0; hole < holes; hole += 1) name += numbers[i * holes + hole] + parts[hole + 1];
      rows.push([name, ...cells]);
    }
  }
  const table = all.querySelector("table");
  const numeric = [...table.tHead.rows[0].cells].map((cell) => cell.classList.contains("number"));
  const body = table.tBodies[0];
  const found = document.getElementById("found");
  const end = document.getElementById("end");
  let shown = rows;
  let next = 0;

  const more = () => {
    const some = document.createDocumentFragment();
    for (const cells of shown.slice(next, next + 200)) {
      const row = document.createElement("tr");
      cells.forEach((cell, column) => {
        const box = document.createElement("td");
        if (numeric[column]) box.className = "number";
        box.textContent = Array.isArray(cell) ? cell[0] : cell;
        row.append(box);
      });
      some.append(row);
    }
    next = Math.min(next + 200, shown.length);
    body.append(some);
    end.hidden = next === shown.length;
  };
  const again = () => {
    body.replaceChildren();
    next = 0;
    found.textContent = shown.length === rows.length ? `${rows.length} in all` : `${shown.length} of ${rows.length}`;
    more();
  };

  const text = (cells) => cells.map((cell) => (Array.isArray(cell) ? cell[0] : cell)).join(" ").toLowerCase();
  const filter = document.getElementById("filter");
  let wanted = "";
  const apply = () => {
    const words = wanted.split(/\s+/).filter(Boolean);
    shown = words.length ? rows.filter((cells) => words.every((word) => text(cells).includes(word))) : rows;
    again();
  };
  filter.addEventListener("input", () => {
    wanted = filter.value.toLowerCase();
    apply();
  });
  const value = (cells, column) => {
    const cell = cells[column];
    return Array.isArray(cell) ? cell[1] ?? Infinity : natural(cell);
  };
  headings(table, (column, down) => {
    const keys = new Map(rows.map((row) => [row, value(row, column)]));
    rows.sort((a, b) => (down ? compare(keys.get(b), keys.get(a)) : compare(keys.get(a), keys.get(b))));
    apply();
  });
  new IntersectionObserver((seen) => {
    if (seen.some((one) => one.isIntersecting)) more();
  }, { rootMargin: "600px" }).observe(end);
  again();
})();
