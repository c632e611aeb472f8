"use strict";
// The slider shows numbers that are stored in the page; the script computes none of them.
const numbers = JSON.parse(document.getElementById("numbers").textContent);
const slider = document.getElementById("epsilon");
const show = (id, text) => { document.getElementById(id).textContent = text; };
const pValueText = (p) => (p <= numbers.p_floor ? "≤ " : "") + String(p);

// Each figure along epsilon gets a vertical line at the epsilon of the slider.
const cursors = [...document.querySelectorAll(".with-cursor svg[data-frame]")].map((svg) => {
  const [left, top, right, bottom] = svg.dataset.frame.split(" ").map(Number);
  const line = document.createElementNS(svg.namespaceURI, "line");
  line.setAttribute("class", "cursor");
  line.setAttribute("y1", top);
  line.setAttribute("y2", bottom);
  svg.insertBefore(line, svg.querySelector("g"));  // below the labels
  return (share) => {
    const x = left + share * (right - left);
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
  };
});

function update() {
  const i = Number(slider.value);
  const epsilon = numbers.epsilon[i];
  const first = numbers.p_first[i];
  const second = numbers.p_second[i];
  show("at", String(epsilon));
  show("p-first", pValueText(first));
  show("p-second", pValueText(second));
  show("delta-lower", "≥ " + numbers.delta_lower[i]);
  show("delta-upper", "≤ " + numbers.delta_upper[i]);
  document.getElementById("crossed").hidden = numbers.delta_lower[i] <= numbers.delta_upper[i];
  if (numbers.decisive.length) show("decisive", numbers.events[numbers.decisive[i]]);
  show("outcome", Math.min(first, second) <= numbers.alpha
    ? `A claim of ε = ${epsilon} would be refuted.`
    : `A claim of ε = ${epsilon} would not be refuted by the tested events.`);
  slider.setAttribute("aria-valuetext", "epsilon " + epsilon);
  const last = numbers.epsilon[numbers.epsilon.length - 1];
  cursors.forEach((move) => move(epsilon / last));
}
slider.hidden = false;
slider.addEventListener("input", update);
update();
