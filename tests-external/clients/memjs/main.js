// memjs with its defaults against a server. usage: node main.js PORT
const assert = require("node:assert/strict");
const { randomBytes } = require("node:crypto");
const memjs = require("memjs");

let checks = 0;
function same(got, wanted, what) {
  checks++;
  assert.deepEqual(got, wanted, what);
}

async function values(client) {
  const text = async (key) => (await client.get(key)).value?.toString() ?? null;
  same(await text("none"), null, "get of nothing");
  same(await client.set("k", "text", { expires: 100 }), true, "set");
  same(await text("k"), "text", "get");
  same(await client.add("k", "other", {}), false, "add of what is there");
  same(await client.add("added", "other", {}), true, "add");
  same(await client.replace("none", "other", {}), false, "replace of nothing");
  same(await client.replace("k", "new", {}), true, "replace");
  same(await client.append("k", "!"), true, "append");
  same(await text("k"), "new!", "get");
  same(await client.touch("k", 100), true, "touch");
  same(await client.touch("none", 100), false, "touch of nothing");
  same(await client.delete("k"), true, "delete");
  same(await client.delete("k"), false, "delete of nothing");
  const number = async (call, by) => (await client[call]("n", by, { initial: 10 })).value;
  same(await number("increment", 5), 10, "incr of nothing");
  same(await number("increment", 5), 15, "incr");
  same(await number("decrement", 20), 0, "decr");
}

async function large(client) {
  const value = randomBytes(768_000);
  same(await client.set("large", value, {}), true, "set of a large value");
  same((await client.get("large")).value.equals(value), true, "get of a large value");
  await assert.rejects(client.set("too-large", Buffer.alloc(2_000_000), {}));
  same((await client.get("added")).value.toString(), "other", "get behind it");
}

async function main() {
  const client = memjs.Client.create(`127.0.0.1:${process.argv[2]}`, { timeout: 10 });
  await client.flush();
  await values(client);
  await large(client);
  client.close();
  const { version } = require("memjs/package.json");
  console.log(`memjs ${version} (binary): ${checks} checks`);
}

main();
