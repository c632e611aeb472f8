"use strict";
// A heading of a table sorts its rows, and sorts them the other way when it is used again.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => {
      const up = heading.getAttribute("aria-sort") !== "ascending";
      const value = (row) => row.cells[column].dataset.sort;
      const rows = [...body.rows].sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        const order = heading.classList.contains("n") ? Number(x) - Number(y) : x.localeCompare(y);
        return up ? order : -order;
      });
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", up ? "ascending" : "descending");
      body.append(...rows);
    });
  });
}

// A vertical line in the first axes of a figure; the function that is returned moves it.
function makeCursor(svg) {
  const [left, top, right, bottom] = svg.dataset.frame.split(" ").map(Number);
  const line = document.createElementNS(svg.namespaceURI, "line");
  line.setAttribute("class", "cursor");
  line.setAttribute("y1", top);
  line.setAttribute("y2", bottom);
  svg.insertBefore(line, svg.querySelector("g"));  // below the labels
  line.setAttribute("visibility", "hidden");
  const moveTo = (x) => {
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    line.removeAttribute("visibility");
  };
  return { moveTo, moveToShare: (share) => moveTo(left + share * (right - left)) };
}

// The text of the point that is nearest to the pointer stands below the figure.
for (const svg of document.querySelectorAll("svg[data-readout]")) {
  const points = JSON.parse(svg.dataset.readout);
  const line = svg.parentElement.querySelector(".readout");
  const cursor = makeCursor(svg);
  svg.addEventListener("pointermove", (event) => {
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const distance = ([x, y]) => Math.hypot(place.x - x, y === null ? 0 : place.y - y);
    const nearest = points.reduce((best, point) => (distance(point) < distance(best) ? point : best));
    line.textContent = nearest[2];
    cursor.moveTo(nearest[0]);
  });
}

// The slider shows numbers that are stored in the page; the script computes none of them.
const slider = document.getElementById("position");
if (slider) {
  const numbers = JSON.parse(document.getElementById("numbers").textContent);
  const cursors = [...slider.closest("section").querySelectorAll(".along svg[data-frame]")].map(makeCursor);
  const update = () => {
    const position = Number(slider.value);
    numbers.columns.forEach((texts, column) => {
      document.getElementById("value" + column).textContent = texts[position];
    });
    slider.setAttribute("aria-valuetext", numbers.columns[0][position]);
    cursors.forEach((cursor) => cursor.moveToShare(position / (numbers.columns[0].length - 1)));
  };
  slider.hidden = false;
  slider.addEventListener("input", update);
  update();
}

// A printed page shows what is folded on the screen.
addEventListener("beforeprint", () => {
  document.querySelectorAll("details").forEach((part) => { part.open = true; });
});
