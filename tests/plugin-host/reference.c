/* The host's own self-test: the plainest correct plugin over one TCP connection per comm. No speed is claimed. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "abi.h"

#define MARK 0x3165636e65726566ull
enum { REQUESTS = 300, PARTS = 8, GUESTS = 16, LINE = 128, BOUNCE = 65536 };

struct head {
	uint64_t mark;
	int32_t tag;
	uint32_t pad;
	uint64_t size;
};

struct comm;
struct request {
	struct comm *comm;
	bool used, done;
	int n, left;
	char *data[PARTS];
	size_t size[PARTS], got[PARTS];
	int tag[PARTS];
	bool filled[PARTS], taken[PARTS];
	struct request *next;
	/* Sending. */
	struct head head;
	size_t off;
};

struct early {
	struct early *next;
	int tag;
	size_t size;
	bool whole;
	char data[];
};

struct comm {
	struct comm *next;
	int fd, lost;
	bool sends;
	unsigned calls;
	struct request request[REQUESTS], *first, *last;
	/* Receiving: the head, then the payload through `bounce` to its place. */
	struct head head;
	size_t head_off, off, held;
	struct request *to;
	int part;
	struct early *early, *into;
	char bounce[BOUNCE];
};

struct handle {
	uint64_t mark;
	char token[16];
	struct sockaddr_in at;
	/* The connect in progress: its place and a number against mistakes. */
	uint64_t place, cookie;
};

struct guest {
	int fd;
	size_t off;
	char hello[24];
	time_t since;
};

struct listener {
	struct listener *next;
	int fd;
	char token[16];
	struct guest guest[GUESTS];
};

struct going {
	int fd;
	uint64_t cookie;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct comm *comms;
static struct listener *listeners;
static struct going going[64];
static uint64_t cookies = 7;
static int users;

static void free_all(void)
{
	for (struct comm *c; (c = comms) != NULL;) {
		comms = c->next;
		close(c->fd);
		for (struct early *e; (e = c->early) != NULL; free(e))
			c->early = e->next;
		free(c);
	}
	for (struct listener *l; (l = listeners) != NULL; free(l)) {
		listeners = l->next;
		close(l->fd);
		for (int i = 0; i < GUESTS; i++)
			if (l->guest[i].fd > 0)
				close(l->guest[i].fd);
	}
	for (int i = 0; i < 64; i++)
		if (going[i].cookie) {
			close(going[i].fd);
			going[i].cookie = 0;
		}
}

/* Up to version 10 there is no other end. Where the process ends instead, threads may use all of it yet. */
__attribute__((destructor)) static void unload(void)
{
	if (getenv("PLUGIN_HOST_EXITS") == NULL)
		free_all();
}

static int init_any(void)
{
	pthread_mutex_lock(&lock);
	users++;
	pthread_mutex_unlock(&lock);
	return OK;
}

static int ref_finalize(void *ctx)
{
	(void)ctx;
	pthread_mutex_lock(&lock);
	if (--users == 0)
		free_all();
	pthread_mutex_unlock(&lock);
	return OK;
}

static int ref_devices(int *n)
{
	*n = 1;
	return OK;
}

#include "reference_setup.h"

static int reg_any(void *comm, void *data, int type, void **mr)
{
	(void)comm, (void)data;
	*mr = NULL;
	if (type != PTR_HOST)
		return E_INTERNAL;
	*mr = malloc(1);
	return OK;
}

static int ref_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mr)
{
	(void)comm, (void)data, (void)size, (void)type, (void)offset, (void)fd;
	*mr = NULL;
	return E_INTERNAL;
}

static int ref_dereg(void *comm, void *mr)
{
	(void)comm;
	free(mr);
	return OK;
}

static struct request *take(struct comm *c)
{
	for (int i = 0; i < REQUESTS; i++)
		if (!c->request[i].used) {
			struct request *q = &c->request[i];
			*q = (struct request){.comm = c, .used = true};
			if (c->first)
				c->last->next = q;
			else
				c->first = q;
			c->last = q;
			return q;
		}
	return NULL;
}

/* Whole lines, low addresses first: a watcher may look at any time. */
static void copy_up(char *to, const char *from, size_t len)
{
	size_t i = 0;
	if (((uintptr_t)to & 7) == 0)
		for (; i + 8 <= len; i += 8) {
			uint64_t w;
			memcpy(&w, from + i, 8);
			__atomic_store_n((uint64_t *)(void *)(to + i), w, __ATOMIC_RELEASE);
		}
	for (; i < len; i++)
		to[i] = from[i];
}

static void push(struct comm *c)
{
	while (c->first && !c->lost) {
		struct request *q = c->first;
		const char *from = q->off < sizeof q->head ? (char *)&q->head + q->off : q->data[0] + (q->off - sizeof q->head);
		size_t left = q->off < sizeof q->head ? sizeof q->head - q->off : q->size[0] + sizeof q->head - q->off;
		if (left > 0) {
			ssize_t n = send(c->fd, from, left, MSG_NOSIGNAL);
			if (n < 0 && errno == EAGAIN)
				return;
			if (n < 0)
				c->lost = E_REMOTE;
			else
				q->off += (size_t)n;
			continue;
		}
		q->done = true;
		c->first = q->next;
	}
}

static bool match(struct comm *c, int tag, struct request **to, int *part)
{
	for (struct request *q = c->first; q; q = q->next)
		for (int p = 0; p < q->n; p++)
			if (!q->taken[p] && q->tag[p] == tag) {
				q->taken[p] = true;
				*to = q, *part = p;
				return true;
			}
	return false;
}

static void landed(struct comm *c, struct request *q, int part, size_t size)
{
	q->got[part] = size;
	if (--q->left > 0)
		return;
	q->done = true;
	for (struct request **at = &c->first, *last = NULL; *at; last = *at, at = &(*at)->next)
		if (*at == q) {
			*at = q->next;
			if (c->last == q)
				c->last = last;
			break;
		}
}

/* Early messages whose receive is posted now. */
static void deliver(struct comm *c)
{
	for (struct early **at = &c->early; *at;) {
		struct early *e = *at;
		struct request *q;
		int part;
		if (!e->whole || !match(c, e->tag, &q, &part)) {
			at = &e->next;
			continue;
		}
		if (e->size > q->size[part])
			c->lost = E_USAGE;
		else
			copy_up(q->data[part], e->data, e->size);
		landed(c, q, part, e->size);
		*at = e->next;
		free(e);
	}
}

static void arrived(struct comm *c)
{
	if (c->to)
		landed(c, c->to, c->part, c->head.size);
	if (c->into) {
		c->into->whole = true;
		deliver(c);
	}
	c->head_off = c->off = c->held = 0;
	c->to = NULL, c->into = NULL;
}

static void begin(struct comm *c)
{
	if (c->head.mark != MARK || c->head.size > 1ull << 40) {
		c->lost = E_REMOTE;
		return;
	}
	c->off = c->held = 0;
	if (match(c, c->head.tag, &c->to, &c->part)) {
		if (c->head.size > c->to->size[c->part])
			c->lost = E_USAGE;
		return;
	}
	c->into = malloc(sizeof *c->into + c->head.size);
	*c->into = (struct early){.tag = c->head.tag, .size = c->head.size};
	struct early **at = &c->early;
	while (*at)
		at = &(*at)->next;
	*at = c->into;
}

static void pull(struct comm *c)
{
	for (int i = 0; i < 64 && !c->lost; i++) {
		bool heading = c->head_off < sizeof c->head;
		if (!heading && c->off + c->held == c->head.size) {
			arrived(c);
			continue;
		}
		char *at = heading ? (char *)&c->head + c->head_off : c->bounce + c->held;
		size_t transport = heading ? sizeof c->head - c->head_off : sizeof c->bounce - c->held;
		if (!heading && transport > c->head.size - c->off - c->held)
			transport = c->head.size - c->off - c->held;
		ssize_t n = recv(c->fd, at, transport, 0);
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			c->lost = E_REMOTE;
			return;
		}
		if (heading) {
			c->head_off += (size_t)n;
			if (c->head_off == sizeof c->head)
				begin(c);
			continue;
		}
		c->held += (size_t)n;
		size_t let = c->off + c->held == c->head.size ? c->held : c->held / LINE * LINE;
		copy_up((c->to ? c->to->data[c->part] : c->into->data) + c->off, c->bounce, let);
		memmove(c->bounce, c->bounce + let, c->held - let);
		c->off += let, c->held -= let;
	}
}

static int isend_any(void *comm, void *data, size_t size, int tag, void **request)
{
	struct comm *c = comm;
	*request = NULL;
	if (c->lost)
		return c->lost;
	/* Busy now and then, so that the host has to ask again. */
	struct request *q = ++c->calls % 13 == 0 ? NULL : take(c);
	if (q == NULL) {
		push(c);
		return OK;
	}
	q->data[0] = data, q->size[0] = size, q->n = 1;
	q->head = (struct head){.mark = MARK, .tag = tag, .size = size};
	push(c);
	*request = q;
	return OK;
}

static int irecv_any(void *comm, int n, void **data, const size_t *sizes, const int *sizes32, int *tags, void **request)
{
	struct comm *c = comm;
	*request = NULL;
	if (n < 1 || n > PARTS)
		return E_ARGUMENT;
	if (c->lost)
		return c->lost;
	struct request *q = ++c->calls % 11 == 0 ? NULL : take(c);
	if (q == NULL)
		return OK;
	q->n = q->left = n;
	for (int i = 0; i < n; i++)
		q->data[i] = data[i], q->size[i] = sizes ? sizes[i] : (size_t)sizes32[i], q->tag[i] = tags[i];
	deliver(c);
	*request = q;
	return OK;
}

static int ref_flush(void *comm, int n, void **data, int *sizes, void **mrs, void **request)
{
	(void)comm, (void)n, (void)data, (void)sizes, (void)mrs;
	*request = NULL;
	return OK;
}

static int ref_test(void *request, int *done, int *sizes)
{
	struct request *q = request;
	struct comm *c = q->comm;
	*done = 0;
	if (!q->done && c->sends)
		push(c);
	else if (!q->done)
		pull(c);
	if (!q->done)
		return c->lost;
	*done = 1;
	for (int i = 0; sizes && i < q->n; i++)
		sizes[i] = (int)(c->sends ? q->size[i] : q->got[i]);
	q->used = false;
	return OK;
}

static int close_comm(void *comm)
{
	struct comm *c = comm;
	pthread_mutex_lock(&lock);
	for (struct comm **at = &comms; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			break;
		}
	pthread_mutex_unlock(&lock);
	close(c->fd);
	for (struct early *e; (e = c->early) != NULL; free(e))
		c->early = e->next;
	free(c);
	return OK;
}

static int close_listener(void *comm)
{
	struct listener *l = comm;
	pthread_mutex_lock(&lock);
	for (struct listener **at = &listeners; *at; at = &(*at)->next)
		if (*at == l) {
			*at = l->next;
			break;
		}
	pthread_mutex_unlock(&lock);
	close(l->fd);
	for (int i = 0; i < GUESTS; i++)
		if (l->guest[i].fd > 0)
			close(l->guest[i].fd);
	free(l);
	return OK;
}

#include "reference_tables.h"
