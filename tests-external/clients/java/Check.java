// Comparisons that end the script where they do not hold, and are counted.
import java.util.Arrays;
import java.util.Random;

class Check {
    static int count = 0;

    static void same(String what, Object got, Object wanted) {
        count++;
        if (wanted == null ? got != null : !wanted.equals(got)) {
            throw new AssertionError(what + ": " + got + ", and not " + wanted);
        }
    }

    static void equal(String what, Object got, byte[] wanted) {
        same(what, got instanceof byte[] && Arrays.equals((byte[]) got, wanted), true);
    }

    /** The clients' own threads would keep the program alive behind an error. */
    static void endWithAnyError() {
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            System.exit(1);
        });
    }

    /** As hard to compress as can be. */
    static byte[] bytes(int length) {
        byte[] bytes = new byte[length];
        new Random(1).nextBytes(bytes);
        return bytes;
    }
}
