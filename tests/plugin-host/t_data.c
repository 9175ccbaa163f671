/* Bytes, sizes, order, tags. */
#define _GNU_SOURCE
#include "tests.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "flow.h"
#include "unpack.h"
#include "util.h"

/* Registers and deregisters beside the data path, as user-buffer registration does. */
struct noise {
	struct rank *r;
	void *comm[2];
	_Atomic bool stop;
	int rounds;
};

static void noise_job(void *arg)
{
	struct noise *n = arg;
	char *mem = buffer_new(1 << 20);
	while (!n->stop) {
		for (int i = 0; i < 2; i++) {
			void *mr[3];
			for (int k = 0; k < 3; k++)
				CHECK(net_reg(&n->r->net, n->comm[i], mem + k * 4096, 8192, &mr[k]) == OK, "regMr");
			for (int k = 0; k < 3; k++)
				CHECK(net_dereg(&n->r->net, n->comm[i], mr[k]) == OK, "deregMr");
		}
		n->rounds++;
		usleep(300);
	}
	buffer_free(mem, 1 << 20);
}

static const size_t sizes[] = {0,     1,     2,	    7,	   8,	  9,	  63,	  64,	   65,	    127,     128,
			       129,   1000,  1023,  1024,  4095,  4096,	  4097,	  8191,	   8192,    8193,    16384,
			       32767, 65535, 65536, 65537, 99999, 131072, 262143, 262144,  262145,  524288,  1048575,
			       1 << 20, (1 << 20) + 1, 3000001, 4 << 20, (8 << 20) + 3};
#define NSIZES (sizeof sizes / sizeof *sizes)

void test_data(struct rank *r)
{
	struct edge e[2] = {{.from = 0, .to = 1}, {.from = 1, .to = 0}};
	edges_open(r, e, 2);
	void *send = e[r->id].send, *recv = e[1 - r->id].recv;
	size_t whole = 9 << 20;
	char *out = buffer_new(whole), *in = buffer_new(whole);
	void *smr = reg(r, send, out, whole), *rmr = reg(r, recv, in, whole);
	struct noise noise = {.r = r, .comm = {send, recv}};
	service_start(r, noise_job, &noise);
	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < NSIZES; i++) {
			size_t len = sizes[i], posted = round == 0 ? len : len * 2 + 4096;
			if (posted > whole)
				posted = whole;
			size_t behind = posted - len > 70000 ? 70000 : posted - len;
			pattern_fill(out, len, 1000 * round + 10 * i + (unsigned)r->id);
			memset(in + len, 0x5a, behind);
			if (len)
				in[0] = in[len - 1] = 0x5a;
			exchange(r, send, out, len, smr, recv, in, posted, rmr, len);
			long wrong = pattern_wrong(in, len, 1000 * round + 10 * i + (unsigned)(1 - r->id));
			CHECK(wrong < 0, "%zu bytes sent, %zu posted: byte %ld is wrong", len, posted, wrong);
			for (size_t k = 0; k < behind; k++)
				CHECK(in[len + k] == 0x5a, "%zu bytes sent, %zu posted: byte %zu was written", len, posted,
				      len + k);
		}
	/* The last bytes before an unmapped page, and odd addresses. */
	for (size_t len = 1; len < 5000; len += 777) {
		char *o = out + whole - len, *n = in + whole - len;
		pattern_fill(o, len, len);
		memset(n, 0, len);
		exchange(r, send, o, len, smr, recv, n, len, rmr, len);
		CHECK(pattern_wrong(n, len, len) < 0, "%zu bytes at the end of a buffer are wrong", len);
	}
	noise.stop = true;
	service_wait(r);
	CHECK(noise.rounds > 0, "nothing was registered beside the data path");
	CHECK(!options.offload || r->net.version < 7 || unpack_pieces() > 100, "NCCL's kernels found only %lu pieces",
	      unpack_pieces());
	dereg_mr(r, send, smr);
	dereg_mr(r, recv, rmr);
	barrier(r);
	edges_close(r, e, 2);
}

/* More sent than posted: an error or a cut message, never a byte outside, never a hang. */
void test_oversend(struct rank *r)
{
	static const size_t cases[][2] = {{5000, 1000}, {3 << 20, 1 << 20}};
	for (unsigned c = 0; c < 2; c++) {
		struct edge e[1] = {{.from = 0, .to = 1}};
		edges_open(r, e, 1);
		size_t len = cases[c][0], posted = cases[c][1];
		char *mem = buffer_new(4 << 20);
		void *comm = r->id == 0 ? e[0].send : e[0].recv;
		void *mr = reg(r, comm, mem, 4 << 20);
		memset(mem, 0x33, 4 << 20);
		int done = 0, rc = OK, size = -1, tag = 0;
		void *request = NULL, *at = mem;
		uint64_t end = now_ns() + 10 * SECOND;
		while (rc == OK && !done && now_ns() < end) {
			if (request != NULL)
				rc = net_test(&r->net, request, &done, &size);
			else if (r->id == 0)
				rc = net_isend(&r->net, comm, mem, len, 0, mr, &request);
			else
				rc = net_irecv(&r->net, comm, 1, &at, &posted, &tag, &mr, false, &request);
			/* What the receiver saw is judged: the sender stops once that is there. */
			if (r->id == 0 && r->shared->slot[c])
				break;
		}
		if (r->id == 1) {
			CHECK(rc != OK || done, "%zu bytes into %zu: nothing after 10 s", len, posted);
			CHECK(rc != OK || size <= (int)posted, "%zu bytes into %zu: %d reported", len, posted, size);
			for (size_t i = posted; i < 4u << 20; i++)
				CHECK(mem[i] == 0x33, "%zu bytes into %zu: byte %zu was written", len, posted, i);
			note("%zu bytes into %zu: %s %d", len, posted, rc != OK ? "error" : "cut to", rc != OK ? rc : size);
			r->shared->slot[c] = 1;
		}
		barrier(r);
		edges_close(r, e, 1);
		barrier(r);
		buffer_free(mem, 4 << 20);
	}
}

enum { EARLY = 64 << 20, AHEAD = 24, STRIDE = 100000 };

/* Polls all requests in turns until all are done. */
static void finish_all(struct rank *r, void **requests, int n)
{
	uint64_t end = now_ns() + 20 * SECOND;
	for (int left = n; left > 0; sched_yield())
		for (int i = 0; i < n; i++) {
			if (requests[i] == NULL || !poll_done(r, requests[i], NULL)) {
				CHECK(now_ns() < end, "%d of %d requests hang", left, n);
				continue;
			}
			requests[i] = NULL;
			left--;
		}
}

/* Closes with a send that waits. */
struct leaving {
	struct rank *r;
	struct edge *e;
	void *mr;
	char *mem;
};

static void leave_job(void *arg)
{
	struct leaving *l = arg;
	CHECK(net_dereg(&l->r->net, l->e->send, l->mr) == OK, "deregMr with a send that waits");
	buffer_free(l->mem, EARLY);
	CHECK(net_close_send(&l->r->net, l->e->send) == OK, "closeSend with a send that waits");
	l->e->send = NULL;
}

static void close_job(void *arg)
{
	struct leaving *l = arg;
	CHECK(net_close_recv(&l->r->net, l->e->recv) == OK, "closeRecv");
	l->e->recv = NULL;
}

/* Both ranks send first and receive afterwards, whatever the size; and what becomes of a send whose receive never comes. */
void test_early(struct rank *r)
{
	static const size_t lens[] = {0, 8, 4096, 8192, 8193, 1 << 20, EARLY};
	struct edge e[2] = {{.from = 0, .to = 1}, {.from = 1, .to = 0}};
	edges_open(r, e, 2);
	void *send = e[r->id].send, *recv = e[1 - r->id].recv;
	char *out = buffer_new(EARLY), *in = buffer_new(EARLY);
	void *smr = reg(r, send, out, EARLY), *rmr = reg(r, recv, in, EARLY);
	int got[8];
	for (unsigned i = 0; i < sizeof lens / sizeof *lens; i++) {
		size_t len = lens[i];
		pattern_fill(out, len, 10 * i + (unsigned)r->id);
		void *both[2] = {send_start(r, send, out, len, 0, smr)};
		barrier(r);
		both[1] = recv_start(r, recv, in, len, 0, rmr);
		finish_all(r, both, 2);
		long wrong = pattern_wrong(in, len, 10 * i + (unsigned)(1 - r->id));
		CHECK(wrong < 0, "%zu bytes sent before their receive: byte %ld is wrong", len, wrong);
		barrier(r);
	}
	/* Many of different sizes with one tag, all before the first receive: the k-th meets the k-th. */
	void *all[2 * AHEAD];
	for (int k = 0; k < AHEAD; k++) {
		pattern_fill(out + k * STRIDE, lens[k % 5], 1000 + (unsigned)(2 * k + r->id));
		all[k] = send_start(r, send, out + k * STRIDE, lens[k % 5], 0, smr);
	}
	barrier(r);
	for (int k = 0; k < AHEAD; k++)
		all[AHEAD + k] = recv_start(r, recv, in + k * STRIDE, STRIDE, 0, rmr);
	finish_all(r, all, 2 * AHEAD);
	for (int k = 0; k < AHEAD; k++) {
		long wrong = pattern_wrong(in + k * STRIDE, lens[k % 5], 1000 + (unsigned)(2 * k + 1 - r->id));
		CHECK(wrong < 0, "message %d of %d sent before their receives: byte %ld is wrong", k, AHEAD, wrong);
	}
	barrier(r);
	/* The first rank deregisters, unmaps and closes; the other one's receive comes too late, and tells the end. (A plugin may
	 * have copied the message before.) */
	memset(in, 0x33, STRIDE);
	struct leaving l = {.r = r, .e = &e[0], .mr = smr, .mem = out};
	uint64_t end = now_ns() + 10 * SECOND;
	if (r->id == 0) {
		pattern_fill(out, STRIDE, 77);
		send_start(r, send, out, STRIDE, 0, smr);
		service(r, leave_job, &l);
		barrier(r);
	} else {
		barrier(r);
		void *q = NULL, *at = in;
		size_t posted = STRIDE;
		int rc = OK, done = 0, tag = 0;
		while (rc == OK && !done && now_ns() < end)
			rc = q ? net_test(&r->net, q, &done, got)
			       : net_irecv(&r->net, recv, 1, &at, &posted, &tag, &rmr, false, &q);
		CHECK(rc == E_REMOTE || done, "the peer closed with a send that waited: result %d", rc);
		CHECK(!done || pattern_wrong(in, STRIDE, 77) < 0, "a send that had waited brought wrong bytes");
		for (int i = 0; i < STRIDE && !done; i++)
			CHECK(in[i] == 0x33, "byte %d came from a send that had waited when its memory was unmapped", i);
	}
	barrier(r);
	/* Its other direction: the second rank's send waits, and the receiver closes. */
	if (r->id == 1) {
		void *s = send_start(r, send, out, STRIDE, 0, smr);
		barrier(r);
		int rc = OK, done = 0;
		while (rc == OK && !done && now_ns() < end)
			rc = net_test(&r->net, s, &done, got);
		CHECK(rc == E_REMOTE || done, "the receiver closed while a send waited: result %d", rc);
		dereg_mr(r, send, smr);
		dereg_mr(r, recv, rmr);
	} else {
		barrier(r);
		l.e = &e[1];
		dereg_mr(r, recv, rmr);
		service(r, close_job, &l);
	}
	barrier(r);
}

enum { DEEP = 256, MESSAGES = 3000, CELL = 40960 };

static size_t message_size(uint64_t k)
{
	uint64_t s = k * 77 + 5, x = rng(&s);
	return x % 16 == 0 ? x / 16 % CELL : x % 7 == 0 ? 0 : x / 16 % 3000;
}

/* Many in flight, tested in random order; the k-th receive gets the k-th message. */
void test_window(struct rank *r)
{
	struct edge e[1] = {{.from = 0, .to = 1}};
	edges_open(r, e, 1);
	void *comm = r->id == 0 ? e[0].send : e[0].recv;
	char *mem = buffer_new((size_t)DEEP * CELL);
	void *mr = reg(r, comm, mem, (size_t)DEEP * CELL);
	void *request[DEEP] = {NULL};
	uint64_t number[DEEP], next = 0, done = 0, state = 3 + (uint64_t)r->id, end = now_ns() + 40 * SECOND;
	int flying = 0, peak = 0, total = options.quick ? 600 : MESSAGES;
	while (done < (uint64_t)total) {
		CHECK(now_ns() < end, "%d of %d messages hang", flying, total);
		for (int i = 0; i < DEEP && next < (uint64_t)total; i++) {
			if (request[i] != NULL)
				continue;
			void *at = mem + (size_t)i * CELL;
			size_t len = message_size(next), posted = CELL;
			int tag = 0;
			if (r->id == 0)
				pattern_fill(at, len, next);
			request[i] = r->id == 0 ? try_send(r, comm, at, len, 0, mr)
						: try_recv(r, comm, 1, &at, &posted, &tag, &mr, false);
			if (request[i] == NULL)
				break;
			number[i] = next++;
			flying++;
		}
		peak = flying > peak ? flying : peak;
		for (int t = 0; t < 64; t++) {
			int i = (int)(rng(&state) % DEEP), size = -1;
			if (request[i] == NULL || !poll_done(r, request[i], &size))
				continue;
			if (r->id == 1) {
				CHECK((size_t)size == message_size(number[i]), "message %lu: %d bytes instead of %zu",
				      number[i], size, message_size(number[i]));
				long wrong = pattern_wrong(mem + (size_t)i * CELL, (size_t)size, number[i]);
				CHECK(wrong < 0, "message %lu of %d bytes: byte %ld is wrong", number[i], size, wrong);
			}
			request[i] = NULL;
			done++, flying--;
		}
		sched_yield();
	}
	CHECK(peak >= MAX_REQUESTS, "only %d requests in flight", peak);
	note("%d in flight", peak);
	dereg_mr(r, comm, mr);
	barrier(r);
	edges_close(r, e, 1);
}

enum { PART = 20000 };

static uint64_t part_seed(int group, int part)
{
	return (uint64_t)group * 64 + (uint64_t)part + 9000;
}

static size_t part_size(int group, int part)
{
	uint64_t s = part_seed(group, part), x = rng(&s);
	return x % 5 == 0 ? 0 : x % 3 == 0 ? x / 16 % PART : x / 16 % 1500;
}

/* Groups [0, groups) of n parts each, `ahead` receives posted at a time. The sender sends each tag's stream in order
 * and the streams in any order, at most `spread` groups apart. */
static void groups(struct rank *r, void *comm, int groups, int n, int ahead, int spread)
{
	size_t cell = (size_t)n * PART;
	char *mem = buffer_new(cell * (size_t)ahead);
	void *mr = reg(r, comm, mem, cell * (size_t)ahead);
	uint64_t state = (uint64_t)groups, end = now_ns() + 20 * SECOND;
	if (r->id == 1) {
		void *request[32] = {NULL};
		int posted = 0, done = 0;
		while (done < groups) {
			CHECK(now_ns() < end, "grouped receive %d of %d hangs", done, groups);
			while (posted < groups && posted < done + ahead) {
				char *at = mem + (size_t)(posted % ahead) * cell;
				void *data[8], *mrs[8];
				size_t sz[8];
				int tags[8];
				memset(at, 0x77, cell);
				for (int p = 0; p < n; p++)
					data[p] = at + p * PART, sz[p] = PART, tags[p] = 100 + p * 3, mrs[p] = mr;
				request[posted % ahead] = try_recv(r, comm, n, data, sz, tags, mrs, false);
				if (request[posted % ahead] == NULL)
					break;
				posted++;
			}
			int got[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
			if (posted == done || !poll_done(r, request[done % ahead], got)) {
				sched_yield();
				continue;
			}
			for (int p = 0; p < n; p++) {
				const char *at = mem + (size_t)(done % ahead) * cell + p * PART;
				CHECK((size_t)got[p] == part_size(done, p), "group %d part %d: %d bytes instead of %zu", done, p,
				      got[p], part_size(done, p));
				long wrong = pattern_wrong(at, (size_t)got[p], part_seed(done, p));
				CHECK(wrong < 0, "group %d part %d: byte %ld of %d is wrong", done, p, wrong, got[p]);
				CHECK(got[p] == PART || at[got[p]] == 0x77, "group %d part %d: written behind its end", done, p);
			}
			done++;
		}
	} else {
		int next[8] = {0}, sent = 0, finished = 0, low, depth = ahead * n;
		char *cells = buffer_new((size_t)depth * PART);
		void *smr = reg(r, comm, cells, (size_t)depth * PART), *request[256] = {NULL};
		while (finished < groups * n) {
			CHECK(now_ns() < end, "send %d of %d hangs", sent, groups * n);
			low = next[0];
			for (int p = 1; p < n; p++)
				low = next[p] < low ? next[p] : low;
			int p = (int)(rng(&state) % (unsigned)n), slot = -1;
			for (int i = 0; i < depth; i++)
				if (request[i] == NULL)
					slot = i;
			if (slot >= 0 && next[p] < groups && next[p] <= low + spread) {
				char *at = cells + (size_t)slot * PART;
				size_t len = part_size(next[p], p);
				pattern_fill(at, len, part_seed(next[p], p));
				request[slot] = try_send(r, comm, at, len, 100 + p * 3, smr);
				if (request[slot] != NULL)
					next[p]++, sent++;
			}
			for (int i = 0; i < depth; i++)
				if (request[i] != NULL && poll_done(r, request[i], NULL))
					request[i] = NULL, finished++;
		}
		dereg_mr(r, comm, smr);
		buffer_free(cells, (size_t)depth * PART);
	}
	dereg_mr(r, comm, mr);
	buffer_free(mem, cell * (size_t)ahead);
	barrier(r);
}

void test_grouped(struct rank *r)
{
	int most = r->props.max_recvs > 8 ? 8 : r->props.max_recvs;
	if (most < 2) {
		if (r->id == 0)
			note("skipped: maxRecvs is %d", r->props.max_recvs);
		return;
	}
	struct edge e[1] = {{.from = 0, .to = 1}};
	edges_open(r, e, 1);
	void *comm = r->id == 0 ? e[0].send : e[0].recv;
	for (int n = 2; n <= most; n++)
		groups(r, comm, 40, n, 1 + n % 4, 0);
	/* Tags of later groups in between, and 32 receives of the most parts at once. */
	groups(r, comm, 100, most, 8, 3);
	groups(r, comm, 96, most, MAX_REQUESTS, 0);
	groups(r, comm, 20, 1, 4, 0);
	edges_close(r, e, 1);
}

static long switches(void)
{
	struct rusage u;
	getrusage(RUSAGE_THREAD, &u);
	return u.ru_nvcsw;
}

/* Nothing to receive and no receiver: no call sleeps. */
void test_noblock(struct rank *r)
{
	struct edge e[1] = {{.from = 0, .to = 1}};
	edges_open(r, e, 1);
	enum { N = 16 };
	size_t len = 4 << 20;
	void *comm = r->id == 0 ? e[0].send : e[0].recv;
	char *mem = buffer_new(len);
	void *mr = reg(r, comm, mem, len), *request[N] = {NULL};
	memset(mem, 1, len);
	int started = 0, calls = 0, done = 0, slept = 0;
	uint64_t worst = 0;
	for (int phase = 0; phase < 2; phase++) {
		/* First the sender alone calls, then the receiver posts and waits alone; the other one sleeps. */
		barrier(r);
		if (phase == r->id) {
			uint64_t end = now_ns() + 300 * MS;
			while (now_ns() < end) {
				long before = switches();
				uint64_t start = now_ns();
				if (started < N) {
					size_t posted = len;
					int tag = 0;
					void *at = mem, *m = mr;
					request[started] = r->id == 0 ? try_send(r, comm, mem, len, 0, mr)
								      : try_recv(r, comm, 1, &at, &posted, &tag, &m, false);
					started += request[started] != NULL;
				}
				for (int i = done; i < started; i++)
					if (i == done && poll_done(r, request[i], NULL))
						done++;
				uint64_t took = now_ns() - start;
				worst = took > worst ? took : worst;
				slept += switches() != before;
				calls++;
			}
			/* A page fault or a lock of the kernel may sleep once in a while; a blocking call does so each time. */
			CHECK(slept * 10 <= calls, "%d of %d calls slept: the plugin blocks", slept, calls);
			CHECK(calls >= 3, "only %d rounds of calls in 300 ms: the plugin blocks (longest %lu ms)", calls,
			      worst / MS);
		} else {
			usleep(350 * 1000);
		}
	}
	barrier(r);
	uint64_t end = now_ns() + 20 * SECOND;
	while (done < N) {
		CHECK(now_ns() < end, "%d of %d messages arrive", done, N);
		if (started < N) {
			size_t posted = len;
			int tag = 0;
			void *at = mem, *m = mr;
			request[started] = r->id == 0 ? try_send(r, comm, mem, len, 0, mr)
						      : try_recv(r, comm, 1, &at, &posted, &tag, &m, false);
			started += request[started] != NULL;
		}
		if (done < started)
			done += poll_done(r, request[done], NULL);
	}
	dereg_mr(r, comm, mr);
	barrier(r);
	edges_close(r, e, 1);
}
