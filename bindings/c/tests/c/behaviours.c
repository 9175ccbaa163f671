// The behaviours of a one-sided transport, from C: two transports in one process, over each path. The names are those of the
// Rust tests (crates/linkspan/tests/behaviours.rs) and of the older project whose contract they hold.
#define _GNU_SOURCE
#include "common.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void query_support(void) {
    linkspan_support list[16];
    size_t count = 0;
    OK(linkspan_supported(NULL, NULL, &count));
    CHECK(count >= 2 && count <= 16);
    size_t one = 1;
    IS(LINKSPAN_TOO_SMALL, linkspan_supported(NULL, list, &one));
    CHECK(one == count);
    linkspan_context *context = context_over(0);
    OK(linkspan_supported(context, list, &count));
    bool tcp = false;
    for (size_t n = 0; n < count; n++) {
        CHECK(list[n].path[0] && list[n].why[0]);
        tcp |= !strcmp(list[n].path, "tcp") && list[n].usable;
    }
    CHECK(tcp);
    OK(linkspan_context_close(context));
    IS(LINKSPAN_HANDLE, linkspan_context_close(context));
    const linkspan_setting wrong = {"LINKSPAN_NO_SUCH", "1"};
    IS(1159, linkspan_context_open(&wrong, 1, NULL, NULL, &context));
    CHECK(strstr(linkspan_last_error(), "LINKSPAN_NO_SUCH") && linkspan_last_status() == 1159);
}

static void basic_construction(void) {
    unsigned char around[4098], *bytes = around + 1;
    linkspan_memory *memory;
    OK(linkspan_memory_register(bytes, 4096, 0, &memory));
    linkspan_memory_info info;
    OK(linkspan_memory_get(memory, &info));
    CHECK(info.address == bytes && info.length == 4096 && info.writable && !info.allocated);
    // Contains its edges, and nothing beyond.
    linkspan_view view;
    OK(linkspan_view_at(memory, bytes, 4096, &view));
    OK(linkspan_view_at(memory, bytes + 4095, 1, &view));
    CHECK(view.offset == 4095 && view.length == 1);
    IS(LINKSPAN_NOT_INSIDE, linkspan_view_at(memory, bytes + 4095, 2, &view));
    IS(LINKSPAN_NOT_INSIDE, linkspan_view_at(memory, bytes - 1, 1, &view));
    OK(linkspan_memory_release(memory, 0));
    IS(LINKSPAN_HANDLE, linkspan_memory_release(memory, 0));
    IS(LINKSPAN_NULL, linkspan_memory_register(NULL, 1, 0, &memory));
    OK(linkspan_memory_register(NULL, 0, 0, &memory));
    OK(linkspan_memory_release(memory, 0));
    // Keys: not empty, and what they say.
    pair p = pair_over(0);
    memory = memory_of(100);
    linkspan_remote remote = expose(p.b, memory);
    linkspan_remote_info said;
    OK(linkspan_remote_get(&remote, &said));
    CHECK(said.length == 100 && said.key && said.generation == 1 && said.access == 3);
    OK(linkspan_memory_release(memory, 0)); // Ours: kept mapped for as long as the region is there.
    end_pair(p);
}

static void reports_registration_reuse(void) {
    pair p = pair_over(0);
    linkspan_memory *memory = memory_of(4096);
    linkspan_remote first, again;
    uint32_t reused = 7;
    OK(linkspan_transport_expose(p.a, all_of(memory), LINKSPAN_ACCESS_WRITE, &first, &reused));
    CHECK(reused == 0);
    OK(linkspan_transport_expose(p.a, all_of(memory), LINKSPAN_ACCESS_WRITE, &again, &reused));
    CHECK(reused == 1 && !memcmp(&first, &again, sizeof first));
    OK(linkspan_transport_unexpose(p.a, &first, LONG));
    OK(linkspan_transport_unexpose(p.a, &again, LONG));
    IS(LINKSPAN_NOT_EXPOSED, linkspan_transport_unexpose(p.a, &again, LONG));
    OK(linkspan_memory_release(memory, 0));
    end_pair(p);
}

static void what_another_handle_gave_is_not_taken_back(void) {
    pair p = pair_over(0);
    linkspan_memory *ours = memory_of(64), *theirs = memory_of(64);
    linkspan_remote mine = expose(p.a, ours), others = expose(p.b, theirs), all, all_of_others;
    linkspan_remote_info one, other;
    OK(linkspan_remote_get(&mine, &one));
    OK(linkspan_remote_get(&others, &other));
    CHECK(one.key == other.key);
    IS(LINKSPAN_NOT_EXPOSED, linkspan_transport_unexpose(p.a, &others, LONG));
    OK(linkspan_read(p.b, all_of(theirs), &mine, LONG, NULL));
    OK(linkspan_transport_unexpose(p.a, &mine, LONG));
    // Nor by an endpoint.
    linkspan_endpoint *at, *beside;
    OK(linkspan_endpoint_open(p.contexts[0], 0, "at", &at));
    OK(linkspan_endpoint_open(p.contexts[1], 0, "beside", &beside));
    OK(linkspan_endpoint_expose(at, all_of(ours), LINKSPAN_ACCESS_READ, &all, NULL));
    OK(linkspan_endpoint_expose(beside, all_of(theirs), LINKSPAN_ACCESS_READ, &all_of_others, NULL));
    OK(linkspan_remote_get(&all, &one));
    OK(linkspan_remote_get(&all_of_others, &other));
    CHECK(one.key == other.key);
    IS(LINKSPAN_NOT_EXPOSED, linkspan_endpoint_unexpose(at, &all_of_others, LONG));
    OK(linkspan_endpoint_unexpose(at, &all, LONG));
    OK(linkspan_endpoint_close(at));
    OK(linkspan_endpoint_close(beside));
    end_pair(p);
    OK(linkspan_memory_release(ours, LONG));
    OK(linkspan_memory_release(theirs, LONG));
}

static void cache_miss_dynamic_registrations_are_not_reused(void) {
    pair p = pair_over(0);
    linkspan_memory *memory = memory_of(4096);
    linkspan_remote whole, rights, part, fresh;
    linkspan_remote_info infos[4];
    uint32_t reused[4];
    OK(linkspan_transport_expose(p.a, all_of(memory), LINKSPAN_ACCESS_WRITE, &whole, &reused[0]));
    OK(linkspan_transport_expose(p.a, all_of(memory), LINKSPAN_ACCESS_READ, &rights, &reused[1]));
    OK(linkspan_transport_expose(p.a, part_of(memory, 0, 100), LINKSPAN_ACCESS_WRITE, &part, &reused[2]));
    OK(linkspan_remote_get(&whole, &infos[0]));
    OK(linkspan_remote_get(&rights, &infos[1]));
    OK(linkspan_remote_get(&part, &infos[2]));
    OK(linkspan_transport_unexpose(p.a, &whole, LONG));
    OK(linkspan_transport_expose(p.a, all_of(memory), LINKSPAN_ACCESS_WRITE, &fresh, &reused[3]));
    OK(linkspan_remote_get(&fresh, &infos[3]));
    for (int n = 0; n < 4; n++) {
        CHECK(!reused[n]);
        for (int m = 0; m < n; m++) {
            CHECK(infos[n].key != infos[m].key);
        }
    }
    CHECK(infos[3].generation == 2);
    OK(linkspan_memory_release(memory, 0));
    end_pair(p);
}

static void view_bounds_checking_and_edge_cases(void) {
    pair p = pair_over(0);
    linkspan_memory *memory = memory_of(1000), *inbox = memory_of(1000);
    linkspan_remote remote = expose(p.b, inbox), part;
    uint64_t moved = 7;
    // No bytes at either end are fine.
    OK(linkspan_write(p.a, part_of(memory, 0, 0), &remote, NULL, LONG, &moved));
    OK(linkspan_write(p.a, part_of(memory, 1000, 0), &remote, NULL, LONG, &moved));
    OK(linkspan_remote_slice(&remote, 1000, 0, &part));
    OK(linkspan_write(p.a, part_of(memory, 0, 0), &part, NULL, LONG, &moved));
    OK(linkspan_read(p.a, part_of(memory, 1000, 0), &part, LONG, &moved));
    CHECK(moved == 0);
    IS(LINKSPAN_BOUNDS, linkspan_write(p.a, part_of(memory, 1000, 1), &remote, NULL, LONG, NULL));
    IS(LINKSPAN_BOUNDS, linkspan_write(p.a, part_of(memory, 1, UINT64_MAX), &remote, NULL, LONG, NULL));
    IS(LINKSPAN_BOUNDS, linkspan_remote_slice(&remote, 1, 1000, &part));
    IS(LINKSPAN_BOUNDS, linkspan_remote_slice(&remote, UINT64_MAX, 2, &part));
    OK(linkspan_remote_slice(&remote, 10, 20, &part));
    IS(LINKSPAN_BOUNDS, linkspan_write(p.a, part_of(memory, 0, 21), &part, NULL, LONG, NULL));
    // Several views of one memory at a time.
    fill(memory, 3);
    OK(linkspan_write(p.a, part_of(memory, 0, 500), &remote, NULL, LONG, NULL));
    OK(linkspan_remote_slice(&remote, 500, 500, &part));
    OK(linkspan_write(p.a, part_of(memory, 500, 500), &part, NULL, LONG, NULL));
    CHECK(filled(bytes_of(inbox), 1000, 3));
    end_pair(p);
    OK(linkspan_memory_release(memory, 0));
    OK(linkspan_memory_release(inbox, 0));
}

static void errors_that_need_no_peer_come_at_once(void) {
    linkspan_context *context = context_over(0);
    linkspan_transport *transport, *other;
    OK(linkspan_transport_open(context, 0, &transport));
    OK(linkspan_transport_open(context, 0, &other));
    linkspan_memory *memory = memory_of(8);
    unsigned char bytes[8] = {0};
    linkspan_memory *frozen;
    OK(linkspan_memory_register(bytes, 8, LINKSPAN_READ_ONLY, &frozen));
    linkspan_remote remote = expose(other, memory), own = expose(transport, memory), look;
    uint64_t value;
    IS(LINKSPAN_NOT_CONNECTED, linkspan_write(transport, all_of(memory), &remote, NULL, LONG, NULL));
    IS(LINKSPAN_NULL, linkspan_write(transport, all_of(memory), NULL, NULL, LONG, NULL));
    IS(LINKSPAN_HANDLE, linkspan_write(NULL, all_of(memory), &remote, NULL, LONG, NULL));
    IS(LINKSPAN_HANDLE, linkspan_wait_for_write((linkspan_transport *)memory, 0, &value));
    IS(LINKSPAN_VALUE, linkspan_wait_for_write(transport, -7, &value));
    CHECK(strstr(linkspan_last_error(), "timeout_ms") && strstr(linkspan_last_error(), "-7"));
    IS(LINKSPAN_READ_ONLY_MEMORY, linkspan_read(transport, all_of(frozen), &remote, LONG, NULL));
    IS(LINKSPAN_READ_ONLY_MEMORY, linkspan_transport_expose(transport, all_of(frozen), LINKSPAN_ACCESS_WRITE, &look, NULL));
    IS(LINKSPAN_VALUE, linkspan_transport_expose(transport, all_of(memory), 8, &look, NULL));
    char url[LINKSPAN_URL_SIZE];
    IS(LINKSPAN_TOO_SMALL, linkspan_transport_bind(transport, url, 8));
    OK(linkspan_transport_bind(other, url, sizeof url));
    OK(linkspan_transport_connect(transport, url, LONG));
    OK(linkspan_transport_wait_connected(other, LONG));
    IS(LINKSPAN_WRONG_PEER, linkspan_write(transport, all_of(memory), &own, NULL, LONG, NULL));
    OK(linkspan_transport_expose(other, all_of(memory), LINKSPAN_ACCESS_READ, &look, NULL));
    IS(LINKSPAN_NO_RIGHT, linkspan_write(transport, all_of(frozen), &look, NULL, LONG, NULL));
    const linkspan_notify flags = {1, 6, 0};
    IS(LINKSPAN_VALUE, linkspan_write(transport, all_of(memory), &remote, &flags, LONG, NULL));
    IS(1120, linkspan_transport_connect(transport, "nonsense", LONG));
    look.bytes[0] ^= 0xff;
    IS(1116, linkspan_remote_decode(look.bytes, sizeof look.bytes, &look));
    IS(1116, linkspan_remote_decode(remote.bytes, sizeof remote.bytes - 1, &look));
    OK(linkspan_transport_close(transport));
    IS(LINKSPAN_HANDLE, linkspan_transport_close(transport));
    OK(linkspan_transport_close(other));
    OK(linkspan_memory_release(frozen, LONG));
    OK(linkspan_memory_release(memory, LONG));
    OK(linkspan_context_close(context));
}

static void bind_and_connect(int path) {
    pair p = pair_over(path);
    linkspan_peer_info info;
    OK(linkspan_transport_get(p.a, &info));
    CHECK(info.connected && info.epoch == 1 && !strncmp(info.path, path ? "shm" : "tcp", 3));
    // Both may connect with each other's URL: one path comes of it.
    char urls[2][LINKSPAN_URL_SIZE];
    linkspan_transport *x, *y;
    OK(linkspan_transport_open(p.contexts[0], 0, &x));
    OK(linkspan_transport_open(p.contexts[1], 0, &y));
    OK(linkspan_transport_bind(x, urls[0], LINKSPAN_URL_SIZE));
    OK(linkspan_transport_bind(y, urls[1], LINKSPAN_URL_SIZE));
    linkspan_op *op;
    OK(linkspan_transport_connect_start(x, urls[1], LONG, &op));
    OK(linkspan_transport_connect(y, urls[0], LONG));
    OK(linkspan_op_wait(op, NULL));
    OK(linkspan_op_free(op));
    // A third one is turned away.
    linkspan_transport *z;
    OK(linkspan_transport_open(p.contexts[0], 0, &z));
    IS(LINKSPAN_NO_CONNECTION, linkspan_transport_connect(z, urls[1], 2000));
    OK(linkspan_transport_close(x));
    OK(linkspan_transport_close(y));
    OK(linkspan_transport_close(z));
    end_pair(p);
}

static void server_client_data_transfer_write(int path) {
    pair p = pair_over(path);
    linkspan_memory *from = memory_of(8192), *to = memory_of(8192);
    linkspan_remote remote = expose(p.b, to);
    fill(from, 1);
    linkspan_notify n = note(42);
    uint64_t moved = 0, value = 0;
    OK(linkspan_write(p.a, all_of(from), &remote, &n, LONG, &moved));
    OK(linkspan_wait_for_write(p.b, LONG, &value));
    CHECK(moved == 8192 && value == 42 && filled(bytes_of(to), 8192, 1));
    end_pair(p);
    OK(linkspan_memory_release(from, 0));
    OK(linkspan_memory_release(to, 0));
}

static const size_t sizes[] = {64, 512, 1024, 4096, 4097, 4098, 8192, 65536, 1048576};

static void write_with_various_buffer_sizes(int path) {
    pair p = pair_over(path);
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        const size_t size = sizes[n];
        linkspan_memory *from = memory_of(size), *to = memory_of(size);
        linkspan_remote remote = expose(p.b, to);
        fill(from, (unsigned)n);
        linkspan_notify with = note(n);
        uint64_t value = 99;
        OK(linkspan_write(p.a, all_of(from), &remote, &with, LONG, NULL));
        OK(linkspan_wait_for_write(p.b, LONG, &value));
        CHECK(value == n && filled(bytes_of(to), size, (unsigned)n));
        OK(linkspan_transport_unexpose(p.b, &remote, LONG));
        OK(linkspan_memory_release(from, 0));
        OK(linkspan_memory_release(to, 0));
    }
    end_pair(p);
}

static void server_client_data_transfer_read(int path) {
    pair p = pair_over(path);
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        linkspan_memory *here = memory_of(sizes[n]), *there = memory_of(sizes[n]);
        fill(there, (unsigned)n + 20);
        linkspan_remote remote = expose(p.b, there);
        uint64_t moved = 0;
        OK(linkspan_read(p.a, all_of(here), &remote, LONG, &moved));
        CHECK(moved == sizes[n] && filled(bytes_of(here), sizes[n], (unsigned)n + 20));
        OK(linkspan_memory_release(here, 0));
        OK(linkspan_memory_release(there, 0));
    }
    end_pair(p);
}

static void partial_view_write_and_read(int path) {
    pair p = pair_over(path);
    linkspan_memory *here = memory_of(100 * KIB), *there = memory_of(100 * KIB);
    fill(here, 5);
    linkspan_remote remote = expose(p.b, there), part;
    OK(linkspan_remote_slice(&remote, 30 * KIB, 40 * KIB, &part));
    OK(linkspan_write(p.a, part_of(here, 10 * KIB, 40 * KIB), &part, NULL, LONG, NULL));
    const unsigned char *got = bytes_of(there);
    CHECK(!memcmp(got + 30 * KIB, bytes_of(here) + 10 * KIB, 40 * KIB));
    CHECK(all_are(got, 30 * KIB, 0) && all_are(got + 70 * KIB, 30 * KIB, 0));
    linkspan_memory *back = memory_of(100 * KIB);
    OK(linkspan_read(p.a, part_of(back, 50 * KIB, 1000), &part, LONG, NULL));
    const unsigned char *read = bytes_of(back);
    CHECK(!memcmp(read + 50 * KIB, bytes_of(here) + 10 * KIB, 1000));
    CHECK(all_are(read, 50 * KIB, 0) && all_are(read + 50 * KIB + 1000, 50 * KIB - 1000, 0));
    end_pair(p);
    OK(linkspan_memory_release(here, 0));
    OK(linkspan_memory_release(there, 0));
    OK(linkspan_memory_release(back, 0));
}

static void a_key_that_was_taken_back_is_refused(int path) {
    pair p = pair_over(path);
    linkspan_memory *from = memory_of(MIB), *to = memory_of(MIB);
    linkspan_remote remote = expose(p.b, to);
    OK(linkspan_write(p.a, all_of(from), &remote, NULL, LONG, NULL));
    OK(linkspan_transport_unexpose(p.b, &remote, LONG));
    memset(bytes_of(to), 0xEE, MIB);
    linkspan_notify n = note(1);
    for (size_t size = 8; size <= MIB; size = size == 8 ? MIB : MIB + 1) {
        IS(LINKSPAN_REMOTE_ACCESS, linkspan_write(p.a, part_of(from, 0, size), &remote, &n, LONG, NULL));
        IS(LINKSPAN_REMOTE_ACCESS, linkspan_read(p.a, part_of(from, 0, size), &remote, LONG, NULL));
    }
    CHECK(all_are(bytes_of(to), MIB, 0xEE));
    IS(LINKSPAN_TIMEOUT, linkspan_wait_for_write(p.b, 20, NULL));
    end_pair(p);
    OK(linkspan_memory_release(from, 0));
    OK(linkspan_memory_release(to, 0));
}

static void timeout_immediately(int path) {
    pair p = pair_over(path);
    IS(LINKSPAN_TIMEOUT, linkspan_wait_for_write(p.b, 0, NULL));
    linkspan_memory *from = memory_of(64 * MIB), *to = memory_of(64 * MIB);
    linkspan_remote remote = expose(p.b, to);
    IS(LINKSPAN_TIMEOUT, linkspan_write(p.a, all_of(from), &remote, NULL, 0, NULL));
    linkspan_peer_info info;
    OK(linkspan_transport_get(p.a, &info));
    CHECK(info.epoch == 2);
    // It stays usable.
    fill(from, 9);
    OK(linkspan_write(p.a, part_of(from, 0, 4096), &remote, NULL, LONG, NULL));
    CHECK(filled(bytes_of(to), 4096, 9));
    end_pair(p);
    OK(linkspan_memory_release(from, 0));
    OK(linkspan_memory_release(to, 0));
}

static void timeout_with_duration(int path) {
    pair p = pair_over(path);
    int64_t began = now_ms();
    IS(LINKSPAN_TIMEOUT, linkspan_wait_for_write(p.b, 100, NULL));
    CHECK(now_ms() - began >= 99);
    // One without a waiter reports in time too.
    linkspan_op *op;
    uint32_t done = 0;
    OK(linkspan_wait_for_write_start(p.b, 100, &op));
    OK(linkspan_op_test(op, &done, NULL));
    CHECK(!done);
    for (began = now_ms(); !done && now_ms() - began < LONG; sleep_ms(1)) {
        const int32_t status = linkspan_op_test(op, &done, NULL);
        CHECK(status == (done ? LINKSPAN_TIMEOUT : LINKSPAN_OK));
    }
    CHECK(done);
    IS(LINKSPAN_TIMEOUT, linkspan_op_wait(op, NULL));
    OK(linkspan_op_free(op));
    IS(LINKSPAN_HANDLE, linkspan_op_free(op));
    end_pair(p);
}

static void write_zero_timeout_late_completion_safe(int path) {
    enum { FLOOD = 32 };
    const size_t size = 8 * MIB;
    pair p = pair_over(path);
    linkspan_memory *to = memory_of(size);
    linkspan_remote remote = expose(p.b, to);
    unsigned char *junk[FLOOD];
    linkspan_memory *from[FLOOD];
    linkspan_op *ops[FLOOD];
    linkspan_notify n = note(1);
    for (int i = 0; i < FLOOD; i++) {
        CHECK((junk[i] = malloc(size)));
        memset(junk[i], i, size);
        OK(linkspan_memory_register(junk[i], size, LINKSPAN_READ_ONLY, &from[i]));
        OK(linkspan_write_start(p.a, all_of(from[i]), &remote, &n, 0, &ops[i]));
    }
    uint64_t done = 0;
    for (int i = 0; i < FLOOD; i++) {
        const int32_t status = linkspan_op_wait(ops[i], NULL);
        CHECK(status == LINKSPAN_OK || status == LINKSPAN_TIMEOUT);
        done += status == LINKSPAN_OK;
        OK(linkspan_op_free(ops[i]));
        // Its memory is free at once.
        OK(linkspan_memory_release(from[i], 0));
        memset(junk[i], 0xAA, size);
        free(junk[i]);
    }
    memset(bytes_of(to), 0xEE, size);
    sleep_ms(50);
    CHECK(all_are(bytes_of(to), size, 0xEE));
    linkspan_memory *good = memory_of(MIB);
    fill(good, 9);
    n = note(2);
    OK(linkspan_write(p.a, all_of(good), &remote, &n, LONG, NULL));
    uint64_t value = 0, notified = 0;
    for (; value != 2; notified++) {
        OK(linkspan_wait_for_write(p.b, LONG, &value));
    }
    CHECK(notified == done + 1 && filled(bytes_of(to), MIB, 9));
    end_pair(p);
    OK(linkspan_memory_release(good, 0));
    OK(linkspan_memory_release(to, 0));
}

static void destructor_cancels_pending_works(int path) {
    pair p = pair_over(path);
    linkspan_memory *from = memory_of(64 * MIB), *to = memory_of(64 * MIB), *into = memory_of(16 * MIB);
    linkspan_remote remote = expose(p.b, to);
    linkspan_op *ops[3];
    linkspan_notify n = note(1);
    OK(linkspan_write_start(p.a, all_of(from), &remote, &n, LINKSPAN_FOREVER, &ops[0]));
    OK(linkspan_read_start(p.a, all_of(into), &remote, LINKSPAN_FOREVER, &ops[1]));
    OK(linkspan_wait_for_write_start(p.a, LINKSPAN_FOREVER, &ops[2]));
    OK(linkspan_transport_close(p.a));
    IS(LINKSPAN_ABORTED, linkspan_op_wait(ops[2], NULL));
    for (int i = 0; i < 2; i++) {
        const int32_t status = linkspan_op_wait(ops[i], NULL);
        CHECK(status == LINKSPAN_ABORTED || status == LINKSPAN_OK);
    }
    for (int i = 0; i < 3; i++) {
        OK(linkspan_op_free(ops[i]));
    }
    OK(linkspan_memory_release(from, 0));
    OK(linkspan_memory_release(into, 0));
    // The peer's end is told.
    int32_t status = linkspan_wait_for_write(p.b, LONG, NULL);
    IS(LINKSPAN_BROKEN, status == LINKSPAN_OK ? linkspan_wait_for_write(p.b, LONG, NULL) : status);
    OK(linkspan_transport_close(p.b));
    OK(linkspan_context_close(p.contexts[0]));
    OK(linkspan_context_close(p.contexts[1]));
    OK(linkspan_memory_release(to, 0));
}

static void broken_transport_fails_fast(int path) {
    pair p = pair_over(path);
    linkspan_memory *memory = memory_of(100);
    linkspan_remote remote = expose(p.b, memory);
    OK(linkspan_transport_close(p.b));
    IS(LINKSPAN_BROKEN, linkspan_wait_for_write(p.a, LONG, NULL));
    const int64_t began = now_ms();
    linkspan_op *op;
    IS(LINKSPAN_BROKEN, linkspan_write(p.a, all_of(memory), &remote, NULL, LINKSPAN_FOREVER, NULL));
    CHECK(strstr(linkspan_last_error(), "LS1104") == linkspan_last_error());
    IS(LINKSPAN_BROKEN, linkspan_read(p.a, all_of(memory), &remote, LINKSPAN_FOREVER, NULL));
    IS(LINKSPAN_BROKEN, linkspan_wait_for_write(p.a, LINKSPAN_FOREVER, NULL));
    OK(linkspan_write_start(p.a, all_of(memory), &remote, NULL, LINKSPAN_FOREVER, &op));
    IS(LINKSPAN_BROKEN, linkspan_op_wait(op, NULL));
    OK(linkspan_op_free(op));
    CHECK(now_ms() - began < 5000);
    // A new transport to the same place works at once.
    OK(linkspan_transport_close(p.a));
    OK(linkspan_context_close(p.contexts[0]));
    OK(linkspan_context_close(p.contexts[1]));
    end_pair(pair_over(path));
    OK(linkspan_memory_release(memory, 0));
}

static void notifications_count_and_come_in_order(int path) {
    pair p = pair_over(path);
    linkspan_memory *from = memory_of(MIB), *to = memory_of(MIB);
    linkspan_remote remote = expose(p.b, to);
    fill(from, 4);
    static const size_t lengths[] = {MIB, 8, 0, 100000, 8192, 20000, 3};
    linkspan_op *ops[70];
    for (uint64_t n = 0; n < 70; n++) {
        linkspan_notify with = note(n);
        OK(linkspan_write_start(p.a, part_of(from, 0, lengths[n % 7]), &remote, &with, LONG, &ops[n]));
    }
    for (uint64_t n = 0; n < 70; n++) {
        uint64_t value = 99;
        OK(linkspan_wait_for_write(p.b, LONG, &value));
        CHECK(value == n);
    }
    for (uint64_t n = 0; n < 70; n++) {
        uint64_t moved = 0;
        OK(linkspan_op_wait(ops[n], &moved));
        CHECK(moved == lengths[n % 7]);
        OK(linkspan_op_free(ops[n]));
    }
    IS(LINKSPAN_TIMEOUT, linkspan_wait_for_write(p.b, 0, NULL));
    CHECK(filled(bytes_of(to), MIB, 4));
    // With a fence one notification covers what was written before.
    fill(from, 6);
    linkspan_op *plain, *fence;
    const linkspan_notify fenced = {5, LINKSPAN_FENCE, 0};
    OK(linkspan_write_start(p.a, all_of(from), &remote, NULL, LONG, &plain));
    OK(linkspan_write_start(p.a, part_of(from, 0, 0), &remote, &fenced, LONG, &fence));
    OK(linkspan_wait_for_write(p.b, LONG, NULL));
    CHECK(filled(bytes_of(to), MIB, 6));
    OK(linkspan_op_wait(plain, NULL));
    OK(linkspan_op_wait(fence, NULL));
    OK(linkspan_op_free(plain));
    OK(linkspan_op_free(fence));
    end_pair(p);
    OK(linkspan_memory_release(from, 0));
    OK(linkspan_memory_release(to, 0));
}

static void batches_scatter_and_gather_in_one_call(int path) {
    enum { PAGES = 600, PAGE = 16 << 10 };
    pair p = pair_over(path);
    linkspan_memory *from = memory_of(PAGES * PAGE), *to = memory_of(2 * PAGES * PAGE), *back = memory_of(PAGES * PAGE);
    linkspan_remote remote = expose(p.b, to);
    fill(from, 5);
    static linkspan_part parts[PAGES];
    for (size_t n = 0; n < PAGES; n++) {
        parts[n].local = part_of(from, n * PAGE, PAGE);
        OK(linkspan_remote_slice(&remote, 2 * (PAGES - 1 - n) * PAGE, PAGE, &parts[n].remote));
    }
    linkspan_notify n1 = note(1);
    uint64_t moved = 0, value = 0;
    OK(linkspan_write_batch(p.a, parts, PAGES, &n1, LONG, &moved));
    OK(linkspan_wait_for_write(p.b, LONG, &value));
    CHECK(moved == PAGES * PAGE && value == 1);
    const unsigned char *got = bytes_of(to), *want = bytes_of(from);
    for (size_t n = 0; n < PAGES; n++) {
        const size_t at = 2 * (PAGES - 1 - n) * PAGE;
        CHECK(!memcmp(got + at, want + n * PAGE, PAGE) && all_are(got + at + PAGE, PAGE, 0));
        parts[n].local.memory = back;
    }
    linkspan_op *op;
    OK(linkspan_read_batch_start(p.a, parts, PAGES, LONG, &op));
    OK(linkspan_op_wait(op, &moved));
    OK(linkspan_op_free(op));
    CHECK(moved == PAGES * PAGE && !memcmp(bytes_of(back), want, PAGES * PAGE));
    OK(linkspan_write_batch(p.a, NULL, 0, NULL, LONG, &moved));
    CHECK(moved == 0);
    IS(LINKSPAN_NULL, linkspan_write_batch(p.a, NULL, 2, NULL, LONG, NULL));
    end_pair(p);
    OK(linkspan_memory_release(from, 0));
    OK(linkspan_memory_release(to, 0));
    OK(linkspan_memory_release(back, 0));
}

static void tagged_messages_meet_their_receives(int path) {
    pair p = pair_over(path);
    linkspan_memory *small = memory_of(100), *large = memory_of(3 * MIB), *x = memory_of(200), *y = memory_of(3 * MIB);
    fill(small, 1);
    fill(large, 2);
    linkspan_op *first, *sends[2];
    uint64_t moved = 0;
    OK(linkspan_recv_start(p.b, 7, all_of(y), LONG, &first));
    OK(linkspan_send_start(p.a, 9, all_of(small), LONG, &sends[0]));
    OK(linkspan_send_start(p.a, 7, all_of(large), LONG, &sends[1]));
    OK(linkspan_recv(p.b, 9, all_of(x), LONG, &moved));
    CHECK(moved == 100 && filled(bytes_of(x), 100, 1));
    OK(linkspan_op_wait(first, &moved));
    CHECK(moved == 3 * MIB && filled(bytes_of(y), 3 * MIB, 2));
    for (int i = 0; i < 2; i++) {
        OK(linkspan_op_wait(sends[i], NULL));
        OK(linkspan_op_free(sends[i]));
    }
    OK(linkspan_op_free(first));
    end_pair(p);
    OK(linkspan_memory_release(small, 0));
    OK(linkspan_memory_release(large, 0));
    OK(linkspan_memory_release(x, 0));
    OK(linkspan_memory_release(y, 0));
}

static void a_listener_serves_many_peers(int path) {
    enum { PEERS = 8 };
    linkspan_context *server = context_over(path), *client = context_over(path);
    linkspan_listener *listener;
    linkspan_transport *peers[PEERS], *ends[PEERS];
    linkspan_op *ops[PEERS];
    char url[LINKSPAN_URL_SIZE];
    OK(linkspan_listener_open(server, 0, &listener));
    OK(linkspan_listener_url(listener, url, sizeof url));
    for (int i = 0; i < PEERS; i++) {
        OK(linkspan_transport_open(client, 0, &peers[i]));
        OK(linkspan_transport_connect_start(peers[i], url, LONG, &ops[i]));
    }
    linkspan_memory *memory = memory_of(8);
    for (int i = 0; i < PEERS; i++) {
        OK(linkspan_listener_accept(listener, LONG, &ends[i]));
    }
    IS(LINKSPAN_TIMEOUT, linkspan_listener_accept(listener, 0, &ends[0]));
    unsigned seen = 0;
    for (int i = 0; i < PEERS; i++) {
        OK(linkspan_op_wait(ops[i], NULL));
        OK(linkspan_op_free(ops[i]));
        *bytes_of(memory) = (unsigned char)i;
        OK(linkspan_send(peers[i], 5, all_of(memory), LONG, NULL));
    }
    for (int i = 0; i < PEERS; i++) {
        OK(linkspan_recv(ends[i], 5, all_of(memory), LONG, NULL));
        seen |= 1u << *bytes_of(memory);
    }
    for (int i = 0; i < PEERS; i++) {
        OK(linkspan_transport_close(ends[i]));
        OK(linkspan_transport_close(peers[i]));
    }
    CHECK(seen == 0xff);
    OK(linkspan_listener_close(listener));
    IS(LINKSPAN_HANDLE, linkspan_listener_close(listener));
    OK(linkspan_context_close(server));
    OK(linkspan_context_close(client));
    OK(linkspan_memory_release(memory, 0));
}

// The URL of an endpoint that has gone.
static const char *other_url(linkspan_context *context) {
    static char url[LINKSPAN_URL_SIZE];
    linkspan_endpoint *other;
    OK(linkspan_endpoint_open(context, 0, "other", &other));
    OK(linkspan_endpoint_url(other, url, sizeof url));
    OK(linkspan_endpoint_close(other));
    return url;
}

// The next event is of this kind and this peer.
static linkspan_event event_of(linkspan_endpoint *at, uint32_t kind, const char *peer) {
    linkspan_event event;
    OK(linkspan_endpoint_next(at, LONG, &event));
    if (event.kind != kind || strcmp(event.peer, peer) != 0) {
        fprintf(stderr, "event %u of %s (%s), not %u of %s\n", event.kind, event.peer, event.why, kind, peer);
        exit(1);
    }
    return event;
}

static void an_endpoint_has_peers_by_name_and_one_queue_of_events(int path) {
    enum { WORKERS = 3 };
    linkspan_context *contexts[1 + WORKERS];
    linkspan_endpoint *trainer, *workers[WORKERS];
    linkspan_transport *to[WORKERS];
    linkspan_op *op;
    char url[LINKSPAN_URL_SIZE], names[WORKERS][8];
    contexts[0] = context_over(path);
    IS(LINKSPAN_PEER_NAME, linkspan_endpoint_open(contexts[0], 0, "two words", &trainer));
    OK(linkspan_endpoint_open(contexts[0], 0, "trainer", &trainer));
    OK(linkspan_endpoint_url(trainer, url, sizeof url));
    linkspan_memory *weights = memory_of(MIB);
    fill(weights, 3);
    // Exposed once, before anybody has come.
    linkspan_remote region, same;
    uint32_t reused = 7, news = 7;
    OK(linkspan_endpoint_expose(trainer, all_of(weights), LINKSPAN_ACCESS_READ | LINKSPAN_ACCESS_WRITE, &region, &reused));
    OK(linkspan_endpoint_expose(trainer, all_of(weights), LINKSPAN_ACCESS_READ | LINKSPAN_ACCESS_WRITE, &same, NULL));
    CHECK(reused == 0 && memcmp(&region, &same, sizeof same) == 0);
    int fd = -1;
    OK(linkspan_endpoint_event_fd(trainer, &fd));
    for (int i = 0; i < WORKERS; i++) {
        snprintf(names[i], sizeof names[i], "w%d", i);
        contexts[1 + i] = context_over(path);
        OK(linkspan_endpoint_open(contexts[1 + i], 0, names[i], &workers[i]));
    }
    OK(linkspan_endpoint_connect(workers[0], "trainer", url, LONG));
    OK(linkspan_endpoint_connect_start(workers[1], "trainer", url, LONG, &op));
    OK(linkspan_op_wait(op, NULL));
    OK(linkspan_op_free(op));
    event_of(trainer, LINKSPAN_PEER_CONNECTED, "w0");
    event_of(trainer, LINKSPAN_PEER_CONNECTED, "w1");
    linkspan_event none;
    IS(LINKSPAN_TIMEOUT, linkspan_endpoint_next(trainer, 0, &none));
    OK(linkspan_endpoint_connect(workers[2], "trainer", url, LONG));
    struct pollfd waits = {fd, POLLIN, 0};
    CHECK(poll(&waits, 1, (int)LONG) == 1);
    OK(linkspan_endpoint_poll(trainer, &news));
    event_of(trainer, LINKSPAN_PEER_CONNECTED, "w2");
    // One remote buffer is good for all of them; their notifications come in the one queue.
    for (int i = 0; i < WORKERS; i++) {
        event_of(workers[i], LINKSPAN_PEER_CONNECTED, "trainer");
        OK(linkspan_endpoint_peer(workers[i], "trainer", &to[i]));
        linkspan_memory *got = memory_of(MIB);
        const linkspan_notify told = note(100 + (uint64_t)i);
        OK(linkspan_read(to[i], all_of(got), &region, LONG, NULL));
        CHECK(filled(bytes_of(got), MIB, 3));
        OK(linkspan_write(to[i], part_of(got, 0, 64), &region, &told, LONG, NULL));
        CHECK(event_of(trainer, LINKSPAN_PEER_NOTIFIED, names[i]).value == 100 + (uint64_t)i);
        OK(linkspan_memory_release(got, 0));
    }
    linkspan_peer_name list[WORKERS];
    size_t count = 0;
    OK(linkspan_endpoint_peers(trainer, NULL, &count));
    CHECK(count == WORKERS);
    OK(linkspan_endpoint_peers(trainer, list, &count));
    CHECK(strcmp(list[0].name, "w0") == 0 && strcmp(list[2].name, "w2") == 0);
    // A handle of a peer is closed without the peer; what was exposed through it goes with it.
    linkspan_transport *one, *two;
    linkspan_memory *own = memory_of(64);
    OK(linkspan_endpoint_peer(trainer, "w0", &one));
    OK(linkspan_endpoint_peer(trainer, "w0", &two));
    const linkspan_remote lent = expose(one, own);
    OK(linkspan_read(to[0], part_of(weights, 0, 64), &lent, LONG, NULL));
    OK(linkspan_transport_close(one));
    IS(LINKSPAN_REMOTE_ACCESS, linkspan_read(to[0], part_of(weights, 0, 64), &lent, LONG, NULL));
    OK(linkspan_memory_release(own, 0));
    OK(linkspan_send_start(two, 4, part_of(weights, 0, 8), LONG, &op));
    OK(linkspan_recv(to[0], 4, part_of(weights, 8, 8), LONG, NULL));
    OK(linkspan_op_wait(op, NULL));
    OK(linkspan_op_free(op));
    OK(linkspan_transport_close(two));
    IS(LINKSPAN_UNKNOWN_PEER, linkspan_endpoint_peer(trainer, "w9", &one));
    IS(LINKSPAN_PEER_NAME_TAKEN, linkspan_endpoint_connect(workers[0], "trainer", other_url(contexts[1]), LONG));
    // One is removed, of one the end is told after what it had to tell, and all lose what was taken back.
    OK(linkspan_endpoint_remove(trainer, "w1"));
    event_of(workers[1], LINKSPAN_PEER_LOST, "trainer");
    const linkspan_notify last = note(9);
    OK(linkspan_write(to[2], part_of(weights, 0, 0), &region, &last, LONG, NULL));
    OK(linkspan_endpoint_close(workers[2]));
    CHECK(event_of(trainer, LINKSPAN_PEER_NOTIFIED, "w2").value == 9);
    CHECK(event_of(trainer, LINKSPAN_PEER_LOST, "w2").why[0] != 0);
    IS(LINKSPAN_BROKEN, linkspan_wait_for_write(to[2], 0, NULL));
    OK(linkspan_endpoint_unexpose(trainer, &region, LONG));
    OK(linkspan_read(to[0], part_of(weights, 0, 8), &region, LONG, NULL));
    OK(linkspan_endpoint_unexpose(trainer, &region, LONG));
    IS(LINKSPAN_REMOTE_ACCESS, linkspan_read(to[0], part_of(weights, 0, 8), &region, LONG, NULL));
    IS(LINKSPAN_NOT_EXPOSED, linkspan_endpoint_unexpose(trainer, &region, LONG));
    OK(linkspan_endpoint_close(trainer));
    IS(LINKSPAN_HANDLE, linkspan_endpoint_next(trainer, 0, &none));
    OK(linkspan_endpoint_close(workers[0]));
    OK(linkspan_endpoint_close(workers[1]));
    OK(linkspan_memory_release(weights, LONG));
    for (int i = 0; i < WORKERS; i++) {
        OK(linkspan_transport_close(to[i]));
    }
    for (int i = 0; i <= WORKERS; i++) {
        OK(linkspan_context_close(contexts[i]));
    }
}

typedef struct receiver {
    linkspan_transport *at;
    linkspan_memory *into;
    uint32_t tag;
    atomic_bool begins;
} receiver;

static void *receive(void *arg) {
    receiver *r = arg;
    r->begins = true;
    return (void *)(intptr_t)linkspan_recv(r->at, r->tag, all_of(r->into), LINKSPAN_FOREVER, NULL);
}

static void closing_one_handle_of_a_peer_leaves_alone_what_is_pending(void) {
    linkspan_context *contexts[2] = {context_over(0), context_over(0)};
    linkspan_endpoint *hub, *worker;
    linkspan_transport *to, *one, *two;
    char url[LINKSPAN_URL_SIZE];
    OK(linkspan_endpoint_open(contexts[0], 0, "hub", &hub));
    OK(linkspan_endpoint_open(contexts[1], 0, "w", &worker));
    OK(linkspan_endpoint_url(hub, url, sizeof url));
    OK(linkspan_endpoint_connect(worker, "hub", url, LONG));
    event_of(hub, LINKSPAN_PEER_CONNECTED, "w");
    OK(linkspan_endpoint_peer(worker, "hub", &to));
    OK(linkspan_endpoint_peer(hub, "w", &two));
    linkspan_memory *memory = memory_of(8), *into = memory_of(8);
    linkspan_op *op;
    OK(linkspan_recv_start(two, 1, all_of(memory), LINKSPAN_FOREVER, &op));
    // Until a round has the other thread in its call when the handle is closed.
    intptr_t status = LINKSPAN_HANDLE;
    for (uint32_t round = 0; status == LINKSPAN_HANDLE; round++) {
        OK(linkspan_endpoint_peer(hub, "w", &one));
        receiver r = {one, into, 2 + round, false};
        pthread_t thread;
        CHECK(!pthread_create(&thread, NULL, receive, &r));
        while (!r.begins) {
            sched_yield();
        }
        for (uint32_t n = 0; n < round; n++) {
            sched_yield();
        }
        OK(linkspan_transport_close(one));
        OK(linkspan_send(to, r.tag, all_of(into), LONG, NULL));
        CHECK(!pthread_join(thread, (void **)&status));
    }
    CHECK(status == LINKSPAN_OK);
    OK(linkspan_send(to, 1, all_of(into), LONG, NULL));
    OK(linkspan_op_wait(op, NULL));
    OK(linkspan_op_free(op));
    OK(linkspan_transport_close(two));
    OK(linkspan_transport_close(to));
    OK(linkspan_endpoint_close(worker));
    OK(linkspan_endpoint_close(hub));
    OK(linkspan_context_close(contexts[0]));
    OK(linkspan_context_close(contexts[1]));
    OK(linkspan_memory_release(memory, LONG));
    OK(linkspan_memory_release(into, LONG));
}

// A thread that waits on a handle.
typedef struct waiter {
    void *on;
    _Atomic pid_t tid;
    pthread_t thread;
} waiter;

static void line_of(pid_t tid, const char *name, char *line, int size) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/%s", tid, name);
    FILE *file = fopen(path, "r");
    CHECK(file && fgets(line, size, file));
    fclose(file);
}

// Whether a thread sleeps, and not for a lock, which is a futex without a time limit: it would wait only when it has that.
static bool sleeps(pid_t tid) {
    char stat[256], call[256];
    line_of(tid, "stat", stat, sizeof stat);
    line_of(tid, "syscall", call, sizeof call);
    long number = 0, limit = 0;
    const char *behind = strrchr(stat, ')');
    return behind && behind[2] == 'S' && sscanf(call, "%ld %*x %*x %*x %lx", &number, &limit) == 2 &&
           (number != SYS_futex || limit != 0);
}

// Until it waits.
static void begin_to_wait(waiter *w, void *(*wait)(void *), void *on) {
    w->on = on;
    w->tid = 0;
    CHECK(!pthread_create(&w->thread, NULL, wait, w));
    while (!w->tid) {
        sched_yield();
    }
    for (const int64_t began = now_ms(); !sleeps(w->tid); sched_yield()) {
        CHECK(now_ms() - began < LONG);
    }
}

static int32_t waited(waiter *w) {
    void *status;
    CHECK(!pthread_join(w->thread, &status));
    return (int32_t)(intptr_t)status;
}

static void *next_event(void *arg) {
    waiter *w = arg;
    linkspan_event event;
    w->tid = gettid();
    return (void *)(intptr_t)linkspan_endpoint_next(w->on, LINKSPAN_FOREVER, &event);
}

static void closing_an_endpoint_ends_the_waits_for_its_events(void) {
    linkspan_context *context = context_over(0);
    linkspan_endpoint *endpoint;
    OK(linkspan_endpoint_open(context, 0, "alone", &endpoint));
    waiter threads[3];
    for (int i = 0; i < 3; i++) {
        begin_to_wait(&threads[i], next_event, endpoint);
    }
    OK(linkspan_endpoint_close(endpoint));
    for (int i = 0; i < 3; i++) {
        IS(LINKSPAN_ENDPOINT_CLOSED, waited(&threads[i]));
    }
    OK(linkspan_context_close(context));
}

static void *accept_next(void *arg) {
    waiter *w = arg;
    linkspan_transport *transport;
    w->tid = gettid();
    return (void *)(intptr_t)linkspan_listener_accept(w->on, LINKSPAN_FOREVER, &transport);
}

static void closing_a_listener_ends_its_accept(void) {
    linkspan_context *context = context_over(0);
    linkspan_listener *listener;
    waiter thread;
    OK(linkspan_listener_open(context, 0, &listener));
    begin_to_wait(&thread, accept_next, listener);
    OK(linkspan_listener_close(listener));
    IS(LINKSPAN_ABORTED, waited(&thread));
    OK(linkspan_context_close(context));
}

static void *wait_long(void *arg) {
    waiter *w = arg;
    w->tid = gettid();
    return (void *)(intptr_t)linkspan_wait_for_write(w->on, LINKSPAN_FOREVER, NULL);
}

static void abort_ends_what_several_threads_wait_for(int path) {
    pair p = pair_over(path);
    waiter threads[4];
    for (int i = 0; i < 4; i++) {
        begin_to_wait(&threads[i], wait_long, p.b);
    }
    OK(linkspan_transport_abort(p.b));
    for (int i = 0; i < 4; i++) {
        IS(LINKSPAN_ABORTED, waited(&threads[i]));
    }
    // It stays usable; closing ends calls of other threads too.
    linkspan_memory *memory = memory_of(8);
    linkspan_remote remote = expose(p.b, memory);
    linkspan_notify n = note(3);
    OK(linkspan_write(p.a, all_of(memory), &remote, &n, LONG, NULL));
    uint64_t value = 0;
    OK(linkspan_wait_for_write(p.b, LONG, &value));
    CHECK(value == 3);
    begin_to_wait(&threads[0], wait_long, p.b);
    OK(linkspan_transport_close(p.b));
    IS(LINKSPAN_ABORTED, waited(&threads[0]));
    OK(linkspan_transport_close(p.a));
    OK(linkspan_context_close(p.contexts[0]));
    OK(linkspan_context_close(p.contexts[1]));
    OK(linkspan_memory_release(memory, 0));
}

static void an_epoll_loop_drives_by_event_fd_and_poll(int path) {
    pair p = pair_over(path);
    linkspan_memory *from = memory_of(MIB), *to = memory_of(MIB);
    linkspan_remote remote = expose(p.b, to);
    int fd = -1;
    OK(linkspan_transport_event_fd(p.b, &fd));
    const int loop = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    CHECK(loop >= 0 && !epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event));
    for (uint64_t round = 0; round < 20; round++) {
        linkspan_op *op, *write;
        uint32_t done = 0;
        uint64_t value = 99;
        OK(linkspan_wait_for_write_start(p.b, LONG, &op));
        linkspan_notify n = note(round);
        fill(from, (unsigned)round);
        OK(linkspan_write_start(p.a, all_of(from), &remote, &n, LONG, &write));
        while (!done) {
            CHECK(epoll_wait(loop, &event, 1, (int)LONG) == 1);
            OK(linkspan_transport_poll(p.b, NULL));
            OK(linkspan_op_test(op, &done, &value));
        }
        CHECK(value == round && filled(bytes_of(to), MIB, (unsigned)round));
        OK(linkspan_op_wait(write, NULL));
        OK(linkspan_op_free(op));
        OK(linkspan_op_free(write));
    }
    close(loop);
    end_pair(p);
    OK(linkspan_memory_release(from, 0));
    OK(linkspan_memory_release(to, 0));
}

typedef struct told {
    atomic_int calls;
    atomic_int status;
    _Atomic uint64_t value;
    linkspan_op *op;
} told;

static void tell(int32_t status, uint64_t value, void *arg) {
    told *to = arg;
    to->status = status;
    to->value = value;
    // It may free its own operation.
    OK(linkspan_op_free(to->op));
    to->calls++;
}

static void await(told *one) {
    for (const int64_t began = now_ms(); one->calls == 0; sleep_ms(1)) {
        CHECK(now_ms() - began < LONG);
    }
}

static void an_operation_calls_back_once(int path) {
    pair p = pair_over(path);
    linkspan_memory *from = memory_of(64), *to = memory_of(64);
    linkspan_remote remote = expose(p.b, to);
    told all[20] = {0};
    for (int n = 0; n < 20; n++) {
        OK(linkspan_wait_for_write_start(p.b, LONG, &all[n].op));
        OK(linkspan_op_then(all[n].op, tell, &all[n]));
        IS(LINKSPAN_OP_TAKEN, linkspan_op_then(all[n].op, tell, &all[n]));
    }
    for (uint64_t n = 0; n < 20; n++) {
        linkspan_notify with = note(n);
        OK(linkspan_write(p.a, all_of(from), &remote, &with, LONG, NULL));
    }
    for (uint64_t n = 0; n < 20; n++) {
        await(&all[n]);
        CHECK(all[n].status == LINKSPAN_OK && all[n].value == n);
    }
    // Timeouts and aborts are told too, and an end by a free.
    told late = {0}, ended = {0};
    OK(linkspan_wait_for_write_start(p.b, 20, &late.op));
    OK(linkspan_op_then(late.op, tell, &late));
    await(&late);
    CHECK(late.status == LINKSPAN_TIMEOUT);
    OK(linkspan_wait_for_write_start(p.b, LINKSPAN_FOREVER, &ended.op));
    OK(linkspan_op_then(ended.op, tell, &ended));
    OK(linkspan_transport_close(p.b));
    await(&ended);
    CHECK(ended.status == LINKSPAN_ABORTED);
    IS(LINKSPAN_HANDLE, linkspan_op_then(ended.op, tell, &ended));
    OK(linkspan_transport_close(p.a));
    OK(linkspan_context_close(p.contexts[0]));
    OK(linkspan_context_close(p.contexts[1]));
    sleep_ms(10);
    for (int n = 0; n < 20; n++) {
        CHECK(all[n].calls == 1);
    }
    OK(linkspan_memory_release(from, 0));
    OK(linkspan_memory_release(to, 0));
}

static void registered_memory_is_the_callers_again_after_its_release(int path) {
    pair p = pair_over(path);
    unsigned char *bytes = malloc(MIB);
    linkspan_memory *memory;
    OK(linkspan_memory_register(bytes, MIB, 0, &memory));
    linkspan_remote remote = expose(p.b, memory);
    IS(LINKSPAN_MEMORY_IN_USE, linkspan_memory_release(memory, 10));
    OK(linkspan_transport_unexpose(p.b, &remote, LONG));
    linkspan_op *op;
    OK(linkspan_recv_start(p.b, 1, all_of(memory), LINKSPAN_FOREVER, &op));
    IS(LINKSPAN_MEMORY_IN_USE, linkspan_memory_release(memory, 10));
    OK(linkspan_op_free(op));
    OK(linkspan_memory_release(memory, 0));
    free(bytes);
    IS(LINKSPAN_HANDLE, linkspan_recv(p.b, 1, part_of(memory, 0, 8), LONG, NULL));
    end_pair(p);
}

// As where a child returns from main, and owners in C++ end there what they own.
static void a_forked_child_leaves_the_connection_to_its_parent(int path) {
    pair p = pair_over(path);
    char bytes[64] = "";
    linkspan_memory *memory;
    linkspan_remote remote;
    linkspan_op *op;
    uint32_t done;
    uint64_t value;
    OK(linkspan_memory_register(bytes, sizeof bytes, 0, &memory));
    OK(linkspan_transport_expose(p.b, part_of(memory, 0, 32), LINKSPAN_ACCESS_WRITE, &remote, NULL));
    OK(linkspan_wait_for_write_start(p.b, LONG, &op));
    const linkspan_notify with = note(5);
    const pid_t pid = fork();
    if (pid == 0) {
        linkspan_transport *made;
        IS(LINKSPAN_FORKED, linkspan_write(p.a, part_of(memory, 32, 32), &remote, &with, LONG, NULL));
        IS(LINKSPAN_FORKED, linkspan_op_test(op, &done, NULL));
        IS(LINKSPAN_FORKED, linkspan_op_free(op));
        IS(LINKSPAN_FORKED, linkspan_memory_release(memory, LINKSPAN_FOREVER));
        IS(LINKSPAN_FORKED, linkspan_transport_close(p.a));
        IS(LINKSPAN_FORKED, linkspan_context_close(p.contexts[0]));
        IS(LINKSPAN_FORKED, linkspan_transport_open(NULL, 0, &made));
        CHECK(linkspan_last_status() == LINKSPAN_FORKED);
        _exit(0);
    }
    int status;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    OK(linkspan_write(p.a, part_of(memory, 32, 32), &remote, &with, LONG, NULL));
    OK(linkspan_op_wait(op, &value));
    CHECK(value == 5);
    OK(linkspan_op_free(op));
    end_pair(p);
    OK(linkspan_memory_release(memory, LONG));
}

#define ONCE(name) {#name, name, NULL}
#define EACH(name) {#name, NULL, name}

int main(void) {
    static const struct {
        const char *name;
        void (*once)(void);
        void (*each)(int path);
    } tests[] = {
        ONCE(query_support),
        ONCE(basic_construction),
        ONCE(reports_registration_reuse),
        ONCE(what_another_handle_gave_is_not_taken_back),
        ONCE(cache_miss_dynamic_registrations_are_not_reused),
        ONCE(view_bounds_checking_and_edge_cases),
        ONCE(errors_that_need_no_peer_come_at_once),
        EACH(bind_and_connect),
        EACH(server_client_data_transfer_write),
        EACH(write_with_various_buffer_sizes),
        EACH(server_client_data_transfer_read),
        EACH(partial_view_write_and_read),
        EACH(a_key_that_was_taken_back_is_refused),
        EACH(timeout_immediately),
        EACH(timeout_with_duration),
        EACH(write_zero_timeout_late_completion_safe),
        EACH(destructor_cancels_pending_works),
        EACH(broken_transport_fails_fast),
        EACH(notifications_count_and_come_in_order),
        EACH(batches_scatter_and_gather_in_one_call),
        EACH(tagged_messages_meet_their_receives),
        EACH(a_listener_serves_many_peers),
        EACH(an_endpoint_has_peers_by_name_and_one_queue_of_events),
        ONCE(closing_one_handle_of_a_peer_leaves_alone_what_is_pending),
        ONCE(closing_an_endpoint_ends_the_waits_for_its_events),
        ONCE(closing_a_listener_ends_its_accept),
        EACH(abort_ends_what_several_threads_wait_for),
        EACH(an_epoll_loop_drives_by_event_fd_and_poll),
        EACH(an_operation_calls_back_once),
        EACH(registered_memory_is_the_callers_again_after_its_release),
        EACH(a_forked_child_leaves_the_connection_to_its_parent),
    };
    for (size_t n = 0; n < sizeof tests / sizeof *tests; n++) {
        if (tests[n].once) {
            tests[n].once();
        }
        for (int path = 0; tests[n].each && path < PATHS; path++) {
            tests[n].each(path);
        }
        printf("  %s\n", tests[n].name);
        fflush(stdout);
    }
    return 0;
}
