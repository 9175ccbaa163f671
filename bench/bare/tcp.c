// What the machine itself does with 16 MiB over TCP on loopback, without any protocol: one stream and two, calls and socket
// buffers of several sizes, from and to huge pages, and a pipe in place of the sender's copy.
//
//   cc -O2 -pthread bench/bare/tcp.c -o tcp && ./tcp [ROUNDS]
//
// A round is 16 MiB and one byte of answer, as a write with a notification that is waited for; both ends spin. Prints the best, the
// median and the least of the rounds, GB/s.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { LEN = 16 << 20, STREAMS = 2, ROUNDS_MOST = 999 };

struct run {
    const char *name;
    int streams;
    size_t out, in;          // bytes of a send and of a recv
    int buffer;              // SO_SNDBUF and SO_RCVBUF, 0: the system's
    int piped;
};

static const struct run runs[] = {
    {"one stream, send 1 MiB, recv 1 MiB", 1, 1 << 20, 1 << 20, 0, 0},
    {"one stream, send 1 MiB, recv 512 KiB", 1, 1 << 20, 512 << 10, 0, 0},
    {"one stream, send 256 KiB, recv 256 KiB", 1, 256 << 10, 256 << 10, 0, 0},
    {"one stream, send 64 KiB, recv 64 KiB", 1, 64 << 10, 64 << 10, 0, 0},
    {"one stream, send 1 MiB, buffers of 512 KiB", 1, 1 << 20, 1 << 20, 512 << 10, 0},
    {"one stream, send 1 MiB, buffers of 4 MiB", 1, 1 << 20, 1 << 20, 4 << 20, 0},
    {"two streams, send 256 KiB, recv 256 KiB", 2, 256 << 10, 256 << 10, 0, 0},
    {"two streams, send 1 MiB, recv 1 MiB", 2, 1 << 20, 1 << 20, 0, 0},
    {"one stream, through a pipe, recv 1 MiB", 1, 1 << 20, 1 << 20, 0, 1},
};

static char *source, *target;
static int left[STREAMS], right[STREAMS], ends[2];
static const struct run *_Atomic now;
static _Atomic long turn, ready;

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void need(int fine, const char *what) {
    if (!fine) {
        perror(what);
        exit(1);
    }
}

static char *huge(size_t len) {
    const size_t unit = 2 << 20;
    char *at = mmap(NULL, len + unit, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
    at = (char *)(((size_t)at + unit - 1) & ~(unit - 1));
    madvise(at, len, MADV_HUGEPAGE);
    return memset(at, 1, len);
}

// A connected pair, with the options that the TCP transport gives its own.
static void join(int pair[2], int buffer) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    for (int n = 0; n < 2 && buffer; n++) {
        const int s = n ? listener : pair[0];
        setsockopt(s, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
        setsockopt(s, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    }
    need(!bind(listener, (struct sockaddr *)&at, len) && !listen(listener, 1), "listen");
    getsockname(listener, (struct sockaddr *)&at, &len);
    need(!connect(pair[0], (struct sockaddr *)&at, len), "connect");
    pair[1] = accept(listener, NULL, NULL);
    need(pair[1] >= 0, "accept");
    for (int n = 0; n < 2; n++) {
        setsockopt(pair[n], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(pair[n], IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
        fcntl(pair[n], F_SETFL, O_NONBLOCK);
    }
    close(listener);
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static void sends(const struct run *r) {
    const size_t share = LEN / (size_t)r->streams;
    size_t at[STREAMS] = {0}, piped = 0, total = 0;
    char answer;
    while (total < LEN) {
        for (int n = 0; n < r->streams; n++) {
            char *from = source + (size_t)n * share + at[n];
            ssize_t got;
            if (r->piped) {
                struct iovec part = {from + piped, least(r->out - piped, share - at[n] - piped)};
                if (part.iov_len && (got = vmsplice(ends[1], &part, 1, SPLICE_F_NONBLOCK)) > 0) {
                    piped += (size_t)got;
                }
                got = splice(ends[0], NULL, left[n], NULL, piped, SPLICE_F_NONBLOCK);
                piped -= got > 0 ? (size_t)got : 0;
            } else {
                got = at[n] < share ? send(left[n], from, least(r->out, share - at[n]), 0) : 0;
            }
            need(got >= 0 || errno == EAGAIN, "send");
            at[n] += got > 0 ? (size_t)got : 0;
            total += got > 0 ? (size_t)got : 0;
        }
    }
    while (recv(left[0], &answer, 1, 0) != 1) {
    }
}

static void receives(const struct run *r) {
    const size_t share = LEN / (size_t)r->streams;
    size_t at[STREAMS] = {0}, total = 0;
    while (total < LEN) {
        for (int n = 0; n < r->streams; n++) {
            char *to = target + (size_t)n * share + at[n];
            const ssize_t got = at[n] < share ? recv(right[n], to, least(r->in, share - at[n]), 0) : 0;
            need(got >= 0 || errno == EAGAIN, "recv");
            at[n] += got > 0 ? (size_t)got : 0;
            total += got > 0 ? (size_t)got : 0;
        }
    }
    need(send(right[0], "", 1, 0) == 1, "send of the answer");
}

static void pin(int processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void *other(void *unused) {
    pin(1);
    for (long seen = 0;; seen++) {
        while (atomic_load(&turn) == seen) {
        }
        const struct run *r = atomic_load(&now);
        if (!r) {
            return unused;
        }
        receives(r);
        atomic_fetch_add(&ready, 1);
    }
}

static int descending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 15;
    const size_t kinds = sizeof runs / sizeof *runs;
    static double rates[sizeof runs / sizeof *runs][ROUNDS_MOST];
    static int pairs[sizeof runs / sizeof *runs][STREAMS][2];
    if (rounds < 1 || rounds > ROUNDS_MOST) {
        return 2;
    }
    source = huge(LEN);
    target = huge(LEN);
    need(!pipe2(ends, O_NONBLOCK) && fcntl(ends[0], F_SETPIPE_SZ, 1 << 20) > 0, "pipe");
    for (size_t n = 0; n < kinds; n++) {
        for (int s = 0; s < runs[n].streams; s++) {
            join(pairs[n][s], runs[n].buffer);
        }
    }
    pthread_t thread;
    pthread_create(&thread, NULL, other, NULL);
    pin(0);
    long turns = 0;
    // The first rounds let the streams' windows grow.
    for (int round = -3; round < rounds; round++) {
        for (size_t n = 0; n < kinds; n++) {
            for (int s = 0; s < runs[n].streams; s++) {
                left[s] = pairs[n][s][0];
                right[s] = pairs[n][s][1];
            }
            atomic_store(&now, &runs[n]);
            const double began = seconds();
            atomic_fetch_add(&turn, 1);
            sends(&runs[n]);
            if (round >= 0) {
                rates[n][round] = (double)LEN / (seconds() - began) / 1e9;
            }
            turns++;
            while (atomic_load(&ready) < turns) {
            }
        }
    }
    atomic_store(&now, NULL);
    atomic_fetch_add(&turn, 1);
    pthread_join(thread, NULL);
    for (size_t n = 0; n < kinds; n++) {
        qsort(rates[n], (size_t)rounds, sizeof(double), descending);
        printf("%-44s %5.1f %5.1f %5.1f\n", runs[n].name, rates[n][0], rates[n][rounds / 2], rates[n][rounds - 1]);
    }
    return 0;
}
