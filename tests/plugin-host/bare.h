/* The machine's limit: the same traffic over one bare TCP connection, spinning as the plugin's caller does. */
#ifndef PLUGIN_HOST_BARE_H
#define PLUGIN_HOST_BARE_H

#include "group.h"

/* A loopback connection between ranks 0 and 1. */
int bare_open(struct rank *);
void bare_send(int fd, const void *at, size_t len);
void bare_recv(int fd, void *at, size_t len);
/* `count` messages of `size` from rank 0 to rank 1, at most `window` of them not yet acknowledged by the receiver; as
 * many as fit in one system call. */
void bare_rate(struct rank *, int fd, char *mem, size_t size, int window, uint64_t count);
/* `count` messages from `window` buffers in turn to `window` buffers in turn. */
void bare_stream(struct rank *, int fd, char *mem, size_t size, int window, uint64_t count);

#endif
