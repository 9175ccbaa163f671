/* Ends: abort, death, strangers, and loading again. */
#define _GNU_SOURCE
#include "tests.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "flow.h"
#include "plant.h"
#include "util.h"

enum { FLY = 8, BIG = 4 << 20 };

struct flying {
	struct rank *r;
	struct edge e[2];
	void *send, *recv, *smr, *rmr;
	char *out, *in;
	void *sends[FLY], *recvs[FLY];
};

/* Two ranks with much in flight both ways. */
static void take_off(struct rank *r, struct flying *f, bool receive)
{
	memset(f, 0, sizeof *f);
	f->r = r;
	f->e[0] = (struct edge){.from = 0, .to = 1};
	f->e[1] = (struct edge){.from = 1, .to = 0};
	edges_open(r, f->e, 2);
	f->send = f->e[r->id].send, f->recv = f->e[1 - r->id].recv;
	f->out = buffer_new(BIG), f->in = buffer_new(BIG);
	memset(f->out, 1, BIG);
	f->smr = reg(r, f->send, f->out, BIG), f->rmr = reg(r, f->recv, f->in, BIG);
	uint64_t end = now_ns() + 200 * MS;
	for (int s = 0, q = 0; now_ns() < end && (s < FLY || q < FLY);) {
		void *at = f->in;
		size_t posted = BIG;
		int tag = 0;
		if (s < FLY && (f->sends[s] = try_send(r, f->send, f->out, s < 2 ? 100 : BIG, 0, f->smr)) != NULL)
			s++;
		if (q < FLY && receive && (f->recvs[q] = try_recv(r, f->recv, 1, &at, &posted, &tag, &f->rmr, false)) != NULL)
			q++;
		for (int i = 0; i < s; i++)
			if (f->sends[i] != NULL && i >= 2 && poll_done(r, f->sends[i], NULL))
				f->sends[i] = NULL;
	}
}

/* As NCCL aborts: deregister, free the memory, close; all with requests in flight. */
static void abort_job(void *arg)
{
	struct flying *f = arg;
	const struct net *net = &f->r->net;
	CHECK(net_dereg(net, f->send, f->smr) == OK, "deregMr with requests in flight");
	CHECK(net_dereg(net, f->recv, f->rmr) == OK, "deregMr with requests in flight");
	buffer_free(f->out, BIG);
	buffer_free(f->in, BIG);
	usleep(20 * 1000);
	CHECK(net_close_send(net, f->send) == OK, "closeSend with requests in flight");
	CHECK(net_close_recv(net, f->recv) == OK, "closeRecv with requests in flight");
}

static void abort_now(struct flying *f)
{
	uint64_t start = now_ns();
	service(f->r, abort_job, f);
	CHECK(now_ns() - start < 5 * SECOND, "the abort took %lu ms", (now_ns() - start) / MS);
}

void test_abort(struct rank *r)
{
	struct flying f;
	take_off(r, &f, r->id == 0);
	barrier(r);
	abort_now(&f);
	/* What comes after an abort starts from nothing. */
	take_off(r, &f, true);
	barrier(r);
	if (r->id == 0)
		abort_now(&f);
	barrier(r);
	if (r->id == 1)
		abort_now(&f);
}

/* Polls everything until one call says that the peer is lost; at most `bound`. Returns how long it took. */
static uint64_t until_lost(struct flying *f, uint64_t bound, const char *what)
{
	uint64_t start = now_ns();
	for (;;) {
		int done, sizes[8], rc = OK, tag = 0;
		void *at = f->in, *q;
		size_t posted = BIG;
		for (int i = 0; i < FLY && rc == OK; i++)
			if (f->recvs[i] != NULL) {
				rc = net_test(&f->r->net, f->recvs[i], &done, sizes);
				if (rc == OK && done)
					f->recvs[i] = NULL;
			} else {
				rc = net_irecv(&f->r->net, f->recv, 1, &at, &posted, &tag, &f->rmr, false, &q);
				f->recvs[i] = rc == OK ? q : NULL;
			}
		for (int i = 2; i < FLY && rc == OK; i++)
			if (f->sends[i] != NULL) {
				rc = net_test(&f->r->net, f->sends[i], &done, sizes);
				if (rc == OK && done)
					f->sends[i] = NULL;
			}
		uint64_t took = now_ns() - start;
		if (rc != OK) {
			CHECK(rc == E_REMOTE, "%s: result %d instead of %d (remote error)", what, rc, E_REMOTE);
			return took;
		}
		CHECK(took < bound, "%s: nothing was said for %lu ms", what, took / MS);
		sched_yield();
	}
}

void test_one_aborts(struct rank *r)
{
	struct flying f;
	take_off(r, &f, true);
	barrier(r);
	if (r->id == 1) {
		uint64_t took = until_lost(&f, 10 * SECOND, "the peer closed with requests in flight");
		note("seen after %lu ms", took / MS);
	}
	abort_now(&f);
}

static void killed(struct rank *r, bool busy)
{
	struct flying f;
	r->shared->may_die[1] = 1;
	take_off(r, &f, true);
	barrier(r);
	if (r->id == 1) {
		if (!busy)
			usleep(100 * 1000);
		kill(getpid(), SIGKILL);
	}
	if (!busy)
		usleep(150 * 1000);
	uint64_t took = until_lost(&f, 5 * SECOND, "the peer was killed");
	note("seen after %lu ms", took / MS);
	abort_now(&f);
}

void test_kill_idle(struct rank *r)
{
	killed(r, false);
}

void test_kill_busy(struct rank *r)
{
	killed(r, true);
}

/* A stopped peer is not dead. */
void test_stop(struct rank *r)
{
	struct edge e[1] = {{.from = 0, .to = 1}};
	edges_open(r, e, 1);
	void *comm = r->id == 0 ? e[0].send : e[0].recv;
	char *mem = buffer_new(BIG);
	void *mr = reg(r, comm, mem, BIG);
	if (r->id == 1) {
		void *q = recv_start(r, comm, mem, BIG, 0, mr);
		pid_t peer = r->shared->pid[0];
		kill(peer, SIGSTOP);
		for (uint64_t end = now_ns() + 1200 * MS; now_ns() < end; usleep(100))
			CHECK(!poll_done(r, q, NULL), "a receive is done though nothing was sent");
		kill(peer, SIGCONT);
		barrier(r);
		int size = finish(r, q);
		CHECK(size == BIG && pattern_wrong(mem, BIG, 5) < 0, "wrong bytes from a peer that was stopped");
	} else {
		pattern_fill(mem, BIG, 5);
		barrier(r);
		finish(r, send_start(r, comm, mem, BIG, 0, mr));
	}
	dereg_mr(r, comm, mr);
	barrier(r);
	edges_close(r, e, 1);
}

/* Local TCP ports that this process listens on, with their addresses. */
static int listening(struct sockaddr_storage *out, int most)
{
	unsigned long inode[256];
	int inodes = 0, n = 0;
	DIR *d = opendir("/proc/self/fd");
	for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
		char path[300], to[64];
		snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
		ssize_t len = readlink(path, to, sizeof to - 1);
		if (len <= 0)
			continue;
		to[len] = 0;
		if (inodes < 256 && sscanf(to, "socket:[%lu]", &inode[inodes]) == 1)
			inodes++;
	}
	closedir(d);
	for (int v6 = 0; v6 < 2; v6++) {
		FILE *f = fopen(v6 ? "/proc/self/net/tcp6" : "/proc/self/net/tcp", "r");
		char text[512], address[40];
		while (f && fgets(text, sizeof text, f) && n < most) {
			unsigned port, state;
			unsigned long ino;
			if (sscanf(text, " %*d: %32[0-9A-F]:%x %*[0-9A-F]:%*x %x %*s %*s %*s %*s %*s %lu", address, &port, &state,
				   &ino) != 4 || state != 0x0a)
				continue;
			bool ours = false;
			for (int i = 0; i < inodes; i++)
				ours |= inode[i] == ino;
			if (!ours)
				continue;
			memset(&out[n], 0, sizeof out[n]);
			uint32_t w[4] = {0};
			for (int i = 0; i < (v6 ? 4 : 1); i++)
				sscanf(address + 8 * i, "%8x", &w[i]);
			if (v6) {
				struct sockaddr_in6 *a = (void *)&out[n];
				a->sin6_family = AF_INET6, a->sin6_port = htons((uint16_t)port);
				memcpy(&a->sin6_addr, w, 16);
				if (IN6_IS_ADDR_LINKLOCAL(&a->sin6_addr))
					continue; /* Needs a scope that /proc does not say. */
			} else {
				struct sockaddr_in *a = (void *)&out[n];
				a->sin_family = AF_INET, a->sin_port = htons((uint16_t)port), a->sin_addr.s_addr = w[0];
			}
			n++;
		}
		if (f)
			fclose(f);
	}
	return n;
}

/* One connection that has no business there. `kind` 0 leaves at once, others stay until the process ends. */
static void stranger(const struct sockaddr_storage *to, int kind)
{
	int fd = socket(to->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0, "socket: %s", strerror(errno));
	if (connect(fd, (const void *)to, to->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)) < 0 &&
	    errno != EINPROGRESS) {
		close(fd);
		return;
	}
	usleep(2000);
	static char junk[65536];
	uint64_t state = (uint64_t)kind;
	size_t len = kind == 1 ? 0 : kind == 2 ? 1 : kind == 3 ? 40 : sizeof junk;
	for (size_t i = 0; i < sizeof junk; i++)
		junk[i] = kind == 4 ? 0 : kind == 5 ? (char)0xff : (char)rng(&state);
	if (kind != 0)
		(void)!send(fd, junk, len, MSG_NOSIGNAL);
	if (kind == 0 || kind == 3)
		close(fd);
}

struct guest {
	struct rank *r;
	struct sockaddr_storage at[16];
	void *listen, *send, *recv;
	int n;
};

static void host_job(void *arg)
{
	struct guest *g = arg;
	struct rank *r = g->r;
	CHECK(net_listen(&r->net, r->dev, r->shared->edge[0].handle, &g->listen) == OK, "listen");
	g->n = listening(g->at, 16);
}

static void guests_job(void *arg)
{
	struct guest *g = arg;
	struct rank *r = g->r;
	for (int round = 0; round < 8; round++)
		for (int i = 0; i < g->n; i++)
			for (int kind = 0; kind < 7; kind++)
				stranger(&g->at[i], kind);
	r->shared->slot[0] = 1;
	/* A client with a valid handle connects while the others are still there. */
	uint64_t end = now_ns() + 10 * SECOND;
	while (g->recv == NULL) {
		CHECK(now_ns() < end, "no peer is accepted after 10 s: other connections block the listener");
		CHECK(net_accept(&r->net, g->listen, &g->recv) == OK, "accept fails because of other connections");
		usleep(500);
	}
}

static void come_job(void *arg)
{
	struct guest *g = arg;
	char handle[HANDLE];
	uint64_t end = now_ns() + 20 * SECOND;
	while (!g->r->shared->slot[0])
		usleep(500);
	memcpy(handle, g->r->shared->edge[0].handle, HANDLE);
	while (g->send == NULL) {
		CHECK(now_ns() < end, "no connection beside other clients after 20 s");
		CHECK(net_connect(&g->r->net, g->r->dev, handle, &g->send) == OK, "connect fails because of other connections");
		usleep(500);
	}
}

void test_strangers(struct rank *r)
{
	static struct guest g;
	g.r = r;
	if (r->id == 1) {
		service(r, host_job, &g);
		service(r, guests_job, &g);
		note("%d listening TCP sockets of this process, 56 strangers each", g.n);
	} else {
		service(r, come_job, &g);
	}
	void *comm = r->id == 0 ? g.send : g.recv;
	char *mem = buffer_new(1 << 20);
	void *mr = reg(r, comm, mem, 1 << 20);
	if (r->id == 0) {
		pattern_fill(mem, 1 << 20, 3);
		finish(r, send_start(r, comm, mem, 1 << 20, 0, mr));
	} else {
		int size = finish(r, recv_start(r, comm, mem, 1 << 20, 0, mr));
		CHECK(size == 1 << 20 && pattern_wrong(mem, 1 << 20, 3) < 0, "wrong bytes beside other clients");
	}
	dereg_mr(r, comm, mr);
	barrier(r);
	if (r->id == 1) {
		CHECK(net_close_listen(&r->net, g.listen) == OK && net_close_recv(&r->net, g.recv) == OK, "close");
	} else {
		CHECK(net_close_send(&r->net, g.send) == OK, "closeSend");
	}
}

static void once(struct rank *r)
{
	char handle[HANDLE], out[3000], in[4000];
	void *listen, *send = NULL, *recv = NULL, *smr, *rmr;
	int n;
	struct props p;
	const struct net *net = &r->net;
	CHECK(net_devices(net, &n) == OK && n > 0 && net_props(net, 0, &p) == OK, "devices");
	CHECK(net_listen(net, 0, handle, &listen) == OK, "listen");
	uint64_t end = now_ns() + 10 * SECOND;
	while (send == NULL || recv == NULL) {
		CHECK(now_ns() < end, "no connection to itself after 10 s");
		CHECK(send != NULL || net_connect(net, 0, handle, &send) == OK, "connect");
		CHECK(recv != NULL || net_accept(net, listen, &recv) == OK, "accept");
	}
	CHECK(net_close_listen(net, listen) == OK, "closeListen");
	CHECK(net_reg(net, send, out, sizeof out, &smr) == OK && net_reg(net, recv, in, sizeof in, &rmr) == OK, "regMr");
	pattern_fill(out, sizeof out, 4);
	exchange(r, send, out, sizeof out, smr, recv, in, sizeof in, rmr, sizeof out);
	CHECK(pattern_wrong(in, sizeof out, 4) < 0, "wrong bytes");
	CHECK(net_dereg(net, send, smr) == OK && net_dereg(net, recv, rmr) == OK, "deregMr");
	CHECK(net_close_send(net, send) == OK && net_close_recv(net, recv) == OK, "close");
}

/* init, finalize, unload, load: as before after each round, in threads, descriptors and mappings. */
void test_reload(struct rank *r)
{
	int rounds = options.quick ? 30 : 100, threads = 0, fds = 0, maps = 0;
	size_t bytes = 0, after;
	once(r);
	CHECK(net_finalize(&r->net) == OK, "finalize");
	net_unload(&r->net);
	for (int i = 0; i < rounds; i++) {
		net_load(&r->net, options.plugin, options.version);
		CHECK(net_init(&r->net) == OK, "init of round %d", i);
		once(r);
		CHECK(net_finalize(&r->net) == OK, "finalize of round %d", i);
		net_unload(&r->net);
		if (i == 4) {
			malloc_trim(0);
			threads = count_threads(), fds = count_fds(), maps = count_maps(&bytes);
		}
	}
	malloc_trim(0);
	int now = count_maps(&after);
	CHECK(count_threads() == threads, "%d threads before, %d after %d rounds", threads, count_threads(), rounds);
	CHECK(count_fds() == fds, "%d descriptors before, %d after %d rounds", fds, count_fds(), rounds);
	CHECK(now <= maps + 2, "%d mappings before, %d after %d rounds", maps, now, rounds);
	CHECK(after <= bytes + (1 << 20), "%zu bytes mapped before, %zu after %d rounds", bytes, after, rounds);
	note("%d rounds: %d threads, %d descriptors, %d mappings, %+ld KiB", rounds, threads, fds, now,
	     ((long)after - (long)bytes) / 1024);
	r->no_unload = true;
}
