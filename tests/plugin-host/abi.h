/* The NCCL/RCCL net plugin interface, versions 6 to 12, as this host believes it to be: written from the facts alone,
 * on purpose without a line of linkspan's own tables, so that a mistake in one of the two shows. */
#ifndef PLUGIN_HOST_ABI_H
#define PLUGIN_HOST_ABI_H

#include <stddef.h>
#include <stdint.h>

enum { OK = 0, E_CUDA = 1, E_SYSTEM = 2, E_INTERNAL = 3, E_ARGUMENT = 4, E_USAGE = 5, E_REMOTE = 6 };
enum { HANDLE = 128, MAX_REQUESTS = 32, PTR_HOST = 1, PTR_CUDA = 2, PTR_DMABUF = 4 };
enum { OPTIONAL_RECV_COMPLETION = 1 };
enum { LOG_WARN = 2, LOG_INFO = 3 };

typedef void (*log_fn)(int level, unsigned long flags, const char *file, int line, const char *fmt, ...);
typedef int (*prof_fn)(void **event, int kind, void *phandle, int64_t plugin, void *data);

struct config {
	int traffic_class;
};
struct dev_handle {
	int type, version;
	void *handle;
	size_t size;
	int needs_progress;
};
struct vdev4 {
	int n, devs[4];
};
struct vdev8 {
	int n, devs[8];
};
struct net_attr {
	int32_t send[4], recv[4];
	uint32_t op, algo, proto;
};

#define PROPS_HEAD     \
	char *name;    \
	char *pci;     \
	uint64_t guid; \
	int ptr;
#define PROPS_SPEED \
	int speed, port; \
	float latency;   \
	int max_comms, max_recvs;

struct props_v6 {
	PROPS_HEAD PROPS_SPEED
};
struct props_v7 {
	PROPS_HEAD PROPS_SPEED int dev_type, dev_version;
};
struct props_v8 {
	PROPS_HEAD int reg_global;
	PROPS_SPEED int dev_type, dev_version;
};
#define PROPS_V9                 \
	PROPS_HEAD int reg_global; \
	int force_flush;         \
	PROPS_SPEED int dev_type, dev_version;
struct props_v9 {
	PROPS_V9 struct vdev4 v;
	size_t max_p2p, max_coll;
};
struct props_v11 {
	PROPS_V9 struct vdev4 v;
	size_t max_p2p, max_coll;
	int max_multi;
};
struct props_v12 {
	PROPS_V9 struct vdev8 v;
	size_t max_p2p, max_coll;
	int max_multi;
	int16_t rail, plane;
};

typedef int init_v6(log_fn);
typedef int init_v10(log_fn, prof_fn);
typedef int init_v11(void **ctx, uint64_t id, struct config *, log_fn, prof_fn);
typedef int listen_v6(int dev, void *handle, void **comm);
typedef int listen_v11(void *ctx, int dev, void *handle, void **comm);
typedef int connect_v6(int dev, void *handle, void **comm);
typedef int connect_v7(int dev, void *handle, void **comm, struct dev_handle **);
typedef int connect_v10(int dev, struct config *, void *handle, void **comm, struct dev_handle **);
typedef int connect_v11(void *ctx, int dev, void *handle, void **comm, struct dev_handle **);
typedef int accept_v6(void *listen, void **comm);
typedef int accept_v7(void *listen, void **comm, struct dev_handle **);
typedef int reg_v6(void *comm, void *data, int size, int type, void **mr);
typedef int reg_v8(void *comm, void *data, size_t size, int type, void **mr);
typedef int reg_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mr);
typedef int dereg(void *comm, void *mr);
typedef int isend_v6(void *comm, void *data, int size, int tag, void *mr, void **request);
typedef int isend_v9(void *comm, void *data, size_t size, int tag, void *mr, void **request);
typedef int isend_v10(void *comm, void *data, size_t size, int tag, void *mr, void *ph, void **request);
typedef int irecv_v6(void *comm, int n, void **data, int *sizes, int *tags, void **mrs, void **request);
typedef int irecv_v9(void *comm, int n, void **data, size_t *sizes, int *tags, void **mrs, void **request);
typedef int irecv_v10(void *comm, int n, void **data, size_t *sizes, int *tags, void **mrs, void **phs, void **request);
typedef int iflush(void *comm, int n, void **data, int *sizes, void **mrs, void **request);
typedef int test_fn(void *request, int *done, int *sizes);
typedef int close_fn(void *comm);
typedef int get_device_mr(void *comm, void *mr, void **device_mr);
typedef int consumed(void *comm, int n, void *request);
typedef int merge4(int *dev, struct vdev4 *);
typedef int merge8(int *dev, struct vdev8 *);
typedef int set_attr(void *ctx, struct net_attr *);

#define TABLE_HEAD(init_t, props_t, listen_t, connect_t, accept_t, reg_t, isend_t, irecv_t)                          \
	const char *name;                                                                                            \
	init_t *init;                                                                                                \
	int (*devices)(int *);                                                                                       \
	int (*props)(int, struct props_t *);                                                                         \
	listen_t *listen;                                                                                            \
	connect_t *connect;                                                                                          \
	accept_t *accept;                                                                                            \
	reg_t *reg;                                                                                                  \
	reg_dmabuf *dmabuf;                                                                                          \
	dereg *dereg;                                                                                                \
	isend_t *isend;                                                                                              \
	irecv_t *irecv;                                                                                              \
	iflush *flush;                                                                                               \
	test_fn *test;                                                                                               \
	close_fn *close_send, *close_recv, *close_listen;

struct net_v6 {
	TABLE_HEAD(init_v6, props_v6, listen_v6, connect_v6, accept_v6, reg_v6, isend_v6, irecv_v6)
};
struct net_v7 {
	TABLE_HEAD(init_v6, props_v7, listen_v6, connect_v7, accept_v7, reg_v6, isend_v6, irecv_v6)
	get_device_mr *device_mr;
	consumed *consumed;
};
struct net_v8 {
	TABLE_HEAD(init_v6, props_v8, listen_v6, connect_v7, accept_v7, reg_v8, isend_v6, irecv_v6)
	get_device_mr *device_mr;
	consumed *consumed;
};
struct net_v9 {
	TABLE_HEAD(init_v6, props_v9, listen_v6, connect_v7, accept_v7, reg_v8, isend_v9, irecv_v9)
	get_device_mr *device_mr;
	consumed *consumed;
	merge4 *merge;
};
struct net_v10 {
	TABLE_HEAD(init_v10, props_v9, listen_v6, connect_v10, accept_v7, reg_v8, isend_v10, irecv_v10)
	get_device_mr *device_mr;
	consumed *consumed;
	merge4 *merge;
};
struct net_v11 {
	TABLE_HEAD(init_v11, props_v11, listen_v11, connect_v11, accept_v7, reg_v8, isend_v10, irecv_v10)
	get_device_mr *device_mr;
	consumed *consumed;
	merge4 *merge;
	close_fn *finalize;
	set_attr *set_attr;
};
struct net_v12 {
	TABLE_HEAD(init_v11, props_v12, listen_v11, connect_v11, accept_v7, reg_v8, isend_v10, irecv_v10)
	get_device_mr *device_mr;
	consumed *consumed;
	merge8 *merge;
	close_fn *finalize;
	set_attr *set_attr;
};

_Static_assert(sizeof(struct props_v6) == 48, "v6");
_Static_assert(sizeof(struct props_v7) == 56, "v7");
_Static_assert(sizeof(struct props_v8) == 64, "v8");
_Static_assert(sizeof(struct props_v9) == 104, "v9");
_Static_assert(sizeof(struct props_v11) == 112, "v11");
_Static_assert(sizeof(struct props_v12) == 128, "v12");
_Static_assert(sizeof(struct net_v6) == 136 && sizeof(struct net_v7) == 152 && sizeof(struct net_v8) == 152, "tables");
_Static_assert(sizeof(struct net_v9) == 160 && sizeof(struct net_v10) == 160, "tables");
_Static_assert(sizeof(struct net_v11) == 176 && sizeof(struct net_v12) == 176, "tables");
_Static_assert(sizeof(struct dev_handle) == 32 && sizeof(struct net_attr) == 44, "small ones");

/* Tuner, v3 to v6: only what it takes to ask whether LL128 is forbidden. */
struct tuner_v3 {
	const char *name;
	int (*init)(size_t ranks, size_t nodes, log_fn, void **ctx);
	int (*cost)(void *ctx, int coll, size_t bytes, int ops, float **costs, int algos, int protos, int *channels);
	int (*end)(void *ctx);
};
struct tuner_v4 {
	const char *name;
	int (*init)(size_t ranks, size_t nodes, log_fn, void **ctx);
	int (*cost)(void *ctx, int coll, size_t bytes, int ops, float **costs, int algos, int protos, int reg,
		    int *channels);
	int (*end)(void *ctx);
};
struct tuner_v5 { /* and v6, which has one more function at its end */
	const char *name;
	int (*init)(void **ctx, uint64_t id, size_t ranks, size_t nodes, log_fn, void *nvl, void *constants);
	int (*cost)(void *ctx, int coll, size_t bytes, int ops, float **costs, int algos, int protos, int reg,
		    int *channels);
	int (*end)(void *ctx);
};

#endif
