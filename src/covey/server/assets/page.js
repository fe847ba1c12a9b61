// The live page: takes the newest sections from the site, and says when there are none.
"use strict";

const LATE_MS = 8000;
const AGAIN_MS = 5000;
const stale = document.getElementById("stale");
const shown = new Map();
let latest = Date.now();

function focusable(element) {
  return [...element.querySelectorAll("[tabindex], button, select")];
}

// Replace a section, but keep the focus and the places to which its tables were scrolled.
function replace(old, html) {
  const fresh = new DOMParser().parseFromString(html, "text/html").body.firstElementChild;
  const places = [...old.querySelectorAll(".wide")].map((one) => [one.scrollLeft, one.scrollTop]);
  const focused = focusable(old).indexOf(document.activeElement);
  old.replaceWith(fresh);
  fresh.querySelectorAll(".wide").forEach((one, place) => {
    [one.scrollLeft, one.scrollTop] = places[place] || [0, 0];
  });
  if (focused >= 0) {
    focusable(fresh)[focused]?.focus({ preventScroll: true });
  }
}

function take(sections) {
  for (const [id, html] of Object.entries(sections)) {
    const old = document.getElementById(id);
    // A list that is being chosen from must not close.
    const isChosen = old?.contains(document.activeElement) && document.activeElement.tagName === "SELECT";
    if (old && !isChosen && shown.get(id) !== html) {
      replace(old, html);
      shown.set(id, html);
    }
  }
}

let events = null;

// Follow the stream of the site; a tab that nobody sees leaves it.
function follow() {
  events?.close();
  events = null;
  if (document.hidden) {
    return;
  }
  events = new EventSource("/events" + location.search);
  events.onmessage = (event) => {
    take(JSON.parse(event.data));
    latest = Date.now();
    tell();
  };
  events.addEventListener("ended", () => location.reload()); // which leads to the log-in form
  events.onerror = () => {
    // The browser asks again by itself, but not after a refusal.
    if (events?.readyState === EventSource.CLOSED) {
      setTimeout(again, AGAIN_MS);
    }
  };
}

async function again() {
  const found = await fetch(location.href, { method: "HEAD", redirect: "manual" }).catch(() => null);
  if (found?.type === "opaqueredirect") {
    location.reload(); // the session has ended
  } else {
    follow();
  }
}

function tell() {
  const isLate = Date.now() - latest > LATE_MS;
  const since = new Date(latest).toLocaleTimeString();
  const told = isLate ? `Out of date: the site has not answered since ${since}.` : "";
  if (stale.textContent !== told) {
    stale.textContent = told;
    document.body.classList.toggle("stale", isLate);
  }
}

document.addEventListener("visibilitychange", follow);
follow();
setInterval(tell, 1000);
