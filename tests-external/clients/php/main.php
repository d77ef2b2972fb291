<?php
// php-memcached in both protocols, and PHP's sessions in it, against a server.
// usage: php main.php PORT
$checks = 0;

function same(string $what, mixed $got, mixed $wanted): void
{
    global $checks;
    $checks++;
    if ($got !== $wanted) {
        fwrite(STDERR, "$what: " . substr(var_export($got, true), 0, 80) . "\n");
        exit(1);
    }
}

function values(Memcached $client): void
{
    same("get of nothing", $client->get("none"), false);
    same("its code", $client->getResultCode(), Memcached::RES_NOTFOUND);
    same("set", $client->set("k", "text", 100), true);
    same("get", $client->get("k"), "text");
    same("add of what is there", $client->add("k", "other"), false);
    same("add", $client->add("added", "other"), true);
    same("replace of nothing", $client->replace("none", "other"), false);
    same("replace", $client->replace("k", "new"), true);
    same("append", $client->append("k", "!"), true);
    same("prepend", $client->prepend("k", "?"), true);
    $held = $client->get("k", null, Memcached::GET_EXTENDED);
    same("gets", $held["value"], "?new!");
    same("cas", $client->cas($held["cas"], "k", "swapped"), true);
    same("cas of an older item", $client->cas($held["cas"], "k", "again"), false);
    same("its code", $client->getResultCode(), Memcached::RES_DATA_EXISTS);
    same("get", $client->get("k"), "swapped");
    same("touch", $client->touch("k", 100), true);
    same("delete", $client->delete("k"), true);
    same("delete of nothing", $client->delete("k"), false);
    same("set number", $client->set("n", 10), true);
    same("incr", $client->increment("n", 5), 15);
    same("decr", $client->decrement("n", 20), 0);
}

function many(Memcached $client): void
{
    $wanted = [];
    for ($number = 0; $number < 300; $number++) {
        $wanted["many$number"] = "value $number";
    }
    same("set of many", $client->setMulti($wanted), true);
    $got = $client->getMulti([...array_keys($wanted), "none"], Memcached::GET_PRESERVE_ORDER);
    same("get of nothing among many", $got["none"], null);
    unset($got["none"]);
    same("get of many", $got, $wanted);
}

function large(Memcached $client): void
{
    $value = random_bytes(768000);
    same("set of a large value", $client->set("large", $value), true);
    same("get of a large value", $client->get("large") === $value, true);
    same("set of what is too large", $client->set("too-large", random_bytes(2000000)), false);
    same("get behind it", $client->get("added"), "other");
}

function sessions(string $port): void
{
    ini_set("session.save_handler", "memcached");
    ini_set("session.save_path", "127.0.0.1:$port");
    ini_set("session.use_cookies", "0");
    ini_set("session.cache_limiter", "");
    session_id("laneway");
    same("session", session_start(), true);
    $_SESSION["cart"] = ["apples" => 3];
    same("write of the session", session_write_close(), true);
    $_SESSION = [];
    session_id("laneway");
    same("session again", session_start(), true);
    same("what is in it", $_SESSION, ["cart" => ["apples" => 3]]);
    same("end of the session", session_destroy(), true);
}

foreach ([false, true] as $binary) {
    $client = new Memcached();
    $client->setOption(Memcached::OPT_BINARY_PROTOCOL, $binary);
    $client->setOption(Memcached::OPT_COMPRESSION, false);
    $client->addServer("127.0.0.1", (int) $argv[1]);
    same("flush_all", $client->flush(), true);
    values($client);
    many($client);
    large($client);
    same("version", count($client->getVersion()), 1);
    $client->quit();
}
sessions($argv[1]);
$version = phpversion("memcached");
echo "php-memcached $version (text, binary): $checks checks\n";
