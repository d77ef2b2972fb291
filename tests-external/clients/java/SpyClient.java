// spymemcached with its defaults in both protocols against a server.
// usage: java SpyClient PORT VERSION
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import net.spy.memcached.AddrUtil;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.ConnectionFactoryBuilder.Protocol;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.compat.log.SLF4JLogger;

class SpyClient {
    static void values(MemcachedClient client) throws Exception {
        Check.same("get of nothing", client.get("none"), null);
        Check.same("set", client.set("k", 100, "text").get(), true);
        Check.same("get", client.get("k"), "text");
        Check.same("add of what is there", client.add("k", 0, "other").get(), false);
        Check.same("add", client.add("added", 0, "other").get(), true);
        Check.same("replace of nothing", client.replace("none", 0, "other").get(), false);
        Check.same("replace", client.replace("k", 0, "new").get(), true);
        Check.same("append", client.append("k", "!").get(), true);
        Check.same("prepend", client.prepend("k", "?").get(), true);
        CASValue<Object> held = client.gets("k");
        Check.same("gets", held.getValue(), "?new!");
        Check.same("cas", client.cas("k", held.getCas(), "swapped"), CASResponse.OK);
        Check.same("cas of an older item", client.cas("k", held.getCas(), "x"), CASResponse.EXISTS);
        Check.same("cas of nothing", client.cas("none", held.getCas(), "x"), CASResponse.NOT_FOUND);
        Check.same("get", client.get("k"), "swapped");
        Check.same("touch", client.touch("k", 100).get(), true);
        Check.same("delete", client.delete("k").get(), true);
        Check.same("delete of nothing", client.delete("k").get(), false);
        Check.same("set number", client.set("n", 0, "10").get(), true);
        Check.same("incr", client.incr("n", 5), 15L);
        Check.same("decr", client.decr("n", 20), 0L);
        Check.same("incr of nothing", client.incr("none", 1), -1L);
    }

    static void many(MemcachedClient client) throws Exception {
        Map<String, Object> wanted = new HashMap<>();
        for (int number = 0; number < 300; number++) {
            wanted.put("many" + number, "value " + number);
            Check.same("set", client.set("many" + number, 0, "value " + number).get(), true);
        }
        wanted.put("none", "none");
        Map<String, Object> got = client.getBulk(wanted.keySet());
        wanted.remove("none");
        Check.same("get of many", got, wanted);
    }

    static void large(MemcachedClient client) throws Exception {
        byte[] value = Check.bytes(768_000);
        Check.same("set of a large value", client.set("large", 0, value).get(), true);
        Check.equal("get of a large value", client.get("large"), value);
        boolean taken;
        try {
            taken = client.set("too-large", 0, Check.bytes(2_000_000)).get();
        } catch (ExecutionException refused) {
            taken = false;
        }
        Check.same("set of what is too large", taken, false);
        Check.same("get behind it", client.get("added"), "other");
    }

    public static void main(String[] words) throws Exception {
        System.setProperty("net.spy.log.LoggerImpl", SLF4JLogger.class.getName());
        Check.endWithAnyError();
        for (Protocol protocol : new Protocol[] {Protocol.TEXT, Protocol.BINARY}) {
            MemcachedClient client = new MemcachedClient(
                    new ConnectionFactoryBuilder().setProtocol(protocol).setOpTimeout(10_000).build(),
                    AddrUtil.getAddresses("127.0.0.1:" + words[0]));
            Check.same("flush_all", client.flush().get(), true);
            values(client);
            many(client);
            large(client);
            Check.same("versions", client.getVersions().size(), 1);
            Check.same("stats", client.getStats().size(), 1);
            client.shutdown();
        }
        System.out.println("spymemcached " + words[1] + " (text, binary): " + Check.count + " checks");
    }
}
