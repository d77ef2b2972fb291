// lettuce with its defaults against a server. usage: java LettuceClient PORT VERSION
import io.lettuce.core.KeyScanCursor;
import io.lettuce.core.LettuceFutures;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanCursor;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.RedisAsyncCommands;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.ByteArrayCodec;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.TimeUnit;

class LettuceClient {
    static void same(String what, Object got, Object wanted) {
        if (wanted == null ? got != null : !wanted.equals(got)) {
            throw new AssertionError(what + ": " + got + ", and not " + wanted);
        }
    }

    static void refused(String words, Runnable call) {
        try {
            call.run();
        } catch (RedisCommandExecutionException error) {
            if (error.getMessage().contains(words)) {
                return;
            }
            throw error;
        }
        throw new AssertionError(words + ": it was not refused");
    }

    static void values(RedisCommands<String, String> redis) {
        same("SET", redis.set("k", "v", SetArgs.Builder.ex(100)), "OK");
        same("GET", redis.get("k"), "v");
        same("TTL", redis.ttl("k") > 90, true); // a machine may be busy
        same("SET NX", redis.set("k", "w", SetArgs.Builder.nx()), null);
        same("GET of nothing", redis.get("none"), null);
        same("MSET", redis.mset(Map.of("a", "1", "b", "2")), "OK");
        same("MGET", redis.mget("a", "b").get(1).getValue(), "2");
        same("MGET of nothing", redis.mget("none").get(0).hasValue(), false);
        same("MSETNX", redis.msetnx(Map.of("a", "3", "new", "3")), false);
        same("RENAME", redis.rename("a", "c"), "OK");
        same("INCR", redis.incr("n"), 1L);
        same("INCRBY", redis.incrby("n", 41), 42L);
        same("DECRBY", redis.decrby("n", 43), -1L);
        same("EXISTS", redis.exists("b", "c", "none"), 2L);
        same("DEL", redis.del("b", "c", "none"), 2L);
        same("PERSIST", redis.persist("k"), true);
        same("TTL of none", redis.ttl("k"), -1L);
    }

    static void scan(RedisCommands<String, String> redis) {
        Set<String> wanted = new HashSet<>();
        for (int number = 0; number < 200; number++) {
            redis.set("scanned:" + number, "x");
            wanted.add("scanned:" + number);
        }
        Set<String> told = new HashSet<>();
        ScanCursor at = ScanCursor.INITIAL;
        while (!at.isFinished()) {
            KeyScanCursor<String> page = redis.scan(at, ScanArgs.Builder.matches("scanned:*"));
            told.addAll(page.getKeys());
            at = page;
        }
        same("SCAN", told, wanted);
    }

    static void bytesOfAnyKind(RedisCommands<byte[], byte[]> redis) {
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

    static void pipelines(StatefulRedisConnection<String, String> connection) throws Exception {
        RedisAsyncCommands<String, String> redis = connection.async();
        connection.setAutoFlushCommands(false);
        List<RedisFuture<String>> replies = new ArrayList<>();
        for (int number = 0; number < 1000; number++) {
            redis.set("p" + number, "" + number);
            replies.add(redis.get("p" + number));
        }
        connection.flushCommands();
        connection.setAutoFlushCommands(true);
        RedisFuture<?>[] all = replies.toArray(new RedisFuture<?>[0]);
        same("a pipeline", LettuceFutures.awaitAll(10, TimeUnit.SECONDS, all), true);
        for (int number = 0; number < 1000; number++) {
            same("a reply of it", replies.get(number).get(), "" + number);
        }
    }

    static void transactions(
            RedisCommands<String, String> redis, RedisCommands<String, String> other) {
        redis.multi();
        redis.set("t", "1");
        redis.incr("t");
        TransactionResult done = redis.exec();
        same("EXEC", List.of(done.get(0), done.get(1)), List.of("OK", 2L));
        redis.watch("t");
        other.set("t", "7");
        redis.multi();
        redis.set("t", "8");
        same("EXEC of what has changed", redis.exec().wasDiscarded(), true);
        redis.watch("t");
        redis.get("t");
        redis.multi();
        redis.incr("t");
        same("EXEC behind WATCH", redis.exec().get(0), 8L);
    }

    public static void main(String[] args) throws Exception {
        RedisURI where = RedisURI.create("127.0.0.1", Integer.parseInt(args[0]));
        where.setTimeout(Duration.ofSeconds(20));
        RedisClient client = RedisClient.create(where);
        StatefulRedisConnection<String, String> connection = client.connect();
        RedisCommands<String, String> redis = connection.sync();
        redis.flushall();
        values(redis);
        scan(redis);
        bytesOfAnyKind(client.connect(ByteArrayCodec.INSTANCE).sync());
        pipelines(connection);
        transactions(redis, client.connect().sync());
        refused("unknown command", () -> redis.lpush("l", "1"));
        refused("unknown command", () -> redis.eval("return 1", ScriptOutputType.INTEGER));
        refused("not an integer", () -> redis.incr("k"));
        same("PING", redis.ping(), "PONG");
        client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
        System.out.println("lettuce " + args[1]);
    }
}
