// Everything that reads works without this file. It keeps a page up to date, tells the reader's zone, and goes on with what takes long.
'use strict';

const silence = 15000; // ms without news after which what is shown counts as old
const body = document.body;
const stale = document.getElementById('stale');
let fed = Date.now(); // when the last news came
let source = null;
let pressed = -Infinity; // ms since the page began: when a button of the mouse, or a key, went down that is not up
let release = 0; // the timer that ends it after the release
const moment = 300; // ms after the release in which a browser makes a click of a touch
const held = []; // news that came meanwhile
const longest = 3000; // ms of it, because a browser may not tell of the release

// The service writes all times. It learns the zone from a cookie, from the first page on.
function tellZone() {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const told = () => document.cookie.split('; ').includes('delayqueue_zone=' + zone);
  if (!zone || told()) return;
  document.cookie = 'delayqueue_zone=' + zone + '; max-age=31536000; samesite=lax';
  if (told() && zone !== body.dataset.zone && !document.querySelector('form[data-onwards]')) location.reload();
}

// put replaces the content of an element, and keeps the focus where it was, what is open, and what is ticked or typed.
function put(id, html) {
  const place = document.getElementById(id);
  if (!place) return;
  const at = place.contains(document.activeElement) ? document.activeElement : null;
  const key = at && (at.id ? '#' + CSS.escape(at.id) : at.getAttribute('href') ? `[href="${CSS.escape(at.getAttribute('href'))}"]` : '');
  const open = [...place.querySelectorAll('details[open][id]')].map((d) => d.id);
  place.innerHTML = html;
  for (const id of open) document.getElementById(id)?.setAttribute('open', '');
  if (key) place.querySelector(key)?.focus({preventScroll: true});
}

function old(why) {
  if (!stale) return;
  body.classList.toggle('old', Boolean(why));
  stale.hidden = !why;
  const at = document.getElementById('asof')?.textContent ?? '';
  const text = why ? stale.dataset.silent.replace('{at}', at) + (why === true ? '' : ' ' + why) : '';
  if (stale.textContent !== text) stale.textContent = text;
}

// news waits for the release of what is pressed, because a browser drops the click if the element is replaced in between.
function news(event) {
  fed = Date.now();
  held.push(JSON.parse(event.data));
  if (performance.now() - pressed > longest) held.splice(0).forEach(show);
}

function released() {
  pressed = -Infinity;
  held.splice(0).forEach(show);
}

function show(said) {
  if (said.error) return old(said.error);
  for (const [id, html] of Object.entries(said.parts || {})) {
    const busy = document.getElementById(id)?.querySelector('input:focus, select:focus, textarea:focus, input[type=checkbox]:checked');
    if (!busy) put(id, html);
  }
  const at = document.getElementById('asof');
  if (at) at.innerHTML = said.when;
  old('');
}

function listen() {
  if (source || document.hidden || !body.dataset.feed) return;
  source = new EventSource(body.dataset.feed);
  source.onmessage = news;
  source.onerror = () => { if (source && source.readyState === EventSource.CLOSED) hush(); };
}

function hush() {
  source?.close();
  source = null;
}

// A search, and a list of some of the messages, goes on by itself until a page is full, all was looked at, or the reader stops it.
async function goOn() {
  let more = document.getElementById('more');
  if (!more?.dataset.stop) return;
  let on = true;
  const stop = document.createElement('button');
  stop.type = 'button';
  stop.textContent = more.dataset.stop;
  stop.onclick = () => { on = false; stop.remove(); };
  const full = () => document.querySelectorAll('#list tbody tr').length >= Number(more.dataset.full);
  for (;;) {
    const next = more.querySelector('a[rel=next]');
    if (!next || !on || full()) break;
    more.append(stop);
    let page = null;
    try {
      while (document.hidden) await new Promise((seen) => document.addEventListener('visibilitychange', seen, {once: true}));
      const reply = await fetch(next.href);
      if (reply.ok) page = new DOMParser().parseFromString(await reply.text(), 'text/html');
    } catch { /* the link is still there */ }
    const list = document.getElementById('list');
    const [found, rest] = [page?.getElementById('list'), page?.getElementById('more')];
    if (!on || !found || !rest) break;
    const rows = list.querySelector('tbody');
    if (rows) rows.append(...found.querySelectorAll('tbody tr'));
    else list.replaceChildren(...found.childNodes);
    more.replaceWith(rest);
    more = rest;
  }
  stop.remove();
  const some = more.querySelector('a[rel=next]') || document.querySelector('#list tbody tr');
  if (!some) document.querySelectorAll('p.all').forEach((offer) => offer.remove());
}

tellZone();
goOn();
document.querySelector('form[data-onwards]')?.submit();
if (body.dataset.feed) {
  // A page that nobody sees asks for nothing: browsers have few connections to one server.
  document.addEventListener('visibilitychange', () => { if (document.hidden) hush(); else listen(); });
  window.addEventListener('pagehide', hush);
  window.addEventListener('pageshow', listen);
  for (const down of ['pointerdown', 'keydown']) {
    document.addEventListener(down, (e) => {
      if (e.repeat) return;
      pressed = performance.now();
      clearTimeout(release); // of what was pressed before
    }, true);
  }
  for (const up of ['pointerup', 'pointercancel', 'keyup']) {
    document.addEventListener(up, () => {
      clearTimeout(release);
      release = setTimeout(released, moment);
    }, true);
  }
  setInterval(() => {
    if (document.hidden) return;
    if (Date.now() - fed > silence) old(true);
    listen();
  }, 3000);
  listen();
}
