/* Ranks: processes that load the plugin after the fork and meet in shared memory, each with NCCL's two threads. */
#ifndef PLUGIN_HOST_GROUP_H
#define PLUGIN_HOST_GROUP_H

#include "net.h"

#include <pthread.h>
#include <stdatomic.h>

enum { RANKS_MAX = 8, EDGES_MAX = 1024, SLOTS = 64 };

/* What all ranks see. */
struct shared {
	_Atomic int barrier[2];
	_Atomic int pid[RANKS_MAX];
	/* A rank that may be killed without the test failing. */
	_Atomic int may_die[RANKS_MAX];
	struct {
		_Atomic int ready;
		char handle[HANDLE];
	} edge[EDGES_MAX];
	/* For the tests' own use. */
	_Atomic uint64_t slot[SLOTS];
	double result[SLOTS];
};

/* A connection from one rank to another. */
struct edge {
	int from, to;
	/* At `from`, and at `to`. */
	void *send, *recv;
	void *listen;
};

struct rank;
typedef void body(struct rank *);

struct rank {
	int id, n;
	struct net net;
	struct shared *shared;
	int dev;
	/* Properties of `dev`. */
	struct props props;
	/* The service thread's mailbox. */
	pthread_t service;
	pthread_mutex_t lock;
	pthread_cond_t turn;
	void (*job)(void *);
	void *job_arg;
	bool job_done, stop;
	/* Edges numbered so far; all ranks count alike. */
	int edges;
	body *body;
	/* The test has closed everything itself, the plugin included. */
	bool no_unload;
};

/* What the command line says. */
struct options {
	const char *plugin, *test, *bench;
	/* ADDRESS:PORT where ranks on several hosts meet; NULL where all are on this one. */
	const char *join;
	int version, ranks, window, seconds, rank, rounds;
	size_t size;
	bool quick;
	/* Buffers are device memory. */
	bool gpu;
	/* NCCL's kernels put in place what is received. */
	bool offload;
};
extern struct options options;

/* Runs `body` on each of `n` ranks. Returns 0 when all ended well within `deadline` seconds. */
int group_run(int n, int deadline, body *body);

/* Runs a function on the service thread and waits for it. */
void service(struct rank *, void (*job)(void *), void *arg);
/* Starts it and goes on; service_wait before the next one. */
void service_start(struct rank *, void (*job)(void *), void *arg);
void service_wait(struct rank *);

/* All ranks meet here. Fails when that takes longer than 20 s. */
void barrier(struct rank *);

/* Connects the edges (all ranks pass the same list) on the service thread, polling as NCCL does. */
void edges_open(struct rank *, struct edge *, int n);
void edges_close(struct rank *, struct edge *, int n);

/* On the service thread. */
void *reg(struct rank *, void *comm, void *data, size_t size);
void dereg_mr(struct rank *, void *comm, void *mr);

#endif
