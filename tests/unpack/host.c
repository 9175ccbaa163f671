/* The unpack kernel on the host, thread by thread, against a plain loop: random pieces of all lengths and alignments.
 * Built with AddressSanitizer and UndefinedBehaviorSanitizer by `cargo xtask unpack`.   host PIECES SEED */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned thread_x, block_x, block_y, threads, blocks_x, blocks_y;
#define LINKSPAN_HOST
#define THREAD_X thread_x
#define BLOCK_X block_x
#define BLOCK_Y block_y
#define THREADS threads
#define BLOCKS_X blocks_x
#define BLOCKS_Y blocks_y
#include "../../crates/gpu/src/unpack/kernel.c"

static unsigned long long state;

static unsigned next(unsigned below)
{
	unsigned long long z = state += 0x9E3779B97F4A7C15ull;
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
	return (unsigned)((z ^ (z >> 31)) % below);
}

#define MOST 64

/* Sizes of TCP segments' payloads among others: 536 (IPv4's least), 1448 and 8948 (MTU 1500 and 9000), pages. */
static const unsigned sizes[] = {1, 7, 15, 16, 17, 31, 536, 1448, 1460, 4095, 4096, 4097, 8948, 20000};

static int round_of(unsigned count)
{
	struct linkspan_piece *pieces = malloc(count * sizeof *pieces);
	unsigned pool_len = 0, out_len = next(64), i, k;
	for (i = 0; i < count; i++) {
		unsigned len = next(3) ? sizes[next(sizeof sizes / sizeof *sizes)] : next(300);
		pool_len += next(40);
		out_len += next(4) ? 0 : next(40);
		pieces[i] = (struct linkspan_piece){pool_len, len, out_len};
		pool_len += len;
		out_len += len;
	}
	pool_len = (pool_len + 15) / 16 * 16;
	/* Exact allocations, so that a byte too far is found; the target begins anywhere. */
	unsigned skew = next(16);
	unsigned char *pool = aligned_alloc(16, pool_len ? pool_len : 16);
	unsigned char *base = aligned_alloc(16, (skew + out_len + 15) / 16 * 16 + 16), *out = base + skew;
	unsigned char *want = malloc(out_len + 1);
	for (i = 0; i < pool_len; i++)
		pool[i] = (unsigned char)next(256);
	memset(out, 0xEE, out_len);
	memset(want, 0xEE, out_len);
	/* Places are taken in any order. */
	for (i = count; i > 1; i--) {
		struct linkspan_piece t = pieces[i - 1];
		pieces[i - 1] = pieces[k = next(i)];
		pieces[k] = t;
	}
	for (i = 0; i < count; i++)
		for (k = 0; k < pieces[i].len; k++)
			want[pieces[i].dst + k] = pool[pieces[i].src + k];
	threads = 32u << next(4);
	blocks_x = 1 + next(3);
	blocks_y = 1 + next(3);
	for (block_y = 0; block_y < blocks_y; block_y++)
		for (block_x = 0; block_x < blocks_x; block_x++)
			for (thread_x = 0; thread_x < threads; thread_x++)
				linkspan_unpack(pool, out, pieces, count);
	int same = memcmp(out, want, out_len) == 0;
	free(pool), free(base), free(want), free(pieces);
	return same;
}

int main(int argc, char **argv)
{
	unsigned long pieces = argc > 1 ? strtoul(argv[1], 0, 10) : 100000, done = 0, rounds = 0;
	unsigned long long seed = argc > 2 ? strtoull(argv[2], 0, 10) : 1;
	while (done < pieces) {
		unsigned count = 1 + next(MOST);
		state = seed * 1000003 + rounds++;
		if (!round_of(count)) {
			fprintf(stderr, "round %lu of seed %llu differs\n", rounds - 1, seed);
			return 1;
		}
		done += count;
	}
	printf("%lu pieces in %lu rounds, byte for byte as the plain loop\n", done, rounds);
	return 0;
}
