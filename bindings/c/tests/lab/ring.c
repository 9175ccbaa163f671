// What the lab runs in its guests against linkspan.ko by the C calls: one task for each word. Ends with 0 and a line that says what
// held. The guests are emulated: nothing here is a matter of time but that something comes at all.
#define _GNU_SOURCE
#include "../c/common.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>

// A signal every so often, which restarts no call; 0: no more.
static void nothing(int number) { (void)number; }

static void signals_each(long us) {
    const struct sigaction quiet = {.sa_handler = nothing};
    const struct itimerval timer = {{0, us}, {0, us}};
    CHECK(!sigaction(SIGALRM, &quiet, NULL) && !setitimer(ITIMER_REAL, &timer, NULL));
}

#define PIECE (64 * KIB)
#define PIECES ((size_t)16)
#define BEHIND (2 * LONG)

// How the sender waits, and from what memory it sends.
enum how { SLEEP, SPIN, THREAD, DMABUF };

static linkspan_ring *open_ring(const char *device, uint32_t entries, enum how how) {
    const linkspan_ring_options options = {
        .wait_ms = LONG, .submissions = entries, .completions = entries, .thread_us = how == THREAD ? 1000000 : 0};
    linkspan_ring *ring;
    OK(linkspan_ring_open(device, &options, &ring));
    return ring;
}

static linkspan_link_info about(linkspan_ring *ring) {
    linkspan_link_info info;
    OK(linkspan_ring_get(ring, &info));
    return info;
}

// Completions, one at least.
static size_t some(linkspan_ring *ring, enum how how, linkspan_completion *list, size_t capacity) {
    size_t count = 0;
    if (how != THREAD) {
        OK(linkspan_ring_wait(ring, BEHIND, how == SPIN ? LINKSPAN_DOORBELL_SPIN : 0, list, capacity, &count));
    }
    // Without the kernel: its thread puts them there.
    for (const int64_t end = now_ms() + BEHIND; count == 0 && now_ms() < end;) {
        OK(linkspan_ring_submit(ring, NULL));
        OK(linkspan_ring_poll(ring, list, capacity, &count));
    }
    CHECK(count > 0 && count <= capacity);
    return count;
}

static linkspan_completion one(linkspan_ring *ring) {
    linkspan_completion done;
    CHECK(some(ring, SLEEP, &done, 1) == 1);
    return done;
}

static void uuid(const char *name, const uint8_t *bytes) {
    printf("%s=", name);
    for (int n = 0; n < 16; n++) {
        printf("%02x", bytes[n]);
    }
    printf(" ");
}

static void info(const char *device) {
    linkspan_link_info link, same;
    OK(linkspan_link_get(device, &link));
    CHECK(link.state == LINKSPAN_LINK_UP && link.generation >= 1 && link.lane_gbps > 0 && link.lanes > 0);
    CHECK(link.ring_pairs >= 1 && link.ring_pairs <= 4);
    linkspan_ring *ring = open_ring(device, 0, SLEEP);
    same = about(ring);
    CHECK(!memcmp(same.peer_uuid, link.peer_uuid, 16) && same.generation == link.generation);
    OK(linkspan_ring_close(ring));
    uuid("local", link.local_uuid);
    uuid("peer", link.peer_uuid);
    printf("\n");
}

// Memory of a dma-buf: `fd` is it, the address that of the file behind.
static unsigned char *dmabuf(size_t length, int *fd) {
    const int file = memfd_create("ring", MFD_ALLOW_SEALING);
    CHECK(file >= 0 && !ftruncate(file, (off_t)length) && !fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK));
    const int device = open("/dev/udmabuf", O_RDWR);
    const struct udmabuf_create create = {.memfd = (unsigned)file, .size = length};
    CHECK(device >= 0 && (*fd = ioctl(device, UDMABUF_CREATE, &create)) >= 0);
    void *at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(at != MAP_FAILED && !close(file) && !close(device));
    return at;
}

static void write_letters(unsigned char *at, size_t length, unsigned seed) {
    for (size_t n = 0; n < length; n++) {
        at[n] = letter(n, seed);
    }
}

// Message n is piece n, through queues of eight: sixteen do not fit.
static void send_pieces(const char *device, uint32_t channel, enum how how) {
    linkspan_ring *ring = open_ring(device, 8, how);
    uint64_t region, word_region, word = 0;
    unsigned char *bytes;
    if (how == DMABUF) {
        int fd;
        bytes = dmabuf(PIECES * PIECE, &fd);
        OK(linkspan_ring_register_dmabuf(ring, fd, 0, PIECES * PIECE, LINKSPAN_RING_SEND, &region));
        CHECK(!close(fd));
    } else {
        CHECK(!posix_memalign((void **)&bytes, 4096, PIECES * PIECE));
        OK(linkspan_ring_register(ring, bytes, PIECES * PIECE, LINKSPAN_RING_SEND, &region));
    }
    OK(linkspan_ring_register(ring, &word, sizeof word, LINKSPAN_RING_RECEIVE, &word_region));
    for (size_t n = 0; n < PIECES; n++) {
        write_letters(bytes + n * PIECE, PIECE, (unsigned)n);
    }
    OK(linkspan_ring_open_channel(ring, channel));
    const uint64_t copied = about(ring).copied_bytes;
    size_t put = 0, done = 0, full = 0;
    while (done < PIECES) {
        while (put < PIECES) {
            const int32_t status = linkspan_ring_send(ring, channel, region, put * PIECE, PIECE, 100 + put);
            if (status == LINKSPAN_QUEUE_FULL) {
                full++;
                break;
            }
            IS(LINKSPAN_OK, status);
            put++;
        }
        linkspan_completion list[3];
        const size_t count = some(ring, how, list, 3);
        for (size_t n = 0; n < count; n++, done++) {
            CHECK(list[n].status == LINKSPAN_OK && list[n].error == 0 && list[n].cookie == 100 + done);
            CHECK(list[n].operation == LINKSPAN_RING_SEND && list[n].channel == channel && list[n].length == PIECE);
        }
    }
    CHECK(full > 0 || how == THREAD);
    CHECK(about(ring).copied_bytes == copied);
    // What it sent stays until the other side has said that it is right.
    OK(linkspan_ring_receive(ring, channel, word_region, 0, sizeof word, 7));
    const linkspan_completion last = one(ring);
    CHECK(last.status == LINKSPAN_OK && last.cookie == 7 && last.operation == LINKSPAN_RING_RECEIVE && word == PIECES * PIECE);
    OK(linkspan_ring_release(ring, region));
    IS(LINKSPAN_HANDLE, linkspan_ring_release(ring, region));
    IS(LINKSPAN_HANDLE, linkspan_ring_send(ring, channel, region, 0, PIECE, 0));
    OK(linkspan_ring_close(ring));
    printf("sent %zu pieces, none copied, the queue full %zu times\n", PIECES, full);
}

// Message n into the place of piece 15 - n, told by an eventfd that epoll waits for.
static void receive_pieces(const char *device, uint32_t channel) {
    linkspan_ring *ring = open_ring(device, 16, SLEEP);
    uint64_t region, word_region, word = PIECES * PIECE;
    unsigned char *bytes;
    CHECK(!posix_memalign((void **)&bytes, 4096, PIECES * PIECE));
    memset(bytes, 0xEE, PIECES * PIECE);
    OK(linkspan_ring_register(ring, bytes, PIECES * PIECE, LINKSPAN_RING_RECEIVE, &region));
    OK(linkspan_ring_register(ring, &word, sizeof word, LINKSPAN_RING_SEND | LINKSPAN_RING_RECEIVE, &word_region));
    OK(linkspan_ring_open_channel(ring, channel));
    const int event = eventfd(0, EFD_NONBLOCK), waiter = epoll_create1(0);
    struct epoll_event ready = {.events = EPOLLIN};
    CHECK(event >= 0 && waiter >= 0 && !epoll_ctl(waiter, EPOLL_CTL_ADD, event, &ready));
    OK(linkspan_ring_set_eventfd(ring, event));
    const uint64_t copied = about(ring).copied_bytes;
    for (size_t n = 0; n < PIECES; n++) {
        OK(linkspan_ring_receive(ring, channel, region, (PIECES - 1 - n) * PIECE, PIECE, n));
    }
    uint32_t waiting = 1;
    OK(linkspan_ring_submit(ring, &waiting));
    CHECK(waiting == 0);
    // The driver has them: their memory stays.
    IS(LINKSPAN_MEMORY_IN_USE, linkspan_ring_release(ring, region));
    for (size_t done = 0; done < PIECES;) {
        linkspan_completion list[5];
        size_t count;
        uint64_t times;
        CHECK(epoll_wait(waiter, &ready, 1, (int)BEHIND) == 1 && read(event, &times, sizeof times) == sizeof times && times > 0);
        do {
            OK(linkspan_ring_poll(ring, list, 5, &count));
            for (size_t n = 0; n < count; n++, done++) {
                CHECK(list[n].status == LINKSPAN_OK && list[n].cookie == done && list[n].operation == LINKSPAN_RING_RECEIVE);
                CHECK(list[n].length == PIECE && filled(bytes + (PIECES - 1 - done) * PIECE, PIECE, (unsigned)done));
            }
        } while (count == 5);
    }
    // What came between control frames, over the first of the pairs, is copied once.
    const size_t pages = PIECES * PIECE / 4096, pairs = about(ring).ring_pairs;
    CHECK(about(ring).copied_bytes - copied <= (pages + pairs - 1) / pairs * 4096);
    OK(linkspan_ring_set_eventfd(ring, -1));
    OK(linkspan_ring_release(ring, region));
    OK(linkspan_ring_send(ring, channel, word_region, 0, sizeof word, 7));
    CHECK(one(ring).status == LINKSPAN_OK);
    // Its descriptor, too, says when something is there: the end of the other side.
    OK(linkspan_ring_receive(ring, channel, word_region, 0, sizeof word, 8));
    OK(linkspan_ring_submit(ring, NULL));
    struct pollfd descriptor = {.events = POLLIN};
    OK(linkspan_ring_fd(ring, &descriptor.fd));
    CHECK(poll(&descriptor, 1, (int)BEHIND) == 1 && descriptor.revents == POLLIN);
    const linkspan_completion end = one(ring);
    CHECK(end.status == LINKSPAN_CHANNEL_ENDED && end.error == EPIPE && end.cookie == 8);
    OK(linkspan_ring_close(ring));
    printf("received %zu pieces, all right, none copied but of the pair that carries control\n", PIECES);
}

static atomic_int back_from_wait;

static void *waits(void *ring) {
    int32_t status;
    do {
        status = linkspan_ring_doorbell(ring, 1, LINKSPAN_FOREVER, 0, NULL);
    } while (status == LINKSPAN_IN_CALL);
    IS(LINKSPAN_OK, status);
    atomic_store(&back_from_wait, 1);
    return NULL;
}

// Two threads at once: the second gets an error for as long as the first waits, and can call when a signal has ended that.
static void two_threads(linkspan_ring *ring) {
    const struct sigaction quiet = {.sa_handler = nothing};
    CHECK(!sigaction(SIGUSR1, &quiet, NULL));
    pthread_t first;
    CHECK(!pthread_create(&first, NULL, waits, ring));
    linkspan_link_info link;
    int32_t status = LINKSPAN_OK;
    for (const int64_t end = now_ms() + BEHIND; status == LINKSPAN_OK && now_ms() < end;) {
        status = linkspan_ring_get(ring, &link);
    }
    CHECK(status == LINKSPAN_IN_CALL);
    IS(LINKSPAN_IN_CALL, linkspan_ring_close(ring));
    // One that comes before the thread sleeps in the driver ends nothing.
    for (const int64_t end = now_ms() + BEHIND; !atomic_load(&back_from_wait) && now_ms() < end; sleep_ms(10)) {
        CHECK(!pthread_kill(first, SIGUSR1));
    }
    CHECK(!pthread_join(first, NULL));
    OK(linkspan_ring_get(ring, &link));
}

// All that a program may do wrong.
static void wrong(const char *device) {
    static unsigned char page[8192] __attribute__((aligned(4096)));
    linkspan_ring *ring = open_ring(device, 8, SLEEP), *other = open_ring(device, 8, SLEEP);
    linkspan_completion list[16];
    uint64_t region, gone;
    size_t count;
    OK(linkspan_ring_register(ring, page, sizeof page, LINKSPAN_RING_SEND | LINKSPAN_RING_RECEIVE, &region));
    OK(linkspan_ring_register(ring, page, 4096, LINKSPAN_RING_SEND, &gone));
    OK(linkspan_ring_release(ring, gone));
    IS(LINKSPAN_HANDLE, linkspan_ring_send(ring, 3, gone, 0, 1, 0));
    IS(LINKSPAN_HANDLE, linkspan_ring_send(ring, 3, region + 1, 0, 1, 0));
    IS(LINKSPAN_HANDLE, linkspan_ring_send(other, 3, region, 0, 1, 0));
    IS(LINKSPAN_REGION_BOUNDS, linkspan_ring_send(ring, 3, region, 0, 8193, 0));
    IS(LINKSPAN_REGION_BOUNDS, linkspan_ring_receive(ring, 3, region, 8192, 1, 0));
    IS(LINKSPAN_REGION_BOUNDS, linkspan_ring_send(ring, 3, region, UINT64_MAX, 2, 0));
    IS(LINKSPAN_DEVICE_REFUSED, linkspan_ring_open_channel(ring, 256));
    IS(LINKSPAN_DEVICE_REFUSED, linkspan_ring_close_channel(ring, 3));
    OK(linkspan_ring_open_channel(other, 3));
    IS(LINKSPAN_DEVICE_REFUSED, linkspan_ring_open_channel(ring, 3));
    const int null = open("/dev/null", O_RDWR);
    uint64_t none;
    IS(LINKSPAN_DEVICE_REFUSED, linkspan_ring_register_dmabuf(ring, null, 0, 4096, LINKSPAN_RING_SEND, &none));
    IS(LINKSPAN_DEVICE_REFUSED, linkspan_ring_set_eventfd(ring, null));
    void *unmapped = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    IS(LINKSPAN_DEVICE_REFUSED, linkspan_ring_register(ring, unmapped, 4096, LINKSPAN_RING_RECEIVE, &none));

    // A full queue takes no ninth, and loses none of the eight: each comes back, as the channel is another ring's.
    for (uint64_t n = 0; n < 8; n++) {
        OK(linkspan_ring_send(ring, 3, region, n, 1, n));
    }
    IS(LINKSPAN_QUEUE_FULL, linkspan_ring_send(ring, 3, region, 0, 1, 99));
    IS(LINKSPAN_QUEUE_FULL, linkspan_ring_receive(ring, 3, region, 0, 1, 99));
    uint32_t taken = 0;
    OK(linkspan_ring_doorbell(ring, 8, BEHIND, 0, &taken));
    CHECK(taken == 8);
    OK(linkspan_ring_poll(ring, list, 16, &count));
    CHECK(count == 8);
    for (uint64_t n = 0; n < 8; n++) {
        CHECK(list[n].cookie == n && list[n].status == LINKSPAN_DEVICE_REFUSED && list[n].error == EBADF);
    }
    OK(linkspan_ring_poll(ring, list, 16, &count));
    CHECK(count == 0);
    OK(linkspan_ring_poll(ring, list, 0, &count));
    CHECK(count == 0);

    // What was handed over keeps its memory until it is back.
    OK(linkspan_ring_open_channel(ring, 4));
    OK(linkspan_ring_receive(ring, 4, region, 0, 4096, 5));
    OK(linkspan_ring_doorbell(ring, 0, 0, 0, NULL));
    IS(LINKSPAN_MEMORY_IN_USE, linkspan_ring_release(ring, region));
    signals_each(20000);
    OK(linkspan_ring_wait(ring, 300, 0, list, 16, &count));
    signals_each(0);
    CHECK(count == 0);
    two_threads(ring);
    OK(linkspan_ring_close_channel(ring, 4));
    const linkspan_completion back = one(ring);
    CHECK(back.cookie == 5 && back.error == ECANCELED && back.status == LINKSPAN_DEVICE_REFUSED);
    OK(linkspan_ring_release(ring, region));
    OK(linkspan_ring_close(other));
    IS(LINKSPAN_HANDLE, linkspan_ring_get(other, &(linkspan_link_info){0}));
    OK(linkspan_ring_open_channel(ring, 3));
    OK(linkspan_ring_close(ring));
    IS(LINKSPAN_HANDLE, linkspan_ring_close(ring));
    linkspan_swap *swap;
    IS(LINKSPAN_DEVICE_REFUSED, linkspan_swap_open(device, 256, 4096, 0, &swap));
    printf("wrong calls are told, a full queue loses nothing, memory in use stays, one thread at a time\n");
}

#define MESSAGES 40

static size_t message_length(unsigned n, uint64_t capacity) {
    const uint64_t lengths[] = {0, 1, 4064, 4065, capacity, 5000};
    return (size_t)lengths[n % 6];
}

// The front buffer, filled and sent.
static void swap_out(linkspan_swap *swap, unsigned n, unsigned seed) {
    uint8_t *buffer;
    uint64_t capacity;
    OK(linkspan_swap_front(swap, &buffer, &capacity));
    write_letters(buffer, message_length(n, capacity), seed);
    OK(linkspan_swap_send(swap, message_length(n, capacity)));
}

static void swap_in(linkspan_swap *swap, unsigned n, unsigned seed, uint64_t capacity) {
    const uint8_t *message;
    uint64_t length;
    OK(linkspan_swap_receive(swap, BEHIND, &message, &length));
    CHECK(message && length == message_length(n, capacity) && filled(message, length, seed));
}

// Each message there is answered by another one; both sides look at every byte.
static void swap_task(const char *device, uint32_t channel, bool first) {
    linkspan_swap *swap;
    const uint8_t *message;
    uint8_t *buffer;
    uint64_t length = 9, capacity;
    OK(linkspan_swap_open(device, channel, 20000, BEHIND, &swap));
    linkspan_link_info link;
    OK(linkspan_swap_get(swap, &link));
    CHECK(link.state == LINKSPAN_LINK_UP);
    OK(linkspan_swap_front(swap, &buffer, &capacity));
    CHECK(capacity == 20480 && (uintptr_t)buffer % 4096 == 0);
    IS(LINKSPAN_REGION_BOUNDS, linkspan_swap_send(swap, capacity + 1));
    if (!first) {
        struct pollfd ready = {.events = POLLIN};
        OK(linkspan_swap_fd(swap, &ready.fd));
        CHECK(poll(&ready, 1, (int)BEHIND) == 1 && ready.revents == POLLIN);
    }
    for (unsigned n = 0; n < MESSAGES; n++) {
        if (first) {
            swap_out(swap, n, n);
            swap_in(swap, n, n + 1000, capacity);
        } else {
            swap_in(swap, n, n, capacity);
            swap_out(swap, n, n + 1000);
        }
    }
    OK(linkspan_swap_flush(swap));
    if (first) {
        signals_each(20000);
        OK(linkspan_swap_receive(swap, 300, &message, &length));
        signals_each(0);
        CHECK(!message && length == 0);
    } else {
        IS(LINKSPAN_CHANNEL_ENDED, linkspan_swap_receive(swap, BEHIND, &message, &length));
    }
    OK(linkspan_swap_close(swap));
    IS(LINKSPAN_HANDLE, linkspan_swap_flush(swap));
    printf("%d messages there and back, all right\n", MESSAGES);
}

// Messages that the other side does not take yet: told as late, none lost or sent twice, and the front buffer is shown when it is free.
static void late_task(const char *device, uint32_t channel, bool first) {
    linkspan_swap *swap, *word;
    uint8_t *buffer;
    uint64_t capacity, length;
    OK(linkspan_swap_open(device, channel, 20000, first ? 300 : BEHIND, &swap));
    OK(linkspan_swap_open(device, channel + 1, 8, BEHIND, &word));
    if (!first) {
        const uint8_t *sent;
        OK(linkspan_swap_receive(word, BEHIND, &sent, &length));
        CHECK(sent && length == 1);
        for (unsigned n = 0, count = *sent; n <= count; n++) {
            const uint8_t *message;
            OK(linkspan_swap_receive(swap, BEHIND, &message, &length));
            CHECK(message && length == 20480 && filled(message, length, n));
        }
        OK(linkspan_swap_front(word, &buffer, &capacity));
        OK(linkspan_swap_send(word, 0));
        OK(linkspan_swap_flush(word));
        OK(linkspan_swap_close(swap));
        OK(linkspan_swap_close(word));
        return;
    }
    unsigned count = 0;
    for (int status = LINKSPAN_OK; status == LINKSPAN_OK; count++) {
        CHECK(count < 16);
        OK(linkspan_swap_front(swap, &buffer, &capacity));
        write_letters(buffer, capacity, count);
        status = linkspan_swap_send(swap, capacity);
        CHECK(status == LINKSPAN_OK || status == LINKSPAN_CHANNEL_LATE);
    }
    IS(LINKSPAN_CHANNEL_LATE, linkspan_swap_send(swap, capacity));
    IS(LINKSPAN_CHANNEL_LATE, linkspan_swap_front(swap, &buffer, &capacity));
    IS(LINKSPAN_CHANNEL_LATE, linkspan_swap_flush(swap));
    uint8_t *say;
    uint64_t word_capacity;
    OK(linkspan_swap_front(word, &say, &word_capacity));
    *say = (uint8_t)count;
    OK(linkspan_swap_send(word, 1));
    int status = LINKSPAN_CHANNEL_LATE;
    for (int tries = 0; tries < 100 && status == LINKSPAN_CHANNEL_LATE; tries++) {
        status = linkspan_swap_front(swap, &buffer, &capacity);
    }
    OK(status);
    write_letters(buffer, capacity, count);
    OK(linkspan_swap_send(swap, capacity));
    const uint8_t *had;
    OK(linkspan_swap_receive(word, BEHIND, &had, &length));
    CHECK(had && length == 0);
    OK(linkspan_swap_close(swap));
    OK(linkspan_swap_close(word));
    printf("%u messages before the other side took one: late, none lost\n", count);
}

// A ring and a swap whose link is pulled: every call says so, and both can be closed.
static void hold(const char *device) {
    static unsigned char page[4096] __attribute__((aligned(4096)));
    linkspan_ring *ring = open_ring(device, 8, SLEEP);
    linkspan_swap *swap;
    uint64_t region;
    OK(linkspan_swap_open(device, 6, 4096, BEHIND, &swap));
    OK(linkspan_ring_register(ring, page, sizeof page, LINKSPAN_RING_RECEIVE, &region));
    OK(linkspan_ring_open_channel(ring, 5));
    OK(linkspan_ring_receive(ring, 5, region, 0, sizeof page, 1));
    OK(linkspan_ring_submit(ring, NULL));
    printf("holding\n");
    fflush(stdout);
    const linkspan_completion lost = one(ring);
    CHECK(lost.cookie == 1 && lost.status == LINKSPAN_LINK_LOST && lost.error == ENODEV);
    linkspan_completion none;
    size_t count;
    // The driver says so behind the last completion, and poll does not wait.
    IS(LINKSPAN_LINK_LOST, linkspan_ring_wait(ring, LONG, 0, &none, 1, &count));
    IS(LINKSPAN_LINK_LOST, linkspan_ring_poll(ring, &none, 1, &count));
    IS(LINKSPAN_LINK_LOST, linkspan_ring_receive(ring, 5, region, 0, 1, 2));
    IS(LINKSPAN_LINK_LOST, linkspan_ring_open_channel(ring, 7));
    OK(linkspan_ring_release(ring, region));
    const uint8_t *message;
    uint64_t length;
    IS(LINKSPAN_LINK_LOST, linkspan_swap_receive(swap, LONG, &message, &length));
    OK(linkspan_swap_close(swap));
    OK(linkspan_ring_close(ring));
    printf("told that the link was lost\n");
}

static enum how how_of(const char *word) {
    const char *const words[] = {"sleep", "spin", "thread", "dmabuf"};
    for (int n = 0; n < 4; n++) {
        if (!strcmp(word, words[n])) {
            return (enum how)n;
        }
    }
    fprintf(stderr, "%s is no way to wait\n", word);
    exit(2);
}

int main(int argc, char **argv) {
    const char *task = argc > 2 ? argv[1] : "", *device = argc > 2 ? argv[2] : "";
    const uint32_t channel = argc > 3 ? (uint32_t)atoi(argv[3]) : 0;
    if (!strcmp(task, "info")) {
        info(device);
    } else if (!strcmp(task, "wrong")) {
        wrong(device);
    } else if (!strcmp(task, "send")) {
        send_pieces(device, channel, how_of(argc > 4 ? argv[4] : "sleep"));
    } else if (!strcmp(task, "receive")) {
        receive_pieces(device, channel);
    } else if (!strcmp(task, "swap") || !strcmp(task, "swap-back")) {
        swap_task(device, channel, !strcmp(task, "swap"));
    } else if (!strcmp(task, "late") || !strcmp(task, "late-back")) {
        late_task(device, channel, !strcmp(task, "late"));
    } else if (!strcmp(task, "hold")) {
        hold(device);
    } else {
        fprintf(stderr, "usage: ring-c TASK DEVICE [CHANNEL [HOW]]\n");
        return 2;
    }
    return 0;
}
