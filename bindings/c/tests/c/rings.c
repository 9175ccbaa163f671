// The device of linkspan.ko where there is none: what calls on links, rings and swaps say of wrong arguments. What they do with the
// device, tests/lab/ring.c shows in the lab's guests. A stand-in for the driver loses its link at moments that no guest can hit.
#define _GNU_SOURCE
#include "common.h"

#include "../../../../kernel/uapi/linkspan.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static const char *const NOWHERE = "/nonexistent/linkspan/7";

static void no_device(void) {
    linkspan_link_info info;
    linkspan_ring *ring = NULL;
    linkspan_swap *swap = NULL;
    IS(LINKSPAN_NO_DEVICE, linkspan_link_get(NOWHERE, &info));
    CHECK(strstr(linkspan_last_error(), NOWHERE) && strstr(linkspan_last_error(), "linkspan.ko"));
    IS(LINKSPAN_NO_DEVICE, linkspan_ring_open(NOWHERE, NULL, &ring));
    IS(LINKSPAN_NO_DEVICE, linkspan_swap_open(NOWHERE, 0, 4096, 0, &swap));
    CHECK(!ring && !swap);
    // A device that is not ours refuses our calls.
    IS(LINKSPAN_DEVICE_REFUSED, linkspan_link_get("/dev/null", &info));
    IS(LINKSPAN_DEVICE_REFUSED, linkspan_ring_open("/dev/null", NULL, &ring));
    IS(LINKSPAN_DEVICE_REFUSED, linkspan_swap_open("/dev/null", 0, 4096, 0, &swap));
    CHECK(!ring && !swap);
}

static void nulls(void) {
    linkspan_link_info info;
    linkspan_ring *ring;
    linkspan_swap *swap;
    linkspan_completion done;
    size_t count;
    uint64_t region;
    IS(LINKSPAN_NULL, linkspan_link_get(NULL, &info));
    IS(LINKSPAN_NULL, linkspan_link_get(NOWHERE, NULL));
    IS(LINKSPAN_NULL, linkspan_ring_open(NULL, NULL, &ring));
    IS(LINKSPAN_NULL, linkspan_ring_open(NOWHERE, NULL, NULL));
    IS(LINKSPAN_NULL, linkspan_swap_open(NULL, 0, 4096, 0, &swap));
    IS(LINKSPAN_NULL, linkspan_swap_open(NOWHERE, 0, 4096, 0, NULL));
    IS(LINKSPAN_NULL, linkspan_ring_register(NULL, NULL, 4096, LINKSPAN_RING_SEND, &region));
    IS(LINKSPAN_NULL, linkspan_ring_register(NULL, &done, sizeof done, LINKSPAN_RING_SEND, NULL));
    IS(LINKSPAN_NULL, linkspan_ring_poll(NULL, NULL, 1, &count));
    IS(LINKSPAN_NULL, linkspan_ring_poll(NULL, &done, 1, NULL));
    IS(LINKSPAN_NULL, linkspan_ring_wait(NULL, 0, 0, NULL, 1, &count));
    char path[5000];
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = 0;
    IS(1155, linkspan_link_get(path, &info));
    IS(1155, linkspan_ring_open("\xff", NULL, &ring));
}

// Refused before the device is looked for.
static void wrong_options(void) {
    const linkspan_ring_options wrong[] = {
        {.submissions = 7},   {.submissions = 4},      {.submissions = 8192}, {.completions = 12},
        {.completions = 1u << 31}, {.thread_us = 1000001}, {.reserved = 1},       {.wait_ms = -2},
    };
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        linkspan_ring *ring = NULL;
        IS(LINKSPAN_VALUE, linkspan_ring_open(NOWHERE, &wrong[n], &ring));
        CHECK(!ring);
    }
    const linkspan_ring_options right = {.submissions = 8, .completions = 4096, .thread_us = 1000000, .wait_ms = LINKSPAN_FOREVER};
    linkspan_ring *ring;
    IS(LINKSPAN_NO_DEVICE, linkspan_ring_open(NOWHERE, &right, &ring));
    linkspan_swap *swap;
    IS(LINKSPAN_REGION_BOUNDS, linkspan_swap_open(NOWHERE, 0, 0, 0, &swap));
    IS(LINKSPAN_REGION_BOUNDS, linkspan_swap_open(NOWHERE, 0, ((uint64_t)1 << 30) + 1, 0, &swap));
    IS(LINKSPAN_VALUE, linkspan_swap_open(NOWHERE, 0, 4096, -2, &swap));
}

// Nothing, something else, and something that was never given out.
static void wrong_handles(void) {
    linkspan_context *context;
    OK(linkspan_context_for_gpus(&context));
    static unsigned char page[4096];
    void *const handles[] = {NULL, context, page, (void *)(uintptr_t)0xA600000001000000u, (void *)(uintptr_t)0xA700000001000000u};
    for (size_t n = 0; n < sizeof handles / sizeof *handles; n++) {
        linkspan_ring *ring = handles[n];
        linkspan_swap *swap = handles[n];
        linkspan_link_info info;
        linkspan_completion done[2];
        size_t count;
        uint64_t number;
        uint32_t some;
        int fd;
        uint8_t *buffer;
        const uint8_t *message;
        IS(LINKSPAN_HANDLE, linkspan_ring_close(ring));
        IS(LINKSPAN_HANDLE, linkspan_ring_get(ring, &info));
        IS(LINKSPAN_HANDLE, linkspan_ring_register(ring, page, sizeof page, LINKSPAN_RING_SEND, &number));
        IS(LINKSPAN_HANDLE, linkspan_ring_register_dmabuf(ring, 0, 0, 4096, LINKSPAN_RING_RECEIVE, &number));
        IS(LINKSPAN_HANDLE, linkspan_ring_release(ring, 1));
        IS(LINKSPAN_HANDLE, linkspan_ring_open_channel(ring, 0));
        IS(LINKSPAN_HANDLE, linkspan_ring_close_channel(ring, 0));
        IS(LINKSPAN_HANDLE, linkspan_ring_send(ring, 0, 1, 0, 1, 0));
        IS(LINKSPAN_HANDLE, linkspan_ring_receive(ring, 0, 1, 0, 1, 0));
        IS(LINKSPAN_HANDLE, linkspan_ring_submit(ring, &some));
        IS(LINKSPAN_HANDLE, linkspan_ring_doorbell(ring, 0, 0, 0, NULL));
        IS(LINKSPAN_HANDLE, linkspan_ring_poll(ring, done, 2, &count));
        IS(LINKSPAN_HANDLE, linkspan_ring_wait(ring, 0, 0, done, 2, &count));
        IS(LINKSPAN_HANDLE, linkspan_ring_set_eventfd(ring, -1));
        IS(LINKSPAN_HANDLE, linkspan_ring_fd(ring, &fd));
        IS(LINKSPAN_HANDLE, linkspan_swap_close(swap));
        IS(LINKSPAN_HANDLE, linkspan_swap_get(swap, &info));
        IS(LINKSPAN_HANDLE, linkspan_swap_front(swap, &buffer, &number));
        IS(LINKSPAN_HANDLE, linkspan_swap_send(swap, 1));
        IS(LINKSPAN_HANDLE, linkspan_swap_flush(swap));
        IS(LINKSPAN_HANDLE, linkspan_swap_receive(swap, 0, &message, &number));
        IS(LINKSPAN_HANDLE, linkspan_swap_fd(swap, &fd));
    }
    IS(LINKSPAN_VALUE, linkspan_ring_register(NULL, page, 0, LINKSPAN_RING_SEND, &(uint64_t){0}));
    IS(LINKSPAN_VALUE, linkspan_ring_register(NULL, page, SIZE_MAX, LINKSPAN_RING_SEND, &(uint64_t){0}));
    for (uint32_t access = 0; access < 9; access += access == 0 ? 4 : 1) {
        IS(LINKSPAN_VALUE, linkspan_ring_register(NULL, page, sizeof page, access, &(uint64_t){0}));
    }
    IS(LINKSPAN_VALUE, linkspan_ring_register_dmabuf(NULL, -1, 0, 4096, LINKSPAN_RING_SEND, &(uint64_t){0}));
    IS(LINKSPAN_VALUE, linkspan_ring_set_eventfd(NULL, -2));
    IS(LINKSPAN_VALUE, linkspan_ring_doorbell(NULL, 0, -2, 0, NULL));
    IS(LINKSPAN_VALUE, linkspan_ring_doorbell(NULL, 0, 0, 2, NULL));
    OK(linkspan_context_close(context));
}

#define PAGE 4096

// The stand-in's queues, and whether the next doorbell that waits finds the link lost behind a completion.
static struct ls_queue *queue;
static bool loses;

// What was taken last has completed, and then the link is lost.
static void complete_and_lose(uint64_t cookie) {
    struct ls_cqe *const entries = (struct ls_cqe *)((char *)queue + 2 * PAGE);
    entries[queue->cq_tail % 8] = (struct ls_cqe){.cookie = cookie, .length = 1, .opcode = LS_OP_RECV};
    __atomic_store_n(&queue->cq_tail, queue->cq_tail + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&queue->dead, 1, __ATOMIC_RELEASE);
}

// In front of the system's, for the library too.
int ioctl(int fd, unsigned long number, ...) {
    va_list more;
    va_start(more, number);
    void *const argument = va_arg(more, void *);
    va_end(more);
    if (!queue || _IOC_TYPE(number) != LS_IOC_MAGIC) {
        return (int)syscall(SYS_ioctl, fd, number, argument);
    }
    if (number == LS_IOC_HELLO) {
        struct ls_ioc_hello *const hello = argument;
        hello->map_bytes = 3 * PAGE;
        hello->sq_offset = PAGE;
        hello->cq_offset = 2 * PAGE;
    } else if (number == LS_IOC_DOORBELL) {
        struct ls_ioc_doorbell *const notifier = argument;
        if (notifier->min_complete && loses) {
            complete_and_lose(1);
        }
        if (queue->dead) {
            errno = ENODEV;
            return -1;
        }
        notifier->submitted = queue->sq_tail - queue->sq_head;
        queue->sq_head = queue->sq_tail;
    }
    return 0;
}

// What completed before is told first: when more was put after it, and when the link goes while the call waits.
static void lost_behind_a_completion(bool waits) {
    char path[64];
    const int file = memfd_create("driver", 0);
    CHECK(file >= 0 && !ftruncate(file, 3 * PAGE));
    queue = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(queue != MAP_FAILED);
    queue->flags = LS_QUEUE_WAKE;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    const linkspan_ring_options few = {.submissions = 8, .completions = 8};
    static unsigned char page[PAGE];
    linkspan_ring *ring;
    uint64_t region;
    OK(linkspan_ring_open(path, &few, &ring));
    OK(linkspan_ring_register(ring, page, sizeof page, LINKSPAN_RING_RECEIVE, &region));
    OK(linkspan_ring_open_channel(ring, 5));
    OK(linkspan_ring_receive(ring, 5, region, 0, 1, 1));
    loses = waits;
    if (!waits) {
        OK(linkspan_ring_submit(ring, NULL));
        OK(linkspan_ring_receive(ring, 5, region, 0, 1, 2));
        complete_and_lose(1);
    }
    linkspan_completion done[2];
    size_t count;
    OK(linkspan_ring_wait(ring, LONG, 0, done, 2, &count));
    CHECK(count == 1 && done[0].cookie == 1 && done[0].status == LINKSPAN_OK);
    IS(LINKSPAN_LINK_LOST, linkspan_ring_wait(ring, LONG, 0, done, 2, &count));
    OK(linkspan_ring_close(ring));
    CHECK(!munmap(queue, 3 * PAGE) && !close(file));
    queue = NULL;
}

int main(void) {
    no_device();
    nulls();
    wrong_options();
    wrong_handles();
    lost_behind_a_completion(false);
    lost_behind_a_completion(true);
    CHECK(strstr(linkspan_status_text(LINKSPAN_QUEUE_FULL), "LS1162") && strstr(linkspan_status_text(LINKSPAN_LINK_LOST), "LS1504"));
    return 0;
}
