// Many writes and reads at a time: as one call for all of them, and as one std::future for each: `batch [PAGES]`.
#include <linkspan.hpp>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr std::size_t page = 4096;
constexpr std::chrono::seconds patience{60};

std::size_t run(std::size_t pages) {
    std::vector<unsigned char> source(pages * page), cache(pages * page), back(pages * page);
    for (std::size_t n = 0; n < source.size(); n++) {
        source[n] = static_cast<unsigned char>(n / page * 31 + n);
    }
    linkspan::Transport target, writer;
    writer.connect(target.bind(), patience);
    linkspan::Memory from(source), there(cache), again(back);
    const linkspan::Exposed region = target.expose(there, linkspan::Access::read_write);

    // Pages land in reverse order; one notification follows the last byte.
    linkspan::WriteBatch writes;
    for (std::size_t n = 0; n < pages; n++) {
        writes.add(from.view(n * page, page), region.remote().view((pages - 1 - n) * page, page));
    }
    writer.write(writes, linkspan::Notify{pages}, patience);
    if (target.wait_for_write(patience) != pages) {
        return 0;
    }

    // Each page is read back by an operation of its own.
    std::vector<std::future<std::uint64_t>> reads;
    for (std::size_t n = 0; n < pages; n++) {
        const linkspan::RemoteBuffer place = region.remote().view((pages - 1 - n) * page, page);
        reads.push_back(writer.read_async(again.mutable_view(n * page, page), place, patience));
    }
    std::size_t correct = 0;
    for (std::size_t n = 0; n < pages; n++) {
        const bool all = reads[n].get() == page;
        const auto begin = static_cast<std::ptrdiff_t>(n * page), end = begin + static_cast<std::ptrdiff_t>(page);
        correct += all && std::equal(source.begin() + begin, source.begin() + end, back.begin() + begin);
    }
    return correct;
}

} // namespace

int main(int argc, char **argv) try {
    const std::size_t pages = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 512;
    const std::size_t correct = run(pages);
    std::printf("%zu of %zu pages correct\n", correct, pages);
    return correct == pages ? 0 : 1;
} catch (const linkspan::Error &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
