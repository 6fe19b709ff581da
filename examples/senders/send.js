// Sends a message to a queue of delayqueue, with npm's redis (4 or later).
//
//   REDIS_ADDR=127.0.0.1:6379 node send.js QUEUE PAYLOAD [DELAY_SECONDS [RETRIES [KEY]]]
const { createHash, randomBytes } = require("crypto");
const { readFileSync } = require("fs");
const { join } = require("path");
const { createClient } = require("redis");

const script = readFileSync(join(__dirname, "../../internal/script/assembled/send.lua"));
const sha = createHash("sha1").update(script).digest("hex");
const uvarint = (n) => (n < 128 ? [n] : [(n % 128) + 128, ...uvarint(Math.floor(n / 128))]);

// A UUID of version 7: it begins with the time.
function newId() {
  const bytes = randomBytes(16);
  bytes.writeUIntBE(Date.now(), 0, 6);
  bytes[6] = (bytes[6] & 0x0f) | 0x70;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  return bytes.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

// A sender is one caller, which makes one call at a time. To repeat a call without an answer, send its number again.
function sender(redis) {
  const caller = randomBytes(16).toString("hex");
  let number = 0;
  return async function send(queue, payload, { delay = 0, retries = 3, key = "" } = {}) {
    const name = Buffer.from(key);
    const head = Buffer.from([name.length >> 8, name.length & 255]);
    const envelope = Buffer.concat([head, name, Buffer.from([0, ...uvarint(retries)]), Buffer.from(payload)]);
    const keys = ["pending", "msg", "key", "wake", "state", "holds"].map((k) => `{dq:${queue}}:${k}`);
    const id = newId();
    const shards = key ? "1+" : "1";
    const args = [`${keys.length}`, ...keys, caller, `${++number}`, shards, `${Math.ceil(delay * 1e6)}`, "1", "1", id, envelope];
    const [, refused] = await redis.sendCommand(["EVALSHA", sha, ...args]).catch((err) => {
      if (!err.message.startsWith("NOSCRIPT")) throw err;
      return redis.sendCommand(["EVAL", script, ...args]);
    });
    if (refused) throw new Error(`key "${key}" is taken by message ${refused.split("=")[1].trim()}`);
    return id;
  };
}

async function main([queue, payload, delay, retries = "3", key]) {
  const redis = createClient({
    url: `redis://${process.env.REDIS_ADDR || "127.0.0.1:6379"}`,
    socket: { reconnectStrategy: (n) => (n < 6 ? 100 * 2 ** n : new Error("no server")) }, // by default for ever
  });
  redis.on("error", () => {}); // calls say what is wrong
  await redis.connect();
  try {
    console.log(await sender(redis)(queue, payload, { delay: Number(delay || 0), retries: Number(retries), key }));
  } finally {
    await redis.quit();
  }
}

main(process.argv.slice(2)).catch((err) => {
  console.error(`not sent: ${err.message}`);
  process.exitCode = 1;
});
