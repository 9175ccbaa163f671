// Two threads write one number back and forth: `ping_pong [ROUNDS]`. Two processes would do the same; URL and remote buffer then
// travel by any way there is between them.
#include <linkspan.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

using Page = std::array<unsigned char, 8192>;

constexpr std::chrono::seconds patience{30};

/// Waits for each write of the peer and writes what came back.
void answer(const linkspan::Transport &transport, linkspan::Memory &page, const linkspan::RemoteBuffer &there, std::uint64_t rounds) {
    for (std::uint64_t round = 0; round < rounds; round++) {
        const std::uint64_t value = transport.wait_for_write(patience);
        transport.write(page.view(), there, linkspan::Notify{value + 1}, patience);
    }
}

std::uint64_t play(std::uint64_t rounds) {
    Page ours{}, theirs{};
    linkspan::Transport server, client;
    linkspan::Memory server_memory(theirs), client_memory(ours);
    const linkspan::Exposed at_server = server.expose(server_memory, linkspan::Access::write);
    const linkspan::Exposed at_client = client.expose(client_memory, linkspan::Access::write);

    client.connect(server.bind(), patience);
    server.wait_connected(patience);
    std::printf("over %s\n", client.path().c_str());

    std::thread other([&] { answer(server, server_memory, at_client, rounds); });
    std::uint64_t correct = 0;
    for (std::uint64_t round = 0; round < rounds; round++) {
        std::memset(ours.data(), static_cast<int>(round & 0xff), ours.size());
        client.write(client_memory.view(), at_server, linkspan::Notify{2 * round}, patience);
        const std::uint64_t value = client.wait_for_write(patience);
        correct += value == 2 * round + 1 && ours.front() == (round & 0xff) && ours == theirs;
    }
    other.join();
    return correct;
}

} // namespace

int main(int argc, char **argv) try {
    const std::uint64_t rounds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1000;
    const std::uint64_t correct = play(rounds);
    std::printf("%llu of %llu rounds correct\n", static_cast<unsigned long long>(correct), static_cast<unsigned long long>(rounds));
    return correct == rounds ? 0 : 1;
} catch (const linkspan::Error &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
