// What of the CUDA driver goes on while a kernel runs that waits, as NCCL's do for a network: copies by other streams of the same
// context and by a context of their own, while the program queues work behind the kernel. A line that ends with "waits" is a
// reason why a network plugin must not copy under NCCL (docs/GPU.md). No verdict: exit code 0 unless a call fails.
//
//     nvcc -O2 -std=c++17 beside_kernel.cu -lcuda -o beside_kernel && ./beside_kernel
#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

#define OK(call)                                               \
	do {                                                       \
		CUresult code_ = (call);                               \
		if (code_ != CUDA_SUCCESS) {                           \
			std::printf("%s failed with %d\n", #call, code_);  \
			std::exit(1);                                      \
		}                                                      \
	} while (0)

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// A step of memory for each stream.
constexpr size_t STEP = 64 << 10;
// How long copies are waited for, and when the kernel ends at the latest.
constexpr double LIMIT = 250;
constexpr milliseconds END(330);

__global__ void spin(volatile int *word)
{
	while (!*word) {
	}
}
__global__ void add(int *to) { to[threadIdx.x]++; }

static CUcontext first, second;
static int *word;
static CUdeviceptr word_there, device;
static char *pinned, *plain;

static char *pages(size_t bytes)
{
	return static_cast<char *>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

static CUdeviceptr at(const void *host) { return reinterpret_cast<CUdeviceptr>(host); }

static double since(Clock::time_point then) { return std::chrono::duration<double, std::milli>(Clock::now() - then).count(); }

struct Streams {
	const char *name;
	CUcontext context;
	std::vector<CUstream> streams;
	std::vector<CUevent> events;

	Streams(const char *name, CUcontext context, size_t count) : name(name), context(context), streams(count), events(count)
	{
		OK(cuCtxSetCurrent(context));
		for (size_t i = 0; i < count; i++) {
			OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
			OK(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
		}
		OK(cuCtxSetCurrent(first));
	}

	// A copy on each stream, every other one up: the longest call, and how many were done in time.
	std::string copies(size_t bytes)
	{
		OK(cuCtxSetCurrent(context));
		auto began = Clock::now();
		double call = 0, last = 0;
		for (size_t i = 0; i < streams.size(); i++) {
			CUdeviceptr there = device + i * STEP, here = at(pinned) + i * STEP;
			auto then = Clock::now();
			OK(cuMemcpyAsync(i % 2 ? here : there, i % 2 ? there : here, bytes, streams[i]));
			OK(cuEventRecord(events[i], streams[i]));
			call = std::max(call, since(then));
		}
		std::vector<bool> over(streams.size());
		size_t done = 0;
		while (done < over.size() && since(began) < LIMIT) {
			for (size_t i = 0; i < over.size(); i++) {
				if (!over[i] && cuEventQuery(events[i]) == CUDA_SUCCESS) {
					over[i] = true, done++, last = since(began);
				}
			}
		}
		OK(cuCtxSetCurrent(first));
		char text[160];
		bool waits = call > LIMIT || done < over.size();
		std::snprintf(text, sizeof text, "%2zu of %zu done, the last after %.2f ms, longest call %.2f ms  %s", done,
			over.size(), last, call, waits ? "waits" : "goes on");
		return text;
	}
};

int main()
{
	cudaSetDevice(0);
	cudaFree(nullptr);
	OK(cuCtxGetCurrent(&first));
	CUdevice number;
	OK(cuCtxGetDevice(&number));
	OK(cuMemAlloc(&device, 64 << 20));
	pinned = pages(8 << 20), plain = pages(4096);
	word = reinterpret_cast<int *>(pages(4096));
	std::memset(pinned, 1, 8 << 20);
	OK(cuMemHostRegister(pinned, 8 << 20, 3));
	OK(cuMemHostRegister(word, 4096, 3));
	OK(cuMemHostGetDevicePointer(&word_there, word, 0));

	size_t before, after, total;
	OK(cuMemGetInfo(&before, &total));
	auto then = Clock::now();
#if CUDA_VERSION < 13000
	OK(cuCtxCreate(&second, 0, number));
#else
	OK(cuCtxCreate(&second, nullptr, 0, number));
#endif
	double took = since(then);
	Streams sets[] = {{"streams of the context", first, 32}, {"a second context", second, 8}};
	for (auto &set : sets)
		set.copies(16);
	OK(cuMemGetInfo(&after, &total));
	std::printf("a second context takes %.0f ms and %.0f MiB\n", took, double(before - after) / (1 << 20));

	CUstream own, other;
	CUevent spun;
	OK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&spun, CU_EVENT_DISABLE_TIMING));
	int *sum = reinterpret_cast<int *>(device + (50 << 20));
	char *scalar = pinned + (7 << 20);
	add<<<1, 32, 0, nullptr>>>(sum);
	OK(cuCtxSynchronize());

	const struct {
		const char *name;
		std::function<void()> call;
	} programs[] = {
		{"nothing", [] {}},
		{"kernels on the default stream", [&] { add<<<1, 32, 0, nullptr>>>(sum), cuStreamSynchronize(nullptr); }},
		// As torch's item() does.
		{"to pinned memory on the default stream",
			[&] { cuMemcpyAsync(at(scalar), at(sum), 4, nullptr), cuStreamSynchronize(nullptr); }},
		// As torch's cpu() does.
		{"to ordinary memory on the default stream",
			[&] { cuMemcpyAsync(at(plain), at(sum), 4, nullptr), cuStreamSynchronize(nullptr); }},
		{"to ordinary memory on a stream",
			[&] { cuStreamWaitEvent(other, spun, 0), cuMemcpyAsync(at(plain), at(sum), 4, other), cuStreamSynchronize(other); }},
		{"cuMemcpyDtoH", [&] { cuMemcpyDtoH(plain, at(sum), 4); }},
	};
	for (auto &program : programs) {
		std::printf("-- behind the kernel: %s\n", program.name);
		for (auto &set : sets) {
			for (size_t bytes : {size_t(16), STEP}) {
				*word = 0;
				spin<<<2, 512, 0, own>>>(reinterpret_cast<volatile int *>(word_there));
				OK(cuEventRecord(spun, own));
				OK(cuStreamWaitEvent(nullptr, spun, 0));
				std::atomic<bool> done{false};
				std::thread watch([&] {
					auto end = Clock::now() + END;
					while (!done && Clock::now() < end)
						std::this_thread::sleep_for(milliseconds(1));
					*word = 1;
				});
				std::thread thread([&] {
					cuCtxSetCurrent(first);
					program.call();
				});
				std::this_thread::sleep_for(milliseconds(20));
				std::string got = set.copies(bytes);
				done = true;
				watch.join(), thread.join();
				OK(cuCtxSynchronize());
				std::printf("   copies of %zu B by %s: %s\n", bytes, set.name, got.c_str());
			}
		}
	}
	return 0;
}
