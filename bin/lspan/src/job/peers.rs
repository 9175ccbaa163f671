//! The peers that are known before a job starts, and the path that each will take, as far as this host can tell.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use linkspan_doctor::Snapshot;
use linkspan_fabric::keys::Keyring;
use linkspan_topology::{Kind, Machine, Roots, Verdict, cables};

/// Most peers that are shown: a table, not a list of a cluster's nodes.
const MOST: usize = 16;

/// How long names may take to be resolved, all together.
const PATIENCE: Duration = Duration::from_secs(2);

/// A line for each: its name, and the path.
pub(super) fn lines(snapshot: &Snapshot) -> Vec<(String, String)> {
    let mut lines = vec![("processes of this host".to_owned(), "shared memory".to_owned())];
    lines.extend(cabled(snapshot));
    lines.extend(named(snapshot));
    lines
}

/// Hosts at the other ends of Thunderbolt and USB4 cables.
fn cabled(snapshot: &Snapshot) -> Vec<(String, String)> {
    let machine = Machine::read(&Roots::default());
    let list = cables(&machine, snapshot.survey());
    let line = |cable: &linkspan_topology::Cable| {
        let peer = cable.peer.as_ref().filter(|peer| !peer.this_host)?;
        let name = peer.device_name.clone().unwrap_or_else(|| "an unnamed host".into());
        let best = cable.paths.iter().find(|path| path.usable);
        let way = match best {
            Some(path) => format!("{} over {} (cable {})", path.means, path.over, cable.name),
            None => {
                let why = cable.paths.iter().find_map(|path| path.reason.clone()).unwrap_or_else(|| "no path".into());
                format!("not over cable {}: {why}", cable.name)
            }
        };
        Some((name, way))
    };
    list.iter().filter_map(line).take(MOST).collect()
}

/// Hosts that somebody has named: paired ones, and those that a launcher has put into the environment.
fn named(snapshot: &Snapshot) -> Vec<(String, String)> {
    let mut names: Vec<(String, Vec<String>)> = Vec::new();
    if let Ok(Some(ring)) = Keyring::find() {
        names.extend(ring.peers().iter().map(|peer| (peer.name.clone(), peer.hosts.clone())));
    }
    let var = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let launched =
        var("MASTER_ADDR").into_iter().chain(var("SLURM_JOB_NODELIST").into_iter().flat_map(|list| nodes(&list)));
    names.extend(launched.map(|name| (name.clone(), vec![name])));
    names.dedup_by(|a, b| a.0 == b.0);
    names.retain(|(name, _)| *name != snapshot.host() && name != "localhost");
    let left = names.len().saturating_sub(MOST);
    names.truncate(MOST);
    let (to, from) = channel();
    for (at, (name, hosts)) in names.iter().cloned().enumerate() {
        let to = to.clone();
        // A resolver may take as long as it likes; these threads end with it, or with the process.
        let look = move || {
            let all = hosts
                .iter()
                .chain(Some(&name))
                .flat_map(|host| (host.as_str(), 1).to_socket_addrs().into_iter().flatten());
            let _ = to.send((at, all.collect::<Vec<SocketAddr>>()));
        };
        let _ = thread::Builder::new().name("resolve".into()).spawn(look);
    }
    drop(to);
    let mut ways = vec![format!("its name is not resolved within {} s", PATIENCE.as_secs()); names.len()];
    let until = Instant::now() + PATIENCE;
    while let Ok((at, addrs)) = from.recv_timeout(until.saturating_duration_since(Instant::now())) {
        ways[at] = way(snapshot, &addrs);
    }
    let mut lines: Vec<_> = names.into_iter().map(|(name, _)| name).zip(ways).collect();
    if left > 0 {
        lines.push((format!("{left} more"), "not looked at".into()));
    }
    lines
}

/// The best of the ways to a host's addresses.
fn way(snapshot: &Snapshot, addrs: &[SocketAddr]) -> String {
    if addrs.is_empty() {
        return "its name has no address".into();
    }
    let mut ways: Vec<(u8, String)> = addrs.iter().filter_map(|addr| one(snapshot, *addr)).collect();
    ways.sort();
    ways.into_iter().next().map_or_else(|| "no route to any of its addresses".into(), |(_, text)| text)
}

fn one(snapshot: &Snapshot, addr: SocketAddr) -> Option<(u8, String)> {
    let (name, verdict, kind) = snapshot.way(addr)?;
    Some(match (verdict, snapshot.rdma_of(name)) {
        _ if kind == Kind::Loopback || addr.ip().is_loopback() => (0, "shared memory: it is this host".into()),
        (Verdict::Usable, Some(device)) => {
            (1, format!("rdma by {device} over {name} where the peer has it too, else tcp"))
        }
        (Verdict::Usable, None) => (2, format!("tcp over {name}")),
        (Verdict::LastResort, _) => (3, format!("tcp over {name}, a downgrade: the only interface is a virtual one")),
        (Verdict::LeftOut(reason), _) => (4, format!("its address is behind {name}, which is not used: {reason}")),
    })
}

/// The nodes of Slurm's notation, as in `a,n[1-3,07]`, at most [`MOST`] and one. Whatever is malformed is left out.
fn nodes(list: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = list;
    while !rest.is_empty() && found.len() <= MOST {
        let depth = |(at, c): (usize, char)| {
            (c == ',' && rest[..at].matches('[').count() == rest[..at].matches(']').count()).then_some(at)
        };
        let end = rest.char_indices().find_map(depth).unwrap_or(rest.len());
        let one = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        let Some((head, ranges)) = one.split_once('[') else {
            found.push(one.to_owned());
            continue;
        };
        let Some((ranges, tail)) = ranges.split_once(']').filter(|(_, tail)| !tail.contains('[')) else { continue };
        for range in ranges.split(',') {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            let (Ok(first), Ok(last)) = (from.parse::<u32>(), to.parse::<u32>()) else { continue };
            let width = from.len();
            let fits = MOST + 1 - found.len().min(MOST + 1);
            found.extend((first..=last).take(fits).map(|n| format!("{head}{n:0width$}{tail}")));
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slurms_lists_of_nodes() {
        assert_eq!(nodes("a,n[1-3,07],b2-ib"), ["a", "n1", "n2", "n3", "n07", "b2-ib"]);
        assert_eq!(nodes("n[008-010].lab"), ["n008.lab", "n009.lab", "n010.lab"]);
        for junk in ["", ",", "n[", "n[]", "n[a-b]", "n[1-", "n[5-1]", "a[1][2]"] {
            assert_eq!(nodes(junk), Vec::<String>::new(), "{junk}");
        }
        assert_eq!(nodes("n[0-4000000000]").len(), MOST + 1, "a cluster's list is bounded");
    }

    #[test]
    fn a_host_of_this_name_is_this_host() {
        let snapshot = Snapshot::read(linkspan_doctor::Sources::here(None));
        assert_eq!(way(&snapshot, &["127.0.0.1:1".parse().unwrap()]), "shared memory: it is this host");
        assert!(way(&snapshot, &[]).contains("no address"));
    }
}
