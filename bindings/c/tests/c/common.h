// What the C tests share: statuses that must be, and two connected transports over each path that a machine has.
#ifndef LINKSPAN_TEST_COMMON_H
#define LINKSPAN_TEST_COMMON_H

#include <linkspan.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LONG ((int64_t)30000)
#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static inline void is_(int line, const char *what, int32_t want, int32_t got) {
    if (got != want) {
        fprintf(stderr, "line %d: %s is %d (%s), not %d\n", line, what, got, got ? linkspan_last_error() : "no error", want);
        exit(1);
    }
}
#define IS(want, call) is_(__LINE__, #call, (want), (call))
#define OK(call) IS(LINKSPAN_OK, call)

#define CHECK(condition)                                                                                                         \
    do {                                                                                                                         \
        if (!(condition)) {                                                                                                      \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                                              \
            exit(1);                                                                                                             \
        }                                                                                                                        \
    } while (0)

// The paths, as in the Rust tests: TCP, shared memory, shared memory without cross-memory attach.
#define PATHS 3

static inline linkspan_context *context_over(int path) {
    const linkspan_setting settings[] = {
        {"LINKSPAN_IFNAME", "=lo"},
        {"LINKSPAN_STATS_DIR", "off"},
        {"LINKSPAN_PATH", path == 0 ? "tcp" : "shm"},
        {"LINKSPAN_CMA", path == 2 ? "0" : ""},
    };
    linkspan_context *context;
    OK(linkspan_context_open(settings, 4, NULL, NULL, &context));
    return context;
}

// Two transports in contexts of their own, as two processes have.
typedef struct pair {
    linkspan_context *contexts[2];
    linkspan_transport *a, *b;
} pair;

static inline pair pair_over(int path) {
    pair p;
    char url[LINKSPAN_URL_SIZE];
    p.contexts[0] = context_over(path);
    p.contexts[1] = context_over(path);
    OK(linkspan_transport_open(p.contexts[0], 0, &p.a));
    OK(linkspan_transport_open(p.contexts[1], 0, &p.b));
    OK(linkspan_transport_bind(p.b, url, sizeof url));
    OK(linkspan_transport_connect(p.a, url, LONG));
    OK(linkspan_transport_wait_connected(p.b, LONG));
    return p;
}

static inline void end_pair(pair p) {
    OK(linkspan_transport_close(p.a));
    OK(linkspan_transport_close(p.b));
    OK(linkspan_context_close(p.contexts[0]));
    OK(linkspan_context_close(p.contexts[1]));
}

static inline linkspan_memory *memory_of(size_t length) {
    linkspan_memory *memory;
    OK(linkspan_memory_alloc(length, &memory));
    return memory;
}

static inline unsigned char *bytes_of(linkspan_memory *memory) {
    linkspan_memory_info info;
    OK(linkspan_memory_get(memory, &info));
    return info.address;
}

static inline linkspan_view all_of(linkspan_memory *memory) {
    linkspan_memory_info info;
    OK(linkspan_memory_get(memory, &info));
    return (linkspan_view){memory, 0, info.length};
}

static inline linkspan_view part_of(linkspan_memory *memory, uint64_t offset, uint64_t length) {
    return (linkspan_view){memory, offset, length};
}

static inline linkspan_remote expose(linkspan_transport *transport, linkspan_memory *memory) {
    linkspan_remote remote;
    OK(linkspan_transport_expose(transport, all_of(memory), LINKSPAN_ACCESS_READ | LINKSPAN_ACCESS_WRITE, &remote, NULL));
    return remote;
}

static inline unsigned char letter(size_t at, unsigned seed) { return (unsigned char)(at * 167 + (at >> 8) * 13 + seed * 71 + 1); }

static inline void fill(linkspan_memory *memory, unsigned seed) {
    unsigned char *bytes = bytes_of(memory);
    const size_t length = all_of(memory).length;
    for (size_t n = 0; n < length; n++) {
        bytes[n] = letter(n, seed);
    }
}

static inline bool filled(const unsigned char *bytes, size_t length, unsigned seed) {
    for (size_t n = 0; n < length; n++) {
        if (bytes[n] != letter(n, seed)) {
            return false;
        }
    }
    return true;
}

static inline bool all_are(const unsigned char *bytes, size_t length, unsigned char value) {
    for (size_t n = 0; n < length; n++) {
        if (bytes[n] != value) {
            return false;
        }
    }
    return true;
}

static inline linkspan_notify note(uint64_t value) { return (linkspan_notify){value, 0, 0}; }

static inline int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static inline void sleep_ms(unsigned ms) { usleep(ms * 1000); }

#endif
