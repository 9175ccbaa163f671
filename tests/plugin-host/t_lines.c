/* LL and LL128: a third thread, in the GPU's place, watches the memory while the plugin writes it.
 *
 * LL: 8-byte words of 4 bytes of data and a 4-byte flag, which must appear together. LL128: lines of 128 bytes whose
 * last 8 bytes are the flag; when it shows, the 120 bytes before it must be there. */
#include "tests.h"

#include <sched.h>
#include <string.h>

#include "flow.h"
#include "plant.h"
#include "util.h"

enum { STEPS = 8, SLOT = 32768 };

struct watch {
	uint64_t *mem;
	size_t line;
	int total;
	bool optional;
	_Atomic int consumed;
	_Atomic bool failed;
};

static size_t lines_of(int step, size_t line)
{
	uint64_t s = (uint64_t)step * 31 + line;
	size_t most = SLOT / line;
	uint64_t x = rng(&s);
	return x % 4 == 0 ? most : 1 + x / 4 % most;
}

static uint64_t data_of(int step, size_t word)
{
	uint64_t s = (uint64_t)step * 1000003 + word;
	return rng(&s);
}

static uint64_t load(const uint64_t *at)
{
	return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

/* The word that belongs at place `i` of this step; the flag is step + 1. */
static uint64_t word_of(size_t line, int step, size_t i)
{
	if (line == 8)
		return (uint64_t)(uint32_t)(step + 1) << 32 | (uint32_t)data_of(step, i);
	return i % 16 == 15 ? (uint64_t)(step + 1) : data_of(step, i);
}

static bool flag_there(size_t line, int step, uint64_t w)
{
	return line == 8 ? w >> 32 == (uint64_t)(step + 1) : w == (uint64_t)(step + 1);
}

static void watch_line(const struct watch *w, const uint64_t *slot, int step, size_t i)
{
	size_t words = w->line / 8, flag = i * words + words - 1;
	uint64_t end = now_ns() + 20 * SECOND, seen = 0;
	for (unsigned spins = 0; !flag_there(w->line, step, seen = load(&slot[flag])); spins++)
		if (spins % 64 == 63) {
			CHECK(now_ns() < end, "step %d: the flag of line %zu does not come", step, i);
			sched_yield();
		}
	if (w->line == 8) {
		CHECK(seen == word_of(8, step, i), "torn: step %d word %zu has its flag and data %#x", step, i, (unsigned)seen);
		return;
	}
	for (size_t k = words - 1; k-- > 0;) {
		uint64_t got = load(&slot[i * words + k]);
		CHECK(got == data_of(step, i * words + k), "torn: step %d line %zu has its flag, but word %zu is %#lx", step, i, k,
		      got);
	}
}

static void *watch_main(void *arg)
{
	struct watch *w = arg;
	for (int step = 0; step < w->total; step++) {
		const uint64_t *slot = w->mem + (size_t)(step % STEPS) * (SLOT / 8);
		size_t n = lines_of(step, w->line);
		/* Forwards and backwards: what comes last may be looked for first. */
		for (size_t i = 0; i < n; i++)
			watch_line(w, slot, step, step % 2 ? n - 1 - i : i);
		w->consumed = step + 1;
	}
	return NULL;
}

static void lines(struct rank *r, size_t line, int total)
{
	struct edge e[1] = {{.from = 0, .to = 1}};
	edges_open(r, e, 1);
	void *comm = r->id == 0 ? e[0].send : e[0].recv;
	uint64_t *mem = buffer_new(STEPS * SLOT), end = now_ns() + 40 * SECOND;
	memset(mem, 0, STEPS * SLOT);
	void *mr = reg(r, comm, mem, STEPS * SLOT), *request[STEPS] = {NULL};
	plant_line = line;
	struct watch w = {.mem = mem, .line = line, .total = total};
	pthread_t watcher;
	if (r->id == 1)
		CHECK(pthread_create(&watcher, NULL, watch_main, &w) == 0, "no thread");
	int started = 0, done = 0;
	while (done < total) {
		CHECK(now_ns() < end, "step %d of %d hangs", done, total);
		bool transport = r->id == 0 ? started < done + STEPS : started < w.consumed + STEPS && started < done + STEPS;
		if (started < total && transport) {
			uint64_t *slot = mem + (size_t)(started % STEPS) * (SLOT / 8);
			size_t len = lines_of(started, line) * line, posted = SLOT;
			int tag = 0;
			void *at = slot, *q;
			if (r->id == 0) {
				for (size_t i = 0; i < len / 8; i++)
					slot[i] = word_of(line, started, i);
				q = try_send(r, comm, slot, len, 0, mr);
			} else {
				q = try_recv(r, comm, 1, &at, &posted, &tag, &mr, true);
			}
			if (q != NULL)
				request[started++ % STEPS] = q;
		}
		if (done < started && poll_done(r, request[done % STEPS], NULL))
			done++;
		sched_yield();
	}
	if (r->id == 1)
		pthread_join(watcher, NULL);
	dereg_mr(r, comm, mr);
	barrier(r);
	edges_close(r, e, 1);
	buffer_free(mem, STEPS * SLOT);
}

void test_ll(struct rank *r)
{
	lines(r, 8, options.quick ? 200 : 600);
}

void test_ll128(struct rank *r)
{
	if (tuner_forbids_ll128(r->net.dl)) {
		if (r->id == 0)
			note("not asked for: the plugin's tuner forbids LL128 across nodes");
		return;
	}
	lines(r, 128, options.quick ? 200 : 600);
}
