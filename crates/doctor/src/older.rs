//! Names that users of older projects have set, and what replaces them.

/// Environment names of older projects: the name, or its beginning where it ends in `*`, and what replaces it.
const NAMES: &[(&str, &str)] = &[
    ("RCCL_NET_PLUGIN", "RCCL reads no such name; set NCCL_NET_PLUGIN=linkspan"),
    ("NCCL_NET_PLUGIN=mesh", "NCCL_NET_PLUGIN=linkspan"),
    ("NCCL_NET_PLUGIN=tb5", "NCCL_NET_PLUGIN=linkspan"),
    ("RCCL_PLUGIN_DIR", "RCCL reads no such name; put the folder into LD_LIBRARY_PATH"),
    ("RCCL_DEBUG", "RCCL reads no such name; set NCCL_DEBUG=INFO"),
    ("NCCL_MESH_TIMEOUT_MS", "LINKSPAN_CONNECT_TIMEOUT_MS"),
    ("NCCL_MESH_RETRY_COUNT", "LINKSPAN_CONNECT_TIMEOUT_MS; retries happen inside it"),
    ("NCCL_MESH_FAST_FAIL", "LINKSPAN_CONNECT_TIMEOUT_MS"),
    ("NCCL_MESH_DEBUG", "NCCL_DEBUG=INFO inside NCCL, LINKSPAN_LOG=info outside"),
    ("NCCL_MESH_ENABLE_RELAY", "LINKSPAN_MESH_PORT and LINKSPAN_PSK_FILE (docs/mesh.md)"),
    ("NCCL_MESH_MAX_HOPS", "LINKSPAN_MESH_PORT and LINKSPAN_PSK_FILE (docs/mesh.md); the shortest routes are taken"),
    ("NCCL_MESH_GID_INDEX", "found by itself; LINKSPAN_GID_INDEX overrides"),
    ("NCCL_MESH_DISABLE_RDMA", "LINKSPAN_PATH=tcp"),
    ("NCCL_MESH_*", "nothing needs to be set; LINKSPAN_IFNAME chooses interfaces"),
    ("UCCL_TCPX_UNPACK_IMPL", "LINKSPAN_UNPACK, with the same values and auto"),
    ("UCCL_TCPX_*", "nothing needs to be set; `lspan devmem probe` shows what device-memory TCP needs"),
    ("ODL_TB5_*", "nothing needs to be set; LINKSPAN_THUNDERBOLT_TIER chooses how a cable is used"),
];

/// The older names among `names`, each with what replaces it.
pub fn names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<(&'a str, &'static str)> {
    let meaning = |name: &str| {
        let hit = |pattern: &str| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == pattern,
        };
        NAMES.iter().find(|(pattern, _)| hit(pattern)).map(|(_, text)| *text)
    };
    let mut found: Vec<_> = names.filter_map(|name| Some((name, meaning(name)?))).collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests;
