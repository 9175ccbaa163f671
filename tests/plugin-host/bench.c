/* Measures: the plugin and the bare connection in turns, within one run; what counts is the ratio. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bare.h"
#include "flow.h"
#include "tests.h"
#include "util.h"

enum { ROUNDS = 12, SAMPLES = 1 << 20, AHEAD = 4 };

struct bench {
	struct rank *r;
	struct edge e[2];
	void *send, *recv, *smr, *rmr;
	char *out, *in;
	size_t size;
	int window;
	/* A duplex connection; and one that is used in the other direction, so that there is one per direction. */
	int fd, back;
	uint32_t *samples;
};

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static int by_time(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return (x > y) - (x < y);
}

/* "median (min..max)" */
static double spread(double *v, int n, const char *what, const char *unit)
{
	qsort(v, (size_t)n, sizeof *v, by_size);
	printf("%s %.3f%s (%.3f..%.3f)", what, v[n / 2], unit, v[0], v[n - 1]);
	return v[n / 2];
}

static double cpu_seconds(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* Medians of half round trips in nanoseconds. Rank 0 says in the first byte that a message is the last one, so that a
 * round has its time and not its count: on a busy machine one message may take a thousand times as long as another. */
static bool is_last(struct bench *b, uint64_t i, uint64_t end)
{
	if (b->r->id == 0)
		b->out[0] = i + 1 == SAMPLES || now_ns() >= end;
	return b->r->id == 0 && b->out[0];
}

static void sample(struct bench *b, uint64_t i, uint64_t *last)
{
	uint64_t t = now_ns(), half = (t - *last) / 2;
	b->samples[i] = half > UINT32_MAX ? UINT32_MAX : (uint32_t)half;
	*last = t;
}

static double median(struct bench *b, uint64_t count)
{
	qsort(b->samples, count, sizeof *b->samples, by_time);
	return b->samples[count / 2];
}

/* AHEAD receives are posted ahead, as NCCL does, which posts one for each of its 8 buffers. */
static double plugin_latency(struct bench *b, uint64_t span)
{
	struct rank *r = b->r;
	uint64_t last = now_ns(), end = last + span, i = 0;
	void *q[AHEAD], *s = NULL;
	for (int k = 0; k < AHEAD; k++)
		q[k] = recv_start(r, b->recv, b->in + (size_t)k * b->size, b->size, 0, b->rmr);
	for (bool over = false; !over; i++) {
		bool sent = false, got = false;
		char *in = b->in + i % AHEAD * b->size;
		over = is_last(b, i, end);
		if (r->id == 0)
			s = send_start(r, b->send, b->out, b->size, 0, b->smr);
		/* As NCCL's progress thread does, which has both in hand. */
		while (!got) {
			got = poll_done(r, q[i % AHEAD], NULL);
			if (r->id == 0 && !sent)
				sent = poll_done(r, s, NULL);
		}
		if (r->id == 1) {
			over = in[0];
			s = send_start(r, b->send, b->out, b->size, 0, b->smr);
		}
		q[i % AHEAD] = recv_start(r, b->recv, in, b->size, 0, b->rmr);
		while (!sent)
			sent = poll_done(r, s, NULL);
		sample(b, i, &last);
	}
	/* What was posted ahead of the last one takes as many messages more. */
	for (int k = 0; k < AHEAD; k++, i++) {
		s = send_start(r, b->send, b->out, b->size, 0, b->smr);
		finish(r, q[i % AHEAD]);
		finish(r, s);
	}
	return median(b, i - AHEAD);
}

static double bare_latency(struct bench *b, uint64_t span, int out, int in_fd)
{
	uint64_t last = now_ns(), end = last + span, i = 0;
	for (bool over = false; !over; i++) {
		char *in = b->in + i % AHEAD * b->size;
		over = is_last(b, i, end);
		if (b->r->id == 0)
			bare_send(out, b->out, b->size);
		bare_recv(in_fd, in, b->size);
		if (b->r->id == 1) {
			over = in[0];
			bare_send(out, b->out, b->size);
		}
		sample(b, i, &last);
	}
	return median(b, i);
}

/* One direction with `window` requests in flight. Returns the seconds it took. `proxy`: as NCCL's proxy does, at most one post and one test of the
 * oldest in each pass. */
static double plugin_flow(struct bench *b, uint64_t count)
{
	struct rank *r = b->r;
	bool proxy = strcmp(options.bench, "proxy") == 0;
	void *request[32] = {NULL};
	uint64_t started = 0, done = 0, start = now_ns();
	char *mem = r->id == 0 ? b->out : b->in;
	while (done < count) {
		while (started < count && started < done + (unsigned)b->window) {
			char *at = mem + started % (unsigned)b->window * b->size;
			void *data = at, *q;
			size_t posted = b->size;
			int tag = 0;
			q = r->id == 0 ? try_send(r, b->send, at, b->size, 0, b->smr)
				       : try_recv(r, b->recv, 1, &data, &posted, &tag, &b->rmr, false);
			if (q == NULL)
				break;
			request[started++ % (unsigned)b->window] = q;
			if (proxy)
				break;
		}
		while (done < started && poll_done(r, request[done % (unsigned)b->window], NULL)) {
			done++;
			if (proxy)
				break;
		}
	}
	return (double)(now_ns() - start) / 1e9;
}

static double bare_flow(struct bench *b, uint64_t count, bool acks)
{
	uint64_t start = now_ns();
	if (acks)
		bare_rate(b->r, b->fd, b->r->id == 0 ? b->out : b->in, b->size, b->window, count);
	else
		bare_stream(b->r, b->fd, b->r->id == 0 ? b->out : b->in, b->size, b->window, count);
	return (double)(now_ns() - start) / 1e9;
}

static void setup(struct bench *b, struct rank *r)
{
	b->r = r, b->size = options.size, b->window = options.window;
	b->e[0] = (struct edge){.from = 0, .to = 1}, b->e[1] = (struct edge){.from = 1, .to = 0};
	edges_open(r, b->e, 2);
	b->send = b->e[r->id].send, b->recv = b->e[1 - r->id].recv;
	size_t len = b->size * (size_t)(b->window < AHEAD ? AHEAD : b->window);
	b->out = buffer_new(len), b->in = buffer_new(len);
	memset(b->out, 1, len);
	memset(b->in, 2, len);
	b->smr = reg(r, b->send, b->out, len), b->rmr = reg(r, b->recv, b->in, len);
	b->samples = buffer_new(SAMPLES * sizeof *b->samples);
	b->fd = bare_open(r), b->back = bare_open(r);
	barrier(r);
}

static void teardown(struct bench *b)
{
	barrier(b->r);
	dereg_mr(b->r, b->send, b->smr);
	dereg_mr(b->r, b->recv, b->rmr);
	edges_close(b->r, b->e, 2);
	close(b->fd), close(b->back);
}

static void latency_body(struct rank *r)
{
	enum { OURS, DUPLEX, SPLIT, WAYS };
	struct bench b;
	double us[WAYS][ROUNDS], ratio[WAYS][ROUNDS];
	setup(&b, r);
	uint64_t span = (uint64_t)options.seconds * SECOND / (WAYS * ROUNDS);
	plugin_latency(&b, 20 * MS);
	for (int i = 0; i < ROUNDS; i++) {
		for (int k = 0; k < WAYS; k++) {
			/* Who goes first changes from round to round. */
			int way = (k + i) % WAYS;
			barrier(r);
			double ns = way == OURS	    ? plugin_latency(&b, span)
				    : way == DUPLEX ? bare_latency(&b, span, b.fd, b.fd)
				    : r->id == 0    ? bare_latency(&b, span, b.fd, b.back)
						    : bare_latency(&b, span, b.back, b.fd);
			us[way][i] = ns / 1e3;
		}
		for (int way = 0; way < WAYS; way++)
			ratio[way][i] = us[OURS][i] / us[way][i];
	}
	if (r->id == 0) {
		printf("lat v%d %zu B, %d rounds: ", options.version, b.size, ROUNDS);
		spread(us[OURS], ROUNDS, "half round trip", " us");
		spread(us[DUPLEX], ROUNDS, ", bare TCP", " us");
		spread(ratio[DUPLEX], ROUNDS, ", ratio", "");
		spread(us[SPLIT], ROUNDS, "; a stream per direction as NCCL's connections are, bare TCP", " us");
		spread(ratio[SPLIT], ROUNDS, ", ratio", "");
		printf("\n");
	}
	teardown(&b);
	fflush(stdout);
}

static void flow_body(struct rank *r)
{
	struct bench b;
	double ours[ROUNDS], bare[ROUNDS], ratio[ROUNDS], cpu[ROUNDS], bare_cpu[ROUNDS];
	bool rate = strcmp(options.bench, "rate") == 0 || strcmp(options.bench, "proxy") == 0;
	setup(&b, r);
	plugin_flow(&b, 64);
	barrier(r);
	/* As many messages as the slower of the two can take in the time of a round. */
	uint64_t probe = b.size > 65536 ? 64 : 1024;
	double slower = plugin_flow(&b, probe), other = bare_flow(&b, probe, rate);
	slower = other > slower ? other : slower;
	if (r->id == 0) {
		double n = options.seconds / (2.0 * ROUNDS) / (slower / (double)probe);
		r->shared->slot[61] = n < 64 ? 64 : (uint64_t)n;
	}
	barrier(r);
	uint64_t count = r->shared->slot[61];
	double bytes = (double)count * (double)b.size;
	for (int i = 0; i < ROUNDS; i++) {
		for (int k = 0; k < 2; k++) {
			barrier(r);
			double before = cpu_seconds(), seconds;
			bool us = k == i % 2;
			seconds = us ? plugin_flow(&b, count) : bare_flow(&b, count, rate);
			/* The receiver's clock counts: what was sent has arrived. */
			r->shared->result[2 * r->id] = seconds;
			r->shared->result[2 * r->id + 1] = cpu_seconds() - before;
			barrier(r);
			double took = r->shared->result[2], spent = r->shared->result[1] + r->shared->result[3];
			*(us ? &ours[i] : &bare[i]) = rate ? (double)count / took / 1e6 : bytes / took / 1e9;
			*(us ? &cpu[i] : &bare_cpu[i]) = spent / (bytes / 1e9);
		}
		ratio[i] = ours[i] / bare[i];
	}
	if (r->id == 0) {
		const char *unit = rate ? " M/s" : " GB/s";
		printf("%s v%d %zu B, window %d, %d rounds of %lu: ", options.bench, options.version, b.size, b.window, ROUNDS, count);
		spread(ours, ROUNDS, "plugin", unit);
		spread(bare, ROUNDS, rate ? ", bare TCP with the same window" : ", bare TCP", unit);
		spread(ratio, ROUNDS, ", ratio", "");
		if (!rate) {
			spread(cpu, ROUNDS, ", CPU s/GB both sides", "");
			spread(bare_cpu, ROUNDS, ", bare", "");
		}
		printf("\n");
	}
	teardown(&b);
	fflush(stdout);
}

/* What a test() costs that finds nothing. */
static void idle_body(struct rank *r)
{
	struct bench b;
	setup(&b, r);
	if (r->id == 1) {
		enum { BATCH = 2000, BATCHES = 100 };
		double ns[BATCHES];
		void *q = recv_start(r, b.recv, b.in, b.size, 0, b.rmr);
		for (int i = 0; i < BATCHES; i++) {
			uint64_t start = now_ns();
			for (int k = 0; k < BATCH; k++)
				poll_done(r, q, NULL);
			ns[i] = (double)(now_ns() - start) / BATCH;
		}
		printf("idle v%d: ", options.version);
		spread(ns, BATCHES, "one test()", " ns");
		printf("\n");
		fflush(stdout);
		barrier(r);
		finish(r, q);
	} else {
		barrier(r);
		finish(r, send_start(r, b.send, b.out, b.size, 0, b.smr));
	}
	teardown(&b);
}

/* Resident memory of this process in KiB. */
static double resident(void)
{
	unsigned long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	CHECK(file != NULL && fscanf(file, "%*u %lu", &pages) == 1, "/proc/self/statm cannot be read");
	fclose(file);
	return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1024;
}

/* A message over each, so that each holds what it needs. */
static void pass_one(struct rank *r, struct edge *e, char *mem)
{
	void *comm = e->from == r->id ? e->send : e->recv, *mr = reg(r, comm, mem, options.size);
	finish(r, e->from == r->id ? send_start(r, comm, mem, options.size, 0, mr)
				   : recv_start(r, comm, mem, options.size, 0, mr));
	dereg_mr(r, comm, mr);
}

/* EACH connections one way and as many the other, as NCCL makes them: listen, handles, then connect and accept until all are there. */
static void connect_body(struct rank *r)
{
	enum { EACH = 32, ALL = 2 * EACH };
	struct edge e[ALL];
	double ours[ROUNDS], bare[ROUNDS], ratio[ROUNDS], held = 0;
	char *mem = buffer_new(options.size);
	for (int i = 0; i < ROUNDS; i++) {
		for (int k = 0; k < 2; k++) {
			bool us = k == i % 2;
			int fd[ALL];
			double before = resident();
			barrier(r);
			uint64_t start = now_ns();
			if (us) {
				for (int n = 0; n < ALL; n++)
					e[n] = (struct edge){.from = n % 2, .to = 1 - n % 2};
				edges_open(r, e, ALL);
			} else {
				for (int n = 0; n < ALL; n++)
					fd[n] = bare_open(r);
				barrier(r);
			}
			(us ? ours : bare)[i] = (double)(now_ns() - start) / 1e6 / ALL;
			if (!us) {
				for (int n = 0; n < ALL; n++)
					close(fd[n]);
				continue;
			}
			for (int n = 0; n < ALL; n++)
				pass_one(r, &e[n], mem);
			r->shared->result[r->id] = resident() - before;
			barrier(r);
			/* Later ones take what the first ones gave back. */
			if (i == 0)
				held = (r->shared->result[0] + r->shared->result[1]) / ALL;
			edges_close(r, e, ALL);
		}
		ratio[i] = ours[i] / bare[i];
	}
	if (r->id == 0) {
		printf("connect v%d, %d connections each way, %d rounds: ", options.version, EACH, ROUNDS);
		spread(ours, ROUNDS, "each", " ms");
		spread(bare, ROUNDS, ", bare TCP one after the other", " ms");
		spread(ratio, ROUNDS, ", ratio", "");
		printf("; resident in both processes for each: %.0f KiB\n", held);
	}
	fflush(stdout);
}

int bench_main(void)
{
	body *body = strcmp(options.bench, "lat") == 0	     ? latency_body
		     : strcmp(options.bench, "idle") == 0    ? idle_body
		     : strcmp(options.bench, "connect") == 0 ? connect_body
		     : strcmp(options.bench, "rate") == 0 || strcmp(options.bench, "proxy") == 0 ||
					  strcmp(options.bench, "bw") == 0
			       ? flow_body
											      : NULL;
	if (body == NULL) {
		fprintf(stderr, "plugin-host: there is no bench '%s'; use lat, rate, proxy, bw, idle or connect\n", options.bench);
		return 2;
	}
	return group_run(2, options.seconds * 8 + 60, body);
}
