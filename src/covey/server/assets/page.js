// The live page of a site: polls its state as JSON, and shows it by DOM calls alone.
"use strict";

const EVERY_MS = 2000; // between two polls
const LATE_MS = 8000; // without an answer
const MAP_EVERY = 5; // polls between two maps
const CELLS = 400; // of a map
const KEY = "covey-token"; // in the storage of the tab
const NONE = "\u2013";
const KINDS = { own: "own function", peer: "peer", context_only: "peer, sees the cell only" };
const STATES = { open: "ready", resting: "resting", over_budget: "over budget", "not asked": "not asked" };

// -- elements -------------------------------------------------------------------------------------

const find = (id) => document.getElementById(id);
// Characters that cannot be seen, or that turn text around, are marked.
const plain = (text) => String(text).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, "\uFFFD");

function fill(element, attributes, inside) {
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, typeof value === "number" ? Math.round(10 * value) / 10 : plain(value));
  }
  element.replaceChildren(...inside.map((part) => (part instanceof Node ? part : plain(part))));
  return element;
}

const html = (name, attributes, ...inside) => fill(document.createElement(name), attributes, inside);
const svg = (name, attributes, ...inside) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, inside);
const text = (x, y, kind, words) => svg("text", { x, y, class: kind }, words);
const line = (x1, y1, x2, y2, kind, more = {}) => svg("line", { x1, y1, x2, y2, class: kind, ...more });
const box = (x, y, width, height, kind, more = {}) => svg("rect", { x, y, width, height, class: kind, ...more });

function titled(title, element) {
  element.prepend(svg("title", {}, title));
  return element;
}

const shown = new Map(); // what elements hold, by their ids

// Replace what an element holds if it differs; tables keep the focus and where they were scrolled.
function put(id, value, make = (words) => [words]) {
  const key = JSON.stringify(value);
  if (shown.get(id) !== key) {
    shown.set(id, key);
    fill(find(id), {}, make(value));
  }
}

// A unit of a drawing is a pixel.
const widthOf = (id, most) => Math.min(most, find(id).parentElement.clientWidth);

function draw(id, width, height, label, parts) {
  fill(find(id), { viewBox: `0 0 ${width} ${height}`, width, height, "aria-label": label }, parts);
}

// -- numbers --------------------------------------------------------------------------------------

const count = (number) => number.toLocaleString("en");
const percent = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(2)} %` : NONE);
const sum = (items, of) => items.reduce((whole, item) => whole + of(item), 0);
const short = (name, most) => (name.length > most ? `${name.slice(0, most - 1)}\u2026` : name);
const when = (at) => new Date(1000 * at).toISOString().replace("T", " ").slice(0, 19); // UTC
const clock = (at) => when(at).slice(11);

function amount(value) {
  if (value === null || value === undefined) {
    return NONE;
  }
  return Math.abs(value) >= 10000 ? count(Math.round(value)) : String(Number(value.toPrecision(4)));
}

function bytes(number) {
  const power = Math.min(4, Math.floor(Math.log2(Math.max(1, number)) / 10));
  return `${Number((number / 1024 ** power).toPrecision(3))} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

function duration(seconds) {
  const minutes = Math.floor(seconds / 60);
  const sizes = { d: Math.floor(minutes / 1440), h: Math.floor(minutes / 60) % 24, min: minutes % 60 };
  const parts = Object.entries(sizes).filter(([, size]) => size);
  return parts.map(([unit, size]) => `${size} ${unit}`).join(" ") || `${Math.floor(seconds)} s`;
}

// -- the top and the tiles ------------------------------------------------------------------------

function showTop(state) {
  const needs = state.conditions;
  const words = [state.is_ready ? ["good", "ready"] : ["bad", "not ready"]];
  if (needs.length) {
    words.push(["bad", `${needs.length} ${needs.length > 1 ? "things need" : "thing needs"} you`]);
  }
  find("needs").hidden = !needs.length;
  put("conditions", needs.map(({ level, text, remedy, since }) => [level, text, remedy, since]), (lines) =>
    lines.map(([level, said, remedy, since]) => html("li", {}, html("b", { class: level }, level), ` ${said}. `,
      html("span", { class: "how" }, `What helps: ${remedy}. Since ${when(since)} UTC.`))));
  put("state", words, () =>
    words.flatMap(([kind, said], place) => [place ? " \u00b7 " : "", html("span", { class: kind }, said)]));
  const facts = [`slot ${count(state.slot)}`, `up for ${duration(state.uptime_s)}`, `start ${count(state.starts)}`];
  put("facts", [...facts, `as of ${clock(state.at)} UTC`].join(" \u00b7 "));
}

const signed = (value) => `${value < 0 ? "\u2212" : "+"}${Math.abs(value).toFixed(2)}`;

// Return the gain on rows that all own functions answered, and what it is said of.
function gainOf({ gain, account }) {
  if (gain === null) {
    return ["unknown", "set shadow in [node] to draw rows for it"];
  }
  const income = account?.earned ? `; income from peers, ${amount(account.earned)}, is apart` : "";
  if (gain.points === null) {
    return ["unknown", `${count(gain.rows)} of ${count(gain.needed)} rows drawn so far${income}`];
  }
  const { mean, low, high } = gain.points;
  const money = gain.value ? `, or ${signed(mean * gain.value.amount)} ${gain.value.currency} in 100 rows` : "";
  const ends = `95 % interval ${signed(low)} to ${signed(high)}`;
  return [`${signed(mean)} points`, `over ${gain.best_own} on ${count(gain.rows)} rows (${ends})${money}${income}`];
}

function showTiles(state) {
  const tile = (id, value, note) =>
    put(id, [value, note], () => [html("b", {}, value), html("small", {}, note)]);
  tile("gain", ...gainOf(state));
  const decisions = sum(state.arms, (arm) => arm.decisions);
  const spent = sum(state.arms, (arm) => arm.spent);
  const whose = state.ensemble ? "of the site's own vote, " : "";
  tile("error", percent(state.labels - state.right, state.labels), `${whose}of all ${count(state.labels)} labels`);
  tile("cost", amount(spent), decisions ? `${amount(spent / decisions)} per decision` : "no decision yet");
  tile("decisions", count(decisions), `and ${count(sum(state.arms, (arm) => arm.served))} for peers`);
  tile("pending", count(state.open_tickets), "may still come");
  tile("undelivered", count(state.owed), "labels that wait in the store");
  tile("queue", count(state.in_progress), `${count(state.waiting)} wait`);
  tile("cells", count(state.cells), "known parts of the context space");
  const isFile = state.store_bytes !== null;
  const free = isFile ? `${bytes(state.free_bytes)} free on its disk` : "in a database";
  tile("store", isFile ? bytes(state.store_bytes) : NONE, free);
}

// -- over time ------------------------------------------------------------------------------------

const SPANS = {
  minutes: { every: 60, length: 3600, tick: 900, name: "the last hour" },
  hours: { every: 3600, length: 86400, tick: 21600, name: "the last day" },
};

// Return 1, 2 or 5 times a power of ten that is not less.
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((digit) => digit * power).find((bound) => bound >= value * 0.9999);
}

// Draw values over time: the line ends where a minute or an hour has none.
function chart(id, name, points, span, now, unit) {
  const [wide, tall, left, begin] = [widthOf(id, 640), 150, 56, now - span.length];
  const most = nice(Math.max(...points.map((point) => point.value), 1e-9));
  const x = (at) => left + ((at - begin) / span.length) * (wide - left - 12);
  const y = (value) => 8 + (1 - value / most) * tall;
  const parts = [0, most / 2, most].flatMap((value) => [
    line(left, y(value), wide - 12, y(value), "grid"),
    text(left - 6, y(value) + 4, "tick side", `${Number(value.toPrecision(3))}${unit}`),
  ]);
  for (let at = Math.ceil(begin / span.tick) * span.tick; at <= now; at += span.tick) {
    parts.push(line(x(at), 8, x(at), 8 + tall, "grid"));
    parts.push(text(Math.min(x(at), wide - 18), tall + 26, "tick", clock(at).slice(0, 5)));
  }
  const way = points.map((point, place) => {
    const follows = place > 0 && point.at - points[place - 1].at <= span.every;
    return `${follows ? "L" : "M"}${x(point.at).toFixed(1)},${y(point.value).toFixed(1)}`;
  });
  parts.push(svg("path", { d: way.join(""), class: "line" }));
  const heaviest = Math.max(...points.map((point) => point.weight), 1);
  for (const point of points) {
    const r = 1.5 + 2.5 * Math.sqrt(point.weight / heaviest);
    const dot = svg("circle", { cx: x(point.at), cy: y(point.value), r, class: "dot" });
    parts.push(titled(`${clock(point.at)}: ${amount(point.value)}${unit}, of ${count(point.weight)}`, dot));
  }
  const end = points.length ? `${amount(points.at(-1).value)}${unit} at the end` : "nothing to show";
  draw(id, wide, tall + 34, `${name} in ${span.name}, ${end}`, parts);
}

function showSeries(state) {
  const span = SPANS[find("span").value];
  const points = state[find("span").value].filter((point) => point.at >= state.at - span.length);
  const of = (key) => sum(points, (point) => point[key]);
  const error = percent(of("labels") - of("right"), of("labels"));
  const cost = of("decisions") ? amount(of("cost") / of("decisions")) : NONE;
  put("sums", `error ${error} of ${count(of("labels"))} labels, cost ${cost} of ${count(of("decisions"))} decisions`);
  const errors = points.filter((point) => point.labels).map(({ at, labels, right }) =>
    ({ at, value: 100 * (1 - right / labels), weight: labels }));
  chart("error-chart", "Error", errors, span, state.at, " %");
  const costs = points.filter((point) => point.decisions).map((point) =>
    ({ at: point.at, value: point.cost / point.decisions, weight: point.decisions }));
  chart("cost-chart", "Cost of a decision", costs, span, state.at, "");
}

// -- the network ----------------------------------------------------------------------------------

let samples = []; // totals by peer, of the last minute

// Return the rows that this site has asked each peer, and each peer this site, in the last minute.
function lastMinute(state) {
  const asked = Object.fromEntries(state.peers.map((peer) =>
    [peer.name, sum(armsOf(state, peer), (arm) => arm.decisions)]));
  const asks = Object.fromEntries(state.peers.map((peer) => [peer.name, peer.asked]));
  const isNew = samples.length && samples.at(-1).starts !== state.starts;
  samples = [...(isNew ? [] : samples), { at: state.at, starts: state.starts, asked, asks }];
  // One is older than a minute, so that the difference covers all of it.
  samples = samples.filter((_, place) => place > samples.length - 2 || samples[place + 1].at > state.at - 60);
  const since = (now, before, name) => Math.max(0, now[name] - (before[name] ?? now[name]));
  return {
    seconds: Math.round(state.at - samples[0].at),
    asked: (peer) => since(asked, samples[0].asked, peer.name),
    asks: (peer) => since(asks, samples[0].asks, peer.name),
  };
}

const armsOf = (state, peer) => state.arms.filter((arm) => arm.peer === peer.name);

function showNetwork(state, kinds) {
  const minute = lastMinute(state);
  const [wide, row] = [widthOf("network", 560), 66];
  const [tall, near, far] = [Math.max(1, state.peers.length) * row, 0.28 * wide, 0.52 * wide];
  const head = svg("path", { d: "M0,0 L10,5 L0,10 z", class: "head" });
  const size = { markerWidth: 10, markerHeight: 10, refX: 8, refY: 5, markerUnits: "userSpaceOnUse" };
  const parts = [svg("defs", {}, svg("marker", { id: "arrow", orient: "auto", ...size }, head))];
  const told = state.peers.map((peer, place) => {
    const [arms, y, kind] = [armsOf(state, peer), (place + 0.5) * row, peer.state === "resting" ? "resting" : ""];
    const [asked, asks] = [minute.asked(peer), minute.asks(peer)];
    const link = (rows, y1, y2, isAsked) => {
      const ends = isAsked ? [near + 2, y1, far - 2, y2] : [far - 2, y2, near + 2, y1];
      const weight = { "stroke-width": 1 + Math.log2(1 + rows) / 3, ...(rows && { "marker-end": "url(#arrow)" }) };
      parts.push(line(...ends, `link ${kind} ${rows ? "" : "idle"}`, weight));
      if (rows) {
        parts.push(text(near + 0.74 * (far - near), y1 + 0.74 * (y2 - y1) + (isAsked ? -5 : 14), "rows", count(rows)));
      }
    };
    if (arms.length) {
      link(asked, tall / 2 - 5, y - 9, true);
    }
    if (asks) {
      link(asks, tall / 2 + 5, y + 9, false);
    }
    const price = arms.length && arms[0].price !== null ? `price ${amount(arms[0].price)}` : "";
    const waits = peer.owed ? `${count(peer.owed)} labels wait` : "";
    const notes = [STATES[peer.state], price, waits].filter(Boolean).join(", ");
    const letters = Math.floor((wide - far - 20) / 8);
    parts.push(titled(`${peer.name}: ${notes}`, svg("g", {},
      box(far, y - 24, wide - far - 1, 48, `box ${kind}`, { rx: 6 }),
      box(far, y - 24, 6, 48, kinds.get(arms[0]?.name ?? null), { rx: 3 }),
      text(far + 14, y - 4, "name begin", short(peer.name, letters)),
      text(far + 14, y + 14, `note begin ${kind}`, short(notes, letters + 6)))));
    return `${peer.name}: ${notes}; asked ${count(asked)} rows, asks ${count(asks)}`;
  });
  parts.push(titled(state.name, svg("g", {}, box(1, tall / 2 - 22, near - 1, 44, "box", { rx: 6 }),
    text(near / 2, tall / 2 + 5, "name", short(state.name, Math.floor(near / 9))))));
  draw("network", wide, tall, `${state.name} and its peers. ${told.join(". ")}`, parts);
  put("network-how", state.peers.length
    ? `Numbers are rows of the last ${minute.seconds} s. An arrow points to the site that is asked; ` +
      "a peer in red and dashed rests."
    : "This site has no peers.");
}

// -- the map --------------------------------------------------------------------------------------

// Own functions are grey. The colour of a peer comes from its name, so that it is the same at every
// site unless another peer has taken it.
function colours(arms) {
  const [kinds, taken] = [new Map([[null, "blank"]]), new Map()];
  for (const arm of arms) {
    if (arm.kind === "own") {
      kinds.set(arm.name, `own${(kinds.size - 1) % 6}`);
    } else {
      let number = sum([...arm.peer], (letter) => 7 * letter.codePointAt(0)) % 8;
      while (!taken.has(arm.peer) && taken.size < 8 && [...taken.values()].includes(number)) {
        number = (number + 1) % 8;
      }
      taken.set(arm.peer, taken.get(arm.peer) ?? number);
      kinds.set(arm.name, `peer${taken.get(arm.peer)}`);
    }
  }
  return kinds;
}

// Return the axes that the viewer has chosen; at first those of the cell with the most arrivals.
function chosenAxes(map) {
  const axes = map.axes.map((axis, place) => ({ ...axis, place }));
  const [first, second] = map.cells.length ? map.cells[0].places : [0, 1];
  find("axes").hidden = axes.length < 2;
  const places = [["across", first ?? 0], ["up", second ?? first ?? 0]].map(([id, usual]) => {
    const chosen = find(id).value || String(usual);
    put(id, axes.map((axis) => axis.name), (names) =>
      names.map((name, place) => html("option", { value: place }, name)));
    find(id).value = chosen;
    return Number(chosen);
  });
  return [...new Set(places)].map((place) => axes[place]).filter(Boolean);
}

const more = (tally, key, added) => tally.set(key, (tally.get(key) ?? 0) + added);
const ranked = (tally) => [...tally].sort((one, other) => other[1] - one[1]);

// Draw cells over one or two contexts. Where cells differ in others only, the arm with the most
// arrivals in them is shown.
function showMap(map, kinds) {
  const axes = chosenAxes(map);
  const [boxes, arrivals] = [new Map(), new Map()];
  for (const cell of map.cells) {
    const at = axes.map((axis) => cell.places.indexOf(axis.place));
    if (!at.includes(-1)) {
      const corners = at.flatMap((place) => [cell.low[place], cell.high[place]]);
      boxes.set(corners.join(), boxes.get(corners.join()) ?? { corners, arms: new Map() });
      more(boxes.get(corners.join()).arms, cell.arm, cell.arrivals);
      more(arrivals, cell.arm, cell.arrivals);
    }
  }
  const isStrip = axes.length < 2;
  const left = isStrip ? 12 : 84;
  const side = widthOf("map", 500) - left - 24;
  const tall = isStrip ? 60 : side;
  const parts = [...boxes.values()].map(({ corners: [x1 = 0, x2 = 1, y1 = 0, y2 = 1], arms }) => {
    const [[arm]] = ranked(arms);
    const words = `${arm ?? "no label yet"}, ${count(sum([...arms.values()], (rows) => rows))} arrivals`;
    const kind = `cell ${kinds.get(arm) ?? "blank"}`;
    return titled(words, box(left + x1 * side, 8 + (1 - y2) * tall, (x2 - x1) * side, (y2 - y1) * tall, kind));
  });
  parts.push(box(left, 8, side, tall, "frame"));
  const ticks = (axis, most) => axis.ticks.filter((_, place) => place % Math.ceil(axis.ticks.length / most) === 0);
  const word = (value) => short(typeof value === "number" ? String(Number(value.toPrecision(3))) : value, 10);
  const [across, up] = axes;
  if (across) {
    parts.push(...ticks(across, 6).map(([at, value]) => text(left + at * side, tall + 24, "tick", word(value))));
    parts.push(text(left + side / 2, tall + 46, "", short(across.name, 30)));
  }
  if (up) {
    parts.push(...ticks(up, 12).map(([at, value]) => text(left - 6, 12 + (1 - at) * tall, "tick side", word(value))));
    const turned = { x: 14, y: 8 + tall / 2, transform: `rotate(-90 14 ${8 + tall / 2})` };
    parts.push(svg("text", turned, short(up.name, 30)));
  }
  const whole = Math.max(1, sum([...arrivals.values()], (rows) => rows));
  const shares = ranked(arrivals).map(([arm, rows]) =>
    [kinds.get(arm) ?? "blank", `${arm ?? "no label yet"}, ${Math.round((100 * rows) / whole)} % of arrivals`]);
  const label = `arms preferred by ${axes.map((axis) => axis.name).join(" and ") || "the site"}`;
  draw("map", left + side + 24, tall + 54, `${label}: ${shares.map(([, share]) => share).join("; ")}`, parts);
  put("legend", shares, () => shares.map(([kind, share]) => html("li", {},
    svg("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" }, box(0, 0, 12, 12, kind)), ` ${share}`)));
  put("map-how", boxes.size
    ? "A box has the colour of the arm with the best answers less its price there; own functions are grey."
    : "No row has come yet in cells of these contexts.");
}

// -- tables and events ----------------------------------------------------------------------------

// A cell is text, a class and text, or a class and a number from 0 to 1: a bar.
function cellOf(value) {
  const [kind, said] = Array.isArray(value) ? value : ["", value];
  if (typeof said !== "number") {
    return html("td", { class: kind }, said);
  }
  const bar = { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" };
  return html("td", { class: "bars" }, svg("svg", bar, box(0, 0, 100 * said, 8, kind)));
}

function rows(id, lines) {
  put(id, lines, () => lines.map(([name, ...cells]) =>
    html("tr", {}, html("th", { scope: "row", title: name }, short(name, 32)), ...cells.map(cellOf))));
}

function showTables(state, kinds) {
  const whole = Math.max(1, sum(state.arms, (arm) => arm.decisions));
  rows("arms", state.arms.map((arm) => [
    arm.name, KINDS[arm.kind], amount(arm.price), count(arm.decisions), [kinds.get(arm.name), arm.decisions / whole],
    count(arm.served), amount(arm.spent), count(arm.labels),
  ]));
  rows("peers", state.peers.map((peer) => [
    peer.name,
    [peer.state === "resting" ? "bad" : "", STATES[peer.state]],
    amount(armsOf(state, peer)[0]?.price),
    count(sum(armsOf(state, peer), (arm) => arm.decisions)),
    count(peer.asked),
    [peer.owed ? "bad" : "", count(peer.owed)],
    amount(peer.spent_today) + (peer.budget === null ? "" : ` of ${amount(peer.budget)}`),
    state.trust.find((trust) => trust.source === peer.name)?.state ?? NONE,
  ]));
}

function showEvents(state) {
  const slots = [...state.alarm_slots].reverse().map(count).join(", ");
  const since = `${count(state.alarms)} since the start; the latest at slots ${slots}.`;
  put("alarms", state.alarms_total
    ? `${count(state.alarms_total)} alarms of the change detection, ${since}`
    : "The change detection has given no alarm.");
  put("events", state.events, () => state.events.map((event) => html("li", {},
    html("time", {}, `${when(event.at)} UTC`), " ", html("b", { class: event.level }, event.level), ` ${event.text}`)));
}

// -- polling --------------------------------------------------------------------------------------

let latest = null; // the state that is shown
let map = null; // the latest one that came
let latestMs = Date.now();
let polls = 0;
let isBusy = false;
let timer = 0;

function show(state) {
  latest = state;
  map = state.map ?? map;
  const kinds = colours(state.arms);
  showTop(state);
  showTiles(state);
  showSeries(state);
  showNetwork(state, kinds);
  showMap(map, kinds);
  showTables(state, kinds);
  showEvents(state);
}

// Show the form for a token, or the site.
function turn(isAsking) {
  find("entry").hidden = !isAsking;
  find("site").hidden = isAsking;
  find("forget").hidden = isAsking || sessionStorage.getItem(KEY) === null;
}

function ask(why) {
  sessionStorage.removeItem(KEY);
  put("refused", why);
  put("state", "");
  put("facts", "");
  turn(true);
  find("token").focus();
}

async function read() {
  const token = sessionStorage.getItem(KEY);
  const path = `/v2/models/${encodeURIComponent(document.body.dataset.model)}/state`;
  const query = map === null || polls % MAP_EVERY === 0 ? `?cells=${CELLS}` : "";
  const headers = token === null ? {} : { Authorization: `Bearer ${token}` };
  const reply = await fetch(path + query, { headers, cache: "no-store", signal: AbortSignal.timeout(LATE_MS) });
  const body = await reply.json();
  if (sessionStorage.getItem(KEY) !== token) {
    return; // it was forgotten meanwhile
  }
  if (reply.status === 401 || reply.status === 403) {
    ask(token === null && reply.status === 401 ? "" : `Refused: ${body.detail}.`);
  } else if (reply.ok) {
    polls += 1;
    latestMs = Date.now();
    turn(false);
    show(body);
  }
}

// A tab that nobody sees does not poll, nor does one that waits for a token.
async function poll() {
  clearTimeout(timer);
  if (document.hidden || isBusy) {
    return;
  }
  isBusy = true;
  await read().catch((error) => console.info(`no answer of the site: ${error.message}`));
  isBusy = false;
  tell();
  if (find("entry").hidden || sessionStorage.getItem(KEY) !== null) {
    timer = setTimeout(poll, EVERY_MS);
  }
}

function tell() {
  const isLate = find("entry").hidden && Date.now() - latestMs > LATE_MS;
  put("late", isLate ? `Out of date: the site has not answered since ${clock(latestMs / 1000)} UTC.` : "");
  document.body.classList.toggle("late", isLate);
}

find("entry").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, find("token").value.replace(/[^\x21-\x7e]/g, ""));
  find("token").value = "";
  poll();
});
find("forget").addEventListener("click", () => ask(""));
find("span").addEventListener("change", () => showSeries(latest));
["across", "up"].forEach((id) => find(id).addEventListener("change", () => showMap(map, colours(latest.arms))));
document.addEventListener("visibilitychange", poll);
setInterval(tell, 1000);
poll();
