//! Every kind of finding, once. `docs/FINDINGS.md` is generated from this.
//!
//! Areas: LS21 Thunderbolt and USB4, LS22 RDMA, LS23 networks, LS24 firewalls, LS25 processes of one host, LS26 GPUs, LS27 speed that was measured, LS28 NCCL and RCCL.
//! The LS14 ones are those of `lspan mesh`, told here where the files of several hosts are judged together.

use crate::finding::Rule;
use crate::finding::Severity::{Broken, Never, Slower};

macro_rules! findings {
    ($($id:ident = $name:literal, $severity:ident, $title:literal, $cost:literal, $mend:literal, [$($after:ident),*];)*) => {
        $(#[doc = $title] pub(crate) static $id: Rule = Rule::new($name, $severity, [$title, $cost, $mend], &[$(&$after),*]);)*
        /// All of them but the findings of meshes, by code.
        pub static ALL: &[&Rule] = &[$(&$id),*];
    };
}

findings! {
    TB_XDOMAIN_OFF = "LS2101 tb-xdomain-off", Broken,
        "connections between hosts are switched off in the thunderbolt module (parameter xdomain)",
        "no host at the end of a Thunderbolt or USB4 cable is seen",
        "take `thunderbolt.xdomain=0` out of the kernel command line and of /etc/modprobe.d, then boot again", [];
    TB_FIRMWARE_FORBIDS = "LS2102 tb-firmware-forbids", Never,
        "the firmware keeps connections between hosts over USB4 to itself (ACPI _OSC: XDomain not granted)",
        "no host at the end of a USB4 cable is seen",
        "nothing on this machine but a firmware update or a firmware setting of its maker", [];
    TB_ONE_LANE = "LS2103 tb-one-lane", Slower,
        "a cable runs on one lane of two",
        "half of the cable's speed",
        "unplug the cable and plug it in again, then another cable or another port", [];
    TB_SLOW_LANE = "LS2104 tb-slow-lane", Slower,
        "a cable was negotiated at 10 Gb/s for each lane, where the port can 20",
        "half of the cable's speed",
        "a cable that is marked 40 Gb/s or more (passive ones up to 0.8 m), plugged in directly", [];
    TB_NO_DRIVER = "LS2105 tb-no-driver", Broken,
        "a Thunderbolt or USB4 host interface has no driver",
        "no cable in its ports is seen",
        "load the module `thunderbolt`", [];
    TB_NET_MISSING = "LS2106 tb-net-missing", Broken,
        "the module thunderbolt_net is not installed for the running kernel",
        "no TCP over the cable",
        "install the package of the running kernel that has it", [];
    TB_NET_OFF = "LS2107 tb-net-off", Broken,
        "the other host offers a network over the cable, and no driver took it here",
        "no TCP over the cable",
        "load the module `thunderbolt_net`", [TB_NET_MISSING];
    TB_PEER_NET_OFF = "LS2108 tb-peer-net-off", Broken,
        "the other host offers no network over the cable",
        "no TCP over the cable",
        "load `thunderbolt_net` there, or switch its Thunderbolt networking on", [];
    TB_NET_DOWN = "LS2109 tb-net-down", Broken,
        "the interface of a cable is switched off",
        "no TCP over the cable",
        "set the interface up", [];
    TB_NO_ADDRESS = "LS2110 tb-no-address", Broken,
        "the interface of a cable has no address, not even a link-local one",
        "no TCP over the cable",
        "give it a link-local address, or both ends addresses of one subnet", [TB_NET_DOWN];
    TB_NO_CARRIER = "LS2111 tb-no-carrier", Broken,
        "the interface of a cable has no carrier: the other host has not set its end up",
        "no TCP over the cable",
        "set the interface up on the other host", [TB_NET_DOWN];
    TB_LOOP = "LS2112 tb-loop", Broken,
        "both ends of a cable are plugged into this host",
        "the cable leads nowhere",
        "plug one end into the other host", [];
    TB_MODULE_OTHER_KERNEL = "LS2113 tb-module-other-kernel", Slower,
        "the module linkspan is installed for another kernel than the running one",
        "cables are used by the kernel's slower ways",
        "build it for the running kernel with DKMS, which needs that kernel's headers; where that is older than 6.8, boot the other one", [TB_DKMS_FAILED];
    TB_DKMS_FAILED = "LS2114 tb-dkms-failed", Slower,
        "DKMS could not build the module linkspan for the running kernel",
        "cables are used by the kernel's slower ways",
        "install the headers of the running kernel and build again; the log says what failed", [];
    TB_MODULE_UNSIGNED = "LS2115 tb-module-unsigned", Slower,
        "the module linkspan is not signed, and the kernel loads signed modules only (Secure Boot or module.sig_enforce)",
        "cables are used by the kernel's slower ways",
        "sign it with a key that the firmware knows (DKMS makes one, mokutil enrols it)", [];
    TB_MODULE_OFF = "LS2116 tb-module-off", Slower,
        "the module linkspan is installed and not loaded",
        "cables are used by the kernel's slower ways",
        "load the module `linkspan`", [TB_MODULE_UNSIGNED];
    TB_STREAM_OFF = "LS2117 tb-stream-off", Slower,
        "the other host offers USB4STREAM, and no driver took it here",
        "messages over the cable take the longer way through TCP",
        "load the module `thunderbolt_stream`", [];
    TB_STREAM_UNSET = "LS2118 tb-stream-unset", Slower,
        "USB4STREAM is there, and no stream is set up to the other host",
        "messages over the cable take the longer way through TCP",
        "`lspan link up` on both hosts", [];
    TB_TSO = "LS2119 tb-tso", Slower,
        "this host forwards or bridges to the cable, and the cable's driver takes large segments (TSO)",
        "TCP of other hosts that goes over this one to the cable falls to a small part of its speed; 244 KB/s in place of 380 MB/s was reported",
        "`ethtool -K thunderbolt0 tso off`", [TB_NET_DOWN];
    TB_RING_WAITING = "LS2120 tb-ring-waiting", Slower,
        "linkspan.ko is loaded on both hosts, and this one has not allowed the other to use it",
        "messages over the cable take the longer way through TCP",
        "`lspan link allow` with the other host's UUID, on both hosts", [];
    TB_RING_MODES = "LS2121 tb-ring-modes", Slower,
        "linkspan.ko is in mode direct on one host of a cable and in mode network on the other",
        "the cable's rings carry nothing: messages take the longer way through TCP",
        "`lspan link mode` on both hosts alike", [];

    RDMA_NO_NODE = "LS2201 rdma-no-node", Broken,
        "this machine has RDMA devices, and /dev/infiniband is missing, as in a container that was not given it",
        "no RDMA: everything goes over TCP, with the latency of the kernel's stack",
        "give the container /dev/infiniband, or load `ib_uverbs`", [];
    RDMA_NO_LIBRARY = "LS2202 rdma-no-library", Broken,
        "this machine has RDMA devices, and libibverbs or its providers are not installed",
        "no RDMA: everything goes over TCP",
        "install libibverbs and its providers (rdma-core)", [];
    RDMA_MEMLOCK = "LS2203 rdma-memlock", Broken,
        "this process may lock little memory, and RDMA locks what it registers",
        "large messages are registered in small pieces, which is slower, or not at all, and connections fall back to TCP",
        "raise the limit of locked memory (ulimit -l)", [];
    RDMA_NO_CMA = "LS2204 rdma-no-cma", Broken,
        "the kernel has no contiguous memory (CmaTotal is 0), which RDMA needs on this platform",
        "registering memory fails with `Cannot allocate memory`",
        "boot another kernel, or one with `cma=` on its command line", [];
    RDMA_NO_ADDRESS = "LS2205 rdma-no-address", Broken,
        "the interface of an RDMA port has a cable and no address",
        "neither RDMA nor TCP over that cable",
        "give both ends of the cable addresses of one subnet, which no other cable has", [];
    RDMA_HALF_UNUSED = "LS2206 rdma-half-unused", Slower,
        "one half of a port has an address and the other has none; each half has a PCIe link of its own",
        "half of the port's speed",
        "give the other half addresses of a subnet of its own, on both hosts", [];
    RDMA_DOWN = "LS2207 rdma-down", Broken,
        "the interface of an RDMA port has an address and is switched off",
        "no RDMA over that cable",
        "set the interface up", [];
    RDMA_NO_GID = "LS2208 rdma-no-gid", Broken,
        "an RDMA port has no RoCE v2 GID of its interface's address",
        "no RDMA over that cable, TCP only",
        "set the interface down and up, so that the kernel fills the table anew", [RDMA_DOWN, RDMA_NO_ADDRESS, RDMA_HALF_UNUSED];
    RDMA_V1_ONLY = "LS2209 rdma-v1-only", Broken,
        "an RDMA port has RoCE v1 GIDs only",
        "no RDMA over that cable, TCP only",
        "RoCE v2 by the card's firmware, driver or settings, where it has it", [RDMA_DOWN, RDMA_NO_ADDRESS];
    RDMA_NO_MANAGER = "LS2210 rdma-no-manager", Broken,
        "no subnet manager has set an InfiniBand port up",
        "no RDMA over that cable",
        "start a subnet manager (opensm) on one host of the fabric", [];
    RDMA_MTU = "LS2211 rdma-mtu", Slower,
        "the MTU of a RoCE interface is too small for RoCE's largest packets",
        "RoCE sends packets of 1024 or 2048 bytes in place of 4096",
        "an MTU of 9000 on both ends", [RDMA_DOWN];
    RDMA_PCIE = "LS2212 rdma-pcie", Slower,
        "the PCIe link of an RDMA device is slower than the device and its port",
        "the port is no faster than its PCIe link",
        "another slot; on a link that came up slowly, power off and on again", [];
    RDMA_FIRMWARE = "LS2213 rdma-firmware", Slower,
        "cards of one kind run different firmware on two hosts",
        "features and speeds that both ends need may be missing on one",
        "the same firmware on all hosts", [];

    NET_SETTINGS = "LS2301 net-settings", Broken,
        "a setting of linkspan has a value that it does not take",
        "no process starts with it",
        "correct or unset it", [];
    NET_FILTER = "LS2302 net-filter", Broken,
        "a list of interfaces names one that is not there, or prefixes of which none fits",
        "the interface that was meant is not used",
        "correct the list", [NET_SETTINGS];
    NET_FILTER_SLOW = "LS2303 net-filter-slow", Slower,
        "a list of interfaces leaves a much faster one out",
        "everything goes over the slower one",
        "name the faster interface in LINKSPAN_IFNAME, or unset the list", [NET_SETTINGS, NET_FILTER];
    NET_NONE = "LS2304 net-none", Broken,
        "no interface can carry anything to another host",
        "other hosts are not reached",
        "connect a network or a cable, and give it an address", [NET_FILTER, NET_NO_ADDRESS, TB_NO_ADDRESS, TB_NET_DOWN, TB_NO_CARRIER, RDMA_NO_ADDRESS, RDMA_DOWN, NET_DOWN];
    NET_LAST_RESORT = "LS2305 net-last-resort", Slower,
        "the only interface is a virtual one, as in a container with a network of its own",
        "every packet goes through the host's software switch",
        "the host's network (host network), macvlan or SR-IOV", [];
    NET_NO_ADDRESS = "LS2306 net-no-address", Broken,
        "an interface that was asked for has a carrier and no address",
        "that interface carries nothing",
        "give both ends addresses of one subnet", [];
    NET_ONE_SUBNET = "LS2307 net-one-subnet", Broken,
        "two interfaces of this host are in one subnet, and one of them is a cable to one host",
        "the kernel sends everything for that subnet over one of them: the other cable is dead",
        "a subnet of its own for each cable", [];
    NET_BRIDGE = "LS2308 net-bridge", Broken,
        "a bridge that no network card is part of was chosen, such as docker0",
        "it leads to no other host, and other hosts often have one with the same addresses",
        "name the interface of a network card", [];
    NET_SLOW_LINK = "LS2309 net-slow-link", Slower,
        "a network card was negotiated at 100 Mb/s or less",
        "a tenth of what the slowest card of today does, or less",
        "another cable (all eight wires), or another port of the switch", [];
    NET_BUFFERS = "LS2310 net-buffers", Slower,
        "TCP may use less than 1 MiB of memory for each connection (net.ipv4.tcp_rmem, tcp_wmem)",
        "a fast connection waits for acknowledgements: 10 Gb/s and 1 ms are 1.25 MB on their way",
        "raise the largest values of both", [];
    NET_PACING = "LS2311 net-pacing", Slower,
        "TCP's default is BBR, and linkspan may choose nothing else",
        "about a third of the speed on fast local networks: BBR sends by timer",
        "allow cubic, or make it the default", [];
    NET_UNREACHABLE = "LS2312 net-unreachable", Broken,
        "nobody answers at the peer's address",
        "no connection to that host",
        "look at the cable, and at the address and firewall of that host: `lspan doctor` there", [];
    NET_BLACK_HOLE = "LS2313 net-black-hole", Broken,
        "large packets to the peer vanish without an answer",
        "connections are made and then stand still, as soon as a packet is large",
        "the MTU that the way carries, on both ends; or the larger one on every switch between", [NET_UNREACHABLE];
    NET_NO_ROUTE = "LS2314 net-no-route", Broken,
        "there is no route to the peer's address",
        "no connection to that host",
        "give an interface an address of the peer's subnet, or take the route or rule away that forbids it", [NET_NONE, NET_NO_ADDRESS, NET_DOWN, TB_NO_ADDRESS, TB_NET_DOWN, RDMA_NO_ADDRESS, RDMA_DOWN];
    NET_ASYMMETRIC = "LS2315 net-asymmetric", Slower,
        "packets to a host and packets from it take different interfaces",
        "replies go over another, often slower, network, or are dropped as unexpected (rp_filter)",
        "routes on both hosts that name the same cable", [NET_ONE_SUBNET];
    NET_TWICE = "LS2316 net-twice", Broken,
        "two hosts have the same address",
        "connections reach one of them, or themselves",
        "an address of its own for each host", [];
    NET_DOWN = "LS2317 net-down", Broken,
        "an interface that was asked for is switched off",
        "that interface carries nothing",
        "set the interface up", [TB_NET_DOWN, RDMA_DOWN];
    NET_OWN_ADDRESS = "LS2318 net-own-address", Broken,
        "the peer that was named is this host itself",
        "the way to the other host is not tested, and connections to that name stay here",
        "another name or address; /etc/hosts may give the other host's name an address of this one", [];

    FIREWALL_DROPS = "LS2401 firewall-drops", Broken,
        "this host's firewall drops connections that come in over a cable",
        "the other host cannot connect to this one over it",
        "let the interface in", [];
    FIREWALL_PEER = "LS2402 firewall-peer", Broken,
        "the peer answers, and a connection to it, or to its other ports, gets no answer: a firewall drops it",
        "no connection to that host",
        "let the interface in on the peer: `lspan doctor` there, as root, names the rule where it understands it", [NET_UNREACHABLE, NET_NO_ROUTE];

    HOST_PTRACE = "LS2501 host-ptrace", Slower,
        "processes may not read each other's memory (kernel.yama.ptrace_scope), and several GPUs are here",
        "large messages between processes of this host are copied twice",
        "set kernel.yama.ptrace_scope to 0", [];
    HOST_SELINUX = "LS2502 host-selinux", Slower,
        "SELinux forbids processes to read each other's memory (deny_ptrace), and several GPUs are here",
        "large messages between processes of this host are copied twice",
        "switch the boolean deny_ptrace off", [];
    HOST_SHM = "LS2503 host-shm", Slower,
        "/dev/shm is small, and several GPUs are here",
        "NCCL's own shared memory does not fit and NCCL ends with an error",
        "a larger /dev/shm", [];
    HOST_PID_NAMESPACE = "LS2504 host-pid-namespace", Slower,
        "two containers of one host are in different pid namespaces",
        "large messages between them are copied twice",
        "run them in one pod or with one pid namespace", [HOST_NET_NAMESPACE];
    HOST_NET_NAMESPACE = "LS2505 host-net-namespace", Slower,
        "two containers of one host are in different network namespaces",
        "they use TCP in place of shared memory",
        "run them in one pod, or both in the host's network", [];

    GPU_NO_DRIVER = "LS2601 gpu-no-driver", Broken,
        "a GPU has no driver, and its vendor's software or the environment asks for it",
        "nothing computes on it",
        "install or load its driver", [];
    GPU_NO_NODE = "LS2602 gpu-no-node", Broken,
        "a GPU has a driver, and its device files are missing, as in a container for GPUs that was not given them",
        "nothing computes on it",
        "give the container the device files", [];
    GPU_NO_ACCESS = "LS2603 gpu-no-access", Broken,
        "this user may not open the GPU's device files",
        "nothing computes on it",
        "add the user to the group that owns them", [GPU_NO_NODE];
    GPU_NO_DIRECT = "LS2604 gpu-no-direct", Slower,
        "RDMA cannot reach the memory of NVIDIA GPUs: neither the open kernel modules (dma-buf) nor nvidia_peermem are loaded",
        "payload is copied through host memory on both hosts",
        "load nvidia_peermem, or install the open kernel modules", [];

    SPEED_DROPPED = "LS2701 speed-dropped", Slower,
        "a way to a peer carries less than 0.7 of what the record of this pair says (`lspan doctor --speed`)",
        "what it carried before",
        "look at what has changed: the cable, its port, the load of both hosts, the kernel", [SPEED_RAILS];
    SPEED_RAILS = "LS2702 speed-rails", Slower,
        "of two equal rails to a peer one carries less than 0.6 of the other (`lspan doctor --speed`)",
        "connections over both are about as fast as twice the slower one",
        "swap the two cables: what is slow then is the cable, or the port", [];
    SPEED_STALLED = "LS2703 speed-stalled", Broken,
        "a measurement over a way to a peer began and did not end in its time (`lspan doctor --speed`)",
        "connections over that way stand still, or are far slower than any cable or card is",
        "look at what sits between: `lspan doctor` with the address at that way's other end, limits of a router or of `tc`", [];

    NCCL_OLD_NAMES = "LS2801 nccl-old-names", Broken,
        "names of older projects are set, which linkspan does not read",
        "what they were meant to change is not changed",
        "unset them; docs/migration.md has what replaces each", [];
    NCCL_NOT_FOUND = "LS2802 nccl-not-found", Broken,
        "NCCL_NET_PLUGIN asks for linkspan, and the loader finds no such plugin",
        "NCCL and RCCL use their own transports, without a word unless NCCL_DEBUG is set",
        "put the plugin's folder into LD_LIBRARY_PATH", [];
    NCCL_SHADOWED = "LS2803 nccl-shadowed", Broken,
        "the loader finds an older plugin of linkspan before the newer one",
        "the older one is used; hosts with different releases refuse each other",
        "remove the older file, or put the newer one's folder first in LD_LIBRARY_PATH", [];
    NCCL_OTHER_NET = "LS2804 nccl-other-net", Broken,
        "NCCL_NET names another network than linkspan, while NCCL_NET_PLUGIN asks for linkspan",
        "NCCL does not use linkspan",
        "unset NCCL_NET", [];
    NCCL_VERSIONS = "LS2805 nccl-versions", Broken,
        "two hosts have plugins of different releases",
        "hosts with different releases may refuse each other",
        "the same release on all hosts", [NCCL_SHADOWED];
}

macro_rules! meshes {
    ($($code:literal $slug:literal $severity:ident $title:literal, $cost:literal;)*) => {
        /// Those of meshes, whose codes are defined where meshes are judged.
        pub static MESH: &[&Rule] = &[$({
            static RULE: Rule = Rule::new(
                concat!("LS", $code, " ", $slug), $severity,
                [$title, $cost, "as `lspan mesh` says"], &[],
            );
            &RULE
        }),*];
    };
}

meshes! {
    "1410" "mesh-no-address" Broken "an end of a cable between two hosts has no address", "nothing goes over that cable";
    "1411" "mesh-same-address" Broken "both ends of a cable have the same address", "nothing goes over that cable";
    "1412" "mesh-prefixes" Broken "the prefixes of a cable's two ends differ", "one end does not see the other";
    "1413" "mesh-subnets" Broken "the two ends of a cable are in different subnets, or the cables are crossed", "nothing goes over that cable but TCP by link-local addresses, where it is a Thunderbolt one; crossed ones may carry IP all the same, for Linux answers for the addresses of its other cables unless reverse-path filters are strict";
    "1414" "mesh-one-way" Broken "one end of a cable receives nothing from the other", "nothing goes over that cable";
    "1415" "mesh-mtu" Broken "the two ends of a cable have different MTUs", "large packets are lost";
    "1416" "mesh-small-mtu" Slower "a fast cable has a small MTU", "about half of the speed of TCP";
    "1417" "mesh-speeds" Slower "the two ends of a cable run at different speeds", "the cable is as fast as its slower end";
    "1418" "mesh-one-subnet" Broken "two cables of a host are in one subnet", "the kernel sends everything over one of them";
    "1419" "mesh-half" Slower "one half of a port is not used", "half of the port's speed";
    "1420" "mesh-gid" Broken "an RDMA device has no RoCE v2 GID of its address", "no RDMA over that cable, TCP only";
}
