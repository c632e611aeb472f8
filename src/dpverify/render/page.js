"use strict";
// The slider reads off columns of plain numbers; nothing is computed here.
const numbers = JSON.parse(document.getElementById("numbers").textContent);
const slider = document.getElementById("epsilon");
const show = (name, text) => { document.getElementById(name).textContent = text; };
const small = (p) => (p <= numbers.floor ? "≤ " : "") + String(p);

const cursors = [...document.querySelectorAll(".ruled svg[data-frame]")].map((svg) => {
  const [left, top, right, bottom] = svg.dataset.frame.split(" ").map(Number);
  const line = document.createElementNS(svg.namespaceURI, "line");
  line.setAttribute("class", "cursor");
  line.setAttribute("y1", top);
  line.setAttribute("y2", bottom);
  svg.insertBefore(line, svg.querySelector("g"));  // below the names of the marks
  return (share) => {
    const x = left + share * (right - left);
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
  };
});

function read() {
  const i = Number(slider.value);
  const epsilon = numbers.epsilon[i];
  const both = [Math.min(numbers.first[i], numbers.second[i]), numbers.first[i], numbers.second[i]];
  const tested = both[numbers.direction];
  show("at", String(epsilon));
  show("p-first", small(numbers.first[i]));
  show("p-second", small(numbers.second[i]));
  show("delta-lower", "≥ " + numbers.lower[i]);
  show("delta-upper", "≤ " + numbers.upper[i]);
  show("outcome", tested <= numbers.alpha
    ? `A claim of ε = ${epsilon} would be refuted.`
    : `A claim of ε = ${epsilon} would not be refuted by this event.`);
  slider.setAttribute("aria-valuetext", "epsilon " + epsilon);
  const last = numbers.epsilon[numbers.epsilon.length - 1];
  cursors.forEach((move) => move(epsilon / last));
}
slider.hidden = false;
slider.addEventListener("input", read);
read();
