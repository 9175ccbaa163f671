#define _GNU_SOURCE
#include "group.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu.h"
#include "hosts.h"
#include "util.h"

struct options options;

void service_start(struct rank *r, void (*job)(void *), void *arg)
{
	pthread_mutex_lock(&r->lock);
	r->job = job, r->job_arg = arg, r->job_done = false;
	pthread_cond_broadcast(&r->turn);
	pthread_mutex_unlock(&r->lock);
}

void service_wait(struct rank *r)
{
	pthread_mutex_lock(&r->lock);
	while (!r->job_done)
		pthread_cond_wait(&r->turn, &r->lock);
	pthread_mutex_unlock(&r->lock);
}

void service(struct rank *r, void (*job)(void *), void *arg)
{
	service_start(r, job, arg);
	service_wait(r);
}

static void *service_main(void *arg)
{
	struct rank *r = arg;
	gpu_thread();
	pthread_mutex_lock(&r->lock);
	while (!r->stop) {
		if (r->job == NULL) {
			pthread_cond_wait(&r->turn, &r->lock);
			continue;
		}
		void (*job)(void *) = r->job;
		r->job = NULL;
		pthread_mutex_unlock(&r->lock);
		job(r->job_arg);
		pthread_mutex_lock(&r->lock);
		r->job_done = true;
		pthread_cond_broadcast(&r->turn);
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

static void *progress_main(void *arg)
{
	struct rank *r = arg;
	gpu_thread();
	r->body(r);
	return NULL;
}

void barrier_arrive(struct rank *r)
{
	/* The second word counts rounds; the first one ranks of this round. */
	if (atomic_fetch_add(&r->shared->barrier[0], 1) == r->n - 1) {
		r->shared->barrier[0] = 0;
		r->shared->barrier[1]++;
	}
}

void barrier(struct rank *r)
{
	int round = r->shared->barrier[1];
	hosts_barrier(r);
	uint64_t end = now_ns() + 20 * SECOND;
	while (r->shared->barrier[1] == round) {
		CHECK(now_ns() < end, "another rank does not come to the barrier");
		usleep(50);
	}
}

static void rank_main(struct rank *r, int deadline)
{
	util_where("v%d %s[%d]", options.version, options.test ? options.test : options.bench, r->id);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGALRM, SIG_DFL);
	alarm((unsigned)(options.join ? 300 : deadline));
	r->shared->pid[r->id] = getpid();
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->turn, NULL);

	if (options.join)
		hosts_join(r);
	net_load(&r->net, options.plugin, options.version);
	int rc = net_init(&r->net), devices;
	CHECK(rc == OK, "init returned %d", rc);
	rc = net_devices(&r->net, &devices);
	CHECK(rc == OK && devices > 0, "devices returned %d with %d devices", rc, devices);
	r->dev = 0;
	rc = net_props(&r->net, r->dev, &r->props);
	CHECK(rc == OK, "getProperties returned %d", rc);
	const int device = PTR_CUDA | PTR_DMABUF;
	CHECK(!options.gpu || (r->props.ptr & device) == device, "device memory is not taken by dma-buf: pointer support %#x", r->props.ptr);

	pthread_t progress;
	if (pthread_create(&r->service, NULL, service_main, r) != 0 ||
	    pthread_create(&progress, NULL, progress_main, r) != 0)
		fail("no threads");
	pthread_join(progress, NULL);
	pthread_mutex_lock(&r->lock);
	r->stop = true;
	pthread_cond_broadcast(&r->turn);
	pthread_mutex_unlock(&r->lock);
	pthread_join(r->service, NULL);
	if (!r->no_unload) {
		rc = net_finalize(&r->net);
		CHECK(rc == OK, "finalize returned %d", rc);
		net_unload(&r->net);
	}
	/* As an application ends: destructors run. */
	exit(0);
}

int group_run(int n, int deadline, body *body)
{
	struct shared *shared =
		mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED, "no shared memory");
	pid_t pid[RANKS_MAX];
	fflush(NULL);
	/* One rank of many hosts, or all of one. */
	int ranks = n, first = options.join ? options.rank : 0;
	n = options.join ? 1 : n;
	for (int i = 0; i < n; i++) {
		pid[i] = fork();
		CHECK(pid[i] >= 0, "fork: %s", strerror(errno));
		if (pid[i] == 0) {
			struct rank r = {.id = first + i, .n = ranks, .shared = shared, .body = body};
			rank_main(&r, deadline);
		}
	}
	int bad = 0, left = n;
	while (left > 0) {
		int status;
		pid_t p = waitpid(-1, &status, 0);
		if (p < 0)
			break;
		int id = -1;
		for (int i = 0; i < n; i++)
			if (pid[i] == p)
				id = i;
		if (id < 0)
			continue;
		left--;
		pid[id] = 0;
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
			continue;
		if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && (shared->may_die[id] || bad))
			continue;
		bad = 1;
		if (WIFSIGNALED(status))
			note("FAIL rank %d ended by signal %d (%s)%s", id, WTERMSIG(status), strsignal(WTERMSIG(status)),
			     WTERMSIG(status) == SIGALRM ? ": it hung" : "");
		else if (WEXITSTATUS(status) != 1)
			note("FAIL rank %d ended with exit code %d", id, WEXITSTATUS(status));
		for (int i = 0; i < n; i++)
			if (pid[i] > 0)
				kill(pid[i], SIGKILL);
	}
	munmap(shared, sizeof *shared);
	return bad;
}

struct opening {
	struct rank *r;
	struct edge *edges;
	int n;
};

/* NCCL's way: listen, exchange handles, then poll connect and accept with the same handle buffer. */
static void open_job(void *arg)
{
	struct opening *o = arg;
	struct rank *r = o->r;
	char handle[EDGES_MAX][HANDLE];
	bool have[EDGES_MAX] = {false};
	int base = r->edges, left = 0, rc;
	CHECK(base + o->n <= EDGES_MAX, "too many edges");
	for (int i = 0; i < o->n; i++) {
		struct edge *e = &o->edges[i];
		e->send = e->recv = e->listen = NULL;
		left += (e->from == r->id) + (e->to == r->id);
		if (e->to != r->id)
			continue;
		memset(handle[i], 0xa5, HANDLE);
		rc = net_listen(&r->net, r->dev, handle[i], &e->listen);
		CHECK(rc == OK, "listen returned %d", rc);
		memcpy(r->shared->edge[base + i].handle, handle[i], HANDLE);
		r->shared->edge[base + i].ready = 1;
		hosts_edge(r, base + i);
	}
	uint64_t end = now_ns() + 15 * SECOND;
	while (left > 0) {
		CHECK(now_ns() < end, "%d of the connections are not there after 15 s", left);
		for (int i = 0; i < o->n; i++) {
			struct edge *e = &o->edges[i];
			if (e->from == r->id && e->send == NULL && r->shared->edge[base + i].ready) {
				if (!have[i])
					memcpy(handle[i], r->shared->edge[base + i].handle, HANDLE);
				have[i] = true;
				rc = net_connect(&r->net, r->dev, handle[i], &e->send);
				CHECK(rc == OK, "connect returned %d", rc);
				left -= e->send != NULL;
			}
			if (e->to == r->id && e->recv == NULL) {
				rc = net_accept(&r->net, e->listen, &e->recv);
				CHECK(rc == OK, "accept returned %d", rc);
				if (e->recv == NULL)
					continue;
				left--;
				rc = net_close_listen(&r->net, e->listen);
				CHECK(rc == OK, "closeListen returned %d", rc);
				e->listen = NULL;
			}
		}
		sched_yield();
	}
	r->edges = base + o->n;
}

void edges_open(struct rank *r, struct edge *edges, int n)
{
	struct opening o = {r, edges, n};
	service(r, open_job, &o);
	barrier(r);
}

static void close_job(void *arg)
{
	struct opening *o = arg;
	for (int i = 0; i < o->n; i++) {
		struct edge *e = &o->edges[i];
		int rc = e->from == o->r->id ? net_close_send(&o->r->net, e->send) : OK;
		CHECK(rc == OK, "closeSend returned %d", rc);
		rc = e->to == o->r->id ? net_close_recv(&o->r->net, e->recv) : OK;
		CHECK(rc == OK, "closeRecv returned %d", rc);
	}
}

void edges_close(struct rank *r, struct edge *edges, int n)
{
	struct opening o = {r, edges, n};
	service(r, close_job, &o);
}

struct mr_job {
	struct rank *r;
	void *comm, *data, *mr;
	size_t size;
};

static void reg_job(void *arg)
{
	struct mr_job *j = arg;
	int rc = net_reg(&j->r->net, j->comm, j->data, j->size, &j->mr);
	CHECK(rc == OK, "regMr of %zu bytes returned %d", j->size, rc);
}

void *reg(struct rank *r, void *comm, void *data, size_t size)
{
	struct mr_job j = {r, comm, data, NULL, size};
	service(r, reg_job, &j);
	return j.mr;
}

static void dereg_job(void *arg)
{
	struct mr_job *j = arg;
	int rc = net_dereg(&j->r->net, j->comm, j->mr);
	CHECK(rc == OK, "deregMr returned %d", rc);
}

void dereg_mr(struct rank *r, void *comm, void *mr)
{
	struct mr_job j = {r, comm, NULL, mr, 0};
	service(r, dereg_job, &j);
}
