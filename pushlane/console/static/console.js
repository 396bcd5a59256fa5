// What a page does by itself: its colours, times in the reader's zone, and the state of its stream.
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
  const localTimes = (within) => {
    for (const one of within.querySelectorAll("time[datetime]")) {
      const utc = one.textContent;
      if (!utc.endsWith("UTC")) continue;
      one.title = utc;
      one.textContent = told.format(new Date(one.dateTime));
    }
  };
  localTimes(document);

  const live = document.getElementById("live");
  if (!live) return;

  // The stream: live, lost, paused, ended, or of a server for which something is away.
  const SILENT_MS = 11000;
  const state = document.getElementById("stream-state");
  const pause = document.getElementById("pause");
  let connection = null, heardAt = performance.now();
  let seenMs = Date.now(), skewMs = 0; // by this clock, and what the server's is ahead of it
  let isPaused = false, isEnded = false, away = "";

  const show = (name, text) => {
    if (state.dataset.state === name && state.textContent === text) return;
    state.dataset.state = name;
    state.textContent = text;
  };
  const pictureOf = () => `what you see is of ${told.format(new Date(seenMs + skewMs))}`;
  const lost = () => show("lost", `Connection lost: ${pictureOf()}`);
  const seen = () => {
    if (!isPaused && !away) seenMs = Date.now();
  };
  const tell = () => {
    if (isEnded || document.hidden) return;
    if (isPaused) show("paused", `Paused: ${pictureOf()}`);
    else if (away) show("away", `${away}: ${pictureOf()}`);
    else show("live", "Live");
  };
  const again = () => {
    if (connection?.reader) connection.reader.cancel();
    else if (!connection) htmx.trigger(live, "reconnect");
  };
  const end = () => {
    isEnded = true;
    state.dataset.state = "ended";
    state.textContent = "Your session is over. ";
    const link = document.createElement("a");
    link.href = live.dataset.login;
    link.textContent = "Log in again";
    state.append(link);
    pause.hidden = true;
  };

  pause.hidden = false;
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
    pause.textContent = isPaused ? "Go on" : "Pause view";
    tell();
    if (!isPaused) again(); // which begins with how it is now
  });

  live.addEventListener("htmx:sse:after:connection", (event) => {
    connection = event.detail.connection;
    heardAt = performance.now();
  });
  live.addEventListener("htmx:sse:before:message", (event) => {
    heardAt = performance.now();
    if (event.detail.message.event) return;
    away = "";
    if (isPaused) event.detail.cancelled = true;
    seen();
    tell();
  });
  document.addEventListener("htmx:after:swap", () => localTimes(document));
  live.addEventListener("beat", (event) => {
    skewMs = Number(event.detail.data) - Date.now();
    seen();
    tell();
  });
  live.addEventListener("away", (event) => {
    away = event.detail.data;
    tell();
  });
  live.addEventListener("ended", end);
  live.addEventListener("htmx:sse:before:connection", (event) => {
    if (isEnded) event.detail.connection.cancelled = true;
  });
  live.addEventListener("htmx:sse:error", (event) => {
    if (event.detail.status === 401) end();
    else if (!document.hidden && !isEnded) lost();
  });
  live.addEventListener("htmx:sse:close", () => {
    connection = null;
  });
  document.addEventListener("visibilitychange", () => {
    heardAt = performance.now();
  });
  setInterval(() => {
    if (document.hidden || isEnded || performance.now() - heardAt < SILENT_MS) return;
    heardAt = performance.now();
    lost();
    again();
  }, 1000);
})();
