// Ring and Swap of linkspan.hpp: without arguments where there is no device, with `DEVICE ping` and `DEVICE echo` between two hosts,
// as the lab runs it.
#include <linkspan.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using linkspan::Ring;
using linkspan::Swap;

constexpr std::chrono::seconds patience{60};
constexpr std::uint32_t both = LINKSPAN_RING_SEND | LINKSPAN_RING_RECEIVE;

#define CHECK(condition)                                                                                                         \
    do {                                                                                                                         \
        if (!(condition)) {                                                                                                      \
            std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                                         \
            std::exit(1);                                                                                                        \
        }                                                                                                                        \
    } while (false)

template <class F> std::int32_t thrown(F call) {
    try {
        call();
    } catch (const linkspan::Error &error) {
        return error.status();
    }
    return LINKSPAN_OK;
}

void no_device() {
    const std::string nowhere = "/nonexistent/linkspan/7";
    CHECK(thrown([&] { Ring{nowhere}; }) == LINKSPAN_NO_DEVICE);
    linkspan_ring_options wrong{};
    wrong.submissions = 7;
    CHECK(thrown([&] { Ring(nowhere, wrong); }) == LINKSPAN_VALUE);
    CHECK(thrown([&] { Swap(nowhere, 0, 4096); }) == LINKSPAN_NO_DEVICE);
    CHECK(thrown([&] { linkspan::link_info(nowhere); }) == LINKSPAN_NO_DEVICE);
    bool bounds = false;
    try {
        Swap(nowhere, 0, 0);
    } catch (const linkspan::OutOfBounds &error) {
        bounds = error.code() == "LS1506";
    }
    CHECK(bounds);
    static_assert(std::is_nothrow_move_constructible_v<Ring> && !std::is_copy_constructible_v<Ring>, "an owner");
    static_assert(std::is_nothrow_move_constructible_v<Swap> && !std::is_copy_constructible_v<Swap>, "an owner");
}

linkspan_completion one(const Ring &ring) {
    linkspan_completion done{};
    CHECK(ring.wait(&done, 1, patience) == 1 && done.status == LINKSPAN_OK);
    return done;
}

/// A message there and back, other than it was, over a ring and then over a swap.
void talk(const std::string &device, bool first) {
    std::vector<unsigned char> bytes(100000, first ? 1 : 9);
    {
        Ring opened(device);
        const Ring ring(std::move(opened));
        CHECK(ring.info().state == LINKSPAN_LINK_UP && linkspan::link_info(device).state == LINKSPAN_LINK_UP && ring.fd() >= 0);
        const std::uint64_t region = ring.add(bytes.data(), bytes.size(), both);
        ring.open_channel(9);
        if (first) {
            CHECK(ring.send(9, region, 0, bytes.size(), 1) && one(ring).cookie == 1);
        }
        CHECK(ring.receive(9, region, 0, bytes.size(), 2) && ring.submit() == 0 && one(ring).length == bytes.size());
        CHECK(bytes == std::vector<unsigned char>(bytes.size(), first ? 2 : 1));
        if (!first) {
            bytes.assign(bytes.size(), 2);
            CHECK(ring.send(9, region, 0, bytes.size(), 3) && ring.doorbell(1, patience) == 1 && one(ring).cookie == 3);
        }
        CHECK(ring.release(region) && thrown([&] { ring.release(region); }) == LINKSPAN_HANDLE);
    }
    const Swap swap(device, 10, 5000, patience);
    for (unsigned char n = 0; n < 6; n++) {
        if (first == (n % 2 == 0)) {
            const auto front = swap.front();
            CHECK(front.size == 8192);
            std::memset(front.data, n, 5000);
            swap.send(5000);
        } else {
            const auto message = swap.receive(patience);
            CHECK(message && message->size == 5000 && message->data[0] == n && message->data[4999] == n);
        }
    }
    swap.flush();
    CHECK(!first || thrown([&] { CHECK(!swap.receive(patience)); }) == LINKSPAN_CHANNEL_ENDED);
    std::puts("a ring and a swap of C++: all right");
}

} // namespace

int main(int argc, char **argv) {
    if (argc == 3) {
        talk(argv[1], !std::strcmp(argv[2], "ping"));
    } else {
        no_device();
    }
}
