// The live part of a page: a stream, or, where none comes, the page read again every few seconds.
"use strict";
(() => {
  const live = document.getElementById("live");
  const state = document.getElementById("stream-state");
  const pause = document.getElementById("pause");
  const told = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

  const FIRST_MS = 4000; // until the first event of a stream: it is sent at once
  const SILENT_MS = 11000; // between two of them: a server beats every 5 s
  const POLL_MS = 5000;
  const RETRY_MS = 60000;
  const MOST_STREAMS = 4; // over HTTP/1.1 a browser has six connections to a server, for all its tabs
  const HELD = "Read every 5 s, as no live stream comes: does a proxy buffer it?";
  const FULL = `Read every 5 s, as this browser has ${MOST_STREAMS} live pages open`;

  let connection = null; // that of htmx, once it is answered
  let isWanted = false, isPaused = false, isEnded = false;
  let polls = ""; // why it is read again and again, in place of a stream
  let away = ""; // what is, by the word of the server
  let askedAt = 0, heardAt = 0, polledAt = 0; // by performance.now()
  let seenMs = Date.now(), skewMs = Number(live.dataset.at) - seenMs; // what the server's clock is ahead

  // What is told of it.
  const show = (name, text) => {
    if (state.dataset.state === name && state.textContent === text) return;
    state.dataset.state = name;
    state.textContent = text;
  };
  const pictureOf = () => `what you see is of ${told.format(new Date(seenMs + skewMs))}`;
  const lost = () => {
    if (!isEnded && !isPaused && !document.hidden) show("lost", `Connection lost: ${pictureOf()}`);
  };
  const seen = () => {
    if (!isPaused && !away) seenMs = Date.now();
  };
  const tell = () => {
    if (isEnded || document.hidden) return;
    if (isPaused) show("paused", `Paused: ${pictureOf()}`);
    else if (away) show("away", `${away}: ${pictureOf()}`);
    else if (polls) show("polled", polls);
    else show("live", "Live");
  };

  // Of all pages of a browser, some have a stream: those that hold one of these locks.
  let release = null;
  const isBounded = navigator.locks && !/^h[23]/.test(performance.getEntriesByType("navigation")[0]?.nextHopProtocol);
  const lock = (name) =>
    new Promise((resolve) => {
      navigator.locks.request(name, { ifAvailable: true }, (found) => {
        resolve(Boolean(found));
        return found && new Promise((done) => (release = done));
      });
    });
  const lockAny = async () => {
    for (let one = 0; one < MOST_STREAMS; one++) if (await lock(`pushlane-stream-${one}`)) return true;
    return false;
  };
  let locking = null; // asked for twice at once, it is one lock
  const mayStream = async () => {
    if (!isBounded || release) return true;
    locking ??= lockAny().finally(() => (locking = null));
    return locking;
  };

  const disconnect = () => {
    isWanted = false;
    if (connection?.reader) connection.reader.cancel();
    else if (connection) connection.abortController.abort();
    else htmx.trigger(live, "htmx:abort");
    release?.();
    release = null;
  };
  const connect = async () => {
    if (isEnded || document.hidden) return;
    askedAt = performance.now();
    isWanted = true;
    const may = await mayStream();
    if (isEnded || document.hidden || !may || !isWanted) {
      disconnect();
      if (may) return;
      polls = FULL;
      poll(FULL);
    } else if (connection?.reader) connection.reader.cancel(); // and htmx connects again
    else if (connection) connection.abortController.abort();
    else {
      htmx.trigger(live, "htmx:abort"); // what is asked for and not answered
      htmx.trigger(live, "reconnect");
    }
  };
  const end = () => {
    if (isEnded) return;
    isEnded = true;
    disconnect();
    state.dataset.state = "ended";
    state.textContent = "Your session is over. ";
    const link = document.createElement("a");
    link.href = live.dataset.login;
    link.textContent = "Log in again";
    state.append(link);
    pause.hidden = true;
  };

  // Without a stream the page is read again. A server that does not answer this either is lost.
  const poll = async (why) => {
    polledAt = performance.now();
    let answer = null;
    const note = (event) => {
      answer = event.detail.ctx.response;
      if (isPaused || isEnded) event.detail.ctx.swap = "none";
    };
    state.addEventListener("htmx:after:request", note);
    await htmx.ajax("GET", location.href, { source: state, target: live, swap: "innerMorph", timeout: POLL_MS });
    state.removeEventListener("htmx:after:request", note);
    if (isEnded || document.hidden || heardAt > polledAt) return; // the stream has come meanwhile
    if (answer === null) {
      lost();
      if (!polls) connect();
    } else if (answer.status === 401) end();
    else {
      away = answer.status < 400 ? "" : "The server cannot show it now";
      polls = why;
      skewMs = Date.parse(answer.headers.get("date")) - Date.now() || skewMs;
      seen();
      tell();
    }
  };

  // A stream ends with its token. A page without one asks whether that is still valid.
  let isAsking = false;
  const askSession = async () => {
    if (isAsking) return;
    isAsking = true;
    try {
      const answer = await fetch(live.dataset.session, { cache: "no-store", signal: AbortSignal.timeout(POLL_MS) });
      if (answer.status === 401) end();
    } catch {
      // the next reading of the page tells that nobody answers
    }
    isAsking = false;
  };

  pause.hidden = false;
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
    pause.textContent = isPaused ? "Go on" : "Pause view";
    tell();
    if (isPaused) return;
    if (polls) poll(polls);
    else connect(); // which begins with how it is now
  });

  const heard = () => {
    const now = performance.now();
    if (polls && now - askedAt > FIRST_MS) return false; // it was held back, and is of before
    heardAt = now;
    polls = "";
    return true;
  };
  live.addEventListener("htmx:sse:before:connection", (event) => {
    if (!isWanted) event.detail.connection.cancelled = true;
  });
  live.addEventListener("htmx:sse:after:connection", (event) => {
    connection = event.detail.connection;
  });
  live.addEventListener("htmx:sse:before:message", (event) => {
    if (!heard()) event.detail.cancelled = true;
    else if (!event.detail.message.event) {
      away = "";
      if (isPaused) event.detail.cancelled = true;
      seen();
      tell();
    }
  });
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
  live.addEventListener("htmx:sse:error", (event) => {
    if (event.detail.status === 401) end();
    else if (!polls) lost();
  });
  live.addEventListener("htmx:response:error", (event) => {
    if (event.target !== live) return;
    if (event.detail.ctx.response.status === 401) end();
    else if (!polls) lost();
  });
  live.addEventListener("htmx:sse:close", () => {
    connection = null;
    if (isWanted) setTimeout(() => htmx.trigger(live, "reconnect")); // once htmx has forgotten this one
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) disconnect();
    else connect();
  });
  document.addEventListener("DOMContentLoaded", connect); // htmx has begun by then

  setInterval(() => {
    if (document.hidden || isEnded) return;
    if (polls && state.dataset.state !== "lost") askSession();
    if (isPaused) return;
    const now = performance.now();
    const quietMs = now - Math.max(askedAt, heardAt);
    if (polls) {
      if (isWanted && quietMs >= FIRST_MS) disconnect();
      if (now - askedAt >= RETRY_MS) connect();
      if (now - polledAt >= POLL_MS) poll(polls);
    } else if (quietMs >= (heardAt > askedAt ? SILENT_MS : FIRST_MS) && now - polledAt >= POLL_MS) poll(HELD);
  }, 1000);
})();
