// Which calls of the CUDA driver end while a kernel runs in the same context, as NCCL's do while they wait for a network: each
// call beside a kernel that spins until a word in pinned memory changes, which happens after 0.7 s at the latest. A line that ends
// with "waits" is a call that a network plugin must not make on its data path. No verdict: exit code 0 unless a call fails.
//
//     nvcc -O2 -std=c++17 beside_kernel.cu -lcuda -o beside_kernel && ./beside_kernel
#include <cuda.h>

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

__global__ void spin(volatile int *word)
{
	while (!*word) {
	}
}
__global__ void nothing() {}

static CUcontext context;
static int *word;
static CUdeviceptr word_there, device;
static char *pinned, *plain;
static std::vector<CUstream> streams(64);
static std::vector<CUevent> events(64);

static char *pages(size_t bytes)
{
	return static_cast<char *>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

static CUdeviceptr at(const void *host) { return reinterpret_cast<CUdeviceptr>(host); }

// Until it is done, or for 2 s.
static void until(CUevent event)
{
	auto end = Clock::now() + milliseconds(2000);
	while (cuEventQuery(event) == CUDA_ERROR_NOT_READY && Clock::now() < end) {
	}
}

static void copies(CUdeviceptr to, CUdeviceptr from, size_t bytes, bool by_event)
{
	for (size_t i = 0; i < streams.size(); i++) {
		OK(cuMemcpyAsync(to, from, bytes, streams[i]));
		if (by_event) {
			OK(cuEventRecord(events[i], streams[i]));
			until(events[i]);
		} else {
			OK(cuStreamSynchronize(streams[i]));
		}
	}
}

static void beside(const std::string &what, CUstream on, const std::function<void()> &call)
{
	*word = 0;
	spin<<<1, 32, 0, on>>>(reinterpret_cast<volatile int *>(word_there));
	std::this_thread::sleep_for(milliseconds(20));
	std::atomic<bool> done{false}, late{false};
	std::thread watch([&] {
		auto end = Clock::now() + milliseconds(700);
		while (!done && Clock::now() < end)
			std::this_thread::sleep_for(milliseconds(2));
		late = !done;
		*word = 1;
	});
	auto began = Clock::now();
	call();
	double took = std::chrono::duration<double, std::milli>(Clock::now() - began).count();
	done = true;
	watch.join();
	OK(cuCtxSynchronize());
	std::printf("%-66s %9.3f ms  %s\n", what.c_str(), took, late ? "waits" : "ends");
}

int main()
{
	cudaSetDevice(0);
	cudaFree(nullptr);
	OK(cuCtxGetCurrent(&context));
	OK(cuMemAlloc(&device, 64 << 20));
	pinned = pages(8 << 20), plain = pages(8 << 20);
	word = reinterpret_cast<int *>(pages(4096));
	std::memset(pinned, 1, 8 << 20), std::memset(plain, 2, 8 << 20);
	OK(cuMemHostRegister(pinned, 8 << 20, 3));
	OK(cuMemHostRegister(word, 4096, 3));
	OK(cuMemHostGetDevicePointer(&word_there, word, 0));
	for (size_t i = 0; i < streams.size(); i++) {
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
		OK(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
	}
	CUstream own;
	OK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
	nothing<<<1, 1, 0, own>>>();
	copies(device, at(pinned), 8, true);
	OK(cuCtxSynchronize());

	const struct {
		const char *name;
		CUstream stream;
	} kinds[] = {{"a stream of its own", own}, {"the default stream", nullptr}};
	for (auto &kind : kinds) {
		std::printf("-- the kernel runs on %s\n", kind.name);
		for (size_t bytes : {size_t(8), size_t(4096), size_t(16384), size_t(65536)}) {
			for (bool by_event : {true, false}) {
				std::string more = std::to_string(bytes) + " B on 64 streams, " + (by_event ? "events asked" : "streams waited for");
				beside("pinned to device, " + more, kind.stream, [&] { copies(device, at(pinned), bytes, by_event); });
				beside("device to pinned, " + more, kind.stream, [&] { copies(at(pinned), device, bytes, by_event); });
				beside("pageable to device, " + more, kind.stream, [&] { copies(device, at(plain), bytes, by_event); });
				beside("device to pageable, " + more, kind.stream, [&] { copies(at(plain), device, bytes, by_event); });
			}
		}
		beside("cuMemcpyHtoD of 8 B", kind.stream, [&] { OK(cuMemcpyHtoD(device, plain, 8)); });
		beside("cuStreamCreate", kind.stream, [&] {
			CUstream made;
			OK(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
		});
		beside("320 x cuEventCreate", kind.stream, [&] {
			CUevent made;
			for (int i = 0; i < 320; i++)
				OK(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING));
		});
		beside("cuMemHostRegister of 44 MiB", kind.stream, [&] { OK(cuMemHostRegister(pages(44 << 20), 44 << 20, 3)); });
		beside("cuMemAlloc of 8 MiB", kind.stream, [&] {
			CUdeviceptr made;
			OK(cuMemAlloc(&made, 8 << 20));
		});
		beside("a kernel on 32 other streams", kind.stream, [&] {
			for (int i = 0; i < 32; i++) {
				nothing<<<1, 1, 0, streams[i]>>>();
				OK(cuEventRecord(events[i], streams[i]));
				until(events[i]);
			}
		});
		// As torch's item() does.
		beside("the copies of 8 B, a thread waiting in a copy behind the kernel", kind.stream, [&] {
			std::thread other([&] {
				cuCtxSetCurrent(context);
				cuMemcpyAsync(at(plain) + 4096, device, 8, kind.stream);
				cuStreamSynchronize(kind.stream);
			});
			std::this_thread::sleep_for(milliseconds(20));
			copies(device, at(pinned), 8, true);
			*word = 1;
			other.join();
		});
	}
	return 0;
}
