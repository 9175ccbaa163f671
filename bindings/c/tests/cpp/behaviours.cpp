// What linkspan.hpp adds to linkspan.h: owners, exceptions, futures. The behaviours themselves are tested from C beside.
#include <linkspan.hpp>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using linkspan::Access;
using linkspan::Context;
using linkspan::Endpoint;
using linkspan::Event;
using linkspan::Exposed;
using linkspan::Listener;
using linkspan::Memory;
using linkspan::Notify;
using linkspan::Operation;
using linkspan::RemoteBuffer;
using linkspan::Transport;

constexpr std::chrono::seconds patience{30};

[[noreturn]] void fail(int line, const std::string &what) {
    std::fprintf(stderr, "line %d: %s\n", line, what.c_str());
    std::exit(1);
}

#define CHECK(condition)                                                                                                         \
    do {                                                                                                                         \
        if (!(condition)) {                                                                                                      \
            fail(__LINE__, #condition);                                                                                          \
        }                                                                                                                        \
    } while (false)

template <class E, class F> void throws_(int line, std::int32_t status, F call) {
    try {
        call();
    } catch (const E &error) {
        if (error.status() != status || std::string(error.what()).rfind(error.code(), 0) != 0) {
            fail(line, "status " + std::to_string(error.status()) + ": " + error.what());
        }
        return;
    }
    fail(line, "nothing was thrown");
}
#define THROWS(type, status, ...) throws_<linkspan::type>(__LINE__, status, [&] { static_cast<void>(__VA_ARGS__); })

Context &context() {
    static Context one({{"LINKSPAN_IFNAME", "=lo"}, {"LINKSPAN_PATH", "tcp"}, {"LINKSPAN_STATS_DIR", "off"}});
    return one;
}

struct Pair {
    Transport a{context()}, b{context()};
    Pair() {
        a.connect(b.bind(), patience);
        b.wait_connected(patience);
    }
};

void query_support() {
    bool tcp = false;
    for (const linkspan::Support &one : context().supported()) {
        CHECK(!one.why.empty());
        tcp |= one.path == "tcp" && one.usable;
    }
    CHECK(tcp);
    CHECK(!Transport::supported().empty());
    CHECK(linkspan::version() == "0.1.0");
}

void basic_construction() {
    std::vector<int> numbers(1024, 7);
    Memory memory(numbers);
    CHECK(memory.size() == numbers.size() * sizeof(int) && memory.writable());
    CHECK(memory.data() == reinterpret_cast<const std::byte *>(numbers.data()));
    CHECK(memory.contains(numbers.data(), memory.size()));
    CHECK(memory.contains(numbers.data() + 1023, sizeof(int)));
    CHECK(!memory.contains(numbers.data() + 1023, sizeof(int) + 1));
    CHECK(!memory.contains(&memory, 1));
    const std::array<char, 8> fixed{};
    Memory frozen(fixed);
    CHECK(!frozen.writable());
    THROWS(Error, LINKSPAN_READ_ONLY_MEMORY, frozen.mutable_view());
    Memory own = Memory::allocate(10000);
    CHECK(own.size() == 10000 && *own.data() == std::byte{0});
    static_assert(!std::is_constructible_v<Memory, std::vector<std::string> &>, "strings are not plain bytes");
    static_assert(!std::is_copy_constructible_v<Memory> && !std::is_copy_assignable_v<Transport>);
}

void move_only_semantics() {
    std::vector<char> one(64), two(32);
    Memory memory(one);
    linkspan_memory *const handle = memory.handle();
    Memory moved(std::move(memory));
    CHECK(moved.handle() == handle && memory.handle() == nullptr);
    THROWS(Error, LINKSPAN_HANDLE, memory.size());
    const linkspan::View old = moved.view();
    moved = Memory(two);
    CHECK(moved.size() == 32);
    // The first registration is gone, and a view of it is an error, no crash.
    THROWS(Error, LINKSPAN_HANDLE, old.data());
    Transport transport(context());
    Transport other(std::move(transport));
    CHECK(transport.handle() == nullptr && !other.connected());
    THROWS(Error, LINKSPAN_HANDLE, transport.connected());
    other.close();
    other.close();
    THROWS(Error, LINKSPAN_HANDLE, other.connected());
}

void view_creation() {
    std::vector<unsigned char> bytes(1000);
    Memory memory(bytes);
    const linkspan::View part = memory.view(100, 50);
    CHECK(part.size() == 50 && part.offset() == 100);
    CHECK(part.data() == reinterpret_cast<std::byte *>(&bytes[100]) && part.memory().length == 1000);
    CHECK(memory.view_at(&bytes[900], 100).offset() == 900);
    CHECK(memory.mutable_view().mutable_data() == reinterpret_cast<std::byte *>(bytes.data()));
    CHECK(part.view(10, 40).offset() == 110);
    CHECK(memory.view(0, 0).size() == 0 && memory.view(1000, 0).size() == 0);
    THROWS(OutOfBounds, LINKSPAN_BOUNDS, memory.view(1000, 1));
    THROWS(OutOfBounds, LINKSPAN_BOUNDS, memory.view(1, 1000));
    THROWS(OutOfBounds, LINKSPAN_BOUNDS, memory.view(SIZE_MAX, 2));
    THROWS(OutOfBounds, LINKSPAN_BOUNDS, part.view(0, 51));
    THROWS(OutOfBounds, LINKSPAN_NOT_INSIDE, memory.view_at(&bytes[900], 101));
#if defined(__cpp_lib_span)
    CHECK(part.span().size() == 50 && memory.mutable_view(1, 2).mutable_span().size() == 2);
    const std::span<unsigned char> spanned(bytes);
    CHECK(Memory(spanned).size() == 1000);
#endif
}

void writes_reads_and_messages() {
    Pair pair;
    std::vector<std::uint64_t> out(4096), in(4096);
    for (std::size_t n = 0; n < out.size(); n++) {
        out[n] = n * n;
    }
    Memory from(out), to(in);
    const Exposed region = pair.b.expose(to, Access::read_write);
    const std::size_t size = from.size();
    CHECK(pair.a.write(from.view(), region, Notify{42}, patience) == size);
    CHECK(pair.b.wait_for_write(patience) == 42 && in == out);
    std::fill(out.begin(), out.end(), 0);
    CHECK(pair.a.read(from.mutable_view(), region, patience) == size && in == out);
    Operation receive = pair.b.recv_async(3, to.mutable_view(), patience);
    CHECK(pair.a.send(3, from.view(8, 100), patience) == 100 && receive.get() == 100);
    const RemoteBuffer travelled = RemoteBuffer::from_bytes(region.remote().bytes(), RemoteBuffer::bytes_size());
    CHECK(travelled.size() == size && pair.a.write(from.view(0, 8), travelled.view(size - 8, 8), {}, patience) == 8);
    THROWS(OutOfBounds, LINKSPAN_BOUNDS, travelled.view(size, 1));
    THROWS(Error, 1116, RemoteBuffer::from_bytes("short", 5));
    const Exposed look = pair.b.expose(to, Access::read);
    THROWS(Refused, LINKSPAN_NO_RIGHT, pair.a.write(from.view(), look, {}, patience));
}

void rights_end_with_their_owner() {
    Pair pair;
    Memory from = Memory::allocate(64);
    std::vector<char> bytes(64);
    std::optional<RemoteBuffer> old;
    {
        Memory to(bytes);
        Exposed region = pair.b.expose(to, Access::write), again = pair.b.expose(to, Access::write);
        CHECK(!region.reused() && again.reused());
        old = region.remote();
        region.end();
        CHECK(pair.a.write(from.view(), *old, {}, patience) == 64);
    }
    THROWS(Refused, LINKSPAN_REMOTE_ACCESS, pair.a.write(from.view(), *old, {}, patience));
    // In the wrong order: the memory goes before the right on it, and takes it along.
    std::optional<Exposed> late;
    {
        Memory to(bytes);
        late.emplace(pair.b.expose(to, Access::write));
        old = late->remote();
    }
    THROWS(Refused, LINKSPAN_REMOTE_ACCESS, pair.a.write(from.view(), *old, {}, patience));
    late.reset();
    Memory kept(bytes);
    Operation read = pair.a.recv_async(1, kept.mutable_view(), linkspan::forever);
    const Exposed taken = pair.b.expose(kept, Access::write);
    THROWS(Error, LINKSPAN_MEMORY_IN_USE, kept.release(20ms));
    THROWS(Refused, LINKSPAN_REMOTE_ACCESS, pair.a.write(from.view(), taken, {}, patience));
    read.cancel();
    kept.release(patience);
    CHECK(kept.handle() == nullptr);
}

void only_its_own_views_are_exposed_of_a_memory() {
    Pair pair;
    Memory memory = Memory::allocate(4096), other = Memory::allocate(4096);
    const linkspan::View part = memory.view(0, 100);
    // It would be taken back by the wrong one: that of `memory` would wait for it for ever.
    THROWS(Error, LINKSPAN_HANDLE, pair.a.expose(other, part, Access::read));
    memory.release(patience);
    THROWS(Error, LINKSPAN_HANDLE, pair.a.expose(memory, part, Access::read));
}

std::atomic<int> closed{0};
std::int32_t count(int *) {
    closed++;
    return LINKSPAN_OK;
}

void what_two_threads_close_at_once_is_closed_once() {
    int thing = 0;
    std::atomic<int> arrived{0};
    std::vector<linkspan::detail::Handle<int, count>> owners(5000);
    for (auto &owner : owners) {
        owner.reset(&thing);
    }
    const auto close = [&] {
        int both = 0;
        for (auto &owner : owners) {
            arrived++;
            for (both += 2; arrived < both;) {
                std::this_thread::yield();
            }
            owner.reset(nullptr);
        }
    };
    std::thread other(close);
    close();
    other.join();
    CHECK(closed == static_cast<int>(owners.size()));
}

void futures() {
    Pair pair;
    std::vector<char> out(100, 'x'), in(100);
    Memory from(out), to(in);
    const Exposed region = pair.b.expose(to, Access::write);
    std::future<std::uint64_t> notified = pair.b.wait_for_write_async(patience);
    CHECK(notified.wait_for(20ms) == std::future_status::timeout);
    std::future<std::uint64_t> written = pair.a.write_async(from.view(), region, Notify{9}, patience);
    CHECK(notified.wait_for(patience) == std::future_status::ready && notified.get() == 9 && written.get() == 100);
    // Errors are thrown by get().
    std::future<std::uint64_t> late = pair.b.wait_for_write_async(10ms);
    THROWS(TimedOut, LINKSPAN_TIMEOUT, late.get());
    std::future<std::uint64_t> ended = pair.b.wait_for_write_async();
    pair.b.abort();
    THROWS(Aborted, LINKSPAN_ABORTED, ended.get());
    // One that is dropped lets its operation go on: it takes the first notification.
    { std::future<std::uint64_t> dropped = pair.b.wait_for_write_async(patience); }
    for (std::uint64_t value : {1U, 2U}) {
        pair.a.write(from.view(), region, Notify{value}, patience);
    }
    CHECK(pair.b.wait_for_write(patience) == 2);
    // Many at a time, from several threads.
    std::vector<std::thread> threads;
    std::atomic<std::uint64_t> sum{0};
    for (int thread = 0; thread < 4; thread++) {
        threads.emplace_back([&] {
            std::vector<std::future<std::uint64_t>> all;
            for (int n = 0; n < 200; n++) {
                all.push_back(pair.a.write_async(from.view(), region, {}, patience));
            }
            for (auto &one : all) {
                sum += one.get();
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    CHECK(sum == 4U * 200U * 100U);
}

void destructor_cancels_pending_works() {
    auto pair = std::make_unique<Pair>();
    Memory memory = Memory::allocate(64);
    std::array<std::future<std::uint64_t>, 3> pending{
        pair->a.wait_for_write_async(), pair->a.recv_async(1, memory.mutable_view()), pair->a.wait_for_write_async()};
    Operation waited = pair->a.wait_for_write_async();
    pair->a.close();
    for (auto &one : pending) {
        THROWS(Aborted, LINKSPAN_ABORTED, one.get());
    }
    THROWS(Aborted, LINKSPAN_ABORTED, waited.get());
    THROWS(Broken, LINKSPAN_BROKEN, pair->b.wait_for_write(patience));
    // An operation that is dropped is cancelled, and its memory is free at once.
    Pair other;
    { Operation dropped = other.a.recv_async(1, memory.mutable_view()); }
    memory.release(0ms);
}

void a_listener_serves_many_peers() {
    const Listener listener(context());
    Transport one(context()), two(context());
    Operation first = one.connect_async(listener.url(), patience);
    std::future<std::uint64_t> second = two.connect_async(listener.url(), patience);
    const Transport a = listener.accept(patience), b = listener.accept(patience);
    first.get();
    CHECK(second.get() == 0);
    CHECK(one.connected() && b.connected() && a.epoch() == 1 && a.peer_name().empty() && a.path().rfind("tcp", 0) == 0);
    THROWS(TimedOut, LINKSPAN_TIMEOUT, listener.accept(10ms));
    THROWS(Error, 1120, one.connect("nonsense"));
    CHECK(two.event_fd() >= 0);
    two.poll();
}

void an_endpoint_has_peers_by_name() {
    const Endpoint trainer(context(), "trainer");
    std::vector<char> weights(1000, 'w'), got(1000);
    Memory memory(weights), here(got);
    const Exposed region = trainer.expose(memory, Access::read_write);
    Endpoint worker(context(), "worker");
    THROWS(Error, LINKSPAN_UNKNOWN_PEER, worker.peer("trainer"));
    const Transport to = worker.connect("trainer", trainer.url(), patience);
    const Event came = trainer.next(patience);
    CHECK(came.kind == Event::Kind::connected && came.peer == "worker" && trainer.peers() == std::vector<std::string>{"worker"});
    CHECK(!trainer.try_next() && trainer.event_fd() >= 0);
    trainer.poll();
    to.read(here.mutable_view(), region, patience);
    CHECK(got == weights);
    to.write(here.view(), region, Notify{5}, patience);
    const Event told = trainer.next(patience);
    CHECK(told.kind == Event::Kind::notified && told.value == 5);
    // The other way, through a transport that is dropped: the peer stays.
    {
        const Transport back = trainer.peer("worker");
        const Exposed lent = to.expose(here, Access::write);
        CHECK(back.write(memory.view(), lent, {}, patience) == 1000);
    }
    CHECK(worker.connect_async("trainer", trainer.url(), patience).get() == 0 && trainer.peers().size() == 1);
    worker.close();
    const Event gone = trainer.next(patience);
    CHECK(gone.kind == Event::Kind::lost && gone.peer == "worker" && !gone.why.empty() && trainer.peers().empty());
    THROWS(TimedOut, LINKSPAN_TIMEOUT, trainer.next(1ms));
    memory.release(0ms);
}

} // namespace

int main() try {
    const std::pair<const char *, void (*)()> tests[] = {
        {"query_support", query_support},
        {"basic_construction", basic_construction},
        {"move_only_semantics", move_only_semantics},
        {"view_creation", view_creation},
        {"writes_reads_and_messages", writes_reads_and_messages},
        {"rights_end_with_their_owner", rights_end_with_their_owner},
        {"only_its_own_views_are_exposed_of_a_memory", only_its_own_views_are_exposed_of_a_memory},
        {"what_two_threads_close_at_once_is_closed_once", what_two_threads_close_at_once_is_closed_once},
        {"futures", futures},
        {"destructor_cancels_pending_works", destructor_cancels_pending_works},
        {"a_listener_serves_many_peers", a_listener_serves_many_peers},
        {"an_endpoint_has_peers_by_name", an_endpoint_has_peers_by_name},
    };
    for (const auto &[name, test] : tests) {
        test();
        std::printf("  %s\n", name);
    }
    return 0;
} catch (const linkspan::Error &error) {
    fail(0, error.what());
}
