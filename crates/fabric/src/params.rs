//! Every `LINKSPAN_*` environment name, once: what it is called, what it takes, what it means. Reading, checking,
//! `lspan env` and the documentation all come from this table.

/// What a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// `0` or `1`.
    Switch,
    /// A whole number between the two.
    Number(u64, u64),
    /// One of these words.
    Word(&'static [&'static str]),
    /// `auto`, or the name of a transport; checked where they are listed.
    Path,
    /// Any text; checked where it is used.
    Text,
}

/// One parameter.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// The environment name.
    pub name: &'static str,
    /// What it takes.
    pub takes: Takes,
    /// Its value when it is not set, as text.
    pub default: &'static str,
    /// What it does.
    pub text: &'static str,
}

macro_rules! params {
    ($($id:ident = $name:literal, $takes:expr, $default:literal, $text:literal;)*) => {
        $(#[doc = $text] pub const $id: Param = Param { name: $name, takes: $takes, default: $default, text: $text };)*
        /// All of them, in the order of the documentation.
        pub const ALL: &[Param] = &[$($id),*];
    };
}

params! {
    STRICT = "LINKSPAN_STRICT", Takes::Switch, "0",
        "Turn every downgrade (a path slower than the machine could give) into an error of listen or connect.";
    PATH = "LINKSPAN_PATH", Takes::Path, "auto",
        "Force one kind of path: `tcp`, `shm`, `verbs`, `thunderbolt` or `devmem`. `auto` takes shared memory on one host; between hosts RDMA (`verbs`) where both have a device on the interfaces that reach each other, else a Thunderbolt or USB4 cable (`thunderbolt`) that joins them, else device-memory TCP (`devmem`) where `lspan devmem up` runs for both interfaces, else TCP.";
    IFNAME = "LINKSPAN_IFNAME", Takes::Text, "",
        "Interfaces to use: a comma-separated list of name prefixes, `=` before a list of whole names, `^` to exclude. Overrides NCCL_SOCKET_IFNAME. Each side chooses its own. If none of them shares a network with an address of the peer, linkspan connects over TCP by the kernel's routing table, as NCCL does; the path then names the interface, and it is a downgrade (LS0550). Unset: the interfaces of network cards and cables that have an address (a link-local address alone counts only for Thunderbolt cables). A bridge without a card, a veth or a tunnel is used only if it has the default route and no other interface is usable, as in a container (a downgrade). `lspan status` gives the reason for each interface.";
    DEVICES = "LINKSPAN_DEVICES", Takes::Word(&["group", "split"]), "group",
        "`group`: one device per NUMA node with all its interfaces as rails. `split`: one device per interface.";
    PSK_FILE = "LINKSPAN_PSK_FILE", Takes::Text, "",
        "File (mode 0600) with the cluster key. Peers without it are refused.";
    PSK_MODE = "LINKSPAN_PSK_MODE", Takes::Word(&["auth", "encrypt"]), "auth",
        "What the cluster key, or the key pair of `lspan pair`, is used for: `auth` authenticates connections; `encrypt` also encrypts every byte on TCP (AES-256-GCM), if at least one side sets it.";
    CMA = "LINKSPAN_CMA", Takes::Switch, "1",
        "Use cross-memory attach (process_vm_readv/writev) for large messages between processes of one user on one host.";
    STREAMS = "LINKSPAN_TCP_STREAMS", Takes::Number(0, 8), "0",
        "TCP streams per pair of interfaces; 0 chooses by link speed (1 up to 25 Gb/s, 2 up to 100, 4 above).";
    HELPERS = "LINKSPAN_HELPERS", Takes::Text, "0",
        "Helper threads for each network card, 0 to 8: they send and receive on its TCP streams, pinned to the CPUs near the card. Only links above 25 Gb/s use them, and a process has at most 8; with `force:N` every TCP stream uses one, at any link speed. Encrypted streams use none.";
    ZEROCOPY = "LINKSPAN_ZEROCOPY", Takes::Text, "auto",
        "Send payload with MSG_ZEROCOPY, without the kernel's copy. `auto`: payloads of 256 KiB and more, on links of 25 Gb/s and more; a number: payloads of at least this many bytes (4096 or more); `0`: never. A stream stops using it when the kernel reports that it copied anyway. Streams within one machine and encrypted streams never use it.";
    CONGESTION = "LINKSPAN_TCP_CONGESTION", Takes::Text, "",
        "Congestion control of our sockets. Unset: the kernel's default; towards private and loopback addresses cubic, if that default is one with pacing (bbr).";
    TRAFFIC_CLASS = "LINKSPAN_TRAFFIC_CLASS", Takes::Number(0, 255), "",
        "IP traffic class (TOS) of our packets. Unset: what NCCL asks for, else the OS default.";
    IB_HCA = "LINKSPAN_IB_HCA", Takes::Text, "",
        "RDMA devices to use: a comma-separated list of name prefixes, `=` before a list of whole names, `^` to exclude.";
    GID_INDEX = "LINKSPAN_GID_INDEX", Takes::Number(0, 254), "",
        "GID table entry that RoCE uses. Unset: the RoCE v2 entry of the address that reaches the peer, else the IPv4 (else global IPv6) one of its interface.";
    QPS = "LINKSPAN_QPS", Takes::Number(1, 7), "1",
        "Queue pairs for each pair of interfaces; large messages are striped over them.";
    IB_TIMEOUT = "LINKSPAN_IB_TIMEOUT", Takes::Number(1, 31), "14",
        "How long an RDMA device waits for an acknowledgement: 4.096 us * 2^n; 14 is 67 ms.";
    IB_RETRY_CNT = "LINKSPAN_IB_RETRY_CNT", Takes::Number(0, 7), "7",
        "How often it retransmits before the path counts as lost.";
    IB_SL = "LINKSPAN_IB_SL", Takes::Number(0, 15), "0",
        "Service level on InfiniBand.";
    IB_PKEY = "LINKSPAN_IB_PKEY", Takes::Number(0, 65_535), "0",
        "Partition table entry of the port, by index.";
    THUNDERBOLT_TIER = "LINKSPAN_THUNDERBOLT_TIER", Takes::Word(&["auto", "ring", "stream", "net", "off"]), "auto",
        "How Thunderbolt and USB4 cables are used. `auto`: the best that works. `ring`: only by our driver linkspan.ko. `stream`: only by the kernel's USB4STREAM (Linux 7.2). `net`, `off`: only by TCP over thunderbolt_net.";
    CONNECT_TIMEOUT_MS = "LINKSPAN_CONNECT_TIMEOUT_MS", Takes::Number(100, 3_600_000), "20000",
        "Time limit for setting up a connection, milliseconds.";
    STALL_MS = "LINKSPAN_STALL_MS", Takes::Number(0, 86_400_000), "0",
        "Fail an operation after this many milliseconds in which the peer is alive but sends nothing; 0: no limit. Does not apply to sends that wait for the peer to post a receive.";
    REVOKE_MS = "LINKSPAN_REVOKE_MS", Takes::Number(100, 3_600_000), "1000",
        "How long a one-sided operation that timed out waits for the peer to confirm that no more bytes of it can arrive, milliseconds; after that it is reported as unrevoked. A host that lost its peer and cannot connect to it waits twice as long, at least 10 s. Raise it on overloaded hosts.";
    GPU = "LINKSPAN_GPU", Takes::Word(&["auto", "staged", "off"]), "auto",
        "GPU memory. `auto`: the plugin announces host memory only to NCCL, which then copies by itself, faster than staging; the library uses GPU memory if the program names a GPU. `staged`: the plugin announces device memory to NCCL; device-memory TCP and capable RDMA cards access it directly, other paths copy it through host memory. With CUDA, work that a program queues behind a collective (item(), cpu()) can then block linkspan's copies, and NCCL hangs (seen on an H100). `off`: host memory only.";
    STAGE_MEMORY = "LINKSPAN_STAGE_MEMORY", Takes::Number(8, 1_048_576), "1024",
        "Maximum pinned memory of a process for staging GPU memory, MiB. Each direction of a connection takes 8 (44 on shared memory with direct copies) when it carries its first message of GPU memory.";
    UNPACK = "LINKSPAN_UNPACK", Takes::Word(&["auto", "kernel", "d2d", "host"]), "auto",
        "How fragments received by device-memory TCP are assembled on the GPU: by one GPU `kernel`, by one copy each (`d2d`), or by copies through `host` memory; `auto` measures the first messages of each size and takes the fastest.";
    DEVMEM_POOL = "LINKSPAN_DEVMEM_POOL", Takes::Number(1, 4095), "64",
        "GPU memory into which each network card receives by device-memory TCP, MiB. Set it to twice the data in flight in one round trip plus what the GPU still holds. Maximum 4 GiB.";
    DEVMEM_QUEUES = "LINKSPAN_DEVMEM_QUEUES", Takes::Text, "",
        "Receive queues that this process binds to GPU memory itself, as in `eth0:12-15`, if `lspan devmem up` does not run. Needs CAP_NET_ADMIN, header split turned on, and queues that are not in the RSS table.";
    MESH_PORT = "LINKSPAN_MESH_PORT", Takes::Number(0, 65_535), "0",
        "TCP and UDP port on which hosts joined by direct cables find each other, on cabled interfaces only; hosts without a cable between them are then reached through other hosts. Needs LINKSPAN_PSK_FILE, and the same port on all hosts (7475 is a good one); 0: no mesh.";
    MESH_FILE = "LINKSPAN_MESH_FILE", Takes::Text, "",
        "File that declares the mesh, one line `node NAME ADDRESS/PREFIX ...` per host, instead of the hosts' own announcements.";
    LOG = "LINKSPAN_LOG", Takes::Word(&["off", "warn", "info"]), "warn",
        "What linkspan logs to standard error. In the NCCL plugin NCCL_DEBUG decides instead.";
    STATS_DIR = "LINKSPAN_STATS_DIR", Takes::Text, "",
        "Directory of the statistics pages that `lspan stats` and `lspan metrics` read, or a folder with the sticky bit that holds one per user; unset: `/run/linkspan/stats` where it is such a folder, else `$XDG_RUNTIME_DIR/linkspan`, else `/run/linkspan` for root, else `/tmp/linkspan-UID`; `off` writes none.";
}

/// Parameters that guard something. Each may come from a variable of a script that has no value, as in
/// `LINKSPAN_PSK_FILE=$KEY`.
const GUARDS: [&str; 3] = [PSK_FILE.name, PSK_MODE.name, STRICT.name];

/// What is wrong with a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("LS0501 {name}={value}: {want}; unset it or see `lspan env`")]
pub struct BadParam {
    /// The environment name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// What it takes.
    pub want: String,
}

impl Param {
    /// The value from `get` (normally the environment), checked; `None` when unset, or empty where nothing is guarded by it.
    ///
    /// # Errors
    /// [`BadParam`]: the value is not one the parameter takes.
    pub fn read(&self, get: &dyn Fn(&str) -> Option<String>) -> Result<Option<String>, BadParam> {
        let Some(value) = get(self.name).filter(|v| !v.is_empty() || GUARDS.contains(&self.name)) else {
            return Ok(None);
        };
        if value.is_empty() {
            let want = "it is set and empty, which would silently turn off what it protects".to_owned();
            return Err(BadParam { name: self.name.to_owned(), value, want });
        }
        let want = match self.takes {
            Takes::Switch if value == "0" || value == "1" => return Ok(Some(value)),
            Takes::Switch => "it takes 0 or 1".to_owned(),
            Takes::Number(min, max) => match value.parse::<u64>() {
                Ok(n) if n >= min && n <= max => return Ok(Some(value)),
                _ => format!("it takes a whole number from {min} to {max}"),
            },
            Takes::Word(words) if words.contains(&value.as_str()) => return Ok(Some(value)),
            Takes::Word(words) => format!("it takes one of {}", words.join(", ")),
            Takes::Path | Takes::Text => return Ok(Some(value)),
        };
        Err(BadParam { name: self.name.to_owned(), value, want })
    }

    pub(crate) fn switch(&self, get: &dyn Fn(&str) -> Option<String>) -> Result<bool, BadParam> {
        Ok(self.read(get)?.unwrap_or_else(|| self.default.to_owned()) == "1")
    }

    pub(crate) fn number(&self, get: &dyn Fn(&str) -> Option<String>) -> Result<Option<u64>, BadParam> {
        Ok(self.read(get)?.or_else(|| Some(self.default.to_owned())).and_then(|v| v.parse().ok()))
    }
}

/// Names in `env` that begin like ours and are not: spelling mistakes that would otherwise go unnoticed.
pub fn unknown<'a>(env: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    env.filter(|name| name.starts_with("LINKSPAN_") && !ALL.iter().any(|p| p.name == *name)).collect()
}

#[cfg(test)]
mod tests;
