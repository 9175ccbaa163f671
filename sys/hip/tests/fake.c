/* A stand-in for libamdhip64 of any version (VERSION): two devices whose memory is the process's own. Copies run when an
 * event behind them is asked for the second time, as work of a real device runs later. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef VERSION
#define VERSION 60241133
#endif
#ifndef DEVICES
#define DEVICES 2
#endif
#define SINCE_6 (VERSION >= 60000000)

typedef unsigned long long u64;
struct copy { u64 dst, src; size_t len; };
struct stream { struct copy copies[256]; unsigned head, tail; };
struct event { struct stream *on; unsigned at; int asked; };
struct range { u64 base; size_t len; int pinned, device; };
struct attribute { int kind, device; void *device_pointer, *host_pointer; int managed; unsigned flags; };

static _Thread_local int current;
static struct range ranges[4096];
static unsigned used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Every call that looks at ranges or streams. */
static void unlocked(int *held) { if (*held) pthread_mutex_unlock(&lock); }
#define LOCKED() pthread_mutex_lock(&lock); __attribute__((cleanup(unlocked), unused)) int held = 1

/* Default streams have numbers for handles; the runtime has no other name than 0 for the shared one before 7.0. */
static struct stream defaults[2];
static struct stream *stream_of(void *on) { return (u64)on < 3 ? &defaults[(u64)on == 2] : on; }

static struct range *find(u64 a)
{
	for (unsigned i = 0; i < used; i++)
		if (ranges[i].len && a >= ranges[i].base && a < ranges[i].base + ranges[i].len)
			return &ranges[i];
	return 0;
}

static int add(u64 base, size_t len, int pinned)
{
	LOCKED();
	if (used == 4096)
		return 2;
	ranges[used++] = (struct range){base, len, pinned, current};
	return 0;
}

static void run(struct stream *s, unsigned to)
{
	for (; s->head != to; s->head++) {
		struct copy *c = &s->copies[s->head % 256];
		memcpy((void *)c->dst, (void *)c->src, c->len);
	}
}

/* The thread's last error, as it is since 7.0: that of the last call that failed, until it is asked for. */
static _Thread_local int last;
static int told(int code) { if (code) last = code; return code; }
int hipGetLastError(void) { int code = last; last = 0; return code; }

/* A graph is captured in the mode that is the default, GLOBAL: a call that a capture does not see ends it and fails, in every thread
 * whose mode is not RELAXED. As strict as can be: every call but look-ups. With CAPTURE_BARS_QUERIES, as some versions do, the query of an
 * event fails in every mode. */
static int capturing, invalidated;
static _Thread_local int mode;
#define SEEN() do { if (capturing && mode != 2) { invalidated = 1; return told(900); } } while (0)
void fake_capture(int on) { capturing = on; }
int fake_invalidated(void) { return invalidated; }
int fake_mode(void) { return mode; }
int hipThreadExchangeStreamCaptureMode(int *m)
{
	int before = mode;
	if (*m < 0 || *m > 2)
		return 1;
	mode = *m;
	*m = before;
	return 0;
}

int hipRuntimeGetVersion(int *v) { *v = VERSION; return 0; }
int hipGetDeviceCount(int *n) { *n = DEVICES; return told(DEVICES ? 0 : 100); }
int hipGetDevice(int *d) { *d = current; return 0; }
int hipSetDevice(int d) { if (d < 0 || d > 1) return told(101); current = d; return 0; }
int hipDeviceGetName(char *s, int n, int d) { (void)d; strncpy(s, "Fake Strix", n); return 0; }
int hipDeviceTotalMem(size_t *n, int d) { (void)d; *n = 96ull << 30; return 0; }
int hipDeviceGetPCIBusId(char *s, int n, int d) { strncpy(s, d ? "0000:FD:00.0" : "0000:FE:00.0", n); return 0; }

int hipDeviceGetAttribute(int *v, int which, int d)
{
	(void)d;
#ifdef NO_ATTRIBUTES
	return told(1);
#endif
	*v = which == 16 ? 1 : which == 23 ? 11 : which == 61 ? 5 : 0;
	return 0;
}

const char *hipGetErrorString(int code) { return code == 2 ? "out of memory" : "some error"; }

int hipMalloc(void **a, size_t n)
{
	SEEN();
	if (n > 1ull << 30 || posix_memalign(a, 65536, n))
		return told(2);
	return told(add((u64)*a, n, 0));
}

int hipFree(void *a)
{
	SEEN();
	LOCKED();
	struct range *r = find((u64)a);
	if (!r || r->pinned || r->base != (u64)a)
		return told(1);
	r->len = 0;
	free(a);
	return 0;
}

int hipHostRegister(void *p, size_t n, unsigned flags)
{
	SEEN();
#ifdef LITTLE_LOCKED
	return told(2);
#endif
	return told(flags != 3 ? 1 : add((u64)p, n, 1));
}

int hipHostUnregister(void *p)
{
	SEEN();
	LOCKED();
	struct range *r = find((u64)p);
	if (!r || r->base != (u64)p)
		return told(713);
	r->len = 0;
	return 0;
}

int hipMemGetAddressRange(void **base, size_t *n, void *a)
{
	SEEN();
	LOCKED();
	struct range *r = find((u64)a);
	if (!r || r->pinned)
		return told(1);
	*base = (void *)r->base;
	*n = r->len;
	return 0;
}

int hipPointerGetAttributes(struct attribute *out, const void *a)
{
	LOCKED();
	struct range *r = find((u64)a);
	if (!r && !SINCE_6)
		return told(1); /* 5.x does not know host memory at all */
	memset(out, 0, sizeof *out);
	out->kind = !r ? 0 : (r->pinned ? 0 : 1) + SINCE_6;
	out->device = r ? r->device : -2;
	out->device_pointer = r ? (void *)a : 0;
#ifdef HOST_READS
	out->host_pointer = (void *)a;
#endif
	return 0;
}

int hipMemcpyAsync(void *dst, const void *src, size_t n, int kind, void *on)
{
	SEEN();
	LOCKED();
	struct stream *s = stream_of(on);
	if (kind != 4)
		return told(21);
	/* A runtime would take ordinary memory. It copies it among the commands of kernels, which may wait for these very bytes. */
	if (!find((u64)dst) || !find((u64)src))
		return told(1);
	if (s->tail - s->head == 256)
		run(s, s->head + 1);
	s->copies[s->tail++ % 256] = (struct copy){(u64)dst, (u64)src, n};
	return 0;
}

static unsigned streams;
int fake_streams(void) { return streams; }
int hipStreamCreateWithFlags(void **s, unsigned flags)
{
	SEEN();
	streams++;
	*s = calloc(1, sizeof(struct stream));
	return told(flags == 1 ? 0 : 1);
}
int hipStreamSynchronize(void *on)
{
	SEEN();
	struct stream *s = stream_of(on);
	if ((u64)on == 1 && VERSION < 70000000)
		return told(709);
	LOCKED();
	run(s, s->tail);
	return 0;
}

/* What programs use that wait for their copies. */
int hipMemcpy(void *dst, const void *src, size_t n, int kind) { LOCKED(); memmove(dst, src, n); return told(kind == 4 ? 0 : 21); }

int hipStreamWaitEvent(void *on, void *e, unsigned flags)
{
	SEEN();
	LOCKED();
	struct event *ev = e;
	if (stream_of(on) != ev->on && ev->on)
		run(ev->on, ev->at);
	return told(flags ? 1 : 0);
}

int hipEventCreateWithFlags(void **e, unsigned flags) { SEEN(); *e = calloc(1, sizeof(struct event)); return told(flags == 2 ? 0 : 1); }

int hipEventRecord(void *e, void *on)
{
	SEEN();
	LOCKED();
	struct stream *s = stream_of(on);
	*(struct event *)e = (struct event){s, s->tail, 0};
	return 0;
}

int hipEventQuery(void *e)
{
	SEEN();
#ifdef CAPTURE_BARS_QUERIES
	if (capturing)
		return told(900);
#endif
	LOCKED();
	struct event *ev = e;
	if (!ev->on || (int)(ev->at - ev->on->head) <= 0)
		return 0;
	if (ev->asked++ == 0)
		return 600;
	run(ev->on, ev->at);
	return 0;
}

#if VERSION >= 70000000
int hipMemGetHandleForAddressRange(void *out, void *a, size_t n, int type, u64 flags)
{
	SEEN();
	struct range *r = find((u64)a);
	int fd;
	if (type != 1 || flags || !r || (u64)a % 4096 || n % 4096 || (u64)a + n > r->base + r->len)
		return told(1);
	fd = memfd_create("fake", 0);
	if (fd < 0 || write(fd, a, n) != (ssize_t)n)
		return told(999);
	*(int *)out = fd;
	return 0;
}
#endif

/* The compiler inside of the runtime: it takes the kernel's source, and nothing else. */
static const char object[] = "\177ELF linkspan_unpack";
#ifndef NO_RTC
static const char refused[] = "error: not the kernel";
struct program { int whole; };
int hiprtcCreateProgram(void **out, const char *source, const char *name, int headers, void *a, void *b)
{
	struct program *p = malloc(sizeof *p);
	p->whole = strstr(source, "void linkspan_unpack(") && name && !headers && !a && !b;
	*out = p;
	return 0;
}
int hiprtcCompileProgram(void *p, int n, const char **options) { (void)options; return ((struct program *)p)->whole && n == 0 ? 0 : 6; }
int hiprtcGetProgramLogSize(void *p, size_t *n) { (void)p; *n = sizeof refused; return 0; }
int hiprtcGetProgramLog(void *p, char *out) { (void)p; memcpy(out, refused, sizeof refused); return 0; }
int hiprtcGetCodeSize(void *p, size_t *n) { (void)p; *n = sizeof object; return 0; }
int hiprtcGetCode(void *p, char *out) { (void)p; memcpy(out, object, sizeof object); return 0; }
int hiprtcDestroyProgram(void **p) { free(*p); *p = 0; return 0; }
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

static char module;
int hipModuleLoadData(void **m, const void *image) { SEEN(); *m = &module; return told(memcmp(image, object, sizeof object) ? 209 : 0); }
int hipModuleGetFunction(void **f, void *m, const char *name)
{
	*f = (void *)linkspan_unpack;
	return told(m == &module && !strcmp(name, "linkspan_unpack") ? 0 : 500);
}
int hipModuleLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
			  unsigned shared, void *on, void **args, void **extra)
{
	SEEN();
	struct stream *s = stream_of(on);
	if (f != (void *)linkspan_unpack || gz != 1 || by != 1 || bz != 1 || shared || extra || bx % 32)
		return told(1);
	run(s, s->tail);
	threads = bx, blocks_x = gx, blocks_y = gy;
	for (block_y = 0; block_y < gy; block_y++)
		for (block_x = 0; block_x < gx; block_x++)
			for (thread_x = 0; thread_x < bx; thread_x++)
				linkspan_unpack(*(void **)args[0], *(void **)args[1], *(void **)args[2], *(unsigned *)args[3]);
	return 0;
}
