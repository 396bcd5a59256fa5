// What the pages of a submit do by themselves: a file is dropped, and what was changed since its check is not sent.
"use strict";
(() => {
  for (const one of document.querySelectorAll(".scripted")) one.hidden = false;

  const drop = document.getElementById("drop");
  if (drop) {
    const file = document.getElementById("file");
    const said = document.getElementById("drop-said");
    const most = Number(drop.dataset.most);
    const fits = () => {
      const size = file.files[0]?.size ?? 0;
      const told = size > most
        ? "This file is larger than what is taken here. Submit it where it lies: pushlane submit FILE --level high|medium|low"
        : "";
      file.setCustomValidity(told);
      said.textContent = told;
      said.className = told ? "problem" : "";
      return !told;
    };
    file.addEventListener("change", fits);
    drop.addEventListener("dragover", (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
    drop.addEventListener("dragleave", () => drop.classList.remove("over"));
    drop.addEventListener("drop", (event) => {
      event.preventDefault();
      drop.classList.remove("over");
      if (event.dataTransfer.files.length !== 1) {
        said.textContent = "One file at a time: each makes a task of its own.";
        return;
      }
      file.files = event.dataTransfer.files;
      if (fits()) drop.requestSubmit();
    });
    drop.addEventListener("submit", () => {
      said.textContent = `Sending ${file.files[0].name}…`;
      for (const one of drop.querySelectorAll("button")) one.disabled = true;
    });
  }

  // How often it was asked for until its process answered is no part of its address.
  if (location.search) history.replaceState(null, "", location.pathname + location.hash);

  const options = document.getElementById("options");
  if (options) {
    let isChanged = false;
    const tell = () => {
      for (const one of document.querySelectorAll(".apply button")) one.disabled = isChanged;
      if (document.getElementById("done")) options.hidden = true;
    };
    options.addEventListener("input", (event) => {
      if (event.target.name === "test_to") return;
      isChanged = true;
      tell();
    });
    document.addEventListener("htmx:after:swap", tell);
  }
})();
