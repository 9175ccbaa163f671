/* Collectives above the plugin, with every value checked. */
#include "tests.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "flow.h"
#include "util.h"

enum { AHEAD = 4, SLICE = 128 << 10 };

/* One direction of a ring step: slices, up to AHEAD in flight, completed in order as NCCL's proxy does. */
struct lane {
	char *data;
	size_t len;
	void *comm, *mr;
	bool sends;
	void *request[AHEAD];
	size_t started, finished, slices;
};

static size_t slice_len(const struct lane *l, size_t i)
{
	size_t from = i * SLICE;
	return l->len - from < SLICE ? l->len - from : SLICE;
}

static void lane_step(struct rank *r, struct lane *l)
{
	if (l->started < l->slices && l->started < l->finished + AHEAD) {
		void *at = l->data + l->started * SLICE, *q;
		size_t len = slice_len(l, l->started);
		int tag = 0;
		q = l->sends ? try_send(r, l->comm, at, len, 0, l->mr) : try_recv(r, l->comm, 1, &at, &len, &tag, &l->mr, false);
		if (q != NULL)
			l->request[l->started++ % AHEAD] = q;
	}
	int size = -1;
	if (l->finished < l->started && poll_done(r, l->request[l->finished % AHEAD], &size)) {
		if (!l->sends)
			CHECK((size_t)size == slice_len(l, l->finished), "slice of %d bytes instead of %zu", size,
			      slice_len(l, l->finished));
		l->finished++;
	}
}

static void ring_step(struct rank *r, struct lane *out, struct lane *in)
{
	/* Another host may die without a word: the plugin has 30 s to notice. */
	uint64_t end = now_ns() + (options.join ? 60 : 20) * SECOND;
	out->started = out->finished = in->started = in->finished = 0;
	out->slices = out->len ? (out->len + SLICE - 1) / SLICE : 1;
	in->slices = in->len ? (in->len + SLICE - 1) / SLICE : 1;
	while (out->finished < out->slices || in->finished < in->slices) {
		lane_step(r, out);
		lane_step(r, in);
		CHECK(now_ns() < end, "a ring step hangs: sent %zu of %zu, received %zu of %zu", out->finished, out->slices,
		      in->finished, in->slices);
		sched_yield();
	}
}

struct ring {
	struct edge e[RANKS_MAX];
	void *send, *recv, *mr_out, *mr_in, *mr_tmp;
};

static void ring_open(struct rank *r, struct ring *g)
{
	for (int i = 0; i < r->n; i++)
		g->e[i] = (struct edge){.from = i, .to = (i + 1) % r->n};
	edges_open(r, g->e, r->n);
	g->send = g->e[r->id].send;
	g->recv = g->e[(r->id + r->n - 1) % r->n].recv;
}

static uint32_t value(int rank, size_t i, uint32_t round)
{
	return (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u + round * 97u;
}

static size_t chunk_at(size_t count, int n, int c)
{
	return count * (size_t)c / (size_t)n;
}

static void allreduce(struct rank *r, struct ring *g, size_t count, uint32_t round)
{
	size_t bytes = count * 4;
	uint32_t *data = buffer_new(bytes), *tmp = buffer_new(bytes);
	for (size_t i = 0; i < count; i++)
		data[i] = value(r->id, i, round);
	void *out_mr = reg(r, g->send, data, bytes), *in_mr = reg(r, g->recv, data, bytes),
	     *tmp_mr = reg(r, g->recv, tmp, bytes);
	for (int step = 0; step < 2 * (r->n - 1); step++) {
		bool reduce = step < r->n - 1;
		int s = reduce ? step : step - (r->n - 1);
		int give = (r->id + (reduce ? 0 : 1) - s + 2 * r->n) % r->n, take = (give - 1 + r->n) % r->n;
		size_t from = chunk_at(count, r->n, take), to = chunk_at(count, r->n, take + 1);
		size_t gfrom = chunk_at(count, r->n, give), gto = chunk_at(count, r->n, give + 1);
		struct lane out = {.data = (char *)(data + gfrom), .len = (gto - gfrom) * 4, .comm = g->send, .mr = out_mr, .sends = true};
		struct lane in = {.data = (char *)((reduce ? tmp : data) + from), .len = (to - from) * 4, .comm = g->recv,
				  .mr = reduce ? tmp_mr : in_mr};
		ring_step(r, &out, &in);
		if (reduce)
			for (size_t i = from; i < to; i++)
				data[i] += tmp[i];
	}
	for (size_t i = 0; i < count; i++) {
		uint32_t want = 0;
		for (int k = 0; k < r->n; k++)
			want += value(k, i, round);
		CHECK(data[i] == want, "AllReduce of %zu: element %zu is %#x instead of %#x", count, i, data[i], want);
	}
	dereg_mr(r, g->send, out_mr);
	dereg_mr(r, g->recv, in_mr);
	dereg_mr(r, g->recv, tmp_mr);
	buffer_free(data, bytes);
	buffer_free(tmp, bytes);
}

void test_allreduce(struct rank *r)
{
	static const size_t counts[] = {1, 8, 1000, 65539, 300000, 1 << 20};
	struct ring g;
	ring_open(r, &g);
	unsigned most = options.quick ? 4 : r->n > 2 ? 5 : 6;
	for (uint32_t round = 0; round < 2; round++)
		for (unsigned i = 0; i < most; i++)
			allreduce(r, &g, counts[i], round * 10 + i);
	barrier(r);
	edges_close(r, g.e, r->n);
}

void test_rounds(struct rank *r)
{
	struct ring g;
	ring_open(r, &g);
	for (int round = 0; round < options.rounds; round++) {
		allreduce(r, &g, options.size < 4 ? 1 : options.size / 4, (uint32_t)round);
		note("round %d", round + 1);
	}
	barrier(r);
	edges_close(r, g.e, r->n);
}

void test_allgather(struct rank *r)
{
	static const size_t lens[] = {3, 4096, 100001, 700000};
	struct ring g;
	ring_open(r, &g);
	for (unsigned k = 0; k < (options.quick ? 3 : 4); k++) {
		size_t len = lens[k];
		char *all = buffer_new(len * (size_t)r->n);
		void *out_mr = reg(r, g.send, all, len * (size_t)r->n), *in_mr = reg(r, g.recv, all, len * (size_t)r->n);
		pattern_fill(all + len * (size_t)r->id, len, 500 + 10 * k + (unsigned)r->id);
		for (int s = 0; s < r->n - 1; s++) {
			int give = (r->id - s + r->n) % r->n, take = (give - 1 + r->n) % r->n;
			struct lane out = {.data = all + len * (size_t)give, .len = len, .comm = g.send, .mr = out_mr, .sends = true};
			struct lane in = {.data = all + len * (size_t)take, .len = len, .comm = g.recv, .mr = in_mr};
			ring_step(r, &out, &in);
		}
		for (int i = 0; i < r->n; i++) {
			long wrong = pattern_wrong(all + len * (size_t)i, len, 500 + 10 * k + (unsigned)i);
			CHECK(wrong < 0, "AllGather of %zu: byte %ld of rank %d is wrong", len, wrong, i);
		}
		dereg_mr(r, g.send, out_mr);
		dereg_mr(r, g.recv, in_mr);
		buffer_free(all, len * (size_t)r->n);
	}
	barrier(r);
	edges_close(r, g.e, r->n);
}

/* Every pair of ranks at once, both ways. */
void test_sendrecv(struct rank *r)
{
	struct edge e[RANKS_MAX * RANKS_MAX];
	int n = 0;
	for (int i = 0; i < r->n; i++)
		for (int j = 0; j < r->n; j++)
			if (i != j)
				e[n++] = (struct edge){.from = i, .to = j};
	edges_open(r, e, n);
	struct lane lane[2 * RANKS_MAX];
	size_t whole = 1 << 20;
	int lanes = 0, peer[2 * RANKS_MAX];
	for (int i = 0; i < n; i++) {
		if (e[i].from != r->id && e[i].to != r->id)
			continue;
		bool sends = e[i].from == r->id;
		void *comm = sends ? e[i].send : e[i].recv;
		peer[lanes] = sends ? e[i].to : e[i].from;
		lane[lanes] = (struct lane){.data = buffer_new(whole), .comm = comm, .sends = sends};
		lane[lanes].mr = reg(r, comm, lane[lanes].data, whole);
		lanes++;
	}
	for (unsigned round = 0; round < 4; round++) {
		for (int i = 0; i < lanes; i++) {
			struct lane *l = &lane[i];
			int from = l->sends ? r->id : peer[i], to = l->sends ? peer[i] : r->id;
			/* Nobody sends the same amount as another one. */
			l->len = round == 0 ? (size_t)(from + to) % 2 : round == 3 ? 600001 + (size_t)from * 40000 : (size_t)(1 + from * 8 + to) * 777 * round;
			l->started = l->finished = 0;
			l->slices = l->len ? (l->len + SLICE - 1) / SLICE : 1;
			if (l->sends)
				pattern_fill(l->data, l->len, (uint64_t)(from * 8 + to) + 100 * round);
		}
		uint64_t end = now_ns() + 20 * SECOND;
		for (int busy = 1; busy;) {
			busy = 0;
			for (int i = 0; i < lanes; i++) {
				lane_step(r, &lane[i]);
				busy += lane[i].finished < lane[i].slices;
			}
			CHECK(now_ns() < end, "SendRecv: %d of %d directions hang", busy, lanes);
			sched_yield();
		}
		for (int i = 0; i < lanes; i++)
			if (!lane[i].sends) {
				long wrong = pattern_wrong(lane[i].data, lane[i].len, (uint64_t)(peer[i] * 8 + r->id) + 100 * round);
				CHECK(wrong < 0, "SendRecv: byte %ld from rank %d is wrong", wrong, peer[i]);
			}
	}
	for (int i = 0; i < lanes; i++) {
		dereg_mr(r, lane[i].comm, lane[i].mr);
		buffer_free(lane[i].data, whole);
	}
	barrier(r);
	edges_close(r, e, n);
}
