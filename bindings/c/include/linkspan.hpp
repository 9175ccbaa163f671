/* linkspan for C++17 and later: linkspan.h with owners, exceptions and std::future.
 *
 * Header only. Objects are movable owners of what linkspan.h opens; View, MutableView and RemoteBuffer are plain values that are
 * checked at each use, so that one that has outlived its memory is an Error and not a crash. A call that fails throws Error or
 * one of its children; status() is the number of the LS code (docs/ERRORS.md), what() the words.
 *
 * Every operation comes twice: `write(...)` blocks and drives the path itself, `write_async(...)` begins at once and gives an
 * Operation: get() waits (this thread drives: the fastest way), test() asks, and an Operation turns into a
 * std::future<std::uint64_t>, which the engine thread fulfils. An Operation that is dropped is cancelled; a future that is
 * dropped lets its operation go on.
 *
 * Threads: as in linkspan.h, any thread may use any object at any time, close() and cancel() included, except that moving, assigning or
 * destroying one is for one thread alone, as Memory::release() and Exposed::end() are; and that a Ring or a Swap is for one thread at a time.
 *
 * In a child of fork whose parent had used linkspan every call throws an Error with the status LINKSPAN_FORKED, and destructors leave alone
 * what is the parent's: its connections go on. */

#ifndef LINKSPAN_HPP
#define LINKSPAN_HPP

#include "linkspan.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__has_include)
#if __has_include(<version>)
#include <version>
#endif
#endif
#if defined(__cpp_lib_span)
#include <span>
#endif

namespace linkspan {

using std::chrono::milliseconds;

/// As long as the peer lives.
inline constexpr milliseconds forever{LINKSPAN_FOREVER};

/// A call that failed.
class Error : public std::runtime_error {
public:
    Error(std::int32_t status, const std::string &words) : std::runtime_error(words), status_(status) {}

    /// LINKSPAN_TIMEOUT and so on.
    std::int32_t status() const noexcept { return status_; }

    /// The stable code, as LS1101.
    std::string code() const {
        const std::string digits = std::to_string(status_);
        return "LS" + std::string(digits.size() < 4 ? 4 - digits.size() : 0, '0') + digits;
    }

private:
    std::int32_t status_;
};

/// Not done in time. The transport stays usable.
struct TimedOut : Error {
    using Error::Error;
};

/// As TimedOut, but the peer has not confirmed: bytes may still land in its memory, none in ours.
struct TimedOutUnrevoked : TimedOut {
    using TimedOut::TimedOut;
};

/// Ended by abort(), or because its transport or operation is gone.
struct Aborted : Error {
    using Error::Error;
};

/// The transport cannot be used any more; make a new one.
struct Broken : Error {
    using Error::Error;
};

/// A range outside of its memory or remote buffer.
struct OutOfBounds : Error {
    using Error::Error;
};

/// The peer refused, or the remote buffer does not give the right.
struct Refused : Error {
    using Error::Error;
};

namespace detail {

[[noreturn]] inline void raise(std::int32_t status, const std::string &words) {
    switch (status) {
    case LINKSPAN_TIMEOUT: throw TimedOut(status, words);
    case LINKSPAN_TIMED_OUT_UNREVOKED: throw TimedOutUnrevoked(status, words);
    case LINKSPAN_ABORTED: throw Aborted(status, words);
    case LINKSPAN_BROKEN: throw Broken(status, words);
    case LINKSPAN_BOUNDS:
    case LINKSPAN_NOT_INSIDE:
    case LINKSPAN_REGION_BOUNDS: throw OutOfBounds(status, words);
    case LINKSPAN_NO_RIGHT:
    case LINKSPAN_REMOTE_ACCESS: throw Refused(status, words);
    default: throw Error(status, words);
    }
}

inline void check(std::int32_t status) {
    if (status != LINKSPAN_OK) {
        raise(status, linkspan_last_error());
    }
}

/// The one owner of a handle. One thread may close it while others call: the library refuses a handle that was closed.
template <class T, std::int32_t (*close)(T *)> class Handle {
public:
    Handle() noexcept = default;
    explicit Handle(T *handle) noexcept : handle_(handle) {}
    Handle(Handle &&other) noexcept : handle_(other.release()) {}
    Handle &operator=(Handle &&other) noexcept {
        if (this != &other) {
            reset(other.release());
        }
        return *this;
    }
    Handle(const Handle &) = delete;
    Handle &operator=(const Handle &) = delete;
    ~Handle() { reset(nullptr); }

    T *get() const noexcept { return handle_.load(std::memory_order_relaxed); }
    T *release() noexcept { return handle_.exchange(nullptr); }

    void reset(T *other) noexcept {
        if (T *old = handle_.exchange(other)) {
            static_cast<void>(close(old));
        }
    }

private:
    std::atomic<T *> handle_{nullptr};
};

/// What has contiguous elements: data() and size().
template <class C>
using element_t = std::remove_pointer_t<decltype(std::declval<C &>().data() + std::declval<C &>().size())>;

} // namespace detail

/// Version of the library that is loaded.
inline std::string version() { return linkspan_version(); }

/// A part of a memory, to write from. Checked at each use.
class View {
public:
    explicit View(linkspan_view raw) noexcept : raw_(raw) {}

    std::size_t size() const noexcept { return static_cast<std::size_t>(raw_.length); }
    std::size_t offset() const noexcept { return static_cast<std::size_t>(raw_.offset); }
    const linkspan_view &raw() const noexcept { return raw_; }

    /// The first byte. Throws where the memory is gone.
    const std::byte *data() const { return static_cast<const std::byte *>(memory().address) + offset(); }

    /// The memory of which it is a part.
    linkspan_memory_info memory() const {
        linkspan_memory_info info{};
        detail::check(linkspan_memory_get(raw_.memory, &info));
        return info;
    }

    /// `length` bytes from `offset` of this part.
    View view(std::size_t offset, std::size_t length) const { return View(within(offset, length)); }

#if defined(__cpp_lib_span)
    std::span<const std::byte> span() const { return {data(), size()}; }
#endif

protected:
    linkspan_view within(std::size_t offset, std::size_t length) const {
        if (offset > size() || length > size() - offset) {
            detail::raise(LINKSPAN_BOUNDS, "LS1109 " + std::to_string(length) + " bytes at offset " + std::to_string(offset) +
                                               " are not inside of a view of " + std::to_string(size()) + " bytes");
        }
        linkspan_view part = raw_;
        part.offset += offset;
        part.length = length;
        return part;
    }

private:
    linkspan_view raw_;
};

/// A part of a memory that may be written to.
class MutableView : public View {
public:
    explicit MutableView(linkspan_view raw) noexcept : View(raw) {}

    std::byte *mutable_data() const { return static_cast<std::byte *>(memory().address) + offset(); }
    MutableView mutable_view(std::size_t offset, std::size_t length) const { return MutableView(within(offset, length)); }

#if defined(__cpp_lib_span)
    std::span<std::byte> mutable_span() const { return {mutable_data(), size()}; }
#endif
};

/// Rights of the peer.
enum class Access : std::uint32_t {
    read = LINKSPAN_ACCESS_READ,
    write = LINKSPAN_ACCESS_WRITE,
    read_write = LINKSPAN_ACCESS_READ | LINKSPAN_ACCESS_WRITE,
};

/// A place in the peer's memory: 40 bytes that may travel by any way.
class RemoteBuffer {
public:
    explicit RemoteBuffer(const linkspan_remote &raw) noexcept : raw_(raw) {}

    /// Checks bytes that came from the peer.
    static RemoteBuffer from_bytes(const void *bytes, std::size_t length) {
        linkspan_remote raw{};
        detail::check(linkspan_remote_decode(static_cast<const std::uint8_t *>(bytes), length, &raw));
        return RemoteBuffer(raw);
    }

    const std::uint8_t *bytes() const noexcept { return raw_.bytes; }
    static constexpr std::size_t bytes_size() noexcept { return LINKSPAN_REMOTE_SIZE; }
    const linkspan_remote &raw() const noexcept { return raw_; }

    linkspan_remote_info info() const {
        linkspan_remote_info info{};
        detail::check(linkspan_remote_get(&raw_, &info));
        return info;
    }
    std::size_t size() const { return static_cast<std::size_t>(info().length); }

    /// `length` bytes from `offset`.
    RemoteBuffer view(std::size_t offset, std::size_t length) const {
        linkspan_remote part{};
        detail::check(linkspan_remote_slice(&raw_, offset, length, &part));
        return RemoteBuffer(part);
    }

private:
    linkspan_remote raw_;
};

class Exposed;

/// Memory of this process, registered as long as this lives. The destructor takes back what was exposed of it and waits for
/// operations that use it; afterwards the bytes are the caller's alone.
class Memory {
public:
    /// Zeroed bytes of its own, aligned to pages.
    static Memory allocate(std::size_t length) {
        linkspan_memory *out = nullptr;
        detail::check(linkspan_memory_alloc(length, &out));
        return Memory(out);
    }

    /// Bytes of a GPU (cuda:0, hip:1), with undefined contents.
    static Memory allocate_on(const std::string &gpu, std::size_t length) {
        linkspan_memory *out = nullptr;
        detail::check(linkspan_memory_alloc_device(gpu.c_str(), length, &out));
        return Memory(out);
    }

    /// The caller's bytes on a GPU, as cudaMalloc, cuMemAlloc or hipMalloc gave them; they stay as long as this lives. An empty
    /// name asks the driver whose they are. What is written from them was finished by the GPU before.
    static Memory on_gpu(const std::string &gpu, void *address, std::size_t length) {
        return Memory(open_on(gpu, address, length, 0));
    }
    static Memory on_gpu(const std::string &gpu, const void *address, std::size_t length) {
        return Memory(open_on(gpu, const_cast<void *>(address), length, LINKSPAN_READ_ONLY));
    }

    /// Bytes of a file, a memfd, or a dma-buf that processors may map. The descriptor may be closed afterwards.
    static Memory map(int fd, std::uint64_t offset, std::size_t length, bool writable = true) {
        linkspan_memory *out = nullptr;
        detail::check(linkspan_memory_map(fd, offset, length, writable ? 0 : LINKSPAN_READ_ONLY, &out));
        return Memory(out);
    }

    /// The caller's bytes, which stay where they are as long as this lives.
    Memory(void *address, std::size_t length) : Memory(open(address, length, 0)) {}

    /// The caller's bytes, never written to.
    Memory(const void *address, std::size_t length) : Memory(open(const_cast<void *>(address), length, LINKSPAN_READ_ONLY)) {}

    /// The elements of a container, which must not grow or go as long as this lives: std::vector, std::array, std::span, ...
    template <class C, class E = detail::element_t<C>, 
              std::enable_if_t<std::is_trivially_copyable_v<E> && !std::is_same_v<std::remove_const_t<C>, Memory>, int> = 0>
    explicit Memory(C &elements) : Memory(elements.data(), elements.size() * sizeof(E)) {}

    Memory(Memory &&) noexcept = default;
    Memory &operator=(Memory &&other) noexcept {
        if (this != &other) {
            end();
            state_ = std::move(other.state_);
        }
        return *this;
    }
    ~Memory() { end(); }

    linkspan_memory_info info() const {
        linkspan_memory_info info{};
        detail::check(linkspan_memory_get(handle(), &info));
        return info;
    }
    const std::byte *data() const { return static_cast<const std::byte *>(info().address); }
    std::size_t size() const { return static_cast<std::size_t>(info().length); }
    bool writable() const { return info().writable != 0; }
    /// The GPU whose memory it is; empty for memory of the host.
    std::string gpu() const { return info().gpu; }

    /// Whether these bytes are a part of it.
    bool contains(const void *address, std::size_t length) const noexcept {
        linkspan_view out{};
        return linkspan_view_at(handle(), address, length, &out) == LINKSPAN_OK;
    }

    /// All of it.
    View view() const { return view(0, size()); }
    /// `length` bytes from `offset`.
    View view(std::size_t offset, std::size_t length) const { return View({handle(), 0, size()}).view(offset, length); }
    /// `length` bytes at an address inside of it.
    View view_at(const void *address, std::size_t length) const { return View(at(address, length)); }

    /// The same, to be written to. Throws where it is read-only.
    MutableView mutable_view() const { return mutable_view(0, size()); }
    MutableView mutable_view(std::size_t offset, std::size_t length) const {
        const linkspan_memory_info all = writable_info();
        return MutableView({handle(), 0, all.length}).mutable_view(offset, length);
    }
    MutableView mutable_view_at(const void *address, std::size_t length) const {
        writable_info();
        return MutableView(at(address, length));
    }

    linkspan_memory *handle() const noexcept { return state_ ? state_->handle : nullptr; }

    /// Gives it back, waiting at most so long; throws LINKSPAN_MEMORY_IN_USE where that does not suffice, and stays registered. What was
    /// exposed of it has been taken back then, too.
    void release(milliseconds timeout = forever) {
        take_back();
        detail::check(linkspan_memory_release(handle(), timeout.count()));
        state_.reset();
    }

private:
    friend class Exposed;
    friend class Transport;
    friend class Endpoint;

    /// A region, and who gave it out: a transport, or an endpoint for all of its peers.
    struct Right {
        void *owner;
        std::int32_t (*unexpose)(void *owner, const linkspan_remote *remote);
        linkspan_remote remote;

        bool operator==(const Right &other) const noexcept {
            return owner == other.owner && std::equal(remote.bytes, remote.bytes + LINKSPAN_REMOTE_SIZE, other.remote.bytes);
        }
    };

    /// What is exposed of it, so that the bytes cannot go before the rights on them.
    struct State {
        linkspan_memory *handle = nullptr;
        std::mutex lock;
        std::vector<Right> exposed;

        /// In a child of fork, where a thread that is not there any more may have held the lock.
        static bool forked() noexcept {
            linkspan_memory_info none{};
            return linkspan_memory_get(nullptr, &none) == LINKSPAN_FORKED;
        }

        /// Takes the right back, if that has not been done.
        void take_back(const Right &right) noexcept {
            if (forked()) {
                return;
            }
            {
                const std::lock_guard<std::mutex> hold(lock);
                const auto found = std::find(exposed.begin(), exposed.end(), right);
                if (found == exposed.end()) {
                    return;
                }
                exposed.erase(found);
            }
            // That of an owner that was closed has gone with it.
            static_cast<void>(right.unexpose(right.owner, &right.remote));
        }
    };

    /// Exposes a part of it by `expose`, a function of the C library for owners of this kind; `unexpose` is its opposite.
    template <auto expose, auto unexpose, class T> Exposed exposed_by(T *owner, const View &part, Access access) const;

    explicit Memory(linkspan_memory *handle) : state_(std::make_shared<State>()) { state_->handle = handle; }

    static linkspan_memory *open(void *address, std::size_t length, std::uint32_t flags) {
        linkspan_memory *out = nullptr;
        detail::check(linkspan_memory_register(address, length, flags, &out));
        return out;
    }

    static linkspan_memory *open_on(const std::string &gpu, void *address, std::size_t length, std::uint32_t flags) {
        linkspan_memory *out = nullptr;
        const char *name = gpu.empty() ? nullptr : gpu.c_str();
        detail::check(linkspan_memory_register_device(name, address, length, flags, &out));
        return out;
    }

    linkspan_view at(const void *address, std::size_t length) const {
        linkspan_view out{};
        detail::check(linkspan_view_at(handle(), address, length, &out));
        return out;
    }

    linkspan_memory_info writable_info() const {
        const linkspan_memory_info all = info();
        if (!all.writable) {
            detail::raise(LINKSPAN_READ_ONLY_MEMORY, linkspan_status_text(LINKSPAN_READ_ONLY_MEMORY));
        }
        return all;
    }

    void take_back() noexcept {
        if (!state_ || State::forked()) {
            return;
        }
        while (true) {
            std::unique_lock<std::mutex> hold(state_->lock);
            if (state_->exposed.empty()) {
                return;
            }
            const Right last = state_->exposed.back();
            hold.unlock();
            state_->take_back(last);
        }
    }

    void end() noexcept {
        take_back();
        if (state_) {
            static_cast<void>(linkspan_memory_release(state_->handle, LINKSPAN_FOREVER));
            state_.reset();
        }
    }

    std::shared_ptr<State> state_;
};

/// A right that the peer has on a part of a memory, taken back when this is dropped: afterwards nothing of the peer lands there
/// any more. It ends with its memory and with its transport or endpoint too.
class [[nodiscard]] Exposed {
public:
    Exposed(Exposed &&) noexcept = default;
    Exposed &operator=(Exposed &&other) noexcept {
        if (this != &other) {
            end();
            state_ = std::move(other.state_);
            right_ = other.right_;
            reused_ = other.reused_;
        }
        return *this;
    }
    ~Exposed() { end(); }

    /// What the peer needs: give it these bytes by any way.
    RemoteBuffer remote() const noexcept { return RemoteBuffer(right_.remote); }
    operator RemoteBuffer() const noexcept { return remote(); }

    /// Whether the same range was exposed with the same rights already: then both have the same key.
    bool reused() const noexcept { return reused_; }

    /// Takes the right back now.
    void end() noexcept {
        if (state_) {
            state_->take_back(right_);
            state_.reset();
        }
    }

private:
    friend class Memory;
    Exposed(std::shared_ptr<Memory::State> state, const Memory::Right &right, bool reused)
        : state_(std::move(state)), right_(right), reused_(reused) {}

    std::shared_ptr<Memory::State> state_;
    Memory::Right right_;
    bool reused_;
};

template <auto expose, auto unexpose, class T>
Exposed Memory::exposed_by(T *owner, const View &part, Access access) const {
    // Where the peer does not let go within a second the path is revoked.
    const auto take_back = [](void *from, const linkspan_remote *remote) {
        return unexpose(static_cast<T *>(from), remote, 1000);
    };
    static_cast<void>(info()); // an Error where it was released
    if (part.raw().memory != handle()) {
        detail::raise(LINKSPAN_HANDLE, "LS1152 the view is not of the memory of which a part is to be exposed");
    }
    Right right{owner, take_back, {}};
    std::uint32_t reused = 0;
    const std::lock_guard<std::mutex> hold(state_->lock);
    state_->exposed.push_back(right);
    const std::int32_t status = expose(owner, part.raw(), static_cast<std::uint32_t>(access), &right.remote, &reused);
    if (status != LINKSPAN_OK) {
        state_->exposed.pop_back();
        detail::check(status);
    }
    state_->exposed.back() = right;
    return Exposed(state_, right, reused != 0);
}

/// The notification of a write: a value that comes out of the peer's wait_for_write. With `fence` it covers all earlier writes
/// of the transport too, not only its own.
struct Notify {
    std::uint64_t value = 0;
    bool fence = false;
};

/// An operation under way: bytes moved, or the value of a notification. Cancelled when it is dropped.
class Operation {
public:
    explicit Operation(linkspan_op *op) noexcept : op_(op) {}

    /// Asks without waiting. Throws what the operation reports.
    std::optional<std::uint64_t> test() {
        std::uint32_t done = 0;
        std::uint64_t value = 0;
        detail::check(linkspan_op_test(op_.get(), &done, &value));
        return done ? std::optional<std::uint64_t>(value) : std::nullopt;
    }

    /// Waits; this thread drives meanwhile.
    std::uint64_t get() {
        std::uint64_t value = 0;
        detail::check(linkspan_op_wait(op_.get(), &value));
        return value;
    }

    /// Ends it now: nothing of it reads or writes local memory afterwards.
    void cancel() noexcept { op_.reset(nullptr); }

    /// As a future, which is ready when the operation has reported, whichever thread waits. Dropping it cancels nothing.
    std::future<std::uint64_t> future() && {
        auto state = std::make_unique<Promised>();
        std::future<std::uint64_t> future = state->promise.get_future();
        state->op = std::move(op_);
        linkspan_op *const op = state->op.get();
        Promised *const own = state.release();
        const std::int32_t status = linkspan_op_then(op, &Promised::done, own);
        if (status != LINKSPAN_OK) {
            // It will not be called.
            state.reset(own);
            detail::check(status);
        }
        return future;
    }
    operator std::future<std::uint64_t>() && { return std::move(*this).future(); }

    linkspan_op *handle() const noexcept { return op_.get(); }

private:
    using Owner = detail::Handle<linkspan_op, linkspan_op_free>;

    struct Promised {
        std::promise<std::uint64_t> promise;
        Owner op;

        static void done(std::int32_t status, std::uint64_t value, void *arg) noexcept {
            const std::unique_ptr<Promised> own(static_cast<Promised *>(arg));
            try {
                try {
                    detail::check(status);
                    own->promise.set_value(value);
                } catch (const Error &) {
                    own->promise.set_exception(std::current_exception());
                }
            } catch (...) {
                // No memory even for the exception: the promise breaks, which the future tells.
            }
        }
    };

    Owner op_;
};

/// Many writes for one call; may be used again.
class WriteBatch {
public:
    void add(const View &local, const RemoteBuffer &remote) { parts_.push_back({local.raw(), remote.raw()}); }
    void clear() noexcept { parts_.clear(); }
    std::size_t size() const noexcept { return parts_.size(); }
    const linkspan_part *data() const noexcept { return parts_.data(); }

private:
    std::vector<linkspan_part> parts_;
};

/// Many reads for one call; may be used again.
class ReadBatch {
public:
    void add(const MutableView &local, const RemoteBuffer &remote) { parts_.push_back({local.raw(), remote.raw()}); }
    void clear() noexcept { parts_.clear(); }
    std::size_t size() const noexcept { return parts_.size(); }
    const linkspan_part *data() const noexcept { return parts_.data(); }

private:
    std::vector<linkspan_part> parts_;
};

/// One way by which bytes may travel.
struct Support {
    std::string path;
    /// Over what, or why not.
    std::string why;
    bool usable = false;
};

/// Settings, interfaces and the engine thread of any number of transports.
class Context {
public:
    using Setting = std::pair<std::string, std::string>;

    /// Settings as docs/PARAMETERS.md lists them go before the environment. Lines of the log go to `log`, or to standard error.
    explicit Context(const std::vector<Setting> &settings = {}, linkspan_log log = nullptr, void *log_arg = nullptr) {
        std::vector<linkspan_setting> list;
        for (const Setting &setting : settings) {
            list.push_back({setting.first.c_str(), setting.second.c_str()});
        }
        linkspan_context *out = nullptr;
        detail::check(linkspan_context_open(list.data(), list.size(), log, log_arg, &out));
        handle_.reset(out);
    }

    /// The context of the process for transports that carry memory of GPUs.
    static Context for_gpus() {
        linkspan_context *out = nullptr;
        detail::check(linkspan_context_for_gpus(&out));
        return Context(out);
    }

    /// The context of the process for paired peers, see linkspan_context_paired.
    static Context paired(bool for_gpus = false) {
        linkspan_context *out = nullptr;
        detail::check(linkspan_context_paired(for_gpus ? 1 : 0, &out));
        return Context(out);
    }

    std::vector<Support> supported() const { return supported(handle_.get()); }

    /// `context` null: that of the process.
    static std::vector<Support> supported(linkspan_context *context) {
        std::vector<linkspan_support> list(16);
        std::size_t count = list.size();
        detail::check(linkspan_supported(context, list.data(), &count));
        list.resize(count);
        std::vector<Support> all;
        for (const linkspan_support &one : list) {
            all.push_back({one.path, one.why, one.usable != 0});
        }
        return all;
    }

    linkspan_context *handle() const noexcept { return handle_.get(); }

private:
    explicit Context(linkspan_context *handle) noexcept : handle_(handle) {}

    detail::Handle<linkspan_context, linkspan_context_close> handle_;
};

/// A connection to one peer. Ended by the destructor: what is pending reports Aborted, the peer is told.
class Transport {
public:
    /// Through device number `device` of the process's own context.
    explicit Transport(std::uint32_t device = 0) : Transport(open(nullptr, device)) {}
    explicit Transport(const Context &context, std::uint32_t device = 0) : Transport(open(context.handle(), device)) {}
    explicit Transport(linkspan_transport *handle) noexcept : handle_(handle) {}

    /// One that carries memory of this GPU (cuda:0, hip:1) beside that of the host.
    static Transport for_gpu(const std::string &gpu) {
        Transport transport(Context::for_gpus());
        transport.attach(gpu);
        return transport;
    }

    /// Carries memory of this GPU from now on, see linkspan_transport_attach.
    void attach(const std::string &gpu) const { detail::check(linkspan_transport_attach(handle(), gpu.c_str())); }

    /// Which paths there are, and why not the others.
    static std::vector<Support> supported() { return Context::supported(nullptr); }

    /// Lets a peer connect: the URL for it, which carries a secret.
    std::string bind() const {
        char url[LINKSPAN_URL_SIZE];
        detail::check(linkspan_transport_bind(handle(), url, sizeof url));
        return url;
    }

    /// Connects to the transport or listener at `url`. One side suffices.
    void connect(const std::string &url, milliseconds timeout = std::chrono::seconds(10)) const {
        detail::check(linkspan_transport_connect(handle(), url.c_str(), timeout.count()));
    }
    /// Connects to what a paired host serves, see linkspan_transport_connect_host.
    void connect_host(const std::string &host, milliseconds timeout = std::chrono::seconds(10)) const {
        detail::check(linkspan_transport_connect_host(handle(), host.c_str(), timeout.count()));
    }
    Operation connect_async(const std::string &url, milliseconds timeout = std::chrono::seconds(10)) const {
        linkspan_op *op = nullptr;
        detail::check(linkspan_transport_connect_start(handle(), url.c_str(), timeout.count(), &op));
        return Operation(op);
    }

    /// Waits until the peer that has our URL is connected.
    void wait_connected(milliseconds timeout = forever) const {
        detail::check(linkspan_transport_wait_connected(handle(), timeout.count()));
    }

    bool connected() const { return info().connected != 0; }
    /// What carries the bytes and why; empty while there is no path.
    std::string path() const { return info().path; }
    /// What the peer is called here, see linkspan_transport_peer_name.
    std::string peer_name() const {
        linkspan_peer_name name{};
        detail::check(linkspan_transport_peer_name(handle(), &name));
        return name.name;
    }
    /// Paths to the peer so far.
    std::uint32_t epoch() const { return info().epoch; }

    linkspan_peer_info info() const {
        linkspan_peer_info info{};
        detail::check(linkspan_transport_get(handle(), &info));
        return info;
    }

    /// Gives the peer access to a memory, or to a part of it, as long as the result lives. `part` is a view of `memory`.
    Exposed expose(const Memory &memory, Access access) const { return expose(memory, memory.view(), access); }
    Exposed expose(const Memory &memory, const View &part, Access access) const {
        return memory.exposed_by<linkspan_transport_expose, linkspan_transport_unexpose>(handle(), part, access);
    }

    /// Bytes written.
    std::uint64_t write(const View &local, const RemoteBuffer &there, std::optional<Notify> notify = std::nullopt,
                        milliseconds timeout = forever) const {
        std::uint64_t bytes = 0;
        const Note note(notify);
        detail::check(linkspan_write(handle(), local.raw(), &there.raw(), note.get(), timeout.count(), &bytes));
        return bytes;
    }
    Operation write_async(const View &local, const RemoteBuffer &there, std::optional<Notify> notify = std::nullopt,
                          milliseconds timeout = forever) const {
        linkspan_op *op = nullptr;
        const Note note(notify);
        detail::check(linkspan_write_start(handle(), local.raw(), &there.raw(), note.get(), timeout.count(), &op));
        return Operation(op);
    }

    /// Bytes read: as many as `local` has.
    std::uint64_t read(const MutableView &local, const RemoteBuffer &there, milliseconds timeout = forever) const {
        std::uint64_t bytes = 0;
        detail::check(linkspan_read(handle(), local.raw(), &there.raw(), timeout.count(), &bytes));
        return bytes;
    }
    Operation read_async(const MutableView &local, const RemoteBuffer &there, milliseconds timeout = forever) const {
        linkspan_op *op = nullptr;
        detail::check(linkspan_read_start(handle(), local.raw(), &there.raw(), timeout.count(), &op));
        return Operation(op);
    }

    /// Many writes in one call; one notification after all of them.
    std::uint64_t write(const WriteBatch &batch, std::optional<Notify> notify = std::nullopt,
                        milliseconds timeout = forever) const {
        std::uint64_t bytes = 0;
        const Note note(notify);
        detail::check(linkspan_write_batch(handle(), batch.data(), batch.size(), note.get(), timeout.count(), &bytes));
        return bytes;
    }
    Operation write_async(const WriteBatch &batch, std::optional<Notify> notify = std::nullopt,
                          milliseconds timeout = forever) const {
        linkspan_op *op = nullptr;
        const Note note(notify);
        detail::check(linkspan_write_batch_start(handle(), batch.data(), batch.size(), note.get(), timeout.count(), &op));
        return Operation(op);
    }

    /// Many reads in one call.
    std::uint64_t read(const ReadBatch &batch, milliseconds timeout = forever) const {
        std::uint64_t bytes = 0;
        detail::check(linkspan_read_batch(handle(), batch.data(), batch.size(), timeout.count(), &bytes));
        return bytes;
    }
    Operation read_async(const ReadBatch &batch, milliseconds timeout = forever) const {
        linkspan_op *op = nullptr;
        detail::check(linkspan_read_batch_start(handle(), batch.data(), batch.size(), timeout.count(), &op));
        return Operation(op);
    }

    /// The value of the peer's oldest notification; each is taken by one wait.
    std::uint64_t wait_for_write(milliseconds timeout = forever) const {
        std::uint64_t value = 0;
        detail::check(linkspan_wait_for_write(handle(), timeout.count(), &value));
        return value;
    }
    Operation wait_for_write_async(milliseconds timeout = forever) const {
        linkspan_op *op = nullptr;
        detail::check(linkspan_wait_for_write_start(handle(), timeout.count(), &op));
        return Operation(op);
    }

    /// A message to the peer's recv with the same tag.
    std::uint64_t send(std::uint32_t tag, const View &local, milliseconds timeout = forever) const {
        std::uint64_t bytes = 0;
        detail::check(linkspan_send(handle(), tag, local.raw(), timeout.count(), &bytes));
        return bytes;
    }
    Operation send_async(std::uint32_t tag, const View &local, milliseconds timeout = forever) const {
        linkspan_op *op = nullptr;
        detail::check(linkspan_send_start(handle(), tag, local.raw(), timeout.count(), &op));
        return Operation(op);
    }

    /// Length of the message that was received.
    std::uint64_t recv(std::uint32_t tag, const MutableView &local, milliseconds timeout = forever) const {
        std::uint64_t bytes = 0;
        detail::check(linkspan_recv(handle(), tag, local.raw(), timeout.count(), &bytes));
        return bytes;
    }
    Operation recv_async(std::uint32_t tag, const MutableView &local, milliseconds timeout = forever) const {
        linkspan_op *op = nullptr;
        detail::check(linkspan_recv_start(handle(), tag, local.raw(), timeout.count(), &op));
        return Operation(op);
    }

    /// Ends everything pending, on every thread, with Aborted. The transport stays usable.
    void abort() const { detail::check(linkspan_transport_abort(handle())); }

    /// A descriptor for epoll, poll or select: when it can be read, poll() and then Operation::test(). Closed with the transport.
    /// That of an endpoint's peer is the endpoint's: Endpoint::poll() silences it.
    int event_fd() const {
        int fd = -1;
        detail::check(linkspan_transport_event_fd(handle(), &fd));
        return fd;
    }

    /// Silences the descriptor, unless it is an endpoint's, and moves what can move, without waiting. Whether something moved.
    bool poll() const {
        std::uint32_t moved = 0;
        detail::check(linkspan_transport_poll(handle(), &moved));
        return moved != 0;
    }

    /// Ends it now.
    void close() noexcept { handle_.reset(nullptr); }

    linkspan_transport *handle() const noexcept { return handle_.get(); }

private:
    /// A notification as C takes it.
    class Note {
    public:
        explicit Note(const std::optional<Notify> &notify) noexcept : there_(notify.has_value()) {
            if (notify) {
                raw_ = {notify->value, notify->fence ? static_cast<std::uint32_t>(LINKSPAN_FENCE) : 0U, 0U};
            }
        }
        const linkspan_notify *get() const noexcept { return there_ ? &raw_ : nullptr; }

    private:
        linkspan_notify raw_{};
        bool there_;
    };

    static linkspan_transport *open(linkspan_context *context, std::uint32_t device) {
        linkspan_transport *out = nullptr;
        detail::check(linkspan_transport_open(context, device, &out));
        return out;
    }

    detail::Handle<linkspan_transport, linkspan_transport_close> handle_;
};

/// Accepts any number of peers at one URL. Transports that were accepted outlive it.
class Listener {
public:
    explicit Listener(std::uint32_t device = 0) : Listener(nullptr, device) {}
    explicit Listener(const Context &context, std::uint32_t device = 0) : Listener(context.handle(), device) {}

    /// One whose transports carry memory of this GPU, as Transport::for_gpu.
    static Listener for_gpu(const std::string &gpu) {
        Listener listener(Context::for_gpus());
        listener.attach(gpu);
        return listener;
    }

    /// Transports of peers that connect from now on carry memory of this GPU.
    void attach(const std::string &gpu) const { detail::check(linkspan_listener_attach(handle(), gpu.c_str())); }

    std::string url() const {
        char url[LINKSPAN_URL_SIZE];
        detail::check(linkspan_listener_url(handle_.get(), url, sizeof url));
        return url;
    }

    /// Gives the URL to paired hosts, see linkspan_endpoint_serve_at. The port.
    std::uint16_t serve_at(std::uint16_t port = LINKSPAN_PORT) const {
        std::uint16_t served = 0;
        detail::check(linkspan_listener_serve_at(handle_.get(), port, &served));
        return served;
    }

    /// The next peer.
    Transport accept(milliseconds timeout = forever) const {
        linkspan_transport *out = nullptr;
        detail::check(linkspan_listener_accept(handle_.get(), timeout.count(), &out));
        return Transport(out);
    }

    /// An accept of another thread ends with Aborted.
    void close() noexcept { handle_.reset(nullptr); }

    linkspan_listener *handle() const noexcept { return handle_.get(); }

private:
    Listener(linkspan_context *context, std::uint32_t device) {
        linkspan_listener *out = nullptr;
        detail::check(linkspan_listener_open(context, device, &out));
        handle_.reset(out);
    }

    detail::Handle<linkspan_listener, linkspan_listener_close> handle_;
};

/// What has happened at a peer of an endpoint.
struct Event {
    enum class Kind : std::uint32_t {
        /// It is connected, whichever side dialled.
        connected = LINKSPAN_PEER_CONNECTED,
        /// It has written, and notified.
        notified = LINKSPAN_PEER_NOTIFIED,
        /// It has ended or was lost for good, after all of its notifications. Its name is free again.
        lost = LINKSPAN_PEER_LOST,
    };

    Kind kind;
    /// The peer's name.
    std::string peer;
    /// What a notification brought along.
    std::uint64_t value = 0;
    /// Why it was lost.
    std::string why;
};

/// Any number of peers by their names, memory that is exposed once for all of them, and one queue of events. Peers are endpoints
/// too, and come by this one's URL or are connected to. The destructor closes all connections.
class Endpoint {
public:
    /// `name`: 1 to 64 visible characters of ASCII, another one for each endpoint of a job.
    explicit Endpoint(const std::string &name, std::uint32_t device = 0) : Endpoint(nullptr, name, device) {}
    Endpoint(const Context &context, const std::string &name, std::uint32_t device = 0)
        : Endpoint(context.handle(), name, device) {}

    /// One whose peers' transports carry memory of this GPU, as Transport::for_gpu.
    static Endpoint for_gpu(const std::string &name, const std::string &gpu) {
        Endpoint endpoint(Context::for_gpus(), name);
        endpoint.attach(gpu);
        return endpoint;
    }

    /// Transports of its peers carry memory of this GPU, those of peers to come included.
    void attach(const std::string &gpu) const { detail::check(linkspan_endpoint_attach(handle(), gpu.c_str())); }

    /// The URL for its peers, which carries a secret.
    std::string url() const {
        char url[LINKSPAN_URL_SIZE];
        detail::check(linkspan_endpoint_url(handle(), url, sizeof url));
        return url;
    }

    /// Connects to the endpoint called `peer`. Where it is connected already, or comes here meanwhile, that is the one.
    Transport connect(const std::string &peer, const std::string &url, milliseconds timeout = std::chrono::seconds(10)) const {
        detail::check(linkspan_endpoint_connect(handle(), peer.c_str(), url.c_str(), timeout.count()));
        return this->peer(peer);
    }
    Operation connect_async(const std::string &peer, const std::string &url,
                            milliseconds timeout = std::chrono::seconds(10)) const {
        linkspan_op *op = nullptr;
        detail::check(linkspan_endpoint_connect_start(handle(), peer.c_str(), url.c_str(), timeout.count(), &op));
        return Operation(op);
    }

    /// Connects to the endpoint called `peer` that a paired host serves, see linkspan_endpoint_connect_host.
    Transport connect_host(const std::string &peer, const std::string &host,
                           milliseconds timeout = std::chrono::seconds(10)) const {
        detail::check(linkspan_endpoint_connect_host(handle(), peer.c_str(), host.c_str(), timeout.count()));
        return this->peer(peer);
    }

    /// Gives the URL to paired hosts, see linkspan_endpoint_serve_at. The port.
    std::uint16_t serve_at(std::uint16_t port = LINKSPAN_PORT) const {
        std::uint16_t served = 0;
        detail::check(linkspan_endpoint_serve_at(handle(), port, &served));
        return served;
    }

    /// The transport of a peer, for all that goes to it or comes from it. When the result is dropped the peer stays connected, and what is
    /// pending goes on.
    Transport peer(const std::string &name) const {
        linkspan_transport *out = nullptr;
        detail::check(linkspan_endpoint_peer(handle(), name.c_str(), &out));
        return Transport(out);
    }

    /// Names of the peers that are connected, in order.
    std::vector<std::string> peers() const {
        std::vector<linkspan_peer_name> list;
        std::size_t count = 0;
        detail::check(linkspan_endpoint_peers(handle(), nullptr, &count));
        while (count > list.size()) {
            list.resize(count);
            const std::int32_t status = linkspan_endpoint_peers(handle(), list.data(), &count);
            if (status != LINKSPAN_TOO_SMALL) {
                detail::check(status);
                list.resize(count);
            }
        }
        std::vector<std::string> names;
        for (const linkspan_peer_name &one : list) {
            names.emplace_back(one.name);
        }
        return names;
    }

    /// Closes the connection to a peer. It may connect again.
    void remove(const std::string &peer) const { detail::check(linkspan_endpoint_remove(handle(), peer.c_str())); }

    /// Gives all peers access to a memory, or to a part of it, as long as the result lives: those to come included. `part` is a view of
    /// `memory`.
    Exposed expose(const Memory &memory, Access access) const { return expose(memory, memory.view(), access); }
    Exposed expose(const Memory &memory, const View &part, Access access) const {
        return memory.exposed_by<linkspan_endpoint_expose, linkspan_endpoint_unexpose>(handle(), part, access);
    }

    /// The next event of any peer. Those of one peer come in order, and each is taken once.
    Event next(milliseconds timeout = forever) const {
        linkspan_event event{};
        detail::check(linkspan_endpoint_next(handle(), timeout.count(), &event));
        return event_of(event);
    }

    /// The next event, if there is one.
    std::optional<Event> try_next() const {
        linkspan_event event{};
        const std::int32_t status = linkspan_endpoint_next(handle(), 0, &event);
        if (status == LINKSPAN_TIMEOUT) {
            return std::nullopt;
        }
        detail::check(status);
        return event_of(event);
    }

    /// A descriptor for epoll, poll or select: when it can be read, poll(), try_next() and Operation::test(). Closed with the endpoint.
    int event_fd() const {
        int fd = -1;
        detail::check(linkspan_endpoint_event_fd(handle(), &fd));
        return fd;
    }

    /// Silences the descriptor. Whether peers may have events.
    bool poll() const {
        std::uint32_t news = 0;
        detail::check(linkspan_endpoint_poll(handle(), &news));
        return news != 0;
    }

    /// Ends it now. A next() of another thread throws.
    void close() noexcept { handle_.reset(nullptr); }

    linkspan_endpoint *handle() const noexcept { return handle_.get(); }

private:
    Endpoint(linkspan_context *context, const std::string &name, std::uint32_t device) {
        linkspan_endpoint *out = nullptr;
        detail::check(linkspan_endpoint_open(context, device, name.c_str(), &out));
        handle_.reset(out);
    }

    static Event event_of(const linkspan_event &event) {
        return {static_cast<Event::Kind>(event.kind), event.peer, event.value, event.why};
    }

    detail::Handle<linkspan_endpoint, linkspan_endpoint_close> handle_;
};

/// What the device at `path` (/dev/linkspan/0) says about its link and the other host.
inline linkspan_link_info link_info(const std::string &path) {
    linkspan_link_info info{};
    detail::check(linkspan_link_get(path.c_str(), &info));
    return info;
}

/// The queues of one cable with linkspan.ko at both ends. One thread at a time: in the calls, too.
class Ring {
public:
    explicit Ring(const std::string &path) : Ring(path, nullptr) {}
    Ring(const std::string &path, const linkspan_ring_options &options) : Ring(path, &options) {}

    linkspan_link_info info() const {
        linkspan_link_info info{};
        detail::check(linkspan_ring_get(handle(), &info));
        return info;
    }

    /// The number of the registered memory, whose bytes must stay until release() or the end of the ring. `access`:
    /// LINKSPAN_RING_SEND, LINKSPAN_RING_RECEIVE or both.
    std::uint64_t add(void *address, std::size_t length, std::uint32_t access) const {
        std::uint64_t region = 0;
        detail::check(linkspan_ring_register(handle(), address, length, access, &region));
        return region;
    }
    std::uint64_t add_dmabuf(int fd, std::uint64_t offset, std::uint64_t length, std::uint32_t access) const {
        std::uint64_t region = 0;
        detail::check(linkspan_ring_register_dmabuf(handle(), fd, offset, length, access, &region));
        return region;
    }
    /// Lets it go; false while operations use it.
    bool release(std::uint64_t region) const { return unless(LINKSPAN_MEMORY_IN_USE, linkspan_ring_release(handle(), region)); }

    void open_channel(std::uint32_t channel) const { detail::check(linkspan_ring_open_channel(handle(), channel)); }
    void close_channel(std::uint32_t channel) const { detail::check(linkspan_ring_close_channel(handle(), channel)); }

    /// Puts one message into the queue; false where it is full.
    bool send(std::uint32_t channel, std::uint64_t region, std::uint64_t offset, std::uint64_t length, std::uint64_t cookie) const {
        return unless(LINKSPAN_QUEUE_FULL, linkspan_ring_send(handle(), channel, region, offset, length, cookie));
    }
    bool receive(std::uint32_t channel, std::uint64_t region, std::uint64_t offset, std::uint64_t length, std::uint64_t cookie) const {
        return unless(LINKSPAN_QUEUE_FULL, linkspan_ring_receive(handle(), channel, region, offset, length, cookie));
    }

    /// Hands over what was put; entries that were not taken yet.
    std::uint32_t submit() const {
        std::uint32_t waiting = 0;
        detail::check(linkspan_ring_submit(handle(), &waiting));
        return waiting;
    }
    /// The same, and waits for completions; entries that were taken. `flags`: 0 or LINKSPAN_DOORBELL_SPIN.
    std::uint32_t doorbell(std::uint32_t completions, milliseconds timeout, std::uint32_t flags = 0) const {
        std::uint32_t taken = 0;
        detail::check(linkspan_ring_doorbell(handle(), completions, timeout.count(), flags, &taken));
        return taken;
    }
    /// Takes completions that are there, `capacity` at most; how many.
    std::size_t poll(linkspan_completion *list, std::size_t capacity) const {
        std::size_t count = 0;
        detail::check(linkspan_ring_poll(handle(), list, capacity, &count));
        return count;
    }
    /// The same, and waits for the first.
    std::size_t wait(linkspan_completion *list, std::size_t capacity, milliseconds timeout = forever, std::uint32_t flags = 0) const {
        std::size_t count = 0;
        detail::check(linkspan_ring_wait(handle(), timeout.count(), flags, list, capacity, &count));
        return count;
    }

    void set_eventfd(int fd) const { detail::check(linkspan_ring_set_eventfd(handle(), fd)); }
    int fd() const {
        int fd = -1;
        detail::check(linkspan_ring_fd(handle(), &fd));
        return fd;
    }

    linkspan_ring *handle() const noexcept { return handle_.get(); }

private:
    Ring(const std::string &path, const linkspan_ring_options *options) {
        linkspan_ring *out = nullptr;
        detail::check(linkspan_ring_open(path.c_str(), options, &out));
        handle_.reset(out);
    }

    static bool unless(std::int32_t no, std::int32_t status) {
        if (status != no) {
            detail::check(status);
        }
        return status != no;
    }

    detail::Handle<linkspan_ring, linkspan_ring_close> handle_;
};

/// One channel of such a cable with two buffers for each direction that change hands. One thread at a time.
class Swap {
public:
    /// A range of a buffer.
    template <class T> struct Bytes {
        T *data;
        std::size_t size;
    };

    Swap(const std::string &path, std::uint32_t channel, std::uint64_t bytes, milliseconds wait = std::chrono::seconds(5)) {
        linkspan_swap *out = nullptr;
        detail::check(linkspan_swap_open(path.c_str(), channel, bytes, wait.count(), &out));
        handle_.reset(out);
    }

    linkspan_link_info info() const {
        linkspan_link_info info{};
        detail::check(linkspan_swap_get(handle(), &info));
        return info;
    }

    /// The buffer to be filled next, until the next send().
    Bytes<std::uint8_t> front() const {
        std::uint8_t *buffer = nullptr;
        std::uint64_t capacity = 0;
        detail::check(linkspan_swap_front(handle(), &buffer, &capacity));
        return {buffer, static_cast<std::size_t>(capacity)};
    }
    void send(std::uint64_t length) const { detail::check(linkspan_swap_send(handle(), length)); }
    void flush() const { detail::check(linkspan_swap_flush(handle())); }

    /// The next message, until the next receive(); nothing where none comes in time.
    std::optional<Bytes<const std::uint8_t>> receive(milliseconds timeout = forever) const {
        const std::uint8_t *message = nullptr;
        std::uint64_t length = 0;
        detail::check(linkspan_swap_receive(handle(), timeout.count(), &message, &length));
        return message ? std::make_optional(Bytes<const std::uint8_t>{message, static_cast<std::size_t>(length)}) : std::nullopt;
    }

    int fd() const {
        int fd = -1;
        detail::check(linkspan_swap_fd(handle(), &fd));
        return fd;
    }

    linkspan_swap *handle() const noexcept { return handle_.get(); }

private:
    detail::Handle<linkspan_swap, linkspan_swap_close> handle_;
};

/// What each process of this user has moved through each device (linkspan_stats_read).
inline std::vector<linkspan_stats> statistics() {
    std::size_t count = 0;
    detail::check(linkspan_stats_read(nullptr, &count));
    std::vector<linkspan_stats> list;
    while (true) {
        // Others may have begun meanwhile.
        list.resize(count + 8);
        count = list.size();
        const std::int32_t status = linkspan_stats_read(list.data(), &count);
        if (status != LINKSPAN_TOO_SMALL) {
            detail::check(status);
            list.resize(count);
            return list;
        }
    }
}

/// Name of a counter with its unit.
inline std::string counter_name(std::uint32_t number) {
    char name[64];
    detail::check(linkspan_counter_name(number, name, sizeof name));
    return name;
}

} // namespace linkspan

#endif // LINKSPAN_HPP
