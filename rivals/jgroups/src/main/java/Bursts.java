import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.locks.LockSupport;
import org.jgroups.BytesMessage;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.Receiver;
import org.jgroups.util.MessageBatch;

/**
 * One member of a JGroups group that broadcasts bursts in total order (SEQUENCER).
 *
 * <p>Arguments: configuration file, member's number, members. Says {@code ready} once all members are
 * in the view. Each line {@code ROUNDS BURST BURST ..} on standard input is a run: in each of the
 * rounds of a size it broadcasts a burst, and waits until it has delivered the bursts of all. A line
 * {@code {"seen":[{"latency_us":..,"per_second":..},..],"digest":..}} on standard output is what it
 * saw: the mean time from the broadcast of its own messages to its own delivery; and deliveries a
 * second from its first broadcast to its last delivery. Ends with its input.
 */
public final class Bursts implements Receiver {
    private static final int PAYLOAD_BYTES = 8;

    private final JChannel channel;
    private final byte me;
    private final int members;

    /** Deliveries of the run under way or, between two runs, of the next one. */
    private volatile long delivered;
    private volatile Thread waiting;
    private volatile long wanted = Long.MAX_VALUE;

    // Written by the thread that delivers, which is one at a time; read when a run is over.
    private long digest;
    /** As it was at the end of the run. */
    private long digestAtEnd;
    private long own;
    private final long[] latencies = new long[64];
    private final long[] lasts = new long[64];

    // Written before anything of a run is sent.
    private volatile Run run;

    /** What a run does. */
    private static final class Run {
        final int rounds;
        final int[] bursts;
        /** Deliveries at the end of each size. */
        final long[] ends;
        /** When each own message was broadcast. */
        final long[] casts;
        final long[] begins;

        Run(int rounds, int[] bursts, int members) {
            this.rounds = rounds;
            this.bursts = bursts;
            this.ends = new long[bursts.length];
            this.begins = new long[bursts.length];
            long end = 0;
            for (int i = 0; i < bursts.length; i++) {
                end += (long) rounds * bursts[i] * members;
                ends[i] = end;
            }
            casts = new long[(int) (end / members)];
        }
    }

    private Bursts(String config, byte me, int members) throws Exception {
        this.me = me;
        this.members = members;
        channel = new JChannel(config).name("m" + me).setReceiver(this);
        channel.setDiscardOwnMessages(false);
    }

    public static void main(String[] args) throws Exception {
        Bursts bursts = new Bursts(args[0], Byte.parseByte(args[1]), Integer.parseInt(args[2]));
        bursts.channel.connect("amcast-bursts");
        while (bursts.channel.getView().size() < bursts.members) {
            Thread.sleep(10);
        }
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.trim().split(" ");
            int[] sizes = new int[words.length - 1];
            for (int i = 0; i < sizes.length; i++) {
                sizes[i] = Integer.parseInt(words[i + 1]);
            }
            System.out.println(bursts.go(Integer.parseInt(words[0]), sizes));
        }
        Runtime.getRuntime().halt(0);
    }

    private String go(int rounds, int[] sizes) throws Exception {
        Run now = new Run(rounds, sizes, members);
        own = 0;
        java.util.Arrays.fill(latencies, 0);
        run = now;
        long sent = 0;
        long before = 0;
        for (int i = 0; i < sizes.length; i++) {
            for (int round = 0; round < rounds; round++) {
                for (int n = 0; n < sizes[i]; n++) {
                    byte[] payload = new byte[PAYLOAD_BYTES];
                    ByteBuffer.wrap(payload).order(ByteOrder.LITTLE_ENDIAN).putLong(sent << 8 | me);
                    long at = System.nanoTime();
                    if (round == 0 && n == 0) {
                        now.begins[i] = at;
                    }
                    now.casts[(int) sent] = at;
                    sent++;
                    channel.send(new BytesMessage(null, payload));
                }
                await(before + (long) (round + 1) * sizes[i] * members);
            }
            before = now.ends[i];
        }
        StringBuilder said = new StringBuilder("{\"seen\":[");
        for (int i = 0; i < sizes.length; i++) {
            long count = (long) rounds * sizes[i];
            double latencyUs = latencies[i] / 1e3 / count;
            double perSecond = count * members * 1e9 / Math.max(1, lasts[i] - now.begins[i]);
            said.append(i == 0 ? "" : ",");
            said.append(String.format(java.util.Locale.ROOT,
                "{\"latency_us\":%.3f,\"per_second\":%.3f}", latencyUs, perSecond));
        }
        said.append("],\"digest\":").append(Long.toUnsignedString(digestAtEnd)).append('}');
        synchronized (this) {
            // Messages that others send already belong to the next run.
            delivered -= now.ends[sizes.length - 1];
        }
        return said.toString();
    }

    private void await(long count) {
        waiting = Thread.currentThread();
        wanted = count;
        while (delivered < count) {
            LockSupport.park(this);
        }
        wanted = Long.MAX_VALUE;
    }

    @Override
    public void receive(Message message) {
        deliver(message, System.nanoTime());
    }

    @Override
    public void receive(MessageBatch batch) {
        long now = System.nanoTime();
        for (Message message : batch) {
            deliver(message, now);
        }
    }

    private synchronized void deliver(Message message, long now) {
        byte[] bytes = message.getArray();
        long word = ByteBuffer.wrap(bytes, message.getOffset(), message.getLength())
            .order(ByteOrder.LITTLE_ENDIAN).getLong();
        digest = (digest ^ word) * 0x9E3779B97F4A7C15L;
        digest ^= digest >>> 29;
        Run current = run;
        long count = delivered;
        if (current != null && count < current.ends[current.ends.length - 1]) {
            int size = 0;
            while (current.ends[size] <= count) {
                size++;
            }
            lasts[size] = now;
            if ((byte) word == me) {
                latencies[size] += now - current.casts[(int) own];
                own++;
            }
            if (count + 1 == current.ends[current.ends.length - 1]) {
                digestAtEnd = digest;
            }
        }
        delivered = count + 1;
        if (count + 1 >= wanted) {
            LockSupport.unpark(waiting);
        }
    }
}
