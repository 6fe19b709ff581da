// BullMQ's process of the comparison: it takes the orders of ../worker.go from standard input, a line of JSON each, and
// answers each by a line. Usage: node worker.mjs host:port
import { openSync, writeSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { Queue, Worker } from 'bullmq';

const [host, port] = process.argv[2].split(':');
const connection = { host, port: Number(port), maxRetriesPerRequest: null };
const name = 'bench', size = 500, senders = 64, indexDigits = 8;
const filler = 'x'.repeat(100 - indexDigits);
const queue = new Queue(name, { connection, defaultJobOptions: { removeOnComplete: true } });
const clock = () => performance.now(); // ms, for what something took; BullMQ compares instants with Date.now()

const payload = (i) => String(i).padStart(indexDigits, '0') + filler;
const job = (i, delay) => ({ name, data: { payload: payload(i) }, opts: { delay } });
const hour = 3600_000;
const delays = { now: () => 0, soon: () => 2000, hour: () => hour, day: () => hour + Math.random() * 24 * hour };
const promise = () => {
  let resolve;
  return { done: new Promise((r) => { resolve = r; }), resolve };
};
const sleep = (ms) => new Promise((r) => setTimeout(r, ms));

// callersDo calls work(i) for i = 0, 1, …, by so many callers at a time, while more(i) says so.
async function callersDo(callers, more, work) {
  let next = 0;
  await Promise.all(Array.from({ length: callers }, async () => {
    while (more(next)) await work(next++);
  }));
  return next;
}

const add = (i, delay) => queue.add(name, { payload: payload(i) }, { delay });
// It keeps whole milliseconds, and counts a delay from the timestamp.
const addAt = (i, due) => {
  const timestamp = Date.now();
  return queue.add(name, { payload: payload(i) }, { timestamp, delay: Math.max(0, due - timestamp) });
};
const addMany = (from, to, delay) =>
  queue.addBulk(Array.from({ length: to - from }, (_, k) => job(from + k, delay(from + k))));

// A tally of n messages.
function tally(n) {
  const t = { came: new Array(n).fill(0), arrived: 0, twice: 0, charged: 0, all: promise() };
  t.mark = (j) => {
    const i = Number(j.data.payload.slice(0, indexDigits));
    if (t.came[i]) {
      t.twice++;
    } else {
      t.came[i] = Date.now();
      if (++t.arrived === n) t.all.resolve();
    }
    t.charged = Math.max(t.charged, j.attemptsMade + j.stalledCounter);
  };
  return t;
}

const consume = async (workers, handle) => {
  const worker = new Worker(name, handle, { connection, concurrency: workers });
  worker.on('error', (err) => { console.error('bullmq:', err.message); });
  await worker.waitUntilReady();
  return worker;
};

let held; // the tally of begin

const orders = {
  async send({ n: least, callers, seconds, due }) {
    const from = clock(), end = from + 1000 * seconds, delay = delays[due];
    const more = (i) => i < least || clock() < end;
    let n;
    if (callers > 0) {
      n = await callersDo(callers, more, (i) => add(i, delay()));
    } else {
      n = size * await callersDo(1, (i) => more(i * size), (i) => addMany(i * size, (i + 1) * size, delay));
    }
    return { n, seconds: (clock() - from) / 1000 };
  },

  async fill({ n, due }) {
    const from = clock();
    await callersDo(2, (i) => i * size < n, (i) => addMany(i * size, Math.min((i + 1) * size, n), delays[due]));
    return { n, seconds: (clock() - from) / 1000 };
  },

  async drain({ n, workers, patience }) {
    const t = tally(n), from = clock();
    const worker = await consume(workers, async (j) => t.mark(j));
    await Promise.race([t.all.done, sleep(1000 * patience)]);
    const seconds = (clock() - from) / 1000;
    await worker.close();
    return { n: t.arrived, seconds, twice: t.twice };
  },

  async late({ n, workers, seconds, ahead, patience }) {
    const t = tally(n), first = Date.now() + 1000 * ahead;
    const due = Array.from({ length: n }, () => first + Math.floor(Math.random() * 1000 * seconds));
    const worker = await consume(workers, async (j) => t.mark(j));
    await callersDo(senders, (i) => i < n, (i) => addAt(i, due[i]));
    if (Date.now() > first) throw new Error(`it took longer than ${ahead} s to send the messages`);
    await Promise.race([t.all.done, sleep(1000 * (ahead + seconds + patience))]);
    await worker.close();
    const ms = t.came.flatMap((came, i) => (came ? [came - due[i]] : []));
    return { n: t.arrived, ms, twice: t.twice };
  },

  async begin({ n, workers, hold, takes, note, patience }) {
    held = tally(n);
    const file = note && openSync(note, 'w');
    await consume(workers, async (j) => {
      held.mark(j);
      if (takes) await sleep(takes);
      if (note) writeSync(file, `${j.data.payload.slice(0, indexDigits)} ${Date.now()}\n`);
      if (hold) await new Promise(() => {});
    });
    if (!hold) return {};
    await Promise.race([held.all.done, sleep(1000 * patience)]);
    if (held.arrived < n) throw new Error(`the handlers have ${held.arrived} messages of ${n} after ${patience} s`);
    return {};
  },

  // await waits for the n messages of begin.
  async await({ patience }) {
    await Promise.race([held.all.done, sleep(1000 * patience)]);
    return { n: held.arrived, ms: held.came.filter((came) => came), twice: held.twice, charged: held.charged };
  },

  async hello() { return {}; },

  async left() {
    const counts = await queue.getJobCounts('active', 'delayed', 'failed', 'paused', 'prioritized', 'wait');
    return { n: Object.values(counts).reduce((a, b) => a + b, 0) };
  },
};

process.stdin.on('end', () => process.exit(0)); // in the middle of an order, too: a bench that was killed says nothing
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  let answer;
  try {
    answer = await orders[order.do](order);
  } catch (err) {
    answer = { error: `bullmq: ${err.stack}` };
  }
  process.stdout.write(JSON.stringify(answer) + '\n');
}
