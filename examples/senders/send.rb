# Sends a message to a queue of delayqueue, with the gem redis (4.8 or later).
#
#   REDIS_ADDR=127.0.0.1:6379 ruby send.rb QUEUE PAYLOAD [DELAY_SECONDS [RETRIES [KEY]]]
require "digest"
require "redis"
require "securerandom"

SCRIPT = File.binread(File.join(__dir__, "../../internal/script/assembled/send.lua"))

# A Sender is one caller, which makes one call at a time.
class Sender
  def initialize(redis)
    @redis, @caller, @number = redis, SecureRandom.hex(16), 0
  end

  def send(queue, payload, delay: 0.0, retries: 3, key: "")
    id = new_id
    envelope = [key.bytesize].pack("n") + key.b + "\0".b + uvarint(retries) + payload.b
    keys = %w[pending msg key wake state holds].map { |name| "{dq:#{queue}}:#{name}" }
    shards = key.empty? ? "1" : "1+"
    argv = [@caller, @number += 1, shards, (delay * 1e6).ceil, 1, 1, id, envelope]
    _, refused = call(keys, argv)
    raise "key \"#{key}\" is taken by message #{refused.split("=")[1].strip}" unless refused.empty?
    id
  end

  private

  # A call that comes twice has the effect of one, because its number is the same.
  def call(keys, argv, attempts = 6)
    @redis.evalsha(Digest::SHA1.hexdigest(SCRIPT), keys, argv)
  rescue Redis::CommandError => e
    raise unless e.message.start_with?("NOSCRIPT")
    @redis.eval(SCRIPT, keys, argv)
  rescue Redis::BaseConnectionError
    raise if attempts <= 1
    sleep 0.1 * 2**(6 - attempts)
    call(keys, argv, attempts - 1)
  end

  # A UUID of version 7: it begins with the time.
  def new_id
    n = ((Time.now.to_f * 1000).to_i << 80) | SecureRandom.random_number(1 << 80)
    n = n & ~((0xF << 76) | (3 << 62)) | (7 << 76) | (2 << 62)
    n.to_s(16).rjust(32, "0").sub(/\A(.{8})(.{4})(.{4})(.{4})/, '\1-\2-\3-\4-')
  end

  def uvarint(n)
    n < 128 ? [n].pack("C") : [n % 128 + 128].pack("C") + uvarint(n / 128)
  end
end

host, port = ENV.fetch("REDIS_ADDR", "127.0.0.1:6379").split(":")
queue, payload, delay, retries, key = ARGV
begin
  sender = Sender.new(Redis.new(host: host, port: port.to_i))
  puts sender.send(queue, payload, delay: delay.to_f, retries: (retries || 3).to_i, key: key || "")
rescue StandardError => e
  abort "not sent: #{e.message}"
end
