/* A stand-in for libcuda.so.1: one device, whose memory the processor cannot touch at its addresses: access
 * without the driver ends with SIGSEGV. Copies run when an event behind them is asked for the second time, as work of a
 * real device runs later. Defines change what the device can do. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef DMA_BUF
#define DMA_BUF 1
#endif
#ifndef DEVICES
#define DEVICES 1
#endif

typedef unsigned long long u64;
struct copy { u64 dst, src; size_t len; };
struct stream { struct copy copies[256]; unsigned head, tail; };
struct event { struct stream *on; unsigned at; int asked; };
/* Kinds: 1 pinned host memory, 2 device memory, which the driver itself sees at `alias`. */
struct range { u64 base; size_t len; int kind; char *alias; };

enum { RANGES = 4096 };
static int started;
static __thread int depth;
static struct range ranges[RANGES];
static unsigned used;
static char context;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Every call that looks at ranges or streams. */
static void unlocked(int *held) { if (*held) pthread_mutex_unlock(&lock); }
#define LOCKED() pthread_mutex_lock(&lock); __attribute__((cleanup(unlocked), unused)) int held = 1

static struct range *find(u64 a)
{
	for (unsigned i = 0; i < used; i++)
		if (ranges[i].len && a >= ranges[i].base && a < ranges[i].base + ranges[i].len)
			return &ranges[i];
	return 0;
}

static int add(u64 base, size_t len, int kind, char *alias)
{
	unsigned i = 0;
	while (i < used && ranges[i].len)
		i++;
	if (i == RANGES)
		return 2;
	used += i == used;
	ranges[i] = (struct range){base, len, kind, alias};
	return 0;
}

/* Where the driver sees an address. */
static char *seen(u64 a)
{
	struct range *r = find(a);
	return r && r->kind == 2 ? r->alias + (a - r->base) : (char *)a;
}

static void run(struct stream *s, unsigned to)
{
	for (; s->head != to; s->head++) {
		struct copy *c = &s->copies[s->head % 256];
		memmove(seen(c->dst), seen(c->src), c->len);
	}
}

/* Default streams have numbers for handles. */
static struct stream defaults[2];
static struct stream *stream_of(void *on) { return (u64)on < 3 ? &defaults[(u64)on == 2] : on; }

/* A graph is captured in the mode that is the default, GLOBAL: a call that a capture does not see ends it and fails, in every thread
 * whose mode is not RELAXED. As strict as can be: every call but look-ups. */
static int capturing, invalidated;
static __thread int mode;
#define SEEN() do { if (capturing && mode != 2) { invalidated = 1; return 900; } } while (0)
void fake_capture(int on) { capturing = on; }
int fake_invalidated(void) { return invalidated; }
int fake_mode(void) { return mode; }
int cuThreadExchangeStreamCaptureMode(int *m)
{
	int before = mode;
	if (*m < 0 || *m > 2)
		return 1;
	mode = *m;
	*m = before;
	return 0;
}

/* Calls that need a context say so when the caller has not made it current. */
#define CONTEXT() do { if (!depth) return 201; } while (0)
#define NEED() do { CONTEXT(); SEEN(); } while (0)

int cuInit(unsigned flags) { started = 1; return flags ? 1 : DEVICES ? 0 : 100; }
int cuDriverGetVersion(int *v) { *v = 12090; return started ? 0 : 3; }
int cuDeviceGetCount(int *n) { *n = DEVICES; return 0; }
int cuDeviceGet(int *d, int n) { *d = n; return n < DEVICES ? 0 : 101; }
int cuDeviceGetName(char *s, int n, int d) { (void)d; strncpy(s, "Fake H100", n); return 0; }
int cuDeviceTotalMem_v2(size_t *n, int d) { (void)d; *n = 80ull << 30; return 0; }
int cuDeviceGetPCIBusId(char *s, int n, int d) { (void)d; strncpy(s, "0000:FE:00.0", n); return 0; }

int cuDeviceGetAttribute(int *v, int which, int d)
{
	(void)d;
	switch (which) {
	case 75: *v = 9; return 0;
	case 76: *v = 0; return 0;
	case 116: *v = 1; return 0;
	case 124: *v = DMA_BUF; return 0;
	case 100: return 1; /* an attribute of a later driver */
	default: *v = 0; return 0;
	}
}

int cuDevicePrimaryCtxRetain(void **c, int d) { (void)d; SEEN(); *c = &context; return 0; }
int cuCtxPushCurrent_v2(void *c) { if (c != &context) return 201; depth++; return 0; }
int cuCtxPopCurrent_v2(void **c) { CONTEXT(); depth--; *c = &context; return 0; }
int cuCtxGetDevice(int *d) { CONTEXT(); *d = 0; return 0; }
int fake_depth(void) { return depth; }

int cuGetErrorString(int code, const char **s)
{
	*s = code == 2 ? "out of memory" : code == 1 ? "invalid argument" : 0;
	return *s ? 0 : 1;
}

int cuMemAlloc_v2(u64 *a, size_t n)
{
	LOCKED();
	NEED();
	n = (n + 65535) / 65536 * 65536;
	int fd = n > 1ull << 30 ? -1 : memfd_create("fake device memory", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, n))
		return 2;
	char *alias = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	/* Aligned as allocations of a device are. */
	char *wide = mmap(NULL, n + 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	close(fd);
	if (alias == MAP_FAILED || wide == MAP_FAILED)
		return 2;
	char *at = (char *)(((u64)wide + 65535) / 65536 * 65536);
	if (at != wide)
		munmap(wide, at - wide);
	munmap(at + n, wide + 65536 - at);
	memset(alias, 0xdb, n);
	*a = (u64)at;
	return add(*a, n, 2, alias);
}

int cuMemFree_v2(u64 a)
{
	LOCKED();
	NEED();
	struct range *r = find(a);
	if (!r || r->kind != 2 || r->base != a)
		return 1;
	munmap((void *)r->base, r->len);
	munmap(r->alias, r->len);
	r->len = 0;
	return 0;
}

int cuMemHostRegister_v2(void *p, size_t n, unsigned flags)
{
	LOCKED();
	NEED();
#ifdef LITTLE_LOCKED
	return 2;
#endif
	return flags != 3 ? 1 : find((u64)p) ? 712 : add((u64)p, n, 1, 0);
}

int cuMemHostUnregister(void *p)
{
	LOCKED();
	SEEN();
	struct range *r = find((u64)p);
	if (!r || r->base != (u64)p)
		return 713;
	r->len = 0;
	return 0;
}

int cuMemHostGetDevicePointer_v2(u64 *a, void *p, unsigned flags)
{
	LOCKED();
	NEED();
	struct range *r = find((u64)p);
	*a = (u64)p;
	return flags || !r || r->kind != 1;
}

int cuMemGetAddressRange_v2(u64 *base, size_t *n, u64 a)
{
	LOCKED();
	NEED();
	struct range *r = find(a);
	if (!r || r->kind != 2)
		return 1;
	*base = r->base;
	*n = r->len;
	return 0;
}

int cuPointerGetAttributes(unsigned n, int *which, void **out, u64 a)
{
	LOCKED();
	CONTEXT();
	struct range *r = find(a);
	for (unsigned i = 0; i < n; i++)
		switch (which[i]) {
		case 2: *(unsigned *)out[i] = r ? r->kind : 0; break;
		case 8: *(unsigned char *)out[i] = 0; break;
		case 9: *(int *)out[i] = r ? 0 : -2; break;
		default: return 1;
		}
	return 0;
}

int cuMemcpyAsync(u64 dst, u64 src, size_t n, void *on)
{
	struct stream *s = stream_of(on);
	LOCKED();
	NEED();
	/* A driver would take ordinary memory. It copies it among the commands of kernels, which may wait for these very bytes. */
	if (!find(dst) || !find(src))
		return 1;
	if (s->tail - s->head == 256)
		run(s, s->head + 1);
	s->copies[s->tail++ % 256] = (struct copy){dst, src, n};
	return 0;
}

struct side { size_t x, y; unsigned kind; void *host; u64 device; void *array; size_t pitch; };
struct rows { struct side src, dst; size_t width, height; };
int cuMemcpy2DAsync_v2(const struct rows *c, void *on)
{
	if (c->src.kind != 4 || c->dst.kind != 4 || c->src.pitch < c->width || c->dst.pitch < c->width)
		return 1;
	for (size_t row = 0; row < c->height; row++)
		if (cuMemcpyAsync(c->dst.device + row * c->dst.pitch, c->src.device + row * c->src.pitch, c->width, on))
			return 1;
	return 0;
}

static unsigned streams;
int fake_streams(void) { return streams; }
int cuStreamCreate(void **s, unsigned flags)
{
	NEED();
	streams++;
	*s = calloc(1, sizeof(struct stream));
	return flags == 1 && *s ? 0 : 1;
}

int cuStreamSynchronize(void *on)
{
	struct stream *s = stream_of(on);
	LOCKED();
	SEEN();
	if ((u64)on < 3)
		NEED();
	run(s, s->tail);
	return 0;
}

/* What programs use that wait for their copies. */
int cuMemcpyHtoD_v2(u64 dst, const void *src, size_t n) { LOCKED(); NEED(); memmove(seen(dst), src, n); return 0; }
int cuMemcpyDtoH_v2(void *dst, u64 src, size_t n) { LOCKED(); NEED(); memmove(dst, seen(src), n); return 0; }

int cuStreamWaitEvent(void *on, void *e, unsigned flags)
{
	struct event *ev = e;
	LOCKED();
	NEED();
	if (stream_of(on) != ev->on && ev->on)
		run(ev->on, ev->at);
	return flags ? 1 : 0;
}

int cuEventCreate(void **e, unsigned flags)
{
	NEED();
	*e = calloc(1, sizeof(struct event));
	return flags == 2 && *e ? 0 : 1;
}

int cuEventRecord(void *e, void *on)
{
	struct stream *s = stream_of(on);
	LOCKED();
	NEED();
	*(struct event *)e = (struct event){s, s->tail, 0};
	return 0;
}

int cuEventQuery(void *e)
{
	struct event *ev = e;
	LOCKED();
	SEEN();
	if (!ev->on || (int)(ev->at - ev->on->head) <= 0)
		return 0;
	if (ev->asked++ == 0)
		return 600;
	run(ev->on, ev->at);
	return 0;
}

int cuFlushGPUDirectRDMAWrites(int target, int scope) { NEED(); return target == 0 && scope == 100 ? 0 : 1; }

#ifndef OLD_DRIVER
int cuMemGetHandleForAddressRange(void *out, u64 a, size_t n, int type, u64 flags)
{
	int fd;
	LOCKED();
	NEED();
	struct range *r = find(a);
	if (type != 1 || flags || !r || a % 4096 || n % 4096 || a + n > r->base + r->len)
		return 1;
	fd = memfd_create("fake", 0);
	if (fd < 0 || write(fd, seen(a), n) != (ssize_t)n)
		return 304;
	*(int *)out = fd;
	return 0;
}
#endif

/* The kernel itself, compiled for the host and run thread by thread, at once: what is queued before it runs first. */
static unsigned thread_x, block_x, block_y, threads, blocks_x, blocks_y;
#define LINKSPAN_HOST
#define THREAD_X thread_x
#define BLOCK_X block_x
#define BLOCK_Y block_y
#define THREADS threads
#define BLOCKS_X blocks_x
#define BLOCKS_Y blocks_y
#include "../../../crates/gpu/src/unpack/kernel.c"

int cuModuleLoadData(void **m, const void *image)
{
	NEED();
	*m = (void *)image;
	return strstr(image, ".target sm_75") ? 0 : 218;
}

int cuModuleGetFunction(void **f, void *m, const char *name)
{
	*f = (void *)linkspan_unpack;
	return m && !strcmp(name, "linkspan_unpack") ? 0 : 500;
}

int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
             unsigned shared, void *on, void **args, void **extra)
{
	struct stream *s = stream_of(on);
	if (f != (void *)linkspan_unpack || gz != 1 || by != 1 || bz != 1 || shared || extra || bx % 32)
		return 1;
	LOCKED();
	run(s, s->tail);
	char *pool = seen(*(u64 *)args[0]), *out = seen(*(u64 *)args[1]), *pieces = seen(*(u64 *)args[2]);
	threads = bx, blocks_x = gx, blocks_y = gy;
	for (block_y = 0; block_y < gy; block_y++)
		for (block_x = 0; block_x < gx; block_x++)
			for (thread_x = 0; thread_x < bx; thread_x++)
				linkspan_unpack((void *)pool, (void *)out, (void *)pieces, *(unsigned *)args[3]);
	return 0;
}
