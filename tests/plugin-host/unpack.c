#define _GNU_SOURCE
#include "unpack.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "util.h"

/* As in NCCL's headers; written from the facts. */
enum { QUEUE = 16, PIECES = 2048, DEPTH = 8, COMMS = 64, REQUESTS = 64 };
struct piece {
	uint32_t src, len;
	uint64_t dst;
};
struct meta {
	struct piece piece[QUEUE][PIECES];
	uint64_t count[QUEUE];
};
struct handle {
	uint64_t meta, bounce, head;
};
_Static_assert(sizeof(struct piece) == 16 && sizeof(struct handle) == 24, "NCCL's layout");
_Static_assert(offsetof(struct meta, count) == 524288, "NCCL's layout");

/* A receive that was put in place and is not yet given back. */
struct late {
	void *request;
	uint64_t sum, slot;
};
struct comm {
	void *comm;
	const struct net *net;
	uint64_t at;
	struct handle handle;
	uint64_t posted;
	struct {
		void *request;
		uint64_t number;
	} open[REQUESTS];
	struct late late[DEPTH];
	int lates;
};
static struct comm comms[COMMS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned long pieces;

static struct comm *find(void *comm)
{
	struct comm *found = NULL;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < COMMS; i++)
		if (comms[i].comm == comm)
			found = &comms[i];
	pthread_mutex_unlock(&lock);
	return found;
}

void unpack_accepted(const struct net *net, void *comm, const struct dev_handle *h)
{
	CHECK(h->needs_progress == 1, "the proxy has to make progress, and accept says %d", h->needs_progress);
	if (h->type == 0)
		return; /* This comm puts everything in place itself. */
	CHECK(h->type == 1 && h->version == 7 && h->handle != NULL && h->size == sizeof(struct handle),
	      "accept's device handle: type %d, version %d, %p, %zu bytes", h->type, h->version, h->handle, h->size);
	pthread_mutex_lock(&lock);
	int i = 0;
	while (i < COMMS && comms[i].comm != NULL)
		i++;
	CHECK(i < COMMS, "too many comms");
	comms[i] = (struct comm){.comm = comm, .net = net, .at = (uint64_t)h->handle};
	gpu_read(&comms[i].handle, comms[i].at, sizeof(struct handle));
	pthread_mutex_unlock(&lock);
	for (int k = 0; k < COMMS; k++)
		CHECK(comms[k].comm == NULL || comms[k].handle.bounce == comms[i].handle.bounce,
		      "two bounce buffers on one GPU: a block of NCCL's has space for one");
}

void unpack_posted(void *comm, void *request, bool watched)
{
	struct comm *c = find(comm);
	if (c == NULL || watched)
		return;
	int i = 0;
	while (i < REQUESTS && c->open[i].request != NULL)
		i++;
	CHECK(i < REQUESTS, "too many receives in the queue");
	c->open[i].request = request;
	c->open[i].number = c->posted++;
}

static uint64_t sum(uint64_t before, const unsigned char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		before = (before ^ bytes[i]) * 0x100000001b3ull;
	return before;
}

/* Reads the pieces of a slot; with a target they go there. */
static uint64_t walk(struct comm *c, uint64_t slot, void *at, size_t size)
{
	static __thread struct piece list[PIECES];
	static __thread unsigned char bytes[1 << 20];
	uint64_t count, base = c->handle.meta, all = 0xcbf29ce484222325ull;
	gpu_read(&count, base + offsetof(struct meta, count) + slot * 8, 8);
	CHECK(count <= PIECES, "%lu pieces in a slot", (unsigned long)count);
	gpu_read(list, base + slot * sizeof list, count * sizeof *list);
	for (uint64_t i = 0; i < count; i++) {
		struct piece p = list[i];
		CHECK(p.len > 0 && p.len <= sizeof bytes, "a piece of %u bytes", p.len);
		gpu_read(bytes, c->handle.bounce + p.src, p.len);
		all = sum(all, bytes, p.len);
		if (at == NULL)
			continue;
		CHECK(p.dst + p.len <= size, "a piece of %u bytes at %lu of a receive of %zu", p.len, (unsigned long)p.dst,
		      size);
		gpu_write((uint64_t)at + p.dst, bytes, p.len);
		pieces++;
	}
	return all;
}

static void give_back(struct comm *c)
{
	struct late l = c->late[0];
	memmove(c->late, c->late + 1, (size_t)--c->lates * sizeof *c->late);
	CHECK(walk(c, l.slot, NULL, 0) == l.sum, "a page was used again before NCCL's kernel had read it");
	const struct net_v7 *table = c->net->table;
	int rc = table->consumed(c->comm, 1, l.request);
	CHECK(rc == OK, "irecvConsumed returned %d", rc);
}

void unpack_done(void *comm, void *request, void *at, size_t size)
{
	struct comm *c = find(comm);
	for (int i = 0; c != NULL && i < REQUESTS; i++) {
		if (c->open[i].request != request)
			continue;
		/* The kernel counts up, then looks. */
		uint64_t slot = (c->handle.head + 1 + c->open[i].number) % QUEUE;
		c->open[i].request = NULL;
		if (c->lates == DEPTH - 1)
			give_back(c);
		c->late[c->lates++] = (struct late){request, walk(c, slot, at, size), slot};
		/* NCCL hands buffers back in order, and keeps some for a while. */
		while (c->lates > (int)(c->open[i].number % DEPTH))
			give_back(c);
		return;
	}
	/* One that the kernel has nothing to do with: NCCL tells of it all the same. */
	if (c != NULL)
		CHECK(((const struct net_v7 *)c->net->table)->consumed(comm, 1, request) == OK, "irecvConsumed");
}

void unpack_closed(void *comm)
{
	struct comm *c = find(comm);
	if (c == NULL)
		return;
	pthread_mutex_lock(&lock);
	c->comm = NULL;
	pthread_mutex_unlock(&lock);
}

unsigned long unpack_pieces(void)
{
	return pieces;
}
