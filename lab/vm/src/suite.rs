//! The tests: one entry each.

mod cable;
mod capi;
mod conformance;
mod cost;
mod dmabuf;
mod faults;
mod install;
mod liar;
mod load;
mod loss;
mod memory;
mod network;
mod perf;
mod places;
mod power;
mod rdma;
mod ring;
mod shapes;
mod single;
mod sleep;
mod stream;
mod stripe;
pub(crate) mod system;
pub(crate) mod tb;
mod thunderbolt;
mod upstream;
mod usage;

use crate::error::Result;
use crate::lab::Lab;

/// What drivers of the cable a test's guests have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drivers {
    /// Those of the kernel.
    Stock,
    /// Those of the kernel, and ours, built for it.
    Ours,
    /// Those of the kernel with the patches of `lab/upstream`.
    Patched,
}

/// One composition of guests and what is proven with it.
#[derive(Clone, Copy)]
pub(crate) struct Test {
    /// Its name.
    pub(crate) name: &'static str,
    /// Oldest kernel that it makes sense on.
    pub(crate) since: (u32, u32),
    /// The drivers in its guests.
    pub(crate) drivers: Drivers,
    /// What it proves.
    pub(crate) what: &'static str,
    /// What it does.
    pub(crate) run: fn(&mut Lab) -> Result<()>,
}

/// Any kernel that setup knows.
const ANY: (u32, u32) = (0, 0);

/// All of them, the cheap ones first.
pub(crate) const ALL: &[Test] = &[
    Test {
        name: "tb-pair",
        since: ANY,
        drivers: Drivers::Stock,
        what: "one cable from discovery to the death of a host: network, streams, dma_test, plug, reload, rescan, suspend",
        run: thunderbolt::pair,
    },
    Test {
        name: "tb-lanes",
        since: ANY,
        drivers: Drivers::Stock,
        what: "two lanes become one link; every DMA through a strict IOMMU: none outside of what the driver mapped",
        run: thunderbolt::lanes,
    },
    Test {
        name: "tb-faults",
        since: ANY,
        drivers: Drivers::Stock,
        what: "frames, interrupts and receivers that fail, a cable pulled out in mid-transfer: the kernel recovers",
        run: faults::faults,
    },
    Test {
        name: "tb-discovery",
        since: ANY,
        drivers: Drivers::Stock,
        what: "control packets that fail while hosts get to know each other, a silent host, a slower link: found again",
        run: faults::discovery,
    },
    Test {
        name: "tb-variants",
        since: ANY,
        drivers: Drivers::Stock,
        what: "router version 2, generation 4, three lanes one way, Intel's interrupts, MSI",
        run: shapes::variants,
    },
    Test {
        name: "tb-peer",
        since: ANY,
        drivers: Drivers::Stock,
        what: "one guest and a host in software; a plug wakes a host interface that sleeps",
        run: shapes::peer,
    },
    Test {
        name: "tb-sleep",
        since: ANY,
        drivers: Drivers::Stock,
        what: "suspended again and again, with the other host unplugged, gone and back in between",
        run: sleep::sleep,
    },
    Test {
        name: "tb-three",
        since: ANY,
        drivers: Drivers::Stock,
        what: "three hosts in a triangle and in a row: network over every cable",
        run: shapes::three,
    },
    Test {
        name: "tb-many",
        since: ANY,
        drivers: Drivers::Stock,
        what: "two machines with two host interfaces each and three cables: network over every cable",
        run: shapes::many,
    },
    Test {
        name: "tb-upstream",
        since: (7, 3),
        drivers: Drivers::Patched,
        what: "the kernel's drivers with the patches of lab/upstream: throttling, late answers, rings that are polled",
        run: upstream::upstream,
    },
    Test {
        name: "ring-pair",
        since: ANY,
        drivers: Drivers::Ours,
        what: "linkspan.ko: login, messages, transfers without a copy, dma-buf, credits, wrong calls",
        run: ring::pair,
    },
    Test {
        name: "ring-capi",
        since: ANY,
        drivers: Drivers::Ours,
        what: "linkspan.ko from C: rings and swaps compared, wrong calls, a link that is lost",
        run: capi::capi,
    },
    Test {
        name: "ring-reload",
        since: ANY,
        drivers: Drivers::Ours,
        what: "linkspan.ko opened and closed 200 times, loaded and unloaded 3 times: nothing is left",
        run: ring::reload,
    },
    Test {
        name: "cable-use",
        since: ANY,
        drivers: Drivers::Ours,
        what: "lspan and the plugin over a cable: our driver, the kernel's stream, AllReduce, a peer killed, unplug",
        run: cable::used,
    },
    Test {
        name: "ring-life",
        since: ANY,
        drivers: Drivers::Ours,
        what: "linkspan.ko: killed processes, unplug, unbind, unload, a host that dies",
        run: ring::life,
    },
    Test {
        name: "ring-dmabuf",
        since: ANY,
        drivers: Drivers::Ours,
        what: "linkspan.ko and dma-bufs: both ways, parts, wrong sizes, exporters that go, processes killed, unplug",
        run: dmabuf::dmabuf,
    },
    Test {
        name: "cable-rings",
        since: ANY,
        drivers: Drivers::Ours,
        what: "the conformance suite over linkspan.ko, also with dma-bufs only",
        run: conformance::ring,
    },
    Test {
        name: "cable-streams",
        since: (7, 2),
        drivers: Drivers::Stock,
        what: "the conformance suite over USB4STREAM",
        run: conformance::stream,
    },
    Test {
        name: "cable-nets",
        since: ANY,
        drivers: Drivers::Ours,
        what: "the conformance suite over TCP and thunderbolt_net, and by TCP and RDMA over the network interface of linkspan.ko",
        run: conformance::net,
    },
    Test {
        name: "cable-stripe",
        since: ANY,
        drivers: Drivers::Ours,
        what: "two cables as one link: both carry the plugin's AllReduce, each is pulled in mid-run and carries again",
        run: stripe::stripe,
    },
    Test {
        name: "ring-load",
        since: ANY,
        drivers: Drivers::Ours,
        what: "linkspan.ko in mid-transfer: rmmod, memory unmapped by its owner, locked memory, many at once, suspend",
        run: load::load,
    },
    Test {
        name: "ring-loss",
        since: ANY,
        drivers: Drivers::Ours,
        what: "linkspan.ko and frames that are lost, doubled, damaged: every byte arrives, every file stays open",
        run: loss::loss,
    },
    Test {
        name: "ring-irq",
        since: ANY,
        drivers: Drivers::Ours,
        what: "linkspan.ko and interrupts: by edges, by edges that unmasking does not repeat, lost ones, none at all",
        run: loss::interrupts,
    },
    Test {
        name: "ring-silent",
        since: ANY,
        drivers: Drivers::Ours,
        what: "linkspan.ko and a path that is enabled and moves nothing, the second one or the first: left out, told, tried again",
        run: loss::silent,
    },
    Test {
        name: "ring-remove",
        since: ANY,
        drivers: Drivers::Ours,
        what: "linkspan.ko whose host interface or cable goes while the link comes up: nothing stands still",
        run: loss::remove,
    },
    Test {
        name: "ring-memory",
        since: (7, 1),
        drivers: Drivers::Ours,
        what: "linkspan.ko where memory is short: rings are halved, transfers go on",
        run: memory::short,
    },
    Test {
        name: "ring-install",
        since: ANY,
        drivers: Drivers::Ours,
        what: "linkspan.ko built by DKMS, its device given to a group by udev",
        run: install::installed,
    },
    Test {
        name: "ring-viommu",
        since: ANY,
        drivers: Drivers::Ours,
        what: "linkspan.ko behind a strict IOMMU",
        run: ring::viommu,
    },
    Test {
        name: "ring-bounce",
        since: ANY,
        drivers: Drivers::Ours,
        what: "linkspan.ko with bounce buffers for every DMA",
        run: ring::bounce,
    },
    Test {
        name: "ring-leaks",
        since: ANY,
        drivers: Drivers::Ours,
        what: "linkspan.ko opened and closed 1000 times, loaded and unloaded 100 times: nothing is left",
        run: ring::leaks,
    },
    Test {
        name: "ring-single",
        since: ANY,
        drivers: Drivers::Ours,
        what: "linkspan.ko on host interfaces with one, two and three ring pairs left: all of them carry data",
        run: single::single,
    },
    Test {
        name: "ring-beside",
        since: ANY,
        drivers: Drivers::Ours,
        what: "linkspan.ko and thunderbolt_net where there are two ring pairs, in either order; a path that is refused",
        run: single::beside,
    },
    Test {
        name: "ring-liar",
        since: ANY,
        drivers: Drivers::Ours,
        what: "linkspan.ko and a host that lies: frames, lengths, credits, grants, HopIDs, versions, and random ones",
        run: liar::liar,
    },
    Test {
        name: "ring-net",
        since: ANY,
        drivers: Drivers::Ours,
        what: "linkspan.ko's network interface: modes, ping, TCP, lspan, soft-RoCE, beside thunderbolt_net, unplug, unload",
        run: network::net,
    },
    Test {
        name: "ring-net-two",
        since: ANY,
        drivers: Drivers::Ours,
        what: "two cables between the same two ports of linkspan.ko: lspan link up gives each end its address, both carry",
        run: network::two,
    },
    Test {
        name: "ring-net-loss",
        since: ANY,
        drivers: Drivers::Ours,
        what: "linkspan.ko's network interface and frames and interrupts that are lost: every byte of TCP arrives",
        run: network::loss,
    },
    Test {
        name: "ring-net-liar",
        since: ANY,
        drivers: Drivers::Ours,
        what: "linkspan.ko's network interface and a host that lies about packets: counted, and nothing else",
        run: network::liar,
    },
    Test {
        name: "ring-cost",
        since: ANY,
        drivers: Drivers::Ours,
        what: "calls, copies, pins, interrupts, doorbells for each MiB: linkspan.ko, USB4STREAM, thunderbolt_net side by side",
        run: cost::cost,
    },
    Test {
        name: "use-cable",
        since: ANY,
        drivers: Drivers::Ours,
        what: "every lspan perf test and the plugin over thunderbolt_net; a cut cable is told; an Ethernet rail carries on",
        run: usage::cable,
    },
    Test {
        name: "use-places",
        since: ANY,
        drivers: Drivers::Stock,
        what: "lspan's files on xfs, btrfs, f2fs, tmpfs, overlayfs, vfat and exfat: what each lacks costs what the documents say",
        run: places::places,
    },
    Test {
        name: "use-power",
        since: ANY,
        drivers: Drivers::Stock,
        what: "lspan get and send onto a disk whose power goes, in mid-transfer and right after done: whole files, ended by the next run",
        run: power::power,
    },
    Test {
        name: "rxe-one",
        since: ANY,
        drivers: Drivers::Stock,
        what: "soft-RoCE in one guest: loopback",
        run: rdma::one,
    },
    Test {
        name: "rxe-pair",
        since: ANY,
        drivers: Drivers::Stock,
        what: "soft-RoCE between two guests: ibv_rc_pingpong and perftest as the reference",
        run: rdma::pair,
    },
    Test {
        name: "rxe-triangle",
        since: ANY,
        drivers: Drivers::Stock,
        what: "three guests, a subnet for each edge: RC traffic on all three",
        run: rdma::triangle,
    },
    Test {
        name: "rxe-ring",
        since: ANY,
        drivers: Drivers::Stock,
        what: "four guests in a ring, a subnet for each edge: RC traffic on all four",
        run: rdma::ring,
    },
    Test {
        name: "rxe-linkspan",
        since: ANY,
        drivers: Drivers::Stock,
        what: "our RDMA transport over soft-RoCE: the conformance suite, what it costs the card, perftest beside it",
        run: rdma::ours,
    },
    Test {
        name: "rxe-use",
        since: ANY,
        drivers: Drivers::Stock,
        what: "lspan and the plugin over soft-RoCE: every byte checked, AllReduce, a peer killed",
        run: rdma::used,
    },
    Test {
        name: "rxe-cut",
        since: ANY,
        drivers: Drivers::Stock,
        what: "the plugin over soft-RoCE: one of two cables cut and back, the only one cut",
        run: rdma::cut,
    },
    Test {
        name: "rxe-mesh3",
        since: ANY,
        drivers: Drivers::Stock,
        what: "a triangle of direct cables, three subnets: the plugin's AllReduce by RDMA on each",
        run: rdma::mesh_triangle,
    },
    Test {
        name: "rxe-mesh4",
        since: ANY,
        drivers: Drivers::Stock,
        what: "a ring of four and a line: RDMA between neighbours, relays between others, cables cut in mid-run and back",
        run: rdma::mesh_ring,
    },
];
