/* Devices, properties, listen, connect and accept. */
#define _GNU_SOURCE
#include "tests.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include "flow.h"
#include "util.h"

static void ask_often(void *arg)
{
	struct rank *r = arg;
	struct props p;
	for (int i = 0; i < 200; i++)
		CHECK(net_props(&r->net, r->dev, &p) == OK && strcmp(p.name, r->props.name) == 0 &&
			      p.guid == r->props.guid,
		      "getProperties gives changing answers");
}

static void tuner(struct rank *r)
{
	if (r->id == 0)
		note("LL128 across nodes is %s", tuner_forbids_ll128(r->net.dl) ? "forbidden by the tuner" : "allowed");
}

void test_props(struct rank *r)
{
	int n, rc = net_devices(&r->net, &n);
	CHECK(rc == OK && n > 0 && n <= 64, "devices returned %d with %d devices", rc, n);
	struct props p[64], again;
	for (int d = 0; d < n; d++) {
		rc = net_props(&r->net, d, &p[d]);
		CHECK(rc == OK, "getProperties of device %d returned %d", d, rc);
		CHECK(p[d].name[0] != '\0', "device %d has no name", d);
		CHECK((p[d].ptr & PTR_HOST) && (p[d].ptr & ~7) == 0, "device %d: pointer support %#x", d, p[d].ptr);
		CHECK(p[d].speed > 0, "device %d: speed %d", d, p[d].speed);
		CHECK(p[d].latency >= 0 && p[d].latency < 1e6f, "device %d: latency %g", d, (double)p[d].latency);
		CHECK(p[d].max_comms > 0, "device %d: maxComms %d", d, p[d].max_comms);
		CHECK(p[d].max_recvs >= 1, "device %d: maxRecvs %d", d, p[d].max_recvs);
		CHECK(p[d].dev_type == options.offload, "device %d: device type %d", d, p[d].dev_type);
		CHECK(p[d].max_p2p > 0 && p[d].max_p2p <= 1ull << 40, "device %d: maxP2pBytes %zu", d, p[d].max_p2p);
		CHECK(p[d].max_coll > 0 && p[d].max_coll <= 1ull << 40, "device %d: maxCollBytes %zu", d, p[d].max_coll);
		CHECK(p[d].ndevs >= 1 && p[d].ndevs <= (r->net.version >= 12 ? 8 : 4), "device %d: %d members", d,
		      p[d].ndevs);
		for (int i = 0; i < p[d].ndevs; i++)
			CHECK(p[d].devs[i] >= 0, "device %d: member %d", d, p[d].devs[i]);
		if (p[d].ndevs == 1)
			CHECK(p[d].devs[0] == d, "device %d says that it is device %d", d, p[d].devs[0]);
		for (int e = 0; e < d; e++) {
			CHECK(strcasecmp(p[d].name, p[e].name) != 0, "devices %d and %d are both %s", e, d, p[d].name);
			CHECK(p[d].guid != p[e].guid, "devices %d and %d have one guid %#lx", e, d, p[d].guid);
		}
		rc = net_props(&r->net, d, &again);
		CHECK(rc == OK && again.name_at == p[d].name_at, "the name of device %d moves", d);
		note("device %d %s: %d Mb/s, latency %g us, pointers %#x, maxComms %d, maxRecvs %d, guid %#lx, pci %s", d,
		     p[d].name, p[d].speed, (double)p[d].latency, p[d].ptr, p[d].max_comms, p[d].max_recvs, p[d].guid,
		     p[d].pci[0] ? p[d].pci : "(none)");
	}
	CHECK(net_props(&r->net, n, &again) != OK, "getProperties of device %d of %d succeeds", n, n);
	CHECK(net_props(&r->net, -1, &again) != OK, "getProperties of device -1 succeeds");
	char handle[HANDLE];
	void *comm;
	CHECK(net_listen(&r->net, n, handle, &comm) != OK, "listen on device %d of %d succeeds", n, n);
	/* The proxy's thread asks too, at the same time. */
	service_start(r, ask_often, r);
	ask_often(r);
	service_wait(r);
	tuner(r);
}

/* Sends one message through a fresh pair of comms in one process. */
static void one_message(struct rank *r, void *send, void *recv, uint64_t seed)
{
	char out[5000], in[6000];
	pattern_fill(out, sizeof out, seed);
	void *smr, *rmr;
	CHECK(net_reg(&r->net, send, out, sizeof out, &smr) == OK, "regMr");
	CHECK(net_reg(&r->net, recv, in, sizeof in, &rmr) == OK, "regMr");
	exchange(r, send, out, sizeof out, smr, recv, in, sizeof in, rmr, sizeof out);
	CHECK(pattern_wrong(in, sizeof out, seed) < 0, "wrong bytes from comm to comm in one process");
	CHECK(net_dereg(&r->net, send, smr) == OK && net_dereg(&r->net, recv, rmr) == OK, "deregMr");
}

static uint64_t longest;

static int timed_connect(struct rank *r, void *handle, void **comm)
{
	uint64_t start = now_ns();
	int rc = net_connect(&r->net, r->dev, handle, comm);
	if (now_ns() - start > longest)
		longest = now_ns() - start;
	return rc;
}

/* NCCL connects to itself from one thread: connect may not wait for accept. */
static void self_connect(void *arg)
{
	struct rank *r = arg;
	char handle[HANDLE], fresh[HANDLE], copy[HANDLE];
	void *listen, *send[3] = {NULL}, *recv[3] = {NULL}, *none;
	memset(handle, 0xa5, sizeof handle);
	int rc = net_listen(&r->net, r->dev, handle, &listen), polls = 0;
	CHECK(rc == OK, "listen returned %d", rc);
	memcpy(fresh, handle, HANDLE);
	/* Long before a call of accept; the comm may or may not come. */
	for (; polls < 60 && send[0] == NULL; polls++) {
		rc = timed_connect(r, handle, &send[0]);
		CHECK(rc == OK, "connect without accept returned %d", rc);
		usleep(500);
	}
	CHECK(longest < SECOND, "connect without accept blocked for %lu ms", longest / MS);
	/* Three connections of one listen comm, each with a handle of its own. */
	for (int i = 0; i < 3; i++) {
		memcpy(copy, fresh, HANDLE);
		char *h = i == 0 ? handle : copy;
		uint64_t end = now_ns() + 10 * SECOND;
		while (send[i] == NULL || recv[i] == NULL) {
			CHECK(now_ns() < end, "connection %d to itself is not there after 10 s (send %d, receive %d)", i,
			      send[i] != NULL, recv[i] != NULL);
			if (send[i] == NULL)
				CHECK((rc = timed_connect(r, h, &send[i])) == OK, "connect returned %d", rc);
			if (recv[i] == NULL)
				CHECK((rc = net_accept(&r->net, listen, &recv[i])) == OK, "accept returned %d", rc);
			polls++;
		}
	}
	rc = net_accept(&r->net, listen, &none);
	CHECK(rc == OK && none == NULL, "accept without a connection returned %d and %p", rc, none);
	for (int i = 0; i < 3; i++)
		one_message(r, send[i], recv[i], 70 + (uint64_t)i);
	CHECK(net_close_listen(&r->net, listen) == OK, "closeListen");
	for (int i = 0; i < 3; i++)
		one_message(r, send[i], recv[i], 80 + (uint64_t)i);
	for (int i = 0; i < 3; i++)
		CHECK(net_close_send(&r->net, send[i]) == OK && net_close_recv(&r->net, recv[i]) == OK, "close");
	note("%d polls, longest connect %lu us", polls, longest / 1000);
}

/* A handle that no listener made, and one whose listener is gone: an error or never a comm, but no hang, no crash. */
static void bad_handles(void *arg)
{
	struct rank *r = arg;
	char handle[HANDLE];
	void *listen, *send;
	uint64_t state = 9;
	for (int kind = 0; kind < 4; kind++) {
		memset(handle, kind == 0 ? 0 : 0xff, HANDLE);
		if (kind == 2)
			for (int i = 0; i < HANDLE; i++)
				handle[i] = (char)rng(&state);
		if (kind == 3) {
			CHECK(net_listen(&r->net, r->dev, handle, &listen) == OK, "listen");
			CHECK(net_close_listen(&r->net, listen) == OK, "closeListen");
		}
		uint64_t start = now_ns();
		for (int i = 0; i < 20; i++) {
			int rc = timed_connect(r, handle, &send);
			if (rc != OK)
				break;
			CHECK(send == NULL || kind == 3, "connect with a handle of garbage (%d) gives a comm", kind);
			if (send != NULL) {
				CHECK(net_close_send(&r->net, send) == OK, "closeSend");
				break;
			}
			usleep(200);
		}
		CHECK(now_ns() - start < 5 * SECOND, "connect with a bad handle (%d) blocks", kind);
	}
}

void test_setup(struct rank *r)
{
	longest = 0;
	service(r, self_connect, r);
	service(r, bad_handles, r);
}

static void half_open(void *arg)
{
	struct rank *r = arg;
	char handle[HANDLE];
	void *listen[4], *send;
	for (int i = 0; i < 4; i++) {
		CHECK(net_listen(&r->net, r->dev, handle, &listen[i]) == OK, "listen");
		for (int k = 0; k < i; k++)
			CHECK(net_connect(&r->net, r->dev, handle, &send) == OK, "connect");
	}
	/* Two closed before a call of accept, two and all the rest left to finalize, as after an abort in set-up. */
	CHECK(net_close_listen(&r->net, listen[1]) == OK && net_close_listen(&r->net, listen[3]) == OK, "closeListen");
}

void test_leave(struct rank *r)
{
	service(r, half_open, r);
}

struct polling {
	const struct net *net;
	void *listen;
	char handle[HANDLE];
	_Atomic unsigned calls;
};

static void *connect_always(void *arg)
{
	struct polling *p = arg;
	for (int rc = OK; rc == OK;) {
		char handle[HANDLE];
		void *comm = NULL;
		memcpy(handle, p->handle, HANDLE);
		for (int i = 0; i < 50 && rc == OK && comm == NULL; i++, p->calls++)
			rc = net_connect(p->net, 0, handle, &comm);
	}
	return NULL;
}

static void *accept_always(void *arg)
{
	struct polling *p = arg;
	void *comm = NULL;
	while (comm == NULL && net_accept(p->net, p->listen, &comm) == OK)
		;
	return NULL;
}

/* What a process does that ends while its connections come up, after a child of it has ended. */
_Noreturn static void exit_in_set_up(struct net *net, const char *folder)
{
	char page[256], other[HANDLE];
	void *listen;
	struct polling p = {.net = net};
	pthread_t thread;
	alarm(60);
	net_unload(net);
	setenv("LINKSPAN_STATS_DIR", folder, 1);
	setenv("PLUGIN_HOST_EXITS", "1", 1);
	net_load(net, options.plugin, options.version);
	CHECK(net_init(net) == OK, "init");
	snprintf(page, sizeof page, "%s/%d.stats", folder, (int)getpid());
	bool has_page = access(page, F_OK) == 0;
	pid_t child = fork();
	if (child == 0)
		exit(0);
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0, "a child's exit: status %#x", status);
	CHECK(!has_page || access(page, F_OK) == 0, "a child's exit took %s away", page);
	/* Nobody accepts from the one, nobody connects to the other: no comm ever comes up. */
	CHECK(net_listen(net, 0, p.handle, &listen) == OK && net_listen(net, 0, other, &p.listen) == OK, "listen");
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&thread, NULL, i ? connect_always : accept_always, &p) == 0, "thread");
	while (p.calls < 100 + (unsigned)getpid() % 17 * 50)
		sched_yield();
	exit(0);
}

void test_exit(struct rank *r)
{
	char folder[] = "/tmp/plugin-host-XXXXXX";
	CHECK(mkdtemp(folder) != NULL, "mkdtemp");
	for (int i = 0; i < (options.quick ? 4 : 12); i++) {
		pid_t child = fork();
		if (child == 0)
			exit_in_set_up(&r->net, folder);
		int status;
		CHECK(waitpid(child, &status, 0) == child && status == 0, "exit %d in set-up: status %#x", i, status);
	}
	rmdir(folder);
}

/* 7 algorithms with 3 protocols; is the column of LL128 (the middle one) forbidden, and nothing else? */
static bool forbidden(const float *costs)
{
	int n = 0;
	for (int i = 0; i < 21; i++) {
		if (i % 3 == 1 && costs[i] < 0)
			n++;
		else if (costs[i] < 0)
			return false;
	}
	return n == 7;
}

bool tuner_forbids_ll128(void *dl)
{
	bool result = false;
	for (int version = 6; version >= 3; version--) {
		char symbol[32];
		snprintf(symbol, sizeof symbol, "ncclTunerPlugin_v%d", version);
		const void *table = dlsym(dl, symbol);
		if (table == NULL)
			continue;
		const struct tuner_v3 *v3 = table;
		const struct tuner_v4 *v4 = table;
		const struct tuner_v5 *v5 = table;
		bool far = false;
		for (size_t nodes = 1; nodes <= 8; nodes *= 2) {
			void *ctx = NULL;
			int channels = 7, rc;
			float costs[21];
			for (int i = 0; i < 21; i++)
				costs[i] = (float)i + 1;
			rc = version <= 4 ? v4->init(8, nodes, NULL, &ctx) : v5->init(&ctx, 5, 8, nodes, NULL, NULL, NULL);
			CHECK(rc == OK, "%s: init returned %d", symbol, rc);
			rc = version == 3 ? v3->cost(ctx, 4, 1 << 20, 1, (float **)costs, 7, 3, &channels)
					  : v4->cost(ctx, 4, 1 << 20, 1, (float **)costs, 7, 3, 0, &channels);
			CHECK(rc == OK, "%s: getCollInfo returned %d", symbol, rc);
			CHECK(v4->end(ctx) == OK, "%s: the end", symbol);
			for (int i = 0; i < 21; i++)
				CHECK(costs[i] == (float)i + 1 || (i % 3 == 1 && costs[i] == -1.0f),
				      "%s changes cost %d to %g", symbol, i, (double)costs[i]);
			if (nodes == 1)
				CHECK(!forbidden(costs), "%s forbids LL128 within one node", symbol);
			else if (nodes == 2)
				far = forbidden(costs);
			else
				CHECK(far == forbidden(costs), "%s depends on the number of nodes", symbol);
		}
		/* What one version says, all must. */
		CHECK(version == 6 || result == far || dlsym(dl, "ncclTunerPlugin_v6") == NULL,
		      "%s answers otherwise than v6", symbol);
		result = far;
	}
	return result;
}
