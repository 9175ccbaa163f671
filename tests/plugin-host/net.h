/* A plugin behind one face, whatever its version; every call does what NCCL would do around it. */
#ifndef PLUGIN_HOST_NET_H
#define PLUGIN_HOST_NET_H

#include "abi.h"

#include <stdbool.h>

struct net {
	int version;
	void *dl;
	const void *table;
	const char *name;
	void *ctx;
};

struct props {
	char name[128];
	const char *name_at;
	char pci[256];
	uint64_t guid;
	int ptr, speed, port, max_comms, max_recvs, dev_type;
	float latency;
	int ndevs, devs[8];
	size_t max_p2p, max_coll;
};

/* Prints plugin messages of level INFO too. */
extern bool net_verbose;
/* Messages at level WARN so far. */
extern _Atomic int net_warnings;
/* Texts of the log lines at INFO level; see net_saw. */
bool net_saw(const char *part);

/* dlopen and look-up of the table of this version. Fails this process where either is missing. */
void net_load(struct net *, const char *path, int version);
void net_unload(struct net *);

int net_init(struct net *);
/* Does nothing below v11, as there is no such call. */
int net_finalize(struct net *);
int net_devices(const struct net *, int *n);
int net_props(const struct net *, int dev, struct props *);
int net_listen(const struct net *, int dev, void *handle, void **comm);
int net_connect(const struct net *, int dev, void *handle, void **comm);
int net_accept(const struct net *, void *listen, void **comm);
int net_reg(const struct net *, void *comm, void *data, size_t size, void **mr);
int net_dereg(const struct net *, void *comm, void *mr);
int net_isend(const struct net *, void *comm, void *data, size_t size, int tag, void *mr, void **request);
/* `optional`: the receiver watches the memory itself (told to the plugin since v9). */
int net_irecv(const struct net *, void *comm, int n, void **data, const size_t *sizes, const int *tags, void **mrs,
	      bool optional, void **request);
int net_flush(const struct net *, void *comm, void *data, int size, void *mr, void **request);
int net_test(const struct net *, void *request, int *done, int *sizes);
int net_close_send(const struct net *, void *comm);
int net_close_recv(const struct net *, void *comm);
int net_close_listen(const struct net *, void *comm);

#endif
