#define _GNU_SOURCE
#include "gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "group.h"
#include "util.h"

typedef unsigned long long device;

static struct {
	int (*init)(unsigned);
	int (*retain)(void **, int);
	int (*push)(void *);
	int (*alloc)(device *, size_t);
	int (*free)(device);
	int (*up)(device, const void *, size_t);
	int (*down)(void *, device, size_t);
	int (*finish)(void *);
	int (*export)(void *, device, size_t, int, device);
} cu;
static void *context;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static __thread bool current;

enum { SHADOWS = 512, POSTED = 8192 };
struct shadow {
	void *host, *mr;
	device at;
	size_t size;
};
struct part {
	void *host;
	device at;
	size_t size;
};
struct posted {
	void *request, *comm, *mr;
	int n;
	struct part part[8];
};
static struct shadow shadows[SHADOWS];
static struct posted posted[POSTED];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool gpu_on(void)
{
	return options.gpu;
}

static void *symbol(void *dl, const char *name)
{
	void *at = dlsym(dl, name);
	CHECK(at != NULL, "libcuda.so.1 has no %s", name);
	return at;
}

static void open_driver(void)
{
	void *dl = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	CHECK(dl != NULL, "no CUDA driver: %s", dlerror());
	cu.init = symbol(dl, "cuInit"), cu.retain = symbol(dl, "cuDevicePrimaryCtxRetain");
	cu.push = symbol(dl, "cuCtxPushCurrent_v2"), cu.alloc = symbol(dl, "cuMemAlloc_v2");
	cu.free = symbol(dl, "cuMemFree_v2"), cu.up = symbol(dl, "cuMemcpyHtoD_v2");
	cu.down = symbol(dl, "cuMemcpyDtoH_v2"), cu.finish = symbol(dl, "cuStreamSynchronize"), cu.export = symbol(dl, "cuMemGetHandleForAddressRange");
	CHECK(cu.init(0) == 0 && cu.retain(&context, 0) == 0, "the CUDA driver does not start");
}

/* The copy of little memory that nobody pinned is not over when its call returns, and the plugin's streams do not wait for it. */
static int up(device to, const void *from, size_t len)
{
	int code = cu.up(to, from, len);
	return code ? code : cu.finish(NULL);
}

void gpu_thread(void)
{
	if (current || !gpu_on())
		return;
	pthread_once(&once, open_driver);
	CHECK(cu.push(context) == 0, "no CUDA context in this thread");
	current = true;
}

void *gpu_new(void *host, size_t size)
{
	device at;
	gpu_thread();
	CHECK(cu.alloc(&at, size + 1) == 0, "no device memory for %zu bytes", size);
	pthread_mutex_lock(&lock);
	int i = 0;
	while (i < SHADOWS && shadows[i].size)
		i++;
	CHECK(i < SHADOWS, "too many registrations");
	shadows[i] = (struct shadow){host, NULL, at, size + 1};
	pthread_mutex_unlock(&lock);
	return (void *)at;
}

void gpu_name(void *at, void *mr)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < SHADOWS; i++)
		if (shadows[i].size && shadows[i].at == (device)at)
			shadows[i].mr = mr;
	pthread_mutex_unlock(&lock);
}

void gpu_free(void *mr)
{
	gpu_thread();
	pthread_mutex_lock(&lock);
	for (int i = 0; i < SHADOWS; i++)
		if (shadows[i].size && shadows[i].mr == mr) {
			CHECK(cu.free(shadows[i].at) == 0, "device memory cannot be freed");
			shadows[i].size = 0;
		}
	pthread_mutex_unlock(&lock);
}

int gpu_export(void *at, size_t size, uint64_t *offset)
{
	int fd = -1;
	device from = (device)at / 4096 * 4096, to = ((device)at + size + 4095) / 4096 * 4096;
	gpu_thread();
	int code = cu.export(&fd, from, to - from, 1, 0);
	if (code != 0 && getenv("PLUGIN_HOST_REAL") != NULL) {
		static _Atomic int told;
		if (told++ == 0)
			note("cannot be tested here: dma-buf of this device (driver's code %d)", code);
		return -1;
	}
	CHECK(code == 0 && fd >= 0, "device memory cannot be exported");
	*offset = (device)at - from;
	return fd;
}

static struct shadow find(void *mr, void *host, size_t len)
{
	struct shadow found = {0};
	pthread_mutex_lock(&lock);
	for (int i = 0; i < SHADOWS; i++)
		if (shadows[i].size && shadows[i].mr == mr)
			found = shadows[i];
	pthread_mutex_unlock(&lock);
	CHECK(found.size && (char *)host >= (char *)found.host && (char *)host + len <= (char *)found.host + found.size - 1,
	      "the test uses %zu bytes outside of their registration", len);
	return found;
}

void *gpu_at(void *mr, void *host, size_t len)
{
	gpu_thread();
	struct shadow s = find(mr, host, len);
	device at = s.at + (device)((char *)host - (char *)s.host);
	CHECK(len == 0 || up(at, host, len) == 0, "a copy to the device failed");
	return (void *)at;
}

void gpu_read(void *out, uint64_t from, size_t len)
{
	gpu_thread();
	CHECK(len == 0 || cu.down(out, from, len) == 0, "a copy from the device failed");
}

void gpu_write(uint64_t to, const void *bytes, size_t len)
{
	gpu_thread();
	CHECK(len == 0 || up(to, bytes, len) == 0, "a copy to the device failed");
}

void gpu_posted(void *request, void *comm, int n, void **host, void **at, const size_t *sizes, void **mrs)
{
	pthread_mutex_lock(&lock);
	int i = 0;
	while (i < POSTED && posted[i].request)
		i++;
	CHECK(i < POSTED && n <= 8, "too many receives");
	posted[i] = (struct posted){.request = request, .comm = comm, .mr = mrs[0], .n = n};
	for (int p = 0; p < n; p++)
		posted[i].part[p] = (struct part){host[p], (device)at[p], sizes[p]};
	pthread_mutex_unlock(&lock);
}

/* The entry of a request; the lock is held. */
static struct posted *entry(void *request)
{
	for (int i = 0; i < POSTED; i++)
		if (posted[i].request == request)
			return &posted[i];
	return NULL;
}

bool gpu_done(void *request, struct gpu_part *first)
{
	pthread_mutex_lock(&lock);
	struct posted *p = entry(request);
	if (p != NULL)
		*first = (struct gpu_part){p->comm, (void *)p->part[0].at, p->mr, p->part[0].size};
	pthread_mutex_unlock(&lock);
	return p != NULL;
}

void gpu_down(void *request)
{
	gpu_thread();
	pthread_mutex_lock(&lock);
	struct posted *p = entry(request);
	for (int i = 0; p != NULL && i < p->n; i++)
		CHECK(p->part[i].size == 0 || cu.down(p->part[i].host, p->part[i].at, p->part[i].size) == 0,
		      "a copy from the device failed");
	if (p != NULL)
		p->request = NULL;
	pthread_mutex_unlock(&lock);
}
