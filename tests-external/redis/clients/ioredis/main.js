// ioredis with its defaults against a server. usage: node main.js PORT
const assert = require("node:assert/strict");
const { randomBytes } = require("node:crypto");
const Redis = require("ioredis");

async function values(redis) {
  assert.equal(await redis.set("k", "v", "EX", 100), "OK");
  assert.equal(await redis.get("k"), "v");
  assert.ok((await redis.ttl("k")) > 90); // A machine may be busy.
  assert.equal(await redis.set("k", "w", "NX"), null);
  assert.equal(await redis.get("none"), null);
  assert.equal(await redis.mset("a", 1, "b", 2), "OK");
  assert.deepEqual(await redis.mget("a", "none", "b"), ["1", null, "2"]);
  assert.equal(await redis.incr("n"), 1);
  assert.equal(await redis.incrby("n", 41), 42);
  assert.equal(await redis.decrby("n", 43), -1);
  assert.equal(await redis.exists("a", "b", "none"), 2);
  assert.equal(await redis.del("a", "b", "none"), 2);
  assert.equal(await redis.persist("k"), 1);
  assert.equal(await redis.ttl("k"), -1);
}

async function bytesOfAnyKind(redis) {
  const key = Buffer.from("\r\n\0 \xff", "latin1");
  const large = randomBytes(5_000_000);
  assert.equal(await redis.set(key, large), "OK");
  assert.ok(large.equals(await redis.getBuffer(key)));
  assert.equal(await redis.strlen(key), large.length);
  assert.equal(await redis.del(key), 1);
}

async function pipelines(redis) {
  const pipe = redis.pipeline();
  for (let number = 0; number < 1000; number++) {
    pipe.set(`p${number}`, number).get(`p${number}`);
  }
  const replies = await pipe.exec();
  assert.equal(replies.length, 2000);
  for (let number = 0; number < 1000; number++) {
    assert.deepEqual(replies[2 * number + 1], [null, `${number}`]);
  }
  const transaction = await redis.multi().set("t", 1).incr("t").exec();
  assert.deepEqual(transaction, [[null, "OK"], [null, 2]]);
  await redis.watch("t");
  assert.deepEqual(await redis.multi().incr("t").exec(), [[null, 3]]);
  const other = redis.duplicate();
  await redis.watch("t");
  await other.set("t", 7);
  assert.equal(await redis.multi().set("t", 8).exec(), null);
  assert.equal(await other.quit(), "OK");
  assert.equal(await redis.msetnx("t", 1, "new", 2), 0);
  assert.equal(await redis.rename("t", "u"), "OK");
  assert.equal(await redis.get("u"), "7");
}

async function main() {
  const redis = new Redis(Number(process.argv[2]), "127.0.0.1");
  await redis.flushall();
  await values(redis);
  await bytesOfAnyKind(redis);
  await pipelines(redis);
  await assert.rejects(redis.lpush("l", 1), /unknown command/);
  await assert.rejects(redis.eval("return 1", 0), /unknown command/);
  await assert.rejects(redis.incr("k"), /not an integer/);
  assert.equal(await redis.ping(), "PONG");
  assert.equal(await redis.quit(), "OK");
  console.log("ioredis", require("ioredis/package.json").version);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
