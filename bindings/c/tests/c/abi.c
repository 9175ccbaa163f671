// The binary interface as it was released: signatures, sizes, places and numbers. The header is generated from the sources, this
// file is not: what it says must stay true of every later version of the same soname. Lines may be added, none may change.
//
// `abi LIBRARY` looks every symbol up in the shared library, by its version, and prints the layout for `cargo xtask capi`, which
// compares it with what the Rust side says (bindings/c/tests/abi.txt).
#define _GNU_SOURCE
#include <linkspan.h>

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

// A declaration beside that of the header: a compiler refuses one that differs.
#define FUNCTIONS \
    PIN(const char *, linkspan_version, (void)) \
    PIN(const char *, linkspan_last_error, (void)) \
    PIN(int32_t, linkspan_last_status, (void)) \
    PIN(const char *, linkspan_status_text, (int32_t)) \
    PIN(int32_t, linkspan_context_open, (const struct linkspan_setting *, size_t, linkspan_log, void *, struct linkspan_context **)) \
    PIN(int32_t, linkspan_context_for_gpus, (struct linkspan_context **)) \
    PIN(int32_t, linkspan_context_paired, (uint32_t, struct linkspan_context **)) \
    PIN(int32_t, linkspan_context_close, (struct linkspan_context *)) \
    PIN(int32_t, linkspan_supported, (struct linkspan_context *, struct linkspan_support *, size_t *)) \
    PIN(int32_t, linkspan_stats_read, (struct linkspan_stats *, size_t *)) \
    PIN(int32_t, linkspan_counter_name, (uint32_t, char *, size_t)) \
    PIN(int32_t, linkspan_memory_register, (void *, size_t, uint32_t, struct linkspan_memory **)) \
    PIN(int32_t, linkspan_memory_alloc, (size_t, struct linkspan_memory **)) \
    PIN(int32_t, linkspan_memory_map, (int, uint64_t, size_t, uint32_t, struct linkspan_memory **)) \
    PIN(int32_t, linkspan_memory_register_device, (const char *, void *, size_t, uint32_t, struct linkspan_memory **)) \
    PIN(int32_t, linkspan_memory_alloc_device, (const char *, size_t, struct linkspan_memory **)) \
    PIN(int32_t, linkspan_memory_get, (struct linkspan_memory *, struct linkspan_memory_info *)) \
    PIN(int32_t, linkspan_view_at, (struct linkspan_memory *, const void *, uint64_t, struct linkspan_view *)) \
    PIN(int32_t, linkspan_memory_release, (struct linkspan_memory *, int64_t)) \
    PIN(int32_t, linkspan_remote_decode, (const uint8_t *, size_t, struct linkspan_remote *)) \
    PIN(int32_t, linkspan_remote_slice, (const struct linkspan_remote *, uint64_t, uint64_t, struct linkspan_remote *)) \
    PIN(int32_t, linkspan_remote_get, (const struct linkspan_remote *, struct linkspan_remote_info *)) \
    PIN(int32_t, linkspan_transport_open, (struct linkspan_context *, uint32_t, struct linkspan_transport **)) \
    PIN(int32_t, linkspan_transport_attach, (struct linkspan_transport *, const char *)) \
    PIN(int32_t, linkspan_transport_close, (struct linkspan_transport *)) \
    PIN(int32_t, linkspan_transport_bind, (struct linkspan_transport *, char *, size_t)) \
    PIN(int32_t, linkspan_transport_connect_host, (struct linkspan_transport *, const char *, int64_t)) \
    PIN(int32_t, linkspan_transport_connect, (struct linkspan_transport *, const char *, int64_t)) \
    PIN(int32_t, linkspan_transport_connect_start, (struct linkspan_transport *, const char *, int64_t, struct linkspan_op **)) \
    PIN(int32_t, linkspan_transport_wait_connected, (struct linkspan_transport *, int64_t)) \
    PIN(int32_t, linkspan_transport_get, (struct linkspan_transport *, struct linkspan_peer_info *)) \
    PIN(int32_t, linkspan_transport_peer_name, (struct linkspan_transport *, struct linkspan_peer_name *)) \
    PIN(int32_t, linkspan_transport_expose, (struct linkspan_transport *, struct linkspan_view, uint32_t, struct linkspan_remote *, uint32_t *)) \
    PIN(int32_t, linkspan_transport_unexpose, (struct linkspan_transport *, const struct linkspan_remote *, int64_t)) \
    PIN(int32_t, linkspan_transport_abort, (struct linkspan_transport *)) \
    PIN(int32_t, linkspan_transport_event_fd, (struct linkspan_transport *, int *)) \
    PIN(int32_t, linkspan_transport_poll, (struct linkspan_transport *, uint32_t *)) \
    PIN(int32_t, linkspan_listener_open, (struct linkspan_context *, uint32_t, struct linkspan_listener **)) \
    PIN(int32_t, linkspan_listener_attach, (struct linkspan_listener *, const char *)) \
    PIN(int32_t, linkspan_listener_url, (struct linkspan_listener *, char *, size_t)) \
    PIN(int32_t, linkspan_listener_serve_at, (struct linkspan_listener *, uint16_t, uint16_t *)) \
    PIN(int32_t, linkspan_listener_accept, (struct linkspan_listener *, int64_t, struct linkspan_transport **)) \
    PIN(int32_t, linkspan_listener_close, (struct linkspan_listener *)) \
    PIN(int32_t, linkspan_endpoint_open, (struct linkspan_context *, uint32_t, const char *, struct linkspan_endpoint **)) \
    PIN(int32_t, linkspan_endpoint_attach, (struct linkspan_endpoint *, const char *)) \
    PIN(int32_t, linkspan_endpoint_close, (struct linkspan_endpoint *)) \
    PIN(int32_t, linkspan_endpoint_url, (struct linkspan_endpoint *, char *, size_t)) \
    PIN(int32_t, linkspan_endpoint_connect, (struct linkspan_endpoint *, const char *, const char *, int64_t)) \
    PIN(int32_t, linkspan_endpoint_connect_start, (struct linkspan_endpoint *, const char *, const char *, int64_t, struct linkspan_op **)) \
    PIN(int32_t, linkspan_endpoint_connect_host, (struct linkspan_endpoint *, const char *, const char *, int64_t)) \
    PIN(int32_t, linkspan_endpoint_serve_at, (struct linkspan_endpoint *, uint16_t, uint16_t *)) \
    PIN(int32_t, linkspan_endpoint_peer, (struct linkspan_endpoint *, const char *, struct linkspan_transport **)) \
    PIN(int32_t, linkspan_endpoint_peers, (struct linkspan_endpoint *, struct linkspan_peer_name *, size_t *)) \
    PIN(int32_t, linkspan_endpoint_remove, (struct linkspan_endpoint *, const char *)) \
    PIN(int32_t, linkspan_endpoint_expose, (struct linkspan_endpoint *, struct linkspan_view, uint32_t, struct linkspan_remote *, uint32_t *)) \
    PIN(int32_t, linkspan_endpoint_unexpose, (struct linkspan_endpoint *, const struct linkspan_remote *, int64_t)) \
    PIN(int32_t, linkspan_endpoint_next, (struct linkspan_endpoint *, int64_t, struct linkspan_event *)) \
    PIN(int32_t, linkspan_endpoint_event_fd, (struct linkspan_endpoint *, int *)) \
    PIN(int32_t, linkspan_endpoint_poll, (struct linkspan_endpoint *, uint32_t *)) \
    PIN(int32_t, linkspan_write, (struct linkspan_transport *, struct linkspan_view, const struct linkspan_remote *, const struct linkspan_notify *, int64_t, uint64_t *)) \
    PIN(int32_t, linkspan_write_start, (struct linkspan_transport *, struct linkspan_view, const struct linkspan_remote *, const struct linkspan_notify *, int64_t, struct linkspan_op **)) \
    PIN(int32_t, linkspan_read, (struct linkspan_transport *, struct linkspan_view, const struct linkspan_remote *, int64_t, uint64_t *)) \
    PIN(int32_t, linkspan_read_start, (struct linkspan_transport *, struct linkspan_view, const struct linkspan_remote *, int64_t, struct linkspan_op **)) \
    PIN(int32_t, linkspan_write_batch, (struct linkspan_transport *, const struct linkspan_part *, size_t, const struct linkspan_notify *, int64_t, uint64_t *)) \
    PIN(int32_t, linkspan_write_batch_start, (struct linkspan_transport *, const struct linkspan_part *, size_t, const struct linkspan_notify *, int64_t, struct linkspan_op **)) \
    PIN(int32_t, linkspan_read_batch, (struct linkspan_transport *, const struct linkspan_part *, size_t, int64_t, uint64_t *)) \
    PIN(int32_t, linkspan_read_batch_start, (struct linkspan_transport *, const struct linkspan_part *, size_t, int64_t, struct linkspan_op **)) \
    PIN(int32_t, linkspan_wait_for_write, (struct linkspan_transport *, int64_t, uint64_t *)) \
    PIN(int32_t, linkspan_wait_for_write_start, (struct linkspan_transport *, int64_t, struct linkspan_op **)) \
    PIN(int32_t, linkspan_send, (struct linkspan_transport *, uint32_t, struct linkspan_view, int64_t, uint64_t *)) \
    PIN(int32_t, linkspan_send_start, (struct linkspan_transport *, uint32_t, struct linkspan_view, int64_t, struct linkspan_op **)) \
    PIN(int32_t, linkspan_recv, (struct linkspan_transport *, uint32_t, struct linkspan_view, int64_t, uint64_t *)) \
    PIN(int32_t, linkspan_recv_start, (struct linkspan_transport *, uint32_t, struct linkspan_view, int64_t, struct linkspan_op **)) \
    PIN(int32_t, linkspan_op_test, (struct linkspan_op *, uint32_t *, uint64_t *)) \
    PIN(int32_t, linkspan_op_wait, (struct linkspan_op *, uint64_t *)) \
    PIN(int32_t, linkspan_op_then, (struct linkspan_op *, linkspan_done, void *)) \
    PIN(int32_t, linkspan_op_free, (struct linkspan_op *)) \
    PIN(int32_t, linkspan_link_get, (const char *, struct linkspan_link_info *)) \
    PIN(int32_t, linkspan_ring_open, (const char *, const struct linkspan_ring_options *, struct linkspan_ring **)) \
    PIN(int32_t, linkspan_ring_close, (struct linkspan_ring *)) \
    PIN(int32_t, linkspan_ring_get, (struct linkspan_ring *, struct linkspan_link_info *)) \
    PIN(int32_t, linkspan_ring_register, (struct linkspan_ring *, void *, size_t, uint32_t, uint64_t *)) \
    PIN(int32_t, linkspan_ring_register_dmabuf, (struct linkspan_ring *, int, uint64_t, uint64_t, uint32_t, uint64_t *)) \
    PIN(int32_t, linkspan_ring_release, (struct linkspan_ring *, uint64_t)) \
    PIN(int32_t, linkspan_ring_open_channel, (struct linkspan_ring *, uint32_t)) \
    PIN(int32_t, linkspan_ring_close_channel, (struct linkspan_ring *, uint32_t)) \
    PIN(int32_t, linkspan_ring_send, (struct linkspan_ring *, uint32_t, uint64_t, uint64_t, uint64_t, uint64_t)) \
    PIN(int32_t, linkspan_ring_receive, (struct linkspan_ring *, uint32_t, uint64_t, uint64_t, uint64_t, uint64_t)) \
    PIN(int32_t, linkspan_ring_submit, (struct linkspan_ring *, uint32_t *)) \
    PIN(int32_t, linkspan_ring_doorbell, (struct linkspan_ring *, uint32_t, int64_t, uint32_t, uint32_t *)) \
    PIN(int32_t, linkspan_ring_poll, (struct linkspan_ring *, struct linkspan_completion *, size_t, size_t *)) \
    PIN(int32_t, linkspan_ring_wait, (struct linkspan_ring *, int64_t, uint32_t, struct linkspan_completion *, size_t, size_t *)) \
    PIN(int32_t, linkspan_ring_set_eventfd, (struct linkspan_ring *, int)) \
    PIN(int32_t, linkspan_ring_fd, (struct linkspan_ring *, int *)) \
    PIN(int32_t, linkspan_swap_open, (const char *, uint32_t, uint64_t, int64_t, struct linkspan_swap **)) \
    PIN(int32_t, linkspan_swap_close, (struct linkspan_swap *)) \
    PIN(int32_t, linkspan_swap_get, (struct linkspan_swap *, struct linkspan_link_info *)) \
    PIN(int32_t, linkspan_swap_front, (struct linkspan_swap *, uint8_t **, uint64_t *)) \
    PIN(int32_t, linkspan_swap_send, (struct linkspan_swap *, uint64_t)) \
    PIN(int32_t, linkspan_swap_flush, (struct linkspan_swap *)) \
    PIN(int32_t, linkspan_swap_receive, (struct linkspan_swap *, int64_t, const uint8_t **, uint64_t *)) \
    PIN(int32_t, linkspan_swap_fd, (struct linkspan_swap *, int *))

#define PIN(result, name, arguments) result name arguments;
FUNCTIONS
#undef PIN

_Static_assert(sizeof(linkspan_log) == sizeof(void *) && sizeof(linkspan_done) == sizeof(void *), "calls are pointers");

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) {
        fprintf(stderr, "%s\n", argc > 1 ? dlerror() : "usage: abi LIBRARY");
        return 1;
    }
#define PIN(result, name, arguments) #name,
    static const char *const names[] = {FUNCTIONS};
#undef PIN
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        if (!dlvsym(library, names[n], "LIBLINKSPAN_0")) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        printf("function %s\n", names[n]);
    }
#define CONSTANT(name) printf("constant %s %lld\n", #name, (long long)(name));
#define STRUCT(name) printf("struct %s %zu %zu\n", #name, sizeof(name), _Alignof(name));
#define FIELD(of, name) printf("field %s.%s %zu %zu\n", #of, #name, offsetof(of, name), sizeof(((of *)0)->name));
    CONSTANT(LINKSPAN_OK)
    CONSTANT(LINKSPAN_TIMEOUT)
    CONSTANT(LINKSPAN_TIMED_OUT_UNREVOKED)
    CONSTANT(LINKSPAN_ABORTED)
    CONSTANT(LINKSPAN_BROKEN)
    CONSTANT(LINKSPAN_INTERRUPTED)
    CONSTANT(LINKSPAN_NOT_CONNECTED)
    CONSTANT(LINKSPAN_HAS_PEER)
    CONSTANT(LINKSPAN_NO_CONNECTION)
    CONSTANT(LINKSPAN_BOUNDS)
    CONSTANT(LINKSPAN_NOT_INSIDE)
    CONSTANT(LINKSPAN_NO_RIGHT)
    CONSTANT(LINKSPAN_WRONG_PEER)
    CONSTANT(LINKSPAN_READ_ONLY_MEMORY)
    CONSTANT(LINKSPAN_NOT_EXPOSED)
    CONSTANT(LINKSPAN_DEVICE_MEMORY)
    CONSTANT(LINKSPAN_UNKNOWN_PEER)
    CONSTANT(LINKSPAN_PEER_NAME)
    CONSTANT(LINKSPAN_PEER_NAME_TAKEN)
    CONSTANT(LINKSPAN_TOO_MANY_PEERS)
    CONSTANT(LINKSPAN_ENDPOINT_CLOSED)
    CONSTANT(LINKSPAN_NOT_PAIRED)
    CONSTANT(LINKSPAN_NO_KEY)
    CONSTANT(LINKSPAN_UNKNOWN_HOST)
    CONSTANT(LINKSPAN_NO_ANSWER)
    CONSTANT(LINKSPAN_NO_GPU_DRIVER)
    CONSTANT(LINKSPAN_NO_GPU)
    CONSTANT(LINKSPAN_GPU_RANGE)
    CONSTANT(LINKSPAN_REMOTE_ACCESS)
    CONSTANT(LINKSPAN_NULL)
    CONSTANT(LINKSPAN_HANDLE)
    CONSTANT(LINKSPAN_VALUE)
    CONSTANT(LINKSPAN_TOO_SMALL)
    CONSTANT(LINKSPAN_MEMORY_IN_USE)
    CONSTANT(LINKSPAN_OP_TAKEN)
    CONSTANT(LINKSPAN_FORKED)
    CONSTANT(LINKSPAN_FOREVER)
    CONSTANT(LINKSPAN_PORT)
    CONSTANT(LINKSPAN_URL_SIZE)
    CONSTANT(LINKSPAN_REMOTE_SIZE)
    CONSTANT(LINKSPAN_COUNTERS)
    CONSTANT(LINKSPAN_LATENCY_BUCKETS)
    CONSTANT(LINKSPAN_READ_ONLY)
    CONSTANT(LINKSPAN_MEMORY_HOST)
    CONSTANT(LINKSPAN_MEMORY_MAPPED)
    CONSTANT(LINKSPAN_MEMORY_DEVICE)
    CONSTANT(LINKSPAN_GPU_NAME_SIZE)
    CONSTANT(LINKSPAN_ACCESS_READ)
    CONSTANT(LINKSPAN_ACCESS_WRITE)
    CONSTANT(LINKSPAN_FENCE)
    CONSTANT(LINKSPAN_PEER_NAME_SIZE)
    CONSTANT(LINKSPAN_PEER_CONNECTED)
    CONSTANT(LINKSPAN_PEER_NOTIFIED)
    CONSTANT(LINKSPAN_PEER_LOST)
    CONSTANT(LINKSPAN_IN_CALL)
    CONSTANT(LINKSPAN_QUEUE_FULL)
    CONSTANT(LINKSPAN_NO_DEVICE)
    CONSTANT(LINKSPAN_LINK_NOT_UP)
    CONSTANT(LINKSPAN_LINK_LOST)
    CONSTANT(LINKSPAN_DEVICE_REFUSED)
    CONSTANT(LINKSPAN_REGION_BOUNDS)
    CONSTANT(LINKSPAN_CHANNEL_ENDED)
    CONSTANT(LINKSPAN_MESSAGE_LONG)
    CONSTANT(LINKSPAN_CHANNEL_LATE)
    CONSTANT(LINKSPAN_RING_SEND)
    CONSTANT(LINKSPAN_RING_RECEIVE)
    CONSTANT(LINKSPAN_DOORBELL_SPIN)
    CONSTANT(LINKSPAN_LINK_WAITING)
    CONSTANT(LINKSPAN_LINK_LOGIN)
    CONSTANT(LINKSPAN_LINK_STARTING)
    CONSTANT(LINKSPAN_LINK_READY)
    CONSTANT(LINKSPAN_LINK_UP)
    CONSTANT(LINKSPAN_LINK_GONE)
    CONSTANT(LINKSPAN_LINK_NETWORK)
    CONSTANT(LINKSPAN_LINK_REFUSED)
    STRUCT(linkspan_setting)
    FIELD(linkspan_setting, name)
    FIELD(linkspan_setting, value)
    STRUCT(linkspan_support)
    FIELD(linkspan_support, path)
    FIELD(linkspan_support, why)
    FIELD(linkspan_support, usable)
    FIELD(linkspan_support, reserved)
    STRUCT(linkspan_stats)
    FIELD(linkspan_stats, pid)
    FIELD(linkspan_stats, used)
    FIELD(linkspan_stats, uptime_ns)
    FIELD(linkspan_stats, device)
    FIELD(linkspan_stats, transport)
    FIELD(linkspan_stats, counters)
    FIELD(linkspan_stats, latency)
    STRUCT(linkspan_memory_info)
    FIELD(linkspan_memory_info, address)
    FIELD(linkspan_memory_info, length)
    FIELD(linkspan_memory_info, writable)
    FIELD(linkspan_memory_info, allocated)
    FIELD(linkspan_memory_info, kind)
    FIELD(linkspan_memory_info, reserved)
    FIELD(linkspan_memory_info, gpu)
    STRUCT(linkspan_view)
    FIELD(linkspan_view, memory)
    FIELD(linkspan_view, offset)
    FIELD(linkspan_view, length)
    STRUCT(linkspan_remote)
    FIELD(linkspan_remote, bytes)
    STRUCT(linkspan_remote_info)
    FIELD(linkspan_remote_info, length)
    FIELD(linkspan_remote_info, key)
    FIELD(linkspan_remote_info, generation)
    FIELD(linkspan_remote_info, access)
    FIELD(linkspan_remote_info, reserved)
    STRUCT(linkspan_peer_info)
    FIELD(linkspan_peer_info, path)
    FIELD(linkspan_peer_info, connected)
    FIELD(linkspan_peer_info, epoch)
    STRUCT(linkspan_peer_name)
    FIELD(linkspan_peer_name, name)
    STRUCT(linkspan_event)
    FIELD(linkspan_event, kind)
    FIELD(linkspan_event, reserved)
    FIELD(linkspan_event, value)
    FIELD(linkspan_event, peer)
    FIELD(linkspan_event, why)
    STRUCT(linkspan_notify)
    FIELD(linkspan_notify, value)
    FIELD(linkspan_notify, flags)
    FIELD(linkspan_notify, reserved)
    STRUCT(linkspan_part)
    FIELD(linkspan_part, local)
    FIELD(linkspan_part, remote)
    STRUCT(linkspan_ring_options)
    FIELD(linkspan_ring_options, wait_ms)
    FIELD(linkspan_ring_options, submissions)
    FIELD(linkspan_ring_options, completions)
    FIELD(linkspan_ring_options, thread_us)
    FIELD(linkspan_ring_options, reserved)
    STRUCT(linkspan_completion)
    FIELD(linkspan_completion, cookie)
    FIELD(linkspan_completion, length)
    FIELD(linkspan_completion, status)
    FIELD(linkspan_completion, error)
    FIELD(linkspan_completion, channel)
    FIELD(linkspan_completion, operation)
    STRUCT(linkspan_link_info)
    FIELD(linkspan_link_info, local_uuid)
    FIELD(linkspan_link_info, peer_uuid)
    FIELD(linkspan_link_info, state)
    FIELD(linkspan_link_info, generation)
    FIELD(linkspan_link_info, lane_gbps)
    FIELD(linkspan_link_info, lanes)
    FIELD(linkspan_link_info, ring_size)
    FIELD(linkspan_link_info, ring_pairs)
    FIELD(linkspan_link_info, sent_frames)
    FIELD(linkspan_link_info, received_frames)
    FIELD(linkspan_link_info, sent_bytes)
    FIELD(linkspan_link_info, received_bytes)
    FIELD(linkspan_link_info, copied_bytes)
    FIELD(linkspan_link_info, control_frames)
    FIELD(linkspan_link_info, doorbells)
    FIELD(linkspan_link_info, restarts)
    FIELD(linkspan_link_info, polled_ns)
    FIELD(linkspan_link_info, reserved)
    return 0;
}
