// Memory of GPUs from C++, on a stand-in for the CUDA driver whose memory faults under the processor, or on a real cuda:0.
#include <linkspan.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

void check(bool good, const char *what, int line) {
    if (!good) {
        std::fprintf(stderr, "line %d: %s\n", line, what);
        std::exit(1);
    }
}
#define CHECK(condition) check((condition), #condition, __LINE__)

template <class F> F *cuda(const char *name) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(driver != nullptr);
    void *at = dlsym(driver, name);
    CHECK(at != nullptr);
    return reinterpret_cast<F *>(at);
}

using Address = unsigned long long;

Address device_bytes(std::size_t length) {
    Address at = 0;
    CHECK(cuda<int(Address *, std::size_t)>("cuMemAlloc_v2")(&at, length) == 0);
    return at;
}

void *pointer(Address at) { return reinterpret_cast<void *>(at); }

void gpu_to_gpu() {
    const std::string bytes = "weights of a model that lives on a GPU";
    const Address up = device_bytes(bytes.size()), down = device_bytes(bytes.size());
    CHECK(cuda<int(Address, const void *, std::size_t)>("cuMemcpyHtoD_v2")(up, bytes.data(), bytes.size()) == 0);
    // A copy of little memory is not over when its call returns, and no stream of others waits for it.
    CHECK(cuda<int(void *)>("cuStreamSynchronize")(nullptr) == 0);
    const auto from = linkspan::Memory::on_gpu("cuda:0", static_cast<const void *>(pointer(up)), bytes.size());
    auto to = linkspan::Memory::on_gpu("", pointer(down), bytes.size());
    CHECK(from.gpu() == "cuda:0" && !from.writable() && to.gpu() == "cuda:0" && to.writable());

    linkspan::Listener listener = linkspan::Listener::for_gpu("cuda:0");
    linkspan::Transport source = linkspan::Transport::for_gpu("cuda:0");
    source.connect(listener.url());
    linkspan::Transport target = listener.accept();
    linkspan::Exposed region = target.expose(to, linkspan::Access::read_write);
    source.write(from.view(), region.remote(), linkspan::Notify{3});
    CHECK(target.wait_for_write() == 3);
    std::string got(bytes.size(), ' ');
    CHECK(cuda<int(void *, Address, std::size_t)>("cuMemcpyDtoH_v2")(&got[0], down, got.size()) == 0);
    CHECK(got == bytes);

    // Into memory that linkspan allocates, and from there to the host.
    auto own = linkspan::Memory::allocate_on("cuda:0", bytes.size());
    CHECK(own.gpu() == "cuda:0" && own.info().kind == LINKSPAN_MEMORY_DEVICE);
    source.read(own.mutable_view(), region.remote());
    std::vector<char> host(bytes.size());
    linkspan::Memory inbox(host);
    linkspan::Exposed hosted = target.expose(inbox, linkspan::Access::write);
    source.write(own.view(), hosted.remote());
    CHECK(std::memcmp(host.data(), bytes.data(), host.size()) == 0);
}

void refusals() {
    char host[8] = {};
    try {
        auto none = linkspan::Memory::on_gpu("cuda:0", static_cast<void *>(host), sizeof host);
        CHECK(false);
    } catch (const linkspan::Error &error) {
        CHECK(error.status() == LINKSPAN_GPU_RANGE && error.code() == "LS1306");
    }
    try {
        auto none = linkspan::Transport::for_gpu("cuda:99");
        CHECK(false);
    } catch (const linkspan::Error &error) {
        CHECK(error.status() == LINKSPAN_NO_GPU);
    }
    linkspan::Transport plain;
    const auto memory = linkspan::Memory::allocate_on("cuda:0", 8);
    try {
        auto none = plain.expose(memory, linkspan::Access::read);
        CHECK(false);
    } catch (const linkspan::Error &error) {
        CHECK(error.status() == LINKSPAN_DEVICE_MEMORY);
    }
}

void mapped() {
    const int fd = memfd_create("pages", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, 4096) == 0);
    auto memory = linkspan::Memory::map(fd, 0, 4096);
    CHECK(memory.info().kind == LINKSPAN_MEMORY_MAPPED && memory.gpu().empty());
    std::memcpy(memory.mutable_view().mutable_data(), "seen", 4);
    char bytes[4] = {};
    CHECK(pread(fd, bytes, sizeof bytes, 0) == 4 && std::memcmp(bytes, "seen", 4) == 0);
    close(fd);
}

} // namespace

int main() {
    setenv("LINKSPAN_IFNAME", "=lo", 1);
    setenv("LINKSPAN_STATS_DIR", "off", 1);
    void *context = nullptr;
    CHECK(cuda<int(unsigned)>("cuInit")(0) == 0);
    CHECK(cuda<int(void **, int)>("cuDevicePrimaryCtxRetain")(&context, 0) == 0);
    CHECK(cuda<int(void *)>("cuCtxPushCurrent_v2")(context) == 0);
    gpu_to_gpu();
    refusals();
    mapped();
}
