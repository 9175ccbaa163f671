// Memory of GPUs, and mapped memory. The drivers are stand-ins whose work runs late, as a real device's does; the one of CUDA keeps
// its memory where the processor faults. The program has its own calls into them, as users of GPUs have. With names of devices
// (cuda:0, hip:0) as arguments it uses those, through the machine's own drivers.
#define _GNU_SOURCE
#include "common.h"

#include <dlfcn.h>
#include <sys/mman.h>

typedef unsigned long long address;

// What a program does with its GPU.
struct gpu {
    const char *name;
    address (*alloc)(size_t length);
    void (*up)(address to, const void *from, size_t length);
    void (*down)(void *to, address from, size_t length);
};

static void *call(const char *library, const char *older, const char *name) {
    void *dl = dlopen(library, RTLD_NOW);
    if (!dl) {
        dl = dlopen(older, RTLD_NOW);
    }
    void *at = dl ? dlsym(dl, name) : NULL;
    if (!at) {
        fprintf(stderr, "%s: no %s: %s\n", library, name, dlerror());
        exit(1);
    }
    return at;
}

static void *cuda(const char *name) { return call("libcuda.so.1", "libcuda.so", name); }
static void *hip(const char *name) { return call("libamdhip64.so.7", "libamdhip64.so.6", name); }

static address cuda_alloc(size_t length) {
    address at;
    CHECK(((int (*)(address *, size_t))cuda("cuMemAlloc_v2"))(&at, length) == 0);
    return at;
}
static void cuda_up(address to, const void *from, size_t length) {
    CHECK(((int (*)(address, const void *, size_t))cuda("cuMemcpyHtoD_v2"))(to, from, length) == 0);
    // A copy of little memory is not over when its call returns, and no stream of others waits for it.
    CHECK(((int (*)(void *))cuda("cuStreamSynchronize"))(NULL) == 0);
}
static void cuda_down(void *to, address from, size_t length) {
    CHECK(((int (*)(void *, address, size_t))cuda("cuMemcpyDtoH_v2"))(to, from, length) == 0);
}
static address hip_alloc(size_t length) {
    void *at;
    CHECK(((int (*)(void **, size_t))hip("hipMalloc"))(&at, length) == 0);
    return (address)at;
}
static void hip_copy(address to, address from, size_t length) {
    CHECK(((int (*)(void *, const void *, size_t, int))hip("hipMemcpy"))((void *)to, (void *)from, length, 4) == 0);
}
static void hip_up(address to, const void *from, size_t length) { hip_copy(to, (address)from, length); }
static void hip_down(void *to, address from, size_t length) { hip_copy((address)to, from, length); }

static const struct gpu gpus[] = {
    {"cuda:0", cuda_alloc, cuda_up, cuda_down},
    {"hip:0", hip_alloc, hip_up, hip_down},
};

static linkspan_context *staged_over(int path) {
    const linkspan_setting settings[] = {
        {"LINKSPAN_IFNAME", "=lo"},
        {"LINKSPAN_STATS_DIR", "off"},
        {"LINKSPAN_PATH", path == 0 ? "tcp" : "shm"},
        {"LINKSPAN_CMA", path == 2 ? "0" : ""},
        {"LINKSPAN_GPU", "staged"},
    };
    linkspan_context *context;
    OK(linkspan_context_open(settings, 5, NULL, NULL, &context));
    return context;
}

static pair staged_pair(const char *gpu, int path) {
    pair p = {.contexts = {staged_over(path), staged_over(path)}};
    char url[LINKSPAN_URL_SIZE];
    OK(linkspan_transport_open(p.contexts[0], 0, &p.a));
    OK(linkspan_transport_open(p.contexts[1], 0, &p.b));
    OK(linkspan_transport_attach(p.a, gpu));
    OK(linkspan_transport_attach(p.b, gpu));
    OK(linkspan_transport_bind(p.b, url, sizeof url));
    OK(linkspan_transport_connect(p.a, url, LONG));
    OK(linkspan_transport_wait_connected(p.b, LONG));
    return p;
}

static linkspan_memory *registered(const char *gpu, address at, size_t length) {
    linkspan_memory *memory;
    linkspan_memory_info info;
    OK(linkspan_memory_register_device(gpu, (void *)at, length, 0, &memory));
    OK(linkspan_memory_get(memory, &info));
    CHECK(info.kind == LINKSPAN_MEMORY_DEVICE && info.writable && !info.allocated);
    CHECK((address)info.address == at && info.length == length && strlen(info.gpu) >= 5);
    return memory;
}

// Bytes that differ from place to place and from seed to seed.
static void pattern(unsigned char *bytes, size_t length, unsigned seed) {
    for (size_t n = 0; n < length; n++) {
        bytes[n] = (unsigned char)(seed * 131 + n * 7 + n / 251);
    }
}

static void holds(const struct gpu *gpu, address at, const unsigned char *want, size_t length) {
    unsigned char *got = malloc(length + 1);
    CHECK(got);
    gpu->down(got, at, length);
    CHECK(memcmp(got, want, length) == 0);
    free(got);
}

static void gpu_memory_is_written_read_and_exposed(const struct gpu *gpu, int path) {
    static const size_t sizes[] = {1, 8192, 8193, 100000, (3 << 20) + 7};
    pair p = staged_pair(gpu->name, path);
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        const size_t len = sizes[n];
        unsigned char *bytes = malloc(len), *back = malloc(len);
        CHECK(bytes && back);
        pattern(bytes, len, (unsigned)n);
        const address up_at = gpu->alloc(len), down_at = gpu->alloc(len);
        gpu->up(up_at, bytes, len);
        // By name, and by asking the driver.
        linkspan_memory *up = registered(gpu->name, up_at, len), *down = registered(NULL, down_at, len), *host;
        OK(linkspan_memory_register(back, len, 0, &host));
        linkspan_remote there;
        linkspan_notify note = {.value = n};
        uint64_t value = 0, moved = 0;
        OK(linkspan_transport_expose(p.b, part_of(down, 0, len), LINKSPAN_ACCESS_READ | LINKSPAN_ACCESS_WRITE, &there, NULL));
        // From a GPU into a GPU, and back into the host.
        OK(linkspan_write(p.a, part_of(up, 0, len), &there, &note, LONG, &moved));
        OK(linkspan_wait_for_write(p.b, LONG, &value));
        CHECK(moved == len && value == n);
        holds(gpu, down_at, bytes, len);
        OK(linkspan_read(p.a, part_of(host, 0, len), &there, LONG, NULL));
        CHECK(memcmp(back, bytes, len) == 0);
        // Other bytes as a message, received into a GPU without a waiter.
        pattern(bytes, len, (unsigned)n + 100);
        gpu->up(up_at, bytes, len);
        linkspan_op *receive;
        OK(linkspan_recv_start(p.b, 1, part_of(down, 0, len), LONG, &receive));
        OK(linkspan_send(p.a, 1, part_of(up, 0, len), LONG, NULL));
        OK(linkspan_op_wait(receive, &moved));
        OK(linkspan_op_free(receive));
        CHECK(moved == len);
        holds(gpu, down_at, bytes, len);
        // As long as the peer may use the bytes they must stay.
        IS(LINKSPAN_MEMORY_IN_USE, linkspan_memory_release(down, 0));
        OK(linkspan_read(p.a, part_of(host, 0, len), &there, LONG, NULL));
        CHECK(memcmp(back, bytes, len) == 0);
        OK(linkspan_transport_unexpose(p.b, &there, LONG));
        OK(linkspan_memory_release(up, LONG));
        OK(linkspan_memory_release(down, LONG));
        OK(linkspan_memory_release(host, LONG));
        free(bytes);
        free(back);
    }
    linkspan_peer_info info;
    OK(linkspan_transport_get(p.a, &info));
    CHECK(strstr(info.path, gpu->name));
    end_pair(p);
}

// The process's own context for GPUs, a listener, and memory that linkspan allocates.
static void a_listener_carries_gpu_memory(const struct gpu *gpu) {
    linkspan_context *context;
    linkspan_listener *listener;
    linkspan_transport *source, *target;
    linkspan_memory *up, *down;
    linkspan_memory_info from, to;
    linkspan_remote there;
    char url[LINKSPAN_URL_SIZE];
    unsigned char bytes[5000];
    CHECK(!setenv("LINKSPAN_IFNAME", "=lo", 1) && !setenv("LINKSPAN_STATS_DIR", "off", 1));
    OK(linkspan_context_for_gpus(&context));
    OK(linkspan_listener_open(context, 0, &listener));
    OK(linkspan_listener_attach(listener, gpu->name));
    OK(linkspan_listener_url(listener, url, sizeof url));
    OK(linkspan_transport_open(context, 0, &source));
    OK(linkspan_transport_attach(source, gpu->name));
    OK(linkspan_transport_connect(source, url, LONG));
    OK(linkspan_listener_accept(listener, LONG, &target));
    OK(linkspan_memory_alloc_device(gpu->name, sizeof bytes, &up));
    OK(linkspan_memory_alloc_device(gpu->name, sizeof bytes, &down));
    OK(linkspan_memory_get(up, &from));
    OK(linkspan_memory_get(down, &to));
    CHECK(from.allocated && strcmp(from.gpu, gpu->name) == 0);
    pattern(bytes, sizeof bytes, 5);
    gpu->up((address)from.address, bytes, sizeof bytes);
    OK(linkspan_transport_expose(target, part_of(down, 0, sizeof bytes), LINKSPAN_ACCESS_WRITE, &there, NULL));
    // Parts at odd places, in one call.
    const linkspan_part parts[] = {{part_of(up, 0, 1001), there}, {part_of(up, 1001, sizeof bytes - 1001), there}};
    linkspan_part placed[2];
    memcpy(placed, parts, sizeof placed);
    OK(linkspan_remote_slice(&there, 0, 1001, &placed[0].remote));
    OK(linkspan_remote_slice(&there, 1001, sizeof bytes - 1001, &placed[1].remote));
    OK(linkspan_write_batch(source, placed, 2, NULL, LONG, NULL));
    holds(gpu, (address)to.address, bytes, sizeof bytes);
    OK(linkspan_memory_release(up, LONG));
    OK(linkspan_memory_release(down, LONG));
    OK(linkspan_transport_close(source));
    OK(linkspan_transport_close(target));
    OK(linkspan_listener_close(listener));
    OK(linkspan_context_close(context));
}

static void what_is_no_gpu_memory_is_refused(int stand_in) {
    linkspan_memory *memory = NULL;
    unsigned char host[64];
    pair p = pair_over(0);
    const address at = cuda_alloc(64);
    IS(LINKSPAN_GPU_RANGE, linkspan_memory_register_device("cuda:0", host, sizeof host, 0, &memory));
    CHECK(strstr(linkspan_last_error(), "cuda:0"));
    // An allocation of the stand-in has whole pages of 64 KiB.
    if (stand_in) {
        IS(LINKSPAN_GPU_RANGE, linkspan_memory_register_device("cuda:0", (void *)at, (64 << 10) + 1, 0, &memory));
    }
    IS(1313, linkspan_memory_register_device(NULL, host, sizeof host, 0, &memory));
    IS(LINKSPAN_NO_GPU, linkspan_memory_register_device("cuda:99", (void *)at, 64, 0, &memory));
    IS(1312, linkspan_memory_register_device("gpu", (void *)at, 64, 0, &memory));
    IS(1155, linkspan_memory_register_device("a name that is much too long", (void *)at, 64, 0, &memory));
    IS(LINKSPAN_NULL, linkspan_memory_register_device("cuda:0", NULL, 64, 0, &memory));
    IS(LINKSPAN_VALUE, linkspan_memory_register_device("cuda:0", (void *)at, 64, 6, &memory));
    IS(LINKSPAN_NULL, linkspan_memory_alloc_device(NULL, 64, &memory));
    CHECK(!memory);
    // A transport to which it was not attached, and a context that stages nothing.
    linkspan_remote there;
    memory = registered("cuda:0", at, 64);
    IS(LINKSPAN_DEVICE_MEMORY, linkspan_transport_expose(p.a, part_of(memory, 0, 64), LINKSPAN_ACCESS_READ, &there, NULL));
    IS(LINKSPAN_DEVICE_MEMORY, linkspan_send(p.a, 1, part_of(memory, 0, 64), LONG, NULL));
    IS(1305, linkspan_transport_attach(p.a, "cuda:0"));
    OK(linkspan_memory_release(memory, LONG));
    end_pair(p);
}

// A driver that does not answer for the memory any more: here because it was given back too early.
static void memory_that_is_in_use_stays_registered_whatever_its_driver_says(void) {
    pair p = staged_pair("cuda:0", 0);
    const address at = cuda_alloc(64);
    linkspan_memory *memory = registered("cuda:0", at, 64), *other;
    linkspan_memory_info info;
    linkspan_op *receive;
    OK(linkspan_recv_start(p.b, 1, part_of(memory, 0, 64), LONG, &receive));
    CHECK(((int (*)(address))cuda("cuMemFree_v2"))(at) == 0);
    IS(LINKSPAN_GPU_RANGE, linkspan_memory_register_device("cuda:0", (void *)at, 64, 0, &other));
    IS(LINKSPAN_MEMORY_IN_USE, linkspan_memory_release(memory, 0));
    OK(linkspan_memory_get(memory, &info));
    CHECK((address)info.address == at && info.length == 64 && !strcmp(info.gpu, "cuda:0"));
    OK(linkspan_op_free(receive));
    OK(linkspan_memory_release(memory, LONG));
    end_pair(p);
}

static void a_descriptor_is_memory(void) {
    pair p = pair_over(0);
    const int fd = memfd_create("pages", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, 8192) == 0 && pwrite(fd, "from a file", 11, 4096) == 11);
    linkspan_memory *whole, *half, *host = memory_of(8192);
    linkspan_memory_info info, at;
    linkspan_remote there;
    OK(linkspan_memory_map(fd, 0, 8192, 0, &whole));
    OK(linkspan_memory_map(fd, 4096, 4096, LINKSPAN_READ_ONLY, &half));
    OK(linkspan_memory_get(half, &info));
    CHECK(info.kind == LINKSPAN_MEMORY_MAPPED && info.allocated && !info.writable && !info.gpu[0]);
    OK(linkspan_memory_get(host, &at));
    OK(linkspan_transport_expose(p.b, part_of(whole, 0, 8192), LINKSPAN_ACCESS_WRITE, &there, NULL));
    memcpy(at.address, "into a file", 11);
    OK(linkspan_write(p.a, part_of(host, 0, 11), &there, NULL, LONG, NULL));
    char bytes[11];
    CHECK(pread(fd, bytes, 11, 0) == 11 && !memcmp(bytes, "into a file", 11));
    OK(linkspan_transport_expose(p.b, part_of(half, 0, 4096), LINKSPAN_ACCESS_READ, &there, NULL));
    close(fd);
    OK(linkspan_read(p.a, part_of(host, 100, 11), &there, LONG, NULL));
    CHECK(!memcmp((char *)at.address + 100, "from a file", 11));
    IS(LINKSPAN_READ_ONLY_MEMORY, linkspan_transport_expose(p.b, part_of(half, 0, 8), LINKSPAN_ACCESS_WRITE, &there, NULL));
    IS(LINKSPAN_VALUE, linkspan_memory_map(-1, 0, 4096, 0, &whole));
    IS(1117, linkspan_memory_map(fd, 0, 4096, 0, &whole));
    end_pair(p);
    OK(linkspan_memory_release(whole, LONG));
    OK(linkspan_memory_release(half, LONG));
    OK(linkspan_memory_release(host, LONG));
}

static int asked_for(const char *name, int argc, char **argv) {
    int found = argc < 2;
    for (int n = 1; n < argc; n++) {
        found |= strcmp(argv[n], name) == 0;
    }
    return found;
}

int main(int argc, char **argv) {
    const int cuda_too = asked_for("cuda:0", argc, argv);
    int used = 0;
    if (cuda_too) {
        void *context;
        CHECK(((int (*)(unsigned))cuda("cuInit"))(0) == 0);
        CHECK(((int (*)(void **, int))cuda("cuDevicePrimaryCtxRetain"))(&context, 0) == 0);
        CHECK(((int (*)(void *))cuda("cuCtxPushCurrent_v2"))(context) == 0);
    }
    for (size_t n = 0; n < sizeof gpus / sizeof *gpus; n++) {
        if (!asked_for(gpus[n].name, argc, argv)) {
            continue;
        }
        for (int path = 0; path < PATHS; path++) {
            gpu_memory_is_written_read_and_exposed(&gpus[n], path);
        }
        a_listener_carries_gpu_memory(&gpus[n]);
        used++;
    }
    CHECK(argc < 2 || used == argc - 1);
    if (cuda_too) {
        what_is_no_gpu_memory_is_refused(argc < 2);
    }
    if (argc < 2) {
        memory_that_is_in_use_stays_registered_whatever_its_driver_says();
    }
    a_descriptor_is_memory();
    return 0;
}
