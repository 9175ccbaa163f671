// Peers in processes of their own, from C: written to, stopped and continued, killed.
#define _GNU_SOURCE
#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define SIZE (16 * MIB)

typedef struct peer {
    pid_t pid;
    FILE *to, *from;
    char url[LINKSPAN_URL_SIZE];
    linkspan_remote remote;
} peer;

// The child's part: it offers memory and does what it is told, line by line, until its input ends.
static int child(int path) {
    linkspan_context *context = context_over(path);
    linkspan_transport *transport;
    OK(linkspan_transport_open(context, 0, &transport));
    linkspan_memory *memory = memory_of(SIZE);
    linkspan_remote remote = expose(transport, memory);
    char url[LINKSPAN_URL_SIZE];
    OK(linkspan_transport_bind(transport, url, sizeof url));
    printf("%s ", url);
    for (size_t n = 0; n < sizeof remote.bytes; n++) {
        printf("%02x", remote.bytes[n]);
    }
    printf("\n");
    fflush(stdout);
    unsigned seed;
    while (scanf("%u", &seed) == 1) {
        uint64_t value = 0;
        const int32_t status = linkspan_wait_for_write(transport, LONG, &value);
        printf("%d %llu %d\n", status, (unsigned long long)value, filled(bytes_of(memory), MIB, seed));
        fflush(stdout);
    }
    return 0;
}

static peer start(int path) {
    int in[2], out[2];
    CHECK(!pipe2(in, O_CLOEXEC) && !pipe2(out, O_CLOEXEC));
    peer p;
    char number[2] = {(char)('0' + path), 0};
    p.pid = fork();
    if (p.pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        execl("/proc/self/exe", "processes", number, (char *)NULL);
        _exit(99);
    }
    CHECK(p.pid > 0);
    close(in[0]);
    close(out[1]);
    p.to = fdopen(in[1], "w");
    p.from = fdopen(out[0], "r");
    char hex[2 * LINKSPAN_REMOTE_SIZE + 1];
    CHECK(fscanf(p.from, "%255s %80s", p.url, hex) == 2);
    uint8_t bytes[LINKSPAN_REMOTE_SIZE];
    for (size_t n = 0; n < sizeof bytes; n++) {
        unsigned byte;
        CHECK(sscanf(hex + 2 * n, "%2x", &byte) == 1);
        bytes[n] = (uint8_t)byte;
    }
    OK(linkspan_remote_decode(bytes, sizeof bytes, &p.remote));
    return p;
}

// What the child says of the next write: notified, and with these bytes.
static void expect(peer *p, uint64_t value, unsigned seed) {
    int status, right;
    unsigned long long got;
    fprintf(p->to, "%u\n", seed);
    fflush(p->to);
    CHECK(fscanf(p->from, "%d %llu %d", &status, &got, &right) == 3);
    CHECK(status == LINKSPAN_OK && got == value && right);
}

static void end(peer *p, int killed) {
    int status;
    fclose(p->to);
    fclose(p->from);
    CHECK(waitpid(p->pid, &status, 0) == p->pid);
    CHECK(killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

typedef struct side {
    linkspan_context *context;
    linkspan_transport *transport;
    linkspan_memory *memory;
} side;

static side connect_to(const peer *p, int path) {
    side s = {context_over(path), NULL, memory_of(SIZE)};
    OK(linkspan_transport_open(s.context, 0, &s.transport));
    OK(linkspan_transport_connect(s.transport, p->url, LONG));
    return s;
}

static void leave(side s) {
    OK(linkspan_transport_close(s.transport));
    OK(linkspan_memory_release(s.memory, 0));
    OK(linkspan_context_close(s.context));
}

static void the_peer_may_be_another_process(int path) {
    peer p = start(path);
    side s = connect_to(&p, path);
    for (unsigned round = 1; round < 4; round++) {
        fill(s.memory, round);
        linkspan_notify n = note(round * 10);
        OK(linkspan_write(s.transport, all_of(s.memory), &p.remote, &n, LONG, NULL));
        expect(&p, round * 10, round);
    }
    memset(bytes_of(s.memory), 0, SIZE);
    OK(linkspan_read(s.transport, all_of(s.memory), &p.remote, LONG, NULL));
    CHECK(filled(bytes_of(s.memory), SIZE, 3));
    end(&p, 0);
    leave(s);
}

static void write_timeout_production_disconnected_peer(int path) {
    peer p = start(path);
    side s = connect_to(&p, path);
    // Longer than what a writer copies alone, over shared memory.
    OK(linkspan_write(s.transport, part_of(s.memory, 0, 2 * MIB), &p.remote, NULL, LONG, NULL));
    CHECK(!kill(p.pid, SIGSTOP));
    sleep_ms(50);
    // Stopped, not dead: it cannot confirm that it reads the old path no longer.
    const int64_t began = now_ms();
    IS(LINKSPAN_TIMED_OUT_UNREVOKED, linkspan_write(s.transport, part_of(s.memory, 0, 2 * MIB), &p.remote, NULL, 100, NULL));
    const int64_t took = now_ms() - began;
    CHECK(took >= 99 && took < 8000);
    CHECK(!kill(p.pid, SIGCONT));
    fill(s.memory, 5);
    linkspan_notify n = note(6);
    OK(linkspan_write(s.transport, part_of(s.memory, 0, MIB), &p.remote, &n, LONG, NULL));
    expect(&p, 6, 5);
    end(&p, 0);
    leave(s);
}

static void a_killed_peer_is_reported_and_the_next_one_works_at_once(int path) {
    for (int step = 0; step < 3; step++) {
        peer p = start(path);
        side s = connect_to(&p, path);
        linkspan_op *op;
        if (step == 0) {
            OK(linkspan_wait_for_write_start(s.transport, LINKSPAN_FOREVER, &op));
        } else if (step == 1) {
            OK(linkspan_write_start(s.transport, all_of(s.memory), &p.remote, NULL, LINKSPAN_FOREVER, &op));
        } else {
            OK(linkspan_read_start(s.transport, all_of(s.memory), &p.remote, LINKSPAN_FOREVER, &op));
        }
        CHECK(!kill(p.pid, SIGKILL));
        const int32_t status = linkspan_op_wait(op, NULL);
        CHECK(status == LINKSPAN_BROKEN || (step > 0 && status == LINKSPAN_OK));
        OK(linkspan_op_free(op));
        IS(LINKSPAN_BROKEN, linkspan_wait_for_write(s.transport, LINKSPAN_FOREVER, NULL));
        const int64_t began = now_ms();
        IS(LINKSPAN_BROKEN, linkspan_write(s.transport, all_of(s.memory), &p.remote, NULL, LINKSPAN_FOREVER, NULL));
        CHECK(now_ms() - began < 5000);
        end(&p, 1);
        leave(s);
    }
    the_peer_may_be_another_process(path);
}

// Two users who trust each other and are on this host, with keys that are nobody else's.
static const struct {
    const char *name, *private_key, *public_key;
} users[] = {
    {"alice", "0101010101010101010101010101010101010101010101010101010101010101", "pOCSkrZRwni5dyxWn1+puxPZBrRqtoyd+dwrRAn4ogk="},
    {"bob", "0202020202020202020202020202020202020202020202020202020202020202", "zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk="},
};

// A file of this user, of which nobody else knows.
static void put(const char *dir, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/linkspan/%s", dir, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    CHECK(!close(fd));
}

// The keys of user number `own`, which the environment leads to from now on.
static void be_user(const char *dir, int own) {
    char path[256], line[256];
    snprintf(path, sizeof path, "%s/linkspan", dir);
    CHECK(mkdir(path, 0700) == 0 || errno == EEXIST);
    put(dir, "key", users[own].private_key);
    snprintf(line, sizeof line, "linkspan1 %s %s 127.0.0.1\n", users[!own].public_key, users[!own].name);
    put(dir, "peers", line);
    CHECK(!setenv("XDG_CONFIG_HOME", dir, 1) && !setenv("LINKSPAN_IFNAME", "=lo", 1) && !setenv("LINKSPAN_STATS_DIR", "off", 1));
}

// The child's part: bob serves an endpoint and a listener, until its input ends.
static int serving_child(const char *dir) {
    be_user(dir, 1);
    linkspan_context *context;
    linkspan_endpoint *endpoint;
    linkspan_listener *listener;
    uint16_t port, other;
    OK(linkspan_context_paired(0, &context));
    OK(linkspan_endpoint_open(context, 0, "hub", &endpoint));
    OK(linkspan_listener_open(context, 0, &listener));
    OK(linkspan_endpoint_serve_at(endpoint, 0, &port));
    OK(linkspan_listener_serve_at(listener, 0, &other));
    printf("%u %u\n", port, other);
    fflush(stdout);
    return getchar() == EOF ? 0 : 1;
}

static void a_paired_host_is_found_by_its_name(int path) {
    if (path != 0) {
        return;
    }
    char ours[] = "/tmp/linkspan-alice-XXXXXX", theirs[] = "/tmp/linkspan-bob-XXXXXX", command[256];
    CHECK(mkdtemp(ours) && mkdtemp(theirs));
    linkspan_context *context;
    CHECK(!setenv("XDG_CONFIG_HOME", ours, 1));
    IS(LINKSPAN_NO_KEY, linkspan_context_paired(0, &context));
    be_user(ours, 0);
    int in[2], out[2];
    CHECK(!pipe2(in, O_CLOEXEC) && !pipe2(out, O_CLOEXEC));
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        execl("/proc/self/exe", "processes", "serve", theirs, (char *)NULL);
        _exit(99);
    }
    CHECK(pid > 0);
    close(in[0]);
    close(out[1]);
    FILE *from = fdopen(out[0], "r");
    unsigned port, other;
    CHECK(fscanf(from, "%u %u", &port, &other) == 2);
    IS(LINKSPAN_VALUE, linkspan_context_paired(2, &context));
    OK(linkspan_context_paired(0, &context));
    linkspan_endpoint *endpoint, *unpaired;
    linkspan_transport *transport;
    OK(linkspan_endpoint_open(context, 0, "alice", &endpoint));
    OK(linkspan_transport_open(context, 0, &transport));
    char host[64];
    snprintf(host, sizeof host, "bob:%u", port);
    OK(linkspan_endpoint_connect_host(endpoint, "hub", host, LONG));
    snprintf(host, sizeof host, "bob:%u", other);
    linkspan_peer_name name;
    OK(linkspan_transport_peer_name(transport, &name));
    IS(0, strcmp(name.name, ""));
    OK(linkspan_transport_connect_host(transport, host, LONG));
    OK(linkspan_transport_peer_name(transport, &name));
    IS(0, strcmp(name.name, "bob"));
    IS(LINKSPAN_NULL, linkspan_transport_peer_name(transport, NULL));
    IS(LINKSPAN_UNKNOWN_HOST, linkspan_transport_connect_host(transport, "eve.invalid", 100));
    IS(LINKSPAN_NO_ANSWER, linkspan_endpoint_connect_host(endpoint, "eve", "bob:1", 100));
    OK(linkspan_endpoint_open(NULL, 0, "alice", &unpaired));
    IS(LINKSPAN_NOT_PAIRED, linkspan_endpoint_connect_host(unpaired, "hub", host, LONG));
    IS(LINKSPAN_NOT_PAIRED, linkspan_endpoint_serve_at(unpaired, 0, NULL));
    OK(linkspan_endpoint_close(unpaired));
    OK(linkspan_endpoint_close(endpoint));
    OK(linkspan_transport_close(transport));
    OK(linkspan_context_close(context));
    close(in[1]);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    fclose(from);
    snprintf(command, sizeof command, "rm -r %s %s", ours, theirs);
    CHECK(system(command) == 0);
}

int main(int argc, char **argv) {
    if (argc > 2) {
        return serving_child(argv[2]);
    }
    if (argc > 1) {
        return child(argv[1][0] - '0');
    }
    static const struct {
        const char *name;
        void (*run)(int path);
    } tests[] = {
        {"the_peer_may_be_another_process", the_peer_may_be_another_process},
        {"write_timeout_production_disconnected_peer", write_timeout_production_disconnected_peer},
        {"a_killed_peer_is_reported_and_the_next_one_works_at_once",
         a_killed_peer_is_reported_and_the_next_one_works_at_once},
        {"a_paired_host_is_found_by_its_name", a_paired_host_is_found_by_its_name},
    };
    for (size_t n = 0; n < sizeof tests / sizeof *tests; n++) {
        for (int path = 0; path < PATHS; path++) {
            tests[n].run(path);
        }
        printf("  %s\n", tests[n].name);
        fflush(stdout);
    }
    return 0;
}
