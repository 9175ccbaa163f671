#define _GNU_SOURCE
#include "net.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>

#include "group.h"
#include "gpu.h"
#include "plant.h"
#include "unpack.h"
#include "util.h"

bool net_verbose;
_Atomic int net_warnings;
static char saw[64 << 10];
static _Atomic unsigned saw_len;

#define V(n) (((const struct net_v##n *)net->table))
/* What stands in an out variable before the plugin writes it: nothing that it may believe. */
#define GARBAGE ((void *)0xdeadbeef12345678ull)

static void logger(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	char text[900];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (flags == 0 || file == NULL || line < 0)
		fail("the plugin logs without subsystem, file or line: %s", text);
	if (level == LOG_WARN)
		net_warnings++;
	unsigned n = (unsigned)strlen(text) + 1, at = atomic_fetch_add(&saw_len, n);
	if (at + n < sizeof saw)
		memcpy(saw + at, text, n);
	if (net_verbose || level == LOG_WARN)
		note("plugin %s: %s", level == LOG_WARN ? "WARN" : "info", text);
}

bool net_saw(const char *part)
{
	unsigned len = saw_len < sizeof saw ? saw_len : sizeof saw;
	return memmem(saw, len, part, strlen(part)) != NULL;
}

void net_load(struct net *net, const char *path, int version)
{
	char symbol[32];
	net->version = version;
	net->ctx = NULL;
	net->dl = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	CHECK(net->dl != NULL, "dlopen: %s", dlerror());
	snprintf(symbol, sizeof symbol, "ncclNetPlugin_v%d", version);
	net->table = dlsym(net->dl, symbol);
	CHECK(net->table != NULL, "%s has no symbol %s", path, symbol);
	net->name = V(6)->name;
	CHECK(net->name != NULL && net->name[0] != '\0', "%s: the plugin has no name", symbol);
	/* Everything that NCCL calls without asking whether it is there. */
	const void *const *entry = net->table;
	for (int i = 1; i <= 16; i++)
		CHECK(entry[i] != NULL || i == 8, "%s: entry %d of the table is null", symbol, i);
}

void net_unload(struct net *net)
{
	plant_unload();
	CHECK(dlclose(net->dl) == 0, "dlclose: %s", dlerror());
	net->dl = NULL;
}

int net_init(struct net *net)
{
	struct config config = {.traffic_class = -1};
	switch (net->version) {
	case 6: return V(6)->init(logger);
	case 7: return V(7)->init(logger);
	case 8: return V(8)->init(logger);
	case 9: return V(9)->init(logger);
	case 10: return V(10)->init(logger, NULL);
	case 11: return V(11)->init(&net->ctx, 0x1234567890abcdefull, &config, logger, NULL);
	default: return V(12)->init(&net->ctx, 0x1234567890abcdefull, &config, logger, NULL);
	}
}

int net_finalize(struct net *net)
{
	void *ctx = net->ctx;
	net->ctx = NULL;
	if (net->version < 11)
		return OK;
	return net->version == 11 ? V(11)->finalize(ctx) : V(12)->finalize(ctx);
}

int net_devices(const struct net *net, int *n)
{
	*n = -1;
	return V(6)->devices(n);
}

#define COMMON_PROPS                                                                  \
	do {                                                                          \
		snprintf(out->name, sizeof out->name, "%s", p.name ? p.name : "");    \
		out->name_at = p.name;                                                \
		snprintf(out->pci, sizeof out->pci, "%s", p.pci ? p.pci : "");        \
		out->guid = p.guid, out->ptr = p.ptr, out->speed = p.speed;           \
		out->port = p.port, out->latency = p.latency;                         \
		out->max_comms = p.max_comms, out->max_recvs = p.max_recvs;           \
	} while (0)
#define VDEV_PROPS                                                                        \
	do {                                                                              \
		out->dev_type = p.dev_type, out->ndevs = p.v.n;                           \
		for (int i = 0; i < p.v.n && i < (int)(sizeof p.v.devs / sizeof(int)); i++) \
			out->devs[i] = p.v.devs[i];                                       \
		out->max_p2p = p.max_p2p, out->max_coll = p.max_coll;                     \
	} while (0)

int net_props(const struct net *net, int dev, struct props *out)
{
	int rc;
	memset(out, 0, sizeof *out);
	/* What NCCL puts in for versions that do not say. */
	out->ndevs = 1, out->devs[0] = dev, out->max_p2p = 1ull << 30, out->max_coll = 512ull << 20;
	switch (net->version) {
	case 6: {
		struct props_v6 p;
		memset(&p, 0xa5, sizeof p);
		if ((rc = V(6)->props(dev, &p)) == OK)
			COMMON_PROPS;
		return rc;
	}
	case 7: {
		struct props_v7 p;
		memset(&p, 0xa5, sizeof p);
		if ((rc = V(7)->props(dev, &p)) == OK) {
			COMMON_PROPS;
			out->dev_type = p.dev_type;
		}
		return rc;
	}
	case 8: {
		struct props_v8 p;
		memset(&p, 0xa5, sizeof p);
		if ((rc = V(8)->props(dev, &p)) == OK) {
			COMMON_PROPS;
			out->dev_type = p.dev_type;
		}
		return rc;
	}
	case 9:
	case 10: {
		struct props_v9 p;
		memset(&p, 0xa5, sizeof p);
		if ((rc = V(9)->props(dev, &p)) == OK) {
			COMMON_PROPS;
			VDEV_PROPS;
		}
		return rc;
	}
	case 11: {
		struct props_v11 p;
		memset(&p, 0xa5, sizeof p);
		if ((rc = V(11)->props(dev, &p)) == OK) {
			COMMON_PROPS;
			VDEV_PROPS;
		}
		return rc;
	}
	default: {
		struct props_v12 p;
		memset(&p, 0xa5, sizeof p);
		if ((rc = V(12)->props(dev, &p)) == OK) {
			COMMON_PROPS;
			VDEV_PROPS;
			CHECK(p.rail >= -1 && p.plane >= -1, "rail %d or plane %d is not set", p.rail, p.plane);
		}
		return rc;
	}
	}
}

/* A call said success: it must have written its out variable, at least with NULL. */
static int written(int rc, const char *call, void *value)
{
	CHECK(rc != OK || value != GARBAGE, "%s succeeded without writing its result", call);
	return rc;
}

int net_listen(const struct net *net, int dev, void *handle, void **comm)
{
	*comm = GARBAGE;
	int rc = net->version <= 10 ? V(6)->listen(dev, handle, comm) : V(11)->listen(net->ctx, dev, handle, comm);
	CHECK(rc != OK || *comm != NULL, "listen succeeded without a comm");
	return written(rc, "listen", *comm);
}

int net_connect(const struct net *net, int dev, void *handle, void **comm)
{
	struct config config = {.traffic_class = -1};
	struct dev_handle *device = NULL;
	int rc;
	*comm = GARBAGE;
	switch (net->version) {
	case 6: rc = V(6)->connect(dev, handle, comm); break;
	case 7:
	case 8: rc = V(7)->connect(dev, handle, comm, &device); break;
	/* The pointer itself may be null. */
	case 9: rc = V(9)->connect(dev, handle, comm, NULL); break;
	case 10: rc = V(10)->connect(dev, &config, handle, comm, &device); break;
	case 11: rc = V(11)->connect(net->ctx, dev, handle, comm, NULL); break;
	default: rc = V(12)->connect(net->ctx, dev, handle, comm, &device); break;
	}
	CHECK(device == NULL, "connect returned a device handle for host memory");
	return written(rc, "connect", *comm);
}

/* As NCCL does where the device said that kernels unpack: the structure is NCCL's, and says what it wants. */
static int accept_offload(const struct net *net, void *listen, void **comm)
{
	struct dev_handle handle = {.type = 1, .version = 7}, *device = &handle;
	struct props props;
	CHECK(net_props(net, 0, &props) == OK && props.dev_type == 1, "the device does not say that kernels unpack");
	CHECK(props.max_recvs == 1, "kernels unpack one buffer at a time, and maxRecvs is %d", props.max_recvs);
	gpu_thread();
	*comm = GARBAGE;
	int rc = V(7)->accept(listen, comm, &device);
	CHECK(device == &handle, "accept replaced NCCL's device handle");
	if (rc == OK && *comm != NULL && *comm != GARBAGE)
		unpack_accepted(net, *comm, device);
	return rc;
}

int net_accept(const struct net *net, void *listen, void **comm)
{
	struct dev_handle *device = NULL;
	if (options.offload && net->version >= 7)
		return written(accept_offload(net, listen, comm), "accept", *comm);
	*comm = GARBAGE;
	int rc = net->version == 6 ? V(6)->accept(listen, comm)
				   : V(7)->accept(listen, comm, net->version % 2 ? NULL : &device);
	return written(rc, "accept", *comm);
}

int net_reg(const struct net *net, void *comm, void *data, size_t size, void **mr)
{
	int type = gpu_on() ? PTR_CUDA : PTR_HOST, rc;
	void *at = gpu_on() ? gpu_new(data, size) : data;
	static _Atomic unsigned turn;
	*mr = GARBAGE;
	uint64_t offset;
	/* Every other one as a dma-buf, which NCCL closes after the call. */
	int fd = gpu_on() && size > 0 && V(6)->dmabuf != NULL && turn++ % 2 ? gpu_export(at, size, &offset) : -1;
	if (fd >= 0) {
		rc = V(6)->dmabuf(comm, at, size, type, offset, fd, mr);
		CHECK(fcntl(fd, F_GETFD) >= 0, "regMrDmaBuf closed the descriptor, which is NCCL's");
		close(fd);
	} else {
		rc = net->version <= 7 ? V(6)->reg(comm, at, (int)size, type, mr) : V(8)->reg(comm, at, size, type, mr);
	}
	if (gpu_on() && rc == OK)
		gpu_name(at, *mr);
	return written(rc, "regMr", *mr);
}

int net_dereg(const struct net *net, void *comm, void *mr)
{
	int rc = V(6)->dereg(comm, mr);
	if (gpu_on() && rc == OK)
		gpu_free(mr);
	return rc;
}

int net_isend(const struct net *net, void *comm, void *data, size_t size, int tag, void *mr, void **request)
{
	int rc;
	if (gpu_on())
		data = gpu_at(mr, data, size);
	*request = GARBAGE;
	if (net->version <= 8)
		rc = V(6)->isend(comm, data, (int)size, tag, mr, request);
	else if (net->version == 9)
		rc = V(9)->isend(comm, data, size, tag, mr, request);
	else
		rc = V(10)->isend(comm, data, size, tag, mr, NULL, request);
	if (rc != OK && (rc = plant_failed(rc, NULL)) == OK)
		*request = NULL;
	return written(rc, "isend", *request);
}

int net_irecv(const struct net *net, void *comm, int n, void **data, const size_t *sizes, const int *tags, void **mrs,
	      bool optional, void **request)
{
	void *d[64], *m[64], *at[64];
	int t[64], rc;
	size_t s[64];
	CHECK(n <= 64, "irecv of %d parts", n);
	/* Copies: the plugin may not keep the arrays. */
	memcpy(d, data, (size_t)n * sizeof *d);
	memcpy(s, sizes, (size_t)n * sizeof *s);
	memcpy(t, tags, (size_t)n * sizeof *t);
	memcpy(m, mrs, (size_t)n * sizeof *m);
	plant_irecv(n, d, s, t);
	for (int i = 0; gpu_on() && i < n; i++)
		d[i] = at[i] = gpu_at(m[i], d[i], s[i]);
	*request = optional && net->version >= 9 ? (void *)(uintptr_t)OPTIONAL_RECV_COMPLETION : GARBAGE;
	if (net->version <= 8) {
		int i32[64];
		for (int i = 0; i < n; i++)
			i32[i] = (int)s[i];
		rc = V(6)->irecv(comm, n, d, i32, t, m, request);
	} else if (net->version == 9) {
		rc = V(9)->irecv(comm, n, d, s, t, m, request);
	} else {
		void *ph[64];
		memset(ph, 0, (size_t)n * sizeof *ph);
		rc = V(10)->irecv(comm, n, d, s, t, m, ph, request);
	}
	CHECK(rc != OK || *request != (void *)(uintptr_t)OPTIONAL_RECV_COMPLETION, "irecv left the flag in *request");
	if (rc != OK && (rc = plant_failed(rc, NULL)) == OK)
		*request = NULL;
	memset(d, 0xa5, (size_t)n * sizeof *d);
	memset(s, 0xa5, (size_t)n * sizeof *s);
	if (rc == OK && *request != NULL) {
		plant_posted(comm, *request, n, data, sizes);
		if (options.offload)
			unpack_posted(comm, *request, optional);
		if (gpu_on())
			gpu_posted(*request, comm, n, data, at, sizes, mrs);
	}
	return written(rc, "irecv", *request);
}

int net_flush(const struct net *net, void *comm, void *data, int size, void *mr, void **request)
{
	*request = GARBAGE;
	int rc = V(6)->flush(comm, 1, &data, &size, &mr, request);
	return written(rc, "iflush", *request);
}

int net_test(const struct net *net, void *request, int *done, int *sizes)
{
	*done = -1;
	if (!plant_hold(request, done, sizes))
		return OK;
	int rc = V(6)->test(request, done, sizes);
	if (rc != OK)
		return plant_failed(rc, done);
	CHECK(*done == 0 || *done == 1, "test succeeded with done = %d", *done);
	struct gpu_part part;
	if (*done == 1 && gpu_on() && gpu_done(request, &part)) {
		/* As NCCL does before the GPU looks. */
		void *flush;
		rc = net_flush(net, part.comm, part.device, (int)part.size, part.mr, &flush);
		CHECK(rc == OK, "iflush returned %d", rc);
		for (int flushed = flush == NULL; !flushed;) {
			rc = V(6)->test(flush, &flushed, NULL);
			CHECK(rc == OK, "test of a flush returned %d", rc);
		}
		if (options.offload)
			unpack_done(part.comm, request, part.device, part.size);
		gpu_down(request);
	}
	if (*done == 1)
		plant_done(request, done, sizes);
	return OK;
}

int net_close_send(const struct net *net, void *comm)
{
	return V(6)->close_send(comm);
}

int net_close_recv(const struct net *net, void *comm)
{
	if (options.offload)
		unpack_closed(comm);
	return V(6)->close_recv(comm);
}

int net_close_listen(const struct net *net, void *comm)
{
	return V(6)->close_listen(comm);
}
