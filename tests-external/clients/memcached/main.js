// memcached of npm with its defaults, but for the largest value, which it would check by itself,
// against a server. usage: node main.js PORT
const assert = require("node:assert/strict");
const { randomBytes } = require("node:crypto");
const { promisify } = require("node:util");
const Memcached = require("memcached");

let checks = 0;
function same(got, wanted, what) {
  checks++;
  assert.deepEqual(got, wanted, what);
}

async function values(call) {
  const text = (key) => call("get", key);
  const refused = async (what, ...words) => {
    checks++;
    await assert.rejects(call(...words), /not stored|Item is not stored/, what);
  };
  same(await text("none"), undefined, "get of nothing");
  same(await call("set", "k", "text", 100), true, "set");
  same(await text("k"), "text", "get");
  await refused("add of what is there", "add", "k", "other", 0);
  same(await call("add", "added", "other", 0), true, "add");
  await refused("replace of nothing", "replace", "none", "other", 0);
  same(await call("replace", "k", "new", 0), true, "replace");
  same(await call("append", "k", "!"), true, "append");
  same(await call("prepend", "k", "?"), true, "prepend");
  const { k, cas } = await call("gets", "k");
  same(k, "?new!", "gets");
  same(await call("cas", "k", "swapped", cas, 0), true, "cas");
  same(await call("cas", "k", "again", cas, 0), false, "cas of an older item");
  same(await text("k"), "swapped", "get");
  same(await call("touch", "k", 100), true, "touch");
  same(await call("del", "k"), true, "delete");
  same(await call("del", "k"), false, "delete of nothing");
  same(await call("set", "n", 10, 0), true, "set number");
  same(await call("incr", "n", 5), 15, "incr");
  same(await call("decr", "n", 20), 0, "decr");
  same(await call("incr", "none", 1), false, "incr of nothing");
}

async function many(call) {
  const wanted = {};
  for (let number = 0; number < 300; number++) {
    wanted[`many${number}`] = `value ${number}`;
    same(await call("set", `many${number}`, `value ${number}`, 0), true, "set");
  }
  same({ ...(await call("getMulti", [...Object.keys(wanted), "none"])) }, wanted, "get of many");
}

async function large(call) {
  const value = randomBytes(384_000).toString("hex");
  same(await call("set", "large", value, 0), true, "set of a large value");
  same((await call("get", "large")) === value, true, "get of a large value");
  same(await call("set", "too-large", "x".repeat(2_000_000), 0), false, "set of what is too large");
  // Nothing is asked behind it: the client takes a server that refuses a value for one that is gone.
}

async function main() {
  const client = new Memcached(`127.0.0.1:${process.argv[2]}`, { maxValue: 16_000_000, timeout: 10_000 });
  const call = (name, ...words) => promisify(client[name]).call(client, ...words);
  await call("flush");
  await values(call);
  await many(call);
  await large(call);
  client.end();
  const { version } = require("memcached/package.json");
  console.log(`memcached (npm) ${version} (text): ${checks} checks`);
  process.exit(0); // It would try to reach the server again for good.
}

main();
