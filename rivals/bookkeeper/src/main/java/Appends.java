import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Scanner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.IntFunction;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;

/**
 * Synchronous appends of many clients to BookKeeper's ledgers.
 *
 * <p>{@code Appends format URI} prepares the coordination service for an ensemble. {@code Appends run
 * URI PAYLOAD LOGS} opens so many ledgers, each written to three bookies of which two must have synced
 * an entry, and says {@code ready}. For each line {@code CLIENTS WARM_UP_MS MS} on standard input so
 * many clients, dealt to the ledgers, have one append each on the way, the next one begun when the
 * answer to the last has arrived; their results are one line of JSON. The clients are calls under
 * way and no threads: that is the least that the client's own side can cost.
 */
public final class Appends {
    private static final byte[] PASSWORD = "amcast".getBytes();

    private Appends() {}

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "format" -> {
                ServerConfiguration conf = new ServerConfiguration();
                conf.setMetadataServiceUri(args[1]);
                if (!BookKeeperAdmin.initNewCluster(conf)) {
                    throw new IllegalStateException("the ensemble cannot be prepared at " + args[1]);
                }
            }
            case "run" -> run(args[1], Integer.parseInt(args[2]), Integer.parseInt(args[3]));
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    private static void run(String uri, int payload, int logs) throws Exception {
        ClientConfiguration conf = new ClientConfiguration();
        conf.setMetadataServiceUri(uri);
        try (BookKeeper client = BookKeeper.newBuilder(conf).build()) {
            List<WriteHandle> ledgers = new ArrayList<>();
            for (int i = 0; i < logs; i++) {
                ledgers.add(client.newCreateLedgerOp()
                        .withEnsembleSize(3)
                        .withWriteQuorumSize(3)
                        .withAckQuorumSize(2)
                        .withDigestType(DigestType.CRC32C)
                        .withPassword(PASSWORD)
                        .execute()
                        .get(60, TimeUnit.SECONDS));
            }
            System.out.println("ready");
            byte[] value = new byte[payload];
            Arrays.fill(value, (byte) 'v');
            Scanner lines = new Scanner(System.in);
            while (lines.hasNextLine()) {
                String[] words = lines.nextLine().trim().split(" ");
                int clients = Integer.parseInt(words[0]);
                long warmUp = Long.parseLong(words[1]) * 1_000_000;
                long time = Long.parseLong(words[2]) * 1_000_000;
                System.out.println(measure(ledgers, value, clients, warmUp, time));
            }
        }
    }

    private static String measure(
            List<WriteHandle> ledgers, byte[] value, int clients, long warmUp, long time)
            throws Exception {
        long from = System.nanoTime() + warmUp;
        long until = from + time;
        CountDownLatch running = new CountDownLatch(clients);
        AtomicReference<Throwable> failed = new AtomicReference<>();
        IntFunction<Client> begin = n ->
                new Client(ledgers.get(n % ledgers.size()), value, from, until, running, failed);
        List<Client> all = new ArrayList<>();
        for (int n = 0; n < clients; n++) {
            all.add(begin.apply(n));
        }
        all.forEach(Client::append);
        running.await();
        if (failed.get() != null) {
            throw new IllegalStateException(failed.get());
        }
        int count = all.stream().mapToInt(c -> c.count).sum();
        long[] seen = new long[count];
        int at = 0;
        for (Client c : all) {
            System.arraycopy(c.seen, 0, seen, at, c.count);
            at += c.count;
        }
        Arrays.sort(seen);
        return String.format(
                Locale.ROOT,
                "{\"appends\":%d,\"mean_ns\":%.0f,\"p50_ns\":%d,\"p99_ns\":%d}",
                count,
                Arrays.stream(seen).average().orElse(0),
                count == 0 ? 0 : seen[count / 2],
                count == 0 ? 0 : seen[(int) (count * 0.99)]);
    }

    /** One client: its calls come one after the other. */
    private static final class Client {
        private final WriteHandle ledger;
        private final byte[] value;
        private final long from;
        private final long until;
        private final CountDownLatch running;
        private final AtomicReference<Throwable> failed;
        private long[] seen = new long[1024];
        private int count;

        Client(
                WriteHandle ledger,
                byte[] value,
                long from,
                long until,
                CountDownLatch running,
                AtomicReference<Throwable> failed) {
            this.ledger = ledger;
            this.value = value;
            this.from = from;
            this.until = until;
            this.running = running;
            this.failed = failed;
        }

        void append() {
            long begun = System.nanoTime();
            ledger.appendAsync(value).whenComplete((entry, why) -> {
                long now = System.nanoTime();
                if (why != null) {
                    failed.set(why);
                } else if (begun >= from && now < until) {
                    if (count == seen.length) {
                        seen = Arrays.copyOf(seen, 2 * count);
                    }
                    seen[count++] = now - begun;
                }
                if (why != null || now >= until) {
                    running.countDown();
                } else {
                    append();
                }
            });
        }
    }
}
