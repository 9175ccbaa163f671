// The calls of the older ring libraries, in their order, and what they are here: open, peer info, register, send, receive, poll,
// wait, shared statistics, close (docs/migration.md has the table).
#define _GNU_SOURCE
#include "common.h"

#include <poll.h>

int main(void) {
    // Statistics in a folder of our own, for all processes to read.
    char dir[] = "/tmp/linkspan-ring-XXXXXX", url[LINKSPAN_URL_SIZE], name[64];
    CHECK(mkdtemp(dir));
    CHECK(!setenv("LINKSPAN_STATS_DIR", dir, 1) && !setenv("LINKSPAN_PATH", "tcp", 1) && !setenv("LINKSPAN_IFNAME", "=lo", 1));

    // open
    linkspan_transport *a, *b;
    OK(linkspan_transport_open(NULL, 0, &a));
    OK(linkspan_transport_open(NULL, 0, &b));
    OK(linkspan_transport_bind(b, url, sizeof url));
    OK(linkspan_transport_connect(a, url, LONG));

    // wait for the peer, peer info
    linkspan_peer_info peer;
    OK(linkspan_transport_wait_connected(b, LONG));
    OK(linkspan_transport_get(b, &peer));
    CHECK(peer.connected && !strncmp(peer.path, "tcp", 3));

    // register
    static unsigned char tx[4][64 * 1024], rx[4][64 * 1024];
    linkspan_memory *from, *to;
    OK(linkspan_memory_register(tx, sizeof tx, LINKSPAN_READ_ONLY, &from));
    OK(linkspan_memory_register(rx, sizeof rx, 0, &to));

    // send and receive, several on their way
    linkspan_op *sends[4], *receives[4];
    for (unsigned n = 0; n < 4; n++) {
        memset(tx[n], (int)n + 1, sizeof tx[n]);
        OK(linkspan_recv_start(b, n, part_of(to, n * sizeof rx[0], sizeof rx[0]), LONG, &receives[n]));
        OK(linkspan_send_start(a, n, part_of(from, n * sizeof tx[0], sizeof tx[0]), LONG, &sends[n]));
    }

    // poll, with the descriptor
    struct pollfd ready = {.events = POLLIN};
    OK(linkspan_transport_event_fd(b, &ready.fd));
    uint32_t done = 0;
    uint64_t bytes = 0;
    OK(linkspan_op_test(receives[3], &done, &bytes));
    while (!done) {
        CHECK(poll(&ready, 1, (int)LONG) == 1);
        OK(linkspan_transport_poll(b, NULL));
        OK(linkspan_op_test(receives[3], &done, &bytes));
    }
    CHECK(bytes == sizeof rx[3]);

    // wait
    for (unsigned n = 0; n < 4; n++) {
        OK(linkspan_op_wait(receives[n], &bytes));
        CHECK(bytes == sizeof rx[n] && all_are(rx[n], sizeof rx[n], (unsigned char)(n + 1)));
        OK(linkspan_op_wait(sends[n], NULL));
        OK(linkspan_op_free(receives[n]));
        OK(linkspan_op_free(sends[n]));
    }

    // shared statistics
    linkspan_stats records[8];
    size_t count = 8;
    OK(linkspan_stats_read(records, &count));
    CHECK(count >= 1 && records[0].pid == (uint32_t)getpid() && records[0].used > 0 && !strcmp(records[0].transport, "tcp"));
    uint64_t sent = 0;
    for (uint32_t n = 0; n < records[0].used; n++) {
        OK(linkspan_counter_name(n, name, sizeof name));
        sent |= records[0].counters[n];
    }
    CHECK(sent > 0);
    IS(LINKSPAN_VALUE, linkspan_counter_name(1000, name, sizeof name));

    // close
    OK(linkspan_transport_close(a));
    OK(linkspan_transport_close(b));
    OK(linkspan_memory_release(from, LONG));
    OK(linkspan_memory_release(to, LONG));
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command);
}
