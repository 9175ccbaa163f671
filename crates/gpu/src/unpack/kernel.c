/* Puts received pieces in place: for each, `len` bytes from `src` in the pool to `dst` in the target.
 *
 * One text for three compilers: CUDA (NVRTC), HIP (hiprtc, or clang with LINKSPAN_BARE) and any C compiler
 * (LINKSPAN_HOST, which calls it once for each thread). So: no headers, no shared memory, nothing that knows how wide a
 * warp is. 32 threads work on a piece together, which is a warp, or half of a wave of 64.
 *
 * Stores are 16 bytes wide and aligned, whatever the alignment of a piece. Where the source is aligned otherwise, each
 * store takes its bytes from two aligned loads, which stay within aligned 16 bytes that hold a byte of the piece: the pool
 * begins at a multiple of 16 and is a multiple of 16 long. Little-endian, as all of these machines are.
 *
 * Grid: x over pieces, 32 threads each; y over tiles of 4096 bytes of long pieces.
 */
#if defined(LINKSPAN_HOST)
#define KERNEL
#define DEVICE static inline
#elif defined(LINKSPAN_BARE)
#define KERNEL extern "C" __attribute__((global))
#define DEVICE static inline __attribute__((device))
#define THREAD_X __builtin_amdgcn_workitem_id_x()
#define BLOCK_X __builtin_amdgcn_workgroup_id_x()
#define BLOCK_Y __builtin_amdgcn_workgroup_id_y()
#define THREADS __builtin_amdgcn_workgroup_size_x()
#define BLOCKS_X (__builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x())
#define BLOCKS_Y __builtin_amdgcn_grid_size_y()
#else
#define KERNEL extern "C" __global__
#define DEVICE static __device__ inline
#define THREAD_X threadIdx.x
#define BLOCK_X blockIdx.x
#define BLOCK_Y blockIdx.y
#define THREADS blockDim.x
#define BLOCKS_X gridDim.x
#define BLOCKS_Y gridDim.y
#endif

typedef unsigned int linkspan_u32;
typedef unsigned long long linkspan_u64;

/* NCCL's loadMeta: 16 bytes. */
struct linkspan_piece {
	linkspan_u32 src;
	linkspan_u32 len;
	linkspan_u64 dst;
};

struct __attribute__((aligned(16), may_alias)) linkspan_vec {
	linkspan_u64 lo, hi;
};

/* The 16 bytes that begin `shift` (1 to 15) bytes into the 32 bytes of a and b. */
DEVICE struct linkspan_vec linkspan_funnel(struct linkspan_vec a, struct linkspan_vec b, linkspan_u32 shift)
{
	struct linkspan_vec v;
	linkspan_u32 bits = (shift & 7) * 8;
	linkspan_u64 x = shift < 8 ? a.lo : a.hi;
	linkspan_u64 y = shift < 8 ? a.hi : b.lo;
	linkspan_u64 z = shift < 8 ? b.lo : b.hi;
	if (bits == 0) {
		v.lo = x;
		v.hi = y;
	} else {
		v.lo = (x >> bits) | (y << (64 - bits));
		v.hi = (y >> bits) | (z << (64 - bits));
	}
	return v;
}

/* Copies n bytes with 32 threads, of which this is number `lane`. */
DEVICE void linkspan_copy(unsigned char *dst, const unsigned char *src, linkspan_u32 n, linkspan_u32 lane)
{
	linkspan_u32 head = (linkspan_u32)(0 - (linkspan_u64)dst) & 15;
	linkspan_u32 i, vecs, tail, shift;
	struct linkspan_vec *to;
	const struct linkspan_vec *from;

	if (head > n)
		head = n;
	if (lane < head)
		dst[lane] = src[lane];
	dst += head;
	src += head;
	n -= head;
	vecs = n / 16;
	tail = n % 16;
	shift = (linkspan_u32)((linkspan_u64)src & 15);
	to = (struct linkspan_vec *)dst;
	from = (const struct linkspan_vec *)(src - shift);
	if (shift == 0) {
		for (i = lane; i < vecs; i += 32)
			to[i] = from[i];
	} else {
		for (i = lane; i < vecs; i += 32)
			to[i] = linkspan_funnel(from[i], from[i + 1], shift);
	}
	if (lane < tail)
		dst[vecs * 16 + lane] = src[vecs * 16 + lane];
}

KERNEL void linkspan_unpack(const unsigned char *pool, unsigned char *out, const struct linkspan_piece *pieces,
                            linkspan_u32 count)
{
	linkspan_u32 thread = BLOCK_X * THREADS + THREAD_X;
	linkspan_u32 lane = thread % 32;
	linkspan_u32 groups = BLOCKS_X * THREADS / 32;
	linkspan_u32 p, at, n;

	for (p = thread / 32; p < count; p += groups) {
		struct linkspan_piece piece = pieces[p];
		for (at = BLOCK_Y * 4096; at < piece.len; at += BLOCKS_Y * 4096) {
			n = piece.len - at < 4096 ? piece.len - at : 4096;
			linkspan_copy(out + piece.dst + at, pool + piece.src + at, n, lane);
		}
	}
}
