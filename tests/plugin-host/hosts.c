#define _GNU_SOURCE
#include "hosts.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util.h"

/* What goes between hosts: an edge's handle, or the arrival at a barrier (edge -1). All hosts are of one kind. */
struct word {
	int32_t edge;
	char handle[HANDLE];
};

static struct rank *self;
/* Rank 0: a connection to every other rank. The others: one, to rank 0, which passes everything on. */
static int peer[RANKS_MAX], peers;
/* All hosts see words in one order, or a barrier could count a rank twice. */
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;

static bool all(ssize_t (*move)(int, void *, size_t, int), int fd, void *data, size_t len)
{
	for (char *at = data; len > 0;) {
		ssize_t n = move(fd, at, len, MSG_NOSIGNAL);
		if (n <= 0)
			return false;
		at += n, len -= (size_t)n;
	}
	return true;
}

static ssize_t send_some(int fd, void *data, size_t len, int flags)
{
	return send(fd, data, len, flags);
}

static void tell(struct word *w, int except)
{
	for (int i = 0; i < peers; i++)
		if (peer[i] != except)
			all(send_some, peer[i], w, sizeof *w);
}

static void *hear(void *arg)
{
	int fd = *(int *)arg;
	struct word w;
	while (all(recv, fd, &w, sizeof w)) {
		pthread_mutex_lock(&order);
		tell(&w, fd);
		if (w.edge < 0) {
			barrier_arrive(self);
		} else if (w.edge < EDGES_MAX) {
			memcpy(self->shared->edge[w.edge].handle, w.handle, HANDLE);
			self->shared->edge[w.edge].ready = 1;
		}
		pthread_mutex_unlock(&order);
	}
	/* A host that is gone: what the plugin says of it is the test. */
	return NULL;
}

static struct sockaddr_in place(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	char text[64];
	snprintf(text, sizeof text, "%s", options.join);
	char *colon = strrchr(text, ':');
	CHECK(colon != NULL, "--join %s: ADDRESS:PORT wanted", options.join);
	*colon = '\0';
	at.sin_port = htons((uint16_t)atoi(colon + 1));
	CHECK(inet_pton(AF_INET, text, &at.sin_addr) == 1, "--join %s: no IPv4 address", options.join);
	return at;
}

void hosts_join(struct rank *r)
{
	struct sockaddr_in at = place();
	uint64_t end = now_ns() + 30 * SECOND;
	int one = 1;
	self = r;
	if (r->id == 0) {
		int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
		CHECK(bind(listening, (struct sockaddr *)&at, sizeof at) == 0 && listen(listening, RANKS_MAX) == 0,
		      "cannot listen at %s", options.join);
		struct timeval patience = {.tv_sec = 30};
		setsockopt(listening, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
		for (peers = 0; peers < r->n - 1; peers++) {
			peer[peers] = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
			CHECK(peer[peers] >= 0, "%d hosts do not come", r->n - 1 - peers);
			/* Inherited from the listening socket, and wrong here: hosts may have nothing to say for long. */
			setsockopt(peer[peers], SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0}, sizeof(struct timeval));
		}
		close(listening);
	} else {
		for (;;) {
			peer[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
			if (connect(peer[0], (struct sockaddr *)&at, sizeof at) == 0)
				break;
			close(peer[0]);
			CHECK(now_ns() < end, "there is no listener at %s", options.join);
			usleep(50000);
		}
		peers = 1;
	}
	for (int i = 0; i < peers; i++) {
		pthread_t thread;
		setsockopt(peer[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		CHECK(pthread_create(&thread, NULL, hear, &peer[i]) == 0, "no thread");
		pthread_detach(thread);
	}
}

void hosts_edge(struct rank *r, int edge)
{
	if (options.join == NULL)
		return;
	struct word w = {.edge = edge};
	memcpy(w.handle, r->shared->edge[edge].handle, HANDLE);
	pthread_mutex_lock(&order);
	tell(&w, -1);
	pthread_mutex_unlock(&order);
}

void hosts_barrier(struct rank *r)
{
	struct word w = {.edge = -1};
	pthread_mutex_lock(&order);
	barrier_arrive(r);
	if (options.join != NULL)
		tell(&w, -1);
	pthread_mutex_unlock(&order);
}
