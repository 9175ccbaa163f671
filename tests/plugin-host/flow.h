/* Sends and receives with the loops that NCCL's progress thread has around them. */
#ifndef PLUGIN_HOST_FLOW_H
#define PLUGIN_HOST_FLOW_H

#include "group.h"

/* Starts until the plugin takes it; runs `progress` (may be NULL) in between. */
void *send_start(struct rank *, void *comm, void *data, size_t size, int tag, void *mr);
void *recv_start(struct rank *, void *comm, void *data, size_t size, int tag, void *mr);
/* Starts once; NULL when the plugin is busy. */
void *try_send(struct rank *, void *comm, void *data, size_t size, int tag, void *mr);
void *try_recv(struct rank *, void *comm, int n, void **data, size_t *sizes, int *tags, void **mrs, bool optional);
/* One poll. True when done; sizes may be NULL. */
bool poll_done(struct rank *, void *request, int *sizes);
/* Polls until done, at most 20 s. Returns the first size. */
int finish(struct rank *, void *request);

/* A message in, and one out, at the same time; each side driven whenever it can go on. */
void exchange(struct rank *, void *send, void *out, size_t out_len, void *out_mr, void *recv, void *in, size_t posted,
	      void *in_mr, size_t expected);

#endif
