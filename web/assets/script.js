// Everything that reads works without this file. It keeps a page up to date, and shows times in the reader's own zone.
'use strict';

const silence = 15000; // ms without news after which what is shown counts as old
const body = document.body;
const stale = document.getElementById('stale');
let fed = Date.now(); // when the last news came
let asOf = new Date(); // what they were of
let source = null;

const pad = (n) => String(n).padStart(2, '0');
const clock = (t) => `${pad(t.getHours())}:${pad(t.getMinutes())}:${pad(t.getSeconds())}`;
const day = (t) => `${t.getFullYear()}-${pad(t.getMonth() + 1)}-${pad(t.getDate())}`;

function local(root) {
  for (const at of root.querySelectorAll('time[datetime]')) {
    const t = new Date(at.dateTime);
    if (isNaN(t)) continue;
    at.title = at.dateTime;
    at.textContent = at.dataset.format === 'clock' ? clock(t).slice(0, 5) : (day(t) === day(new Date()) ? '' : day(t) + ' ') + clock(t);
  }
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
  local(place);
  if (key) place.querySelector(key)?.focus({preventScroll: true});
}

function old(why) {
  if (!stale) return;
  body.classList.toggle('old', Boolean(why));
  stale.hidden = !why;
  const text = why ? stale.dataset.silent.replace('{at}', clock(asOf)) + (why === true ? '' : ' ' + why) : '';
  if (stale.textContent !== text) stale.textContent = text;
}

function news(event) {
  const said = JSON.parse(event.data);
  fed = Date.now();
  if (said.error) return old(said.error);
  asOf = new Date(said.at);
  for (const [id, html] of Object.entries(said.parts || {})) {
    const busy = document.getElementById(id)?.querySelector('input:focus, select:focus, textarea:focus, input[type=checkbox]:checked');
    if (!busy) put(id, html);
  }
  const at = document.querySelector('#asof time');
  if (at) { at.dateTime = said.at; local(at.parentNode); }
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

local(document);
document.querySelector('form[data-onwards]')?.submit();
if (body.dataset.feed) {
  const at = document.querySelector('#asof time');
  if (at) asOf = new Date(at.dateTime);
  // A page that nobody sees asks for nothing: browsers have few connections to one server.
  document.addEventListener('visibilitychange', () => { if (document.hidden) hush(); else listen(); });
  window.addEventListener('pagehide', hush);
  window.addEventListener('pageshow', listen);
  setInterval(() => {
    if (document.hidden) return;
    if (Date.now() - fed > silence) old(true);
    listen();
  }, 3000);
  listen();
}
