#define _GNU_SOURCE
#include "util.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static char where[96];

void util_where(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(where, sizeof where, fmt, ap);
	va_end(ap);
}

static void line(const char *kind, const char *fmt, va_list ap)
{
	char text[1024];
	int at = snprintf(text, sizeof text, "%s%s: ", kind, where);
	vsnprintf(text + at, sizeof text - (size_t)at - 1, fmt, ap);
	strcat(text, "\n");
	/* One write, so that lines of several processes do not mix. */
	if (write(2, text, strlen(text)) < 0)
		_exit(1);
}

void note(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	line("", fmt, ap);
	va_end(ap);
}

void fail(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	line("FAIL ", fmt, ap);
	va_end(ap);
	/* No destructors: the plugin may be in any state. */
	_exit(1);
}

uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

uint64_t rng(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static inline uint64_t word(uint64_t seed, size_t i)
{
	uint64_t z = (seed + 1) * 0x9e3779b97f4a7c15ull + i * 0xd1342543de82ef95ull;
	return z ^ (z >> 29);
}

void pattern_fill(void *at, size_t len, uint64_t seed)
{
	char *p = at;
	size_t i = 0;
	for (; i + 8 <= len; i += 8) {
		uint64_t w = word(seed, i / 8);
		memcpy(p + i, &w, 8);
	}
	uint64_t w = word(seed, i / 8);
	memcpy(p + i, &w, len - i);
}

long pattern_wrong(const void *at, size_t len, uint64_t seed)
{
	const char *p = at;
	for (size_t i = 0; i < len; i += 8) {
		uint64_t w = word(seed, i / 8);
		size_t n = len - i < 8 ? len - i : 8;
		if (memcmp(p + i, &w, n) == 0)
			continue;
		const char *c = (const char *)&w;
		for (size_t k = 0; k < n; k++)
			if (p[i + k] != c[k])
				return (long)(i + k);
	}
	return -1;
}

static size_t pages(size_t len)
{
	return (len + 4095) / 4096 * 4096 + (len == 0 ? 4096 : 0);
}

void *buffer_new(size_t len)
{
	size_t whole = pages(len);
	char *p = mmap(NULL, whole + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED, "no memory for a buffer of %zu bytes", len);
	mprotect(p + whole, 4096, PROT_NONE);
	return p;
}

void buffer_free(void *at, size_t len)
{
	munmap(at, pages(len) + 4096);
}

static int entries(const char *dir)
{
	DIR *d = opendir(dir);
	CHECK(d != NULL, "cannot open %s", dir);
	int n = 0;
	for (struct dirent *e; (e = readdir(d)) != NULL;)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

int count_threads(void)
{
	return entries("/proc/self/task");
}

int count_fds(void)
{
	return entries("/proc/self/fd") - 1;
}

int count_maps(size_t *bytes)
{
	FILE *f = fopen("/proc/self/maps", "r");
	CHECK(f != NULL, "cannot open /proc/self/maps");
	int n = 0;
	uintptr_t from, to;
	*bytes = 0;
	char text[512];
	while (fgets(text, sizeof text, f))
		if (sscanf(text, "%" SCNxPTR "-%" SCNxPTR, &from, &to) == 2) {
			n++;
			*bytes += to - from;
		}
	fclose(f);
	return n;
}
