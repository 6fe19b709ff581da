"""Sends a message to a queue of delayqueue, with Python's standard library alone.

    REDIS_ADDR=127.0.0.1:6379 python3 send.py QUEUE PAYLOAD [DELAY_SECONDS [RETRIES [KEY]]]
"""
import hashlib, math, os, pathlib, secrets, socket, sys, time, uuid

SCRIPT = (pathlib.Path(__file__).parent / "../../internal/script/assembled/send.lua").read_bytes()


class Redis:
    def __init__(self, host, port):
        self.file = socket.create_connection((host, int(port)), timeout=5).makefile("rwb")

    def call(self, *args):
        args = [arg if isinstance(arg, bytes) else str(arg).encode() for arg in args]
        self.file.write(b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%s\r\n" % (len(arg), arg) for arg in args))
        self.file.flush()
        return self.reply()

    def reply(self):
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"$":
            return self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        if kind in (b":", b"+"):
            return rest
        raise ConnectionError("the server has hung up")


class Sender:
    """One caller, which makes one call at a time."""

    def __init__(self, connect):
        self.connect, self.caller, self.number = connect, secrets.token_hex(16), 0

    def send(self, queue, payload, delay=0.0, retries=3, key=""):
        key, self.number = key.encode(), self.number + 1
        envelope = len(key).to_bytes(2, "big") + key + b"\0" + uvarint(retries) + payload.encode()
        keys = ["{dq:%s}:%s" % (queue, name) for name in ("pending", "msg", "key", "wake", "state", "holds")]
        message = new_id()
        args = [len(keys), *keys, self.caller, self.number, "1+" if key else "1", math.ceil(delay * 1e6), 1, 1, message, envelope]
        for attempt in range(6):  # the same number: a call that comes twice has the effect of one
            try:
                redis = self.connect()
                try:
                    _, refused = redis.call("EVALSHA", hashlib.sha1(SCRIPT).hexdigest(), *args)
                except RuntimeError as err:
                    if not str(err).startswith("NOSCRIPT"):
                        raise
                    _, refused = redis.call("EVAL", SCRIPT, *args)
                break
            except OSError:  # no answer: the message may be stored
                if attempt == 5:
                    raise
                time.sleep(0.1 * 2**attempt)
        if refused:
            raise KeyError("key %r is taken by message %s" % (key.decode(), refused.decode().split("=")[1].strip()))
        return message


def new_id():
    """A UUID of version 7: it begins with the time."""
    n = time.time_ns() // 1_000_000 << 80 | secrets.randbits(80)
    return str(uuid.UUID(int=n & ~(0xF << 76 | 3 << 62) | 7 << 76 | 2 << 62))


def uvarint(n):
    return bytes([n]) if n < 128 else bytes([n % 128 + 128]) + uvarint(n // 128)


if __name__ == "__main__":
    host, port = os.environ.get("REDIS_ADDR", "127.0.0.1:6379").rsplit(":", 1)
    queue, payload, *rest = sys.argv[1:]
    delay, retries, key = rest + ["0", "3", ""][len(rest) :]
    try:
        print(Sender(lambda: Redis(host, port)).send(queue, payload, float(delay), int(retries), key))
    except (RuntimeError, OSError, KeyError) as err:
        sys.exit("not sent: %s" % err.args[-1])
