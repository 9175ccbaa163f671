// What the machine itself does with 4,096 pages of 16 KiB between two threads, one on each of two processors: copied by the kernel
// (process_vm_readv(2) in one thread, process_vm_writev(2) in the other, from one cursor), by memcpy, and through rings of several
// sizes, with the reader's stores as they are or past the caches. Pages that are neighbours go to the kernel as one range.
//
//   cc -O2 -pthread bench/bare/pages.c -o pages && ./pages [ROUNDS]
//
// Prints the best, the median and the least of the rounds, GB/s. Far from each other's caches the rings come to 2 and not to 8 to 20.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { PAGES = 4096, PAGE = 16384, ROUNDS_MOST = 99 };

enum way { MEMCPY, KERNEL, RING, RING_PAST };

struct run {
    const char *name;
    enum way way;
    int unit;                // pages for one call of the kernel
    int from, to;            // steps through source and target; 1: in order
    size_t ring;
};

static const struct run runs[] = {
    {"memcpy, scattered in the target", MEMCPY, 1, 1, 7919, 0},
    {"kernel, calls of 1 MiB", KERNEL, 64, 1, 1, 0},
    {"kernel, calls of 256 KiB", KERNEL, 16, 1, 1, 0},
    {"kernel, calls of 128 KiB", KERNEL, 8, 1, 1, 0},
    {"kernel, calls of 8 pages, scattered in the target", KERNEL, 8, 1, 7919, 0},
    {"kernel, calls of 16 pages, scattered in the target", KERNEL, 16, 1, 7919, 0},
    {"kernel, calls of 64 pages, scattered in the target", KERNEL, 64, 1, 7919, 0},
    {"kernel, calls of 16 pages, scattered in both", KERNEL, 16, 5003, 7919, 0},
    {"kernel, calls of 64 pages, scattered in both", KERNEL, 64, 5003, 7919, 0},
    {"ring of 256 KiB", RING, 1, 1, 7919, 256 << 10},
    {"ring of 512 KiB", RING, 1, 1, 7919, 512 << 10},
    {"ring of 4 MiB", RING, 1, 1, 7919, 4 << 20},
    {"ring of 4 MiB, past the caches", RING_PAST, 1, 1, 7919, 4 << 20},
    {"ring of 4 MiB, past the caches, scattered in both", RING_PAST, 1, 5003, 7919, 4 << 20},
};

static char *source, *target, *ring, gate[64];
static pid_t self;
static struct { _Alignas(128) _Atomic long v; } cursor, done, tail, head, turn;
static const struct run *_Atomic now;

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static char *huge(size_t len) {
    const size_t unit = 2 << 20;
    char *at = mmap(NULL, len + unit, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
    at = (char *)(((size_t)at + unit - 1) & ~(unit - 1));
    madvise(at, len, MADV_HUGEPAGE);
    return memset(at, 1, len);
}

static char *page(char *base, long n, int step) { return base + n * step % PAGES * PAGE; }

static void past(char *to, const char *from) {
#ifdef __SSE2__
    for (size_t at = 0; at < PAGE; at += 16) {
        _mm_stream_si128((__m128i *)(to + at), _mm_loadu_si128((const __m128i *)(from + at)));
    }
    _mm_sfence();
#else
    memcpy(to, from, PAGE);
#endif
}

// One page more; neighbours are one range.
static unsigned long add(struct iovec *list, unsigned long count, char *at) {
    struct iovec *last = &list[count - 1];
    if (count > 1 && (char *)last->iov_base + last->iov_len == at) {
        last->iov_len += PAGE;
        return count;
    }
    list[count] = (struct iovec){at, PAGE};
    return count + 1;
}

static void shared_copy(const struct run *r, int reads) {
    long first;
    while ((first = atomic_fetch_add(&cursor.v, r->unit)) < PAGES) {
        struct iovec from[65] = {{gate, 8}}, to[65] = {{gate, 8}};
        unsigned long sources = 1, targets = 1;
        for (int n = 0; n < r->unit; n++) {
            char *s = page(source, first + n, r->from), *t = page(target, first + n, r->to);
            if (r->way == MEMCPY) {
                memcpy(t, s, PAGE);
                continue;
            }
            sources = add(from, sources, s);
            targets = add(to, targets, t);
        }
        const ssize_t want = 8 + (ssize_t)r->unit * PAGE;
        if (r->way == KERNEL && (reads ? process_vm_readv(self, to, targets, from, sources, 0)
                                       : process_vm_writev(self, from, sources, to, targets, 0)) != want) {
            perror("process_vm_*");
            exit(1);
        }
        atomic_fetch_add(&done.v, r->unit);
    }
}

static void through(const struct run *r, int reads) {
    const long slots = (long)r->ring / PAGE;
    for (long n = 0, seen = 0; n < PAGES; n++) {
        char *slot = ring + n % slots * PAGE;
        if (reads) {
            while (atomic_load(&tail.v) <= n) {
            }
            r->way == RING ? (void)memcpy(page(target, n, r->to), slot, PAGE) : past(page(target, n, r->to), slot);
            atomic_store_explicit(&head.v, n + 1, memory_order_release);
            atomic_fetch_add(&done.v, 1);
        } else {
            while (n - seen >= slots) {
                seen = atomic_load(&head.v);
            }
            memcpy(slot, page(source, n, r->from), PAGE);
            atomic_store_explicit(&tail.v, n + 1, memory_order_release);
        }
    }
}

static void work(const struct run *r, int reads) {
    r->way == MEMCPY || r->way == KERNEL ? shared_copy(r, reads) : through(r, reads);
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
        while (atomic_load(&turn.v) == seen) {
        }
        const struct run *r = atomic_load(&now);
        if (!r) {
            return unused;
        }
        work(r, 1);
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
    if (rounds < 1 || rounds > ROUNDS_MOST) {
        return 2;
    }
    pthread_t thread;
    self = getpid();
    source = huge((size_t)PAGES * PAGE);
    target = huge((size_t)PAGES * PAGE);
    ring = memset(mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_SHARED, -1, 0), 1, 4 << 20);
    pthread_create(&thread, NULL, other, NULL);
    pin(0);
    for (int round = 0; round < rounds; round++) {
        for (size_t n = 0; n < kinds; n++) {
            atomic_store(&cursor.v, 0);
            atomic_store(&done.v, 0);
            atomic_store(&tail.v, 0);
            atomic_store(&head.v, 0);
            atomic_store(&now, &runs[n]);
            const double began = seconds();
            atomic_fetch_add(&turn.v, 1);
            work(&runs[n], 0);
            while (atomic_load(&done.v) < PAGES) {
            }
            rates[n][round] = (double)PAGES * PAGE / (seconds() - began) / 1e9;
            usleep(50);
        }
    }
    atomic_store(&now, NULL);
    atomic_fetch_add(&turn.v, 1);
    pthread_join(thread, NULL);
    for (size_t n = 0; n < kinds; n++) {
        qsort(rates[n], (size_t)rounds, sizeof(double), descending);
        printf("%-52s %5.1f %5.1f %5.1f\n", runs[n].name, rates[n][0], rates[n][rounds / 2], rates[n][rounds - 1]);
    }
    return 0;
}
