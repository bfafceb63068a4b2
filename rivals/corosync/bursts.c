/*
 * Members of a corosync closed process group (CPG) that broadcast bursts in total order.
 *
 * Arguments: a private directory, members, payload in bytes. In a network namespace of its own each
 * member has a corosync daemon at 127.0.0.1, 127.0.0.2 and so on (transport udpu), and in a mount
 * namespace its own sockets and state: nothing outside of the directory is touched, and all of it
 * ends with this process.
 *
 * Says "ready" once for each member that sees all of them. Each line "ROUNDS BURST BURST .." on
 * standard input is a run: in each of the rounds of a size every member broadcasts a burst, and waits
 * until it has delivered the bursts of all. For each member a line
 * {"seen":[{"latency_us":..,"per_second":..},..],"digest":..} says what it saw: the mean time from the
 * broadcast of its own messages to its own delivery; and deliveries a second from its first broadcast
 * to its last delivery. Ends with its input.
 */
#define _GNU_SOURCE
#include <corosync/cpg.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIZES_MAX = 64, MEMBERS_MAX = 16, PAYLOAD_MAX = 65536, PATIENCE_S = 30 };

static int members;
static int me;
static size_t payload_bytes;
static cpg_handle_t handle;
static int present;

/* A run: its sizes, and for each of them what was seen. */
static int sizes;
static long bursts[SIZES_MAX];
static long ends[SIZES_MAX]; /* deliveries at the end of each size */
static int64_t begins_ns[SIZES_MAX];
static int64_t lasts_ns[SIZES_MAX];
static int64_t latencies_ns[SIZES_MAX];
static int64_t *casts_ns; /* when each own message was broadcast */
static long casts_room;
static long own;

/* Deliveries of the run under way or, between two runs, of the next one. */
static long delivered;
static uint64_t digest;
static uint64_t digest_at_end;

static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "corosync bursts, member %d: ", me);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void on_deliver(cpg_handle_t h, const struct cpg_name *group, uint32_t node, uint32_t pid,
                       void *message, size_t length)
{
    (void)h, (void)group, (void)pid;
    uint64_t word = 0;
    memcpy(&word, message, length < sizeof word ? length : sizeof word);
    digest = (digest ^ word) * 0x9E3779B97F4A7C15ULL;
    digest ^= digest >> 29;
    if (sizes > 0 && delivered < ends[sizes - 1]) {
        int at = 0;
        while (ends[at] <= delivered)
            at++;
        int64_t now = now_ns();
        lasts_ns[at] = now;
        if (node == (uint32_t)me + 1)
            latencies_ns[at] += now - casts_ns[own++];
        if (delivered + 1 == ends[sizes - 1])
            digest_at_end = digest;
    }
    delivered++;
}

static void on_change(cpg_handle_t h, const struct cpg_name *group, const struct cpg_address *list,
                      size_t count, const struct cpg_address *left, size_t lefts,
                      const struct cpg_address *joined, size_t joins)
{
    (void)h, (void)group, (void)list, (void)left, (void)lefts, (void)joined, (void)joins;
    present = (int)count;
}

static void dispatch(int wait_ms)
{
    int fd;
    if (cpg_fd_get(handle, &fd) != CS_OK)
        die("no descriptor");
    struct pollfd polled = { .fd = fd, .events = POLLIN };
    if (poll(&polled, 1, wait_ms) < 0 && errno != EINTR)
        die("poll: %s", strerror(errno));
    if (polled.revents & POLLIN && cpg_dispatch(handle, CS_DISPATCH_ALL) != CS_OK)
        die("the daemon is gone");
}

/* One more broadcast; where the daemon takes none, deliveries are taken in first. */
static void broadcast(uint64_t word)
{
    static char payload[PAYLOAD_MAX];
    memcpy(payload, &word, sizeof word);
    struct iovec part = { .iov_base = payload, .iov_len = payload_bytes };
    cs_error_t said;
    while ((said = cpg_mcast_joined(handle, CPG_TYPE_AGREED, &part, 1)) == CS_ERR_TRY_AGAIN)
        dispatch(0);
    if (said != CS_OK)
        die("a broadcast failed: error %d", said);
}

static void run(long rounds)
{
    long end = 0;
    for (int i = 0; i < sizes; i++)
        ends[i] = end += rounds * bursts[i] * members;
    if (end / members > casts_room) {
        casts_room = end / members;
        casts_ns = realloc(casts_ns, casts_room * sizeof *casts_ns);
        if (!casts_ns)
            die("no memory");
    }
    memset(latencies_ns, 0, sizeof latencies_ns);
    own = 0;
    long sent = 0, before = 0;
    for (int i = 0; i < sizes; i++) {
        for (long round = 0; round < rounds; round++) {
            for (long n = 0; n < bursts[i]; n++) {
                int64_t at = now_ns();
                if (round == 0 && n == 0)
                    begins_ns[i] = at;
                casts_ns[sent] = at;
                broadcast((uint64_t)sent++ << 8 | (uint64_t)me);
            }
            while (delivered < before + (round + 1) * bursts[i] * members)
                dispatch(-1);
        }
        before = ends[i];
    }
    char said[SIZES_MAX * 64 + 64];
    int length = snprintf(said, sizeof said, "{\"seen\":[");
    for (int i = 0; i < sizes; i++) {
        double count = (double)rounds * bursts[i];
        double lasted = lasts_ns[i] - begins_ns[i];
        length += snprintf(said + length, sizeof said - length,
                           "%s{\"latency_us\":%.3f,\"per_second\":%.3f}", i ? "," : "",
                           latencies_ns[i] / 1e3 / count, count * members * 1e9 / lasted);
    }
    length += snprintf(said + length, sizeof said - length, "],\"digest\":%llu}\n",
                       (unsigned long long)digest_at_end);
    if (write(1, said, length) != length)
        die("nobody listens");
    delivered -= end; /* what others send already belongs to the next run */
}

/* Where a member finds its directory once it is private. */
static const char *const OWN = "/run/own";

/* Sockets, state and shared memory of its own. libqb puts its sockets into /tmp once a file asks for
 * that, and else where all of a network namespace meet. */
static void go_private(const char *directory)
{
    char overlay[600], name[16];
    snprintf(overlay, sizeof overlay, "lowerdir=/etc,upperdir=%s/etc,workdir=%s/work", directory,
             directory);
    /* By its host's name a daemon knows which node it is. */
    int length = snprintf(name, sizeof name, "n%d", me + 1);
    if (unshare(CLONE_NEWUTS) || sethostname(name, length))
        die("no name of its own: %s (run it as root)", strerror(errno));
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
        die("no mount namespace: %s (run it as root)", strerror(errno));
    if (mount("overlay", "/etc", "overlay", 0, overlay))
        die("/etc: %s", strerror(errno));
    mkdir("/etc/libqb", 0755);
    FILE *flag = fopen("/etc/libqb/force-filesystem-sockets", "w");
    if (!flag || fclose(flag))
        die("/etc/libqb: %s", strerror(errno));
    if (mount("tmpfs", "/run", "tmpfs", 0, NULL) || mkdir(OWN, 0700)
        || mount(directory, OWN, NULL, MS_BIND, NULL)
        || mount("tmpfs", "/tmp", "tmpfs", 0, NULL) || mount("tmpfs", "/dev/shm", "tmpfs", 0, NULL))
        die("a private directory: %s", strerror(errno));
}

static void write_config(const char *directory)
{
    char path[512];
    snprintf(path, sizeof path, "%s/corosync.conf", directory);
    FILE *file = fopen(path, "w");
    if (!file)
        die("%s: %s", path, strerror(errno));
    const char *more = getenv("AMCAST_COROSYNC_TOTEM");
    fprintf(file,
            "totem {\n  version: 2\n  cluster_name: amcast\n  transport: udpu\n"
            "  crypto_cipher: none\n  crypto_hash: none\n  netmtu: 8982\n%s}\n",
            more ? more : "");
    fprintf(file, "nodelist {\n");
    for (int i = 0; i < members; i++)
        fprintf(file, "  node {\n    ring0_addr: 127.0.0.%d\n    nodeid: %d\n    name: n%d\n  }\n",
                i + 1, i + 1, i + 1);
    fprintf(file, "}\nsystem {\n  state_dir: %s/state\n%s}\n", directory,
            getenv("AMCAST_COROSYNC_RR") ? "" : "  sched_rr: no\n");
    fprintf(file, "logging {\n  to_syslog: no\n  to_stderr: no\n  to_logfile: yes\n"
                  "  logfile: %s/log\n}\n", directory);
    if (fclose(file))
        die("%s: %s", path, strerror(errno));
}

static void start_daemon(const char *directory)
{
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        char config[512];
        snprintf(config, sizeof config, "%s/corosync.conf", directory);
        execlp("corosync", "corosync", "-f", "-c", config, NULL);
        die("corosync: %s", strerror(errno));
    }
}

static void join_group(void)
{
    cpg_callbacks_t callbacks = { .cpg_deliver_fn = on_deliver, .cpg_confchg_fn = on_change };
    struct cpg_name name = { .length = 6, .value = "amcast" };
    int64_t until = now_ns() + PATIENCE_S * 1000000000LL;
    while (cpg_initialize(&handle, &callbacks) != CS_OK) {
        if (now_ns() > until)
            die("corosync does not start");
        usleep(20000);
    }
    while (cpg_join(handle, &name) != CS_OK) {
        if (now_ns() > until)
            die("the group cannot be joined");
        usleep(20000);
    }
    while (present < members) {
        dispatch(100);
        if (now_ns() > until)
            die("only %d of %d members came", present, members);
    }
    if (write(1, "ready\n", 6) != 6)
        die("nobody listens");
}

static void be_member(const char *base, FILE *commands)
{
    char directory[256], path[300];
    const char *parts[] = { "", "/etc", "/work", "/state" };
    snprintf(directory, sizeof directory, "%s/n%d", base, me);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s%s", directory, parts[i]);
        mkdir(path, 0700);
    }
    go_private(directory);
    write_config(OWN);
    start_daemon(OWN);
    join_group();
    char line[1024];
    while (fgets(line, sizeof line, commands)) {
        char *word = strtok(line, " \n");
        long rounds = word ? atol(word) : 0;
        for (sizes = 0; sizes < SIZES_MAX && (word = strtok(NULL, " \n")); sizes++)
            bursts[sizes] = atol(word);
        if (rounds > 0 && sizes > 0)
            run(rounds);
    }
    exit(0);
}

int main(int count, char **args)
{
    if (count != 4)
        return fprintf(stderr, "usage: bursts DIRECTORY MEMBERS PAYLOAD_BYTES\n"), 2;
    members = atoi(args[2]);
    payload_bytes = strtoul(args[3], NULL, 10);
    if (members < 1 || members > MEMBERS_MAX || payload_bytes < 8 || payload_bytes > PAYLOAD_MAX)
        return fprintf(stderr, "1 to 16 members, payloads of 8 to 65536 bytes\n"), 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (unshare(CLONE_NEWNET))
        die("no network namespace: %s (run it as root)", strerror(errno));
    if (system("ip link set lo up"))
        die("the loopback does not come up (Debian: iproute2)");
    FILE *commands[MEMBERS_MAX];
    for (int i = 1; i < members; i++) {
        char add[64];
        snprintf(add, sizeof add, "ip addr add 127.0.0.%d/8 dev lo", i + 1);
        if (system(add))
            die("127.0.0.%d cannot be had", i + 1);
    }
    for (me = 0; me < members; me++) {
        int ends_of_pipe[2];
        if (pipe(ends_of_pipe))
            die("pipe: %s", strerror(errno));
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (int i = 0; i < me; i++)
                fclose(commands[i]);
            close(ends_of_pipe[1]);
            be_member(args[1], fdopen(ends_of_pipe[0], "r"));
        }
        close(ends_of_pipe[0]);
        commands[me] = fdopen(ends_of_pipe[1], "w");
    }
    char line[1024];
    while (fgets(line, sizeof line, stdin)) {
        for (int i = 0; i < members; i++)
            if (fputs(line, commands[i]) < 0 || fflush(commands[i]))
                die("a member is gone");
    }
    /* The members go with this process, and their daemons with them. */
    return 0;
}
