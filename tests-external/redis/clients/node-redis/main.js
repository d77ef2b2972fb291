// node-redis with its defaults against a server. usage: node main.js PORT
const assert = require("node:assert/strict");
const { randomBytes } = require("node:crypto");
const { createClient, RESP_TYPES, WatchError } = require("redis");

async function values(redis) {
  assert.equal(await redis.set("k", "v", { expiration: { type: "EX", value: 100 } }), "OK");
  assert.equal(await redis.get("k"), "v");
  assert.ok((await redis.ttl("k")) > 90); // A machine may be busy.
  assert.equal(await redis.set("k", "w", { condition: "NX" }), null);
  assert.equal(await redis.get("none"), null);
  assert.equal(await redis.mSet([["a", "1"], ["b", "2"]]), "OK");
  assert.deepEqual(await redis.mGet(["a", "none", "b"]), ["1", null, "2"]);
  assert.equal(await redis.incr("n"), 1);
  assert.equal(await redis.incrBy("n", 41), 42);
  assert.equal(await redis.decrBy("n", 43), -1);
  assert.equal(await redis.exists(["a", "b", "none"]), 2);
  assert.equal(await redis.del(["a", "b", "none"]), 2);
  assert.equal(await redis.persist("k"), 1);
  assert.equal(await redis.ttl("k"), -1);
}

async function bytesOfAnyKind(redis) {
  const raw = redis.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
  const key = Buffer.from("\r\n\0 \xff", "latin1");
  const large = randomBytes(5_000_000);
  assert.equal(await redis.set(key, large), "OK");
  assert.ok(large.equals(await raw.get(key)));
  assert.equal(await redis.strLen(key), large.length);
  assert.equal(await redis.del(key), 1);
}

async function pipelines(redis) {
  // What is asked for in one go leaves as one pipeline.
  const asked = [];
  for (let number = 0; number < 1000; number++) {
    asked.push(redis.set(`p${number}`, number), redis.get(`p${number}`));
  }
  const replies = await Promise.all(asked);
  for (let number = 0; number < 1000; number++) {
    assert.equal(replies[2 * number + 1], `${number}`);
  }
  assert.deepEqual(await redis.multi().set("t", 1).incr("t").exec(), ["OK", 2]);
  await redis.watch("t");
  assert.deepEqual(await redis.multi().incr("t").exec(), [3]);
  const other = redis.duplicate();
  await other.connect();
  await redis.watch("t");
  await other.set("t", "7");
  await assert.rejects(redis.multi().set("t", "8").exec(), WatchError);
  await other.close();
  assert.equal(await redis.mSetNX({ t: "1", new: "2" }), 0);
  assert.equal(await redis.rename("t", "u"), "OK");
  assert.equal(await redis.get("u"), "7");
}

async function main() {
  const redis = createClient({ url: `redis://127.0.0.1:${process.argv[2]}` });
  await redis.connect();
  await redis.flushAll();
  await values(redis);
  await bytesOfAnyKind(redis);
  await pipelines(redis);
  await assert.rejects(redis.lPush("l", "1"), /unknown command/);
  await assert.rejects(redis.eval("return 1"), /unknown command/);
  await assert.rejects(redis.incr("k"), /not an integer/);
  assert.equal(await redis.ping(), "PONG");
  await redis.close();
  console.log("node-redis", require("redis/package.json").version);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
