<?php
// Sends a message to a queue of delayqueue, with the extension redis (phpredis 5.3 or later).
//
//   REDIS_ADDR=127.0.0.1:6379 php send.php QUEUE PAYLOAD [DELAY_SECONDS [RETRIES [KEY]]]
declare(strict_types=1);

// A Sender is one caller, which makes one call at a time.
final class Sender
{
    private string $script, $caller;
    private int $number = 0;

    public function __construct(private string $host, private int $port)
    {
        $this->script = file_get_contents(__DIR__ . '/../../internal/script/assembled/send.lua');
        $this->caller = bin2hex(random_bytes(16));
    }

    public function send(string $queue, string $payload, float $delay = 0, int $retries = 3, string $key = ''): string
    {
        $id = self::newId();
        $envelope = pack('n', strlen($key)) . $key . "\0" . self::uvarint($retries) . $payload;
        $keys = array_map(fn ($name) => "{dq:$queue}:$name", ['pending', 'msg', 'key', 'wake', 'state', 'holds']);
        $shards = $key === '' ? '1' : '1+';
        $argv = [$this->caller, ++$this->number, $shards, (int) ceil($delay * 1e6), 1, 1, $id, $envelope];
        [, $refused] = $this->call([...$keys, ...$argv], count($keys));
        if ($refused !== '') {
            throw new RuntimeException("key \"$key\" is taken by message " . trim(explode('=', $refused)[1]));
        }
        return $id;
    }

    // A call that comes twice has the effect of one, because its number is the same.
    private function call(array $args, int $keys): array
    {
        for ($attempt = 0; ; $attempt++) {
            $redis = new Redis(); // a connection that gave no answer is not used again
            try {
                $redis->connect($this->host, $this->port, 2, null, 0, 5);
                $reply = $redis->evalSha(sha1($this->script), $args, $keys);
                if ($reply === false && str_starts_with((string) $redis->getLastError(), 'NOSCRIPT')) {
                    $redis->clearLastError();
                    $reply = $redis->eval($this->script, $args, $keys);
                }
                return $reply ?: throw new RuntimeException((string) $redis->getLastError());
            } catch (RedisException $err) {
                if ($attempt === 5 || preg_match('/^[A-Z]{2,} /', $err->getMessage())) { // the server's own words
                    throw $err;
                }
                usleep(100_000 * 2 ** $attempt);
            }
        }
    }

    // A UUID of version 7: it begins with the time.
    private static function newId(): string
    {
        $bytes = substr(pack('J', (int) (microtime(true) * 1000)), 2) . random_bytes(10);
        $bytes[6] = chr(ord($bytes[6]) & 0x0f | 0x70);
        $bytes[8] = chr(ord($bytes[8]) & 0x3f | 0x80);
        return vsprintf('%s%s-%s-%s-%s-%s%s%s', str_split(bin2hex($bytes), 4));
    }

    private static function uvarint(int $n): string
    {
        return $n < 128 ? chr($n) : chr($n % 128 + 128) . self::uvarint(intdiv($n, 128));
    }
}

[$host, $port] = explode(':', getenv('REDIS_ADDR') ?: '127.0.0.1:6379');
[, $queue, $payload, $delay, $retries, $key] = $argv + [3 => '0', '3', ''];
try {
    echo (new Sender($host, (int) $port))->send($queue, $payload, (float) $delay, (int) $retries, $key), "\n";
} catch (RuntimeException | RedisException $err) {
    fwrite(STDERR, "not sent: {$err->getMessage()}\n");
    exit(1);
}
