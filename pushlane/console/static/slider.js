// What the pages of tasks do by themselves: the slider of a quota, and the parts of a task's page.
"use strict";
(() => {
  for (const one of document.querySelectorAll(".scripted")) one.hidden = false;
  for (const one of document.querySelectorAll(".unscripted")) one.hidden = true;

  // A part that cannot be shown says so.
  const say = (within, text) => {
    const told = document.createElement("p");
    told.className = "problem";
    told.setAttribute("role", "alert");
    told.textContent = text;
    within.replaceChildren(told);
  };
  const AWAY = "It cannot be shown now: the server did not answer, or your session is over.";
  for (const part of document.querySelectorAll(".part > div")) {
    for (const name of ["htmx:error", "htmx:response:error"]) part.addEventListener(name, () => say(part, AWAY));
  }

  const slider = document.getElementById("quota-slider");
  if (!slider) return;
  const number = document.getElementById("quota-number");
  const preview = document.getElementById("preview");

  // Quotas are felt by their ratio: the slider has steps of about a quarter.
  const steps = [1];
  const most = Number(slider.dataset.most);
  while (steps.at(-1) < most) steps.push(Math.min(most, Math.max(steps.at(-1) + 1, Math.round(steps.at(-1) * 1.25))));
  const nearest = (quota) => {
    const at = steps.findIndex((one) => one >= quota);
    return at < 0 ? steps.length - 1 : at;
  };
  const tell = () => slider.setAttribute("aria-valuetext", `${number.value} pushes a turn`);
  slider.max = String(steps.length - 1);
  slider.value = String(nearest(Number(number.value)));
  tell();

  slider.addEventListener("input", () => {
    number.value = String(steps[Number(slider.value)]);
    tell();
  });
  number.addEventListener("input", () => {
    slider.value = String(nearest(Number(number.value)));
    tell();
  });

  // What is shown is of an older value until the answer is there: it is not to be pressed.
  const form = number.form;
  form.addEventListener("input", () => {
    if (!form.checkValidity()) say(preview, number.validationMessage);
    for (const one of preview.querySelectorAll(".apply button")) one.disabled = true;
  });
  const fail = () => say(preview, `${AWAY} Nothing is changed.`);
  form.addEventListener("htmx:error", fail);
  form.addEventListener("htmx:response:error", fail);
})();
