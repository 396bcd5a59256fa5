// What every page does by itself: its colours, a form that waited for a login, times in the reader's zone.
"use strict";
(() => {
  const root = document.documentElement;

  // Colours: as the system has them, until somebody chooses.
  const theme = document.getElementById("theme");
  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const nameTheme = () => {
    theme.textContent = isDark() ? "Light" : "Dark";
    theme.setAttribute("aria-label", `Show in ${isDark() ? "light" : "dark"} colours`);
  };
  theme.hidden = false;
  nameTheme();
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    document.cookie = `pushlane-theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=lax`;
    nameTheme();
  });

  // What was typed waits here while its writer logs in at an issuer, and is then shown again.
  const KEPT = "pushlane-kept";
  const kept = document.querySelector("form input[name=kept]")?.value;
  document.getElementById("issuer")?.addEventListener("click", () => {
    if (kept) sessionStorage.setItem(KEPT, kept);
  });
  const logout = document.getElementById("logout");
  if (logout && sessionStorage.getItem(KEPT)) {
    const form = logout.cloneNode(true);
    form.action = logout.action.replace(/logout$/, "again");
    const field = document.createElement("input");
    field.type = "hidden";
    field.name = "kept";
    field.value = sessionStorage.getItem(KEPT);
    sessionStorage.removeItem(KEPT);
    form.append(field);
    document.body.append(form);
    form.submit();
    return;
  }

  // Times are written in UTC, which stays at hand.
  const told = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
  const exact = new Intl.DateTimeFormat(undefined, {
    year: "numeric", month: "short", day: "numeric",
    hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3,
  });
  const localTimes = (within) => {
    for (const one of within.querySelectorAll("time[datetime]")) {
      const utc = one.textContent;
      if (!utc.endsWith("UTC")) continue;
      one.title = utc;
      const format = one.classList.contains("exact") ? exact : one.classList.contains("clock") ? clock : told;
      one.textContent = format.format(new Date(one.dateTime));
    }
  };
  localTimes(document);
  document.addEventListener("htmx:after:swap", () => localTimes(document));
})();
