//! No file names a host or a path that only one builder has.

use std::path::Path;

use crate::tree::Source;

/// Hosts that addresses in the tree may name: specifications, upstreams, and names reserved for examples (RFC 2606).
const HOSTS: [&str; 31] = [
    "github.com",
    "doc.rust-lang.org",
    "docs.rs",
    "keepachangelog.com",
    "semver.org",
    "www.apache.org",
    "opensource.org",
    "man7.org",
    "docs.kernel.org",
    "www.kernel.org",
    "git.kernel.org",
    "lwn.net",
    "docs.nvidia.com",
    "docs.vllm.ai",
    "rocm.docs.amd.com",
    "www.rfc-editor.org",
    "www.debian.org",
    "archive.ubuntu.com",
    "noiseprotocol.org",
    "openucx.org",
    "blog.hellas.ai",
    "refspecs.linuxfoundation.org",
    "llvm.org",
    "clang.llvm.org",
    "creativecommons.org",
    "www.w3.org",
    "www.freedesktop.org",
    "json-schema.org",
    "cyclonedx.org",
    "example.com",
    "example.org",
];

/// Addresses of hosts that are not on the list, and paths of this very machine.
pub(crate) fn problems(root: &Path, sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut own: Vec<String> = vec![root.display().to_string()];
    own.extend(std::env::var("HOME").ok().filter(|home| home.len() > 1));
    for source in sources {
        for (at, line) in source.text.lines().enumerate() {
            for host in hosts(line) {
                if !HOSTS.contains(&host) && !is_local(host) {
                    problems.push(format!(
                        "{}:{}: names the host {host}, which is not on the list in xtask/src/check/hosts.rs",
                        source.path,
                        at + 1
                    ));
                }
            }
            for path in own.iter().filter(|path| names_path(line, path)) {
                problems.push(format!("{}:{}: names {path}, a path of this machine", source.path, at + 1));
            }
        }
    }
    problems
}

/// Hosts of the web addresses in a line.
fn hosts(line: &str) -> Vec<&str> {
    let starts = line.match_indices("://").map(|(at, _)| at + 3);
    let is_web = |at: &usize| line[..at - 3].ends_with("http") || line[..at - 3].ends_with("https");
    starts
        .filter(is_web)
        .map(|at| {
            let rest = &line[at..];
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))).unwrap_or(rest.len());
            rest[..end].trim_end_matches('.')
        })
        .filter(|host| !host.is_empty())
        .collect()
}

fn is_local(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::Ipv4Addr>().is_ok()
}

fn names_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + path.len()..].chars().next();
        let joins = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'));
        !joins(before) && !joins(after)
    })
}
