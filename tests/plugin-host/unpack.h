/* NCCL's kernels, with --offload: the shared queue of each receive comm, walked as they walk it. */
#ifndef PLUGIN_HOST_UNPACK_H
#define PLUGIN_HOST_UNPACK_H

#include "net.h"

/* What accept filled in for a comm. */
void unpack_accepted(const struct net *, void *comm, const struct dev_handle *);
/* A receive was posted; `watched`: one of LL's kind, of which the kernels find nothing in the queue. */
void unpack_posted(void *comm, void *request, bool watched);
/* A receive of `size` bytes at device address `at` is done and flushed: its pieces go where they belong. */
void unpack_done(void *comm, void *request, void *at, size_t size);
/* The comm ends. */
void unpack_closed(void *comm);
/* Pieces so far. */
unsigned long unpack_pieces(void);

#endif
