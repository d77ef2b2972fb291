// xmemcached with its defaults in both protocols against a server. usage: java XClient PORT VERSION
import java.util.HashMap;
import java.util.Map;
import net.rubyeye.xmemcached.CommandFactory;
import net.rubyeye.xmemcached.GetsResponse;
import net.rubyeye.xmemcached.MemcachedClient;
import net.rubyeye.xmemcached.MemcachedClientBuilder;
import net.rubyeye.xmemcached.XMemcachedClientBuilder;
import net.rubyeye.xmemcached.command.BinaryCommandFactory;
import net.rubyeye.xmemcached.command.TextCommandFactory;
import net.rubyeye.xmemcached.exception.MemcachedException;
import net.rubyeye.xmemcached.transcoders.SerializingTranscoder;
import net.rubyeye.xmemcached.utils.AddrUtil;

class XClient {
    static void values(MemcachedClient client) throws Exception {
        Check.same("get of nothing", client.get("none"), null);
        Check.same("set", client.set("k", 100, "text"), true);
        Check.same("get", client.get("k"), "text");
        Check.same("add of what is there", client.add("k", 0, "other"), false);
        Check.same("add", client.add("added", 0, "other"), true);
        Check.same("replace of nothing", client.replace("none", 0, "other"), false);
        Check.same("replace", client.replace("k", 0, "new"), true);
        Check.same("append", client.append("k", "!"), true);
        Check.same("prepend", client.prepend("k", "?"), true);
        GetsResponse<String> held = client.gets("k");
        Check.same("gets", held.getValue(), "?new!");
        Check.same("cas", client.cas("k", 0, "swapped", held.getCas()), true);
        Check.same("cas of an older item", client.cas("k", 0, "x", held.getCas()), false);
        Check.same("get", client.get("k"), "swapped");
        Check.same("touch", client.touch("k", 100), true);
        Check.same("delete", client.delete("k"), true);
        Check.same("delete of nothing", client.delete("k"), false);
        Check.same("incr of nothing", client.incr("n", 5, 10), 10L);
        Check.same("incr", client.incr("n", 5), 15L);
        Check.same("decr", client.decr("n", 20), 0L);
    }

    static void many(MemcachedClient client) throws Exception {
        Map<String, String> wanted = new HashMap<>();
        for (int number = 0; number < 300; number++) {
            wanted.put("many" + number, "value " + number);
            Check.same("set", client.set("many" + number, 0, "value " + number), true);
        }
        wanted.put("none", "none");
        Map<String, String> got = client.get(wanted.keySet());
        wanted.remove("none");
        Check.same("get of many", got, wanted);
    }

    static void large(MemcachedClient client) throws Exception {
        byte[] value = Check.bytes(768_000);
        Check.same("set of a large value", client.set("large", 0, value), true);
        Check.equal("get of a large value", client.get("large"), value);
        boolean taken;
        try {
            taken = client.set("too-large", 0, Check.bytes(2_000_000));
        } catch (MemcachedException refused) {
            taken = false;
        }
        Check.same("set of what is too large", taken, false);
        Check.same("get behind it", client.get("added"), "other");
    }

    public static void main(String[] words) throws Exception {
        Check.endWithAnyError();
        for (CommandFactory factory :
                new CommandFactory[] {new TextCommandFactory(), new BinaryCommandFactory()}) {
            MemcachedClientBuilder builder =
                    new XMemcachedClientBuilder(AddrUtil.getAddresses("127.0.0.1:" + words[0]));
            builder.setCommandFactory(factory);
            builder.setOpTimeout(10_000);
            // Its own limit of 1 MiB is raised, so that the server is asked.
            builder.setTranscoder(new SerializingTranscoder(16_000_000));
            MemcachedClient client = builder.build();
            client.flushAll();
            values(client);
            many(client);
            large(client);
            Check.same("versions", client.getVersions().size(), 1);
            Check.same("stats", client.getStats().size(), 1);
            client.shutdown();
        }
        System.out.println("xmemcached " + words[1] + " (text, binary): " + Check.count + " checks");
    }
}
