/* Small things that every part needs. */
#ifndef PLUGIN_HOST_UTIL_H
#define PLUGIN_HOST_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ends this process with "FAIL ..." on stderr and exit code 1. */
_Noreturn void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A line on stderr. */
void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Put in front of every line, as in "v12 allreduce[3]". */
void util_where(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#define CHECK(cond, ...)                   \
	do {                               \
		if (!(cond))               \
			fail(__VA_ARGS__); \
	} while (0)

uint64_t now_ns(void);
#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)

/* A repeatable random number. */
uint64_t rng(uint64_t *state);

/* Bytes that depend on the seed and their place; so a byte of another message or place is seen. */
void pattern_fill(void *at, size_t len, uint64_t seed);
/* Offset of the first byte that differs, or -1. */
long pattern_wrong(const void *at, size_t len, uint64_t seed);

/* Page-aligned memory of `len` bytes with an unmapped page behind its last one. */
void *buffer_new(size_t len);
void buffer_free(void *at, size_t len);

int count_threads(void);
int count_fds(void);
/* Number of mappings, and their bytes in *bytes. */
int count_maps(size_t *bytes);

#endif
