// jedis with its defaults against a server. usage: java JedisClient PORT VERSION
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;

class JedisClient {
    static void same(String what, Object got, Object wanted) {
        if (wanted == null ? got != null : !wanted.equals(got)) {
            throw new AssertionError(what + ": " + got + ", and not " + wanted);
        }
    }

    static void refused(String words, Runnable call) {
        try {
            call.run();
        } catch (JedisDataException error) {
            if (error.getMessage().contains(words)) {
                return;
            }
            throw error;
        }
        throw new AssertionError(words + ": it was not refused");
    }

    static void values(Jedis redis) {
        same("SET", redis.set("k", "v", SetParams.setParams().ex(100)), "OK");
        same("GET", redis.get("k"), "v");
        same("TTL", redis.ttl("k") > 90, true); // a machine may be busy
        same("SET NX", redis.set("k", "w", SetParams.setParams().nx()), null);
        same("GET of nothing", redis.get("none"), null);
        same("MSET", redis.mset("a", "1", "b", "2"), "OK");
        same("MGET", redis.mget("a", "none", "b"), Arrays.asList("1", null, "2"));
        same("MSETNX", redis.msetnx("a", "3", "new", "3"), 0L);
        same("RENAME", redis.rename("a", "c"), "OK");
        same("INCR", redis.incr("n"), 1L);
        same("INCRBY", redis.incrBy("n", 41), 42L);
        same("DECRBY", redis.decrBy("n", 43), -1L);
        same("EXISTS", redis.exists("b", "c", "none"), 2L);
        same("DEL", redis.del("b", "c", "none"), 2L);
        same("PERSIST", redis.persist("k"), 1L);
        same("TTL of none", redis.ttl("k"), -1L);
    }

    static void scan(Jedis redis) {
        Set<String> wanted = new HashSet<>();
        for (int number = 0; number < 200; number++) {
            redis.set("scanned:" + number, "x");
            wanted.add("scanned:" + number);
        }
        Set<String> told = new HashSet<>();
        String at = ScanParams.SCAN_POINTER_START;
        do {
            ScanResult<String> page = redis.scan(at, new ScanParams().match("scanned:*"));
            told.addAll(page.getResult());
            at = page.getCursor();
        } while (!at.equals(ScanParams.SCAN_POINTER_START));
        same("SCAN", told, wanted);
    }

    static void bytesOfAnyKind(Jedis redis) {
        byte[] key = {'\r', '\n', 0, ' ', (byte) 0xff};
        for (int length : new int[] {1_000_000, 5_000_000}) {
            byte[] large = new byte[length];
            new Random(7).nextBytes(large);
            same("SET of a large value", redis.set(key, large), "OK");
            same("GET of it", Arrays.equals(redis.get(key), large), true);
            same("STRLEN of it", redis.strlen(key), (long) length);
            same("DEL of it", redis.del(key), 1L);
        }
    }

    static void pipelines(Jedis redis) {
        Pipeline pipe = redis.pipelined();
        List<Response<String>> replies = new ArrayList<>();
        for (int number = 0; number < 1000; number++) {
            pipe.set("p" + number, "" + number);
            replies.add(pipe.get("p" + number));
        }
        pipe.sync();
        for (int number = 0; number < 1000; number++) {
            same("a reply of a pipeline", replies.get(number).get(), "" + number);
        }
    }

    static void transactions(Jedis redis, Jedis other) {
        Transaction transaction = redis.multi();
        transaction.set("t", "1");
        transaction.incr("t");
        same("EXEC", transaction.exec(), List.of("OK", 2L));
        redis.watch("t");
        other.set("t", "7");
        transaction = redis.multi();
        transaction.set("t", "8");
        same("EXEC of what has changed", transaction.exec(), null);
        redis.watch("t");
        redis.get("t");
        transaction = redis.multi();
        transaction.incr("t");
        same("EXEC behind WATCH", transaction.exec(), List.of(8L));
    }

    public static void main(String[] args) {
        int port = Integer.parseInt(args[0]);
        try (Jedis redis = new Jedis("127.0.0.1", port);
                Jedis other = new Jedis("127.0.0.1", port)) {
            redis.flushAll();
            values(redis);
            scan(redis);
            bytesOfAnyKind(redis);
            pipelines(redis);
            transactions(redis, other);
            refused("unknown command", () -> redis.lpush("l", "1"));
            refused("unknown command", () -> redis.eval("return 1"));
            refused("not an integer", () -> redis.incr("k"));
            same("PING", redis.ping(), "PONG");
        }
        System.out.println("jedis " + args[1]);
    }
}
