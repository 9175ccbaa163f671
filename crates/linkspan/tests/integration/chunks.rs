//! Transfers of every shape: below, at and above the pieces a path cuts them into, one after the other, and scattered and
//! gathered in uneven parts. The names are those of the behaviours' list (the field's tests of staged transfers).

use crate::common::{LONG, PATHS, check, filled, pair};
use linkspan::{Access, Memory, MutableView, Notify, Read, RemoteBuffer, Transport, Write};

/// Largest piece that any path cuts: 1 MiB of a direct copy; TCP takes half, a ring an eighth.
const CHUNK: usize = 1 << 20;

/// A transport, its peer, and what the peer shows.
struct Side {
    own: Transport,
    peer: Transport,
    there: Memory,
    remote: RemoteBuffer,
}

fn side(extra: &[(&str, &str)], len: usize) -> Side {
    let (own, peer) = pair(extra);
    let there = Memory::host(len);
    let remote = peer.expose(&there.view(), Access::ReadWrite).unwrap().remote();
    Side { own, peer, there, remote }
}

/// Over and back, with a look at every byte and at the ones behind.
fn there_and_back(sizes: &[usize]) {
    let most = sizes.iter().copied().max().unwrap() + 1;
    for (_, extra) in PATHS {
        let s = side(extra, most);
        for (n, &len) in sizes.iter().enumerate() {
            s.there.fill(0, &vec![0xEE; most]).unwrap();
            let (src, to) = (filled(len, n as u64), s.remote.slice(0, len as u64).unwrap());
            let wrote = s.own.write_blocking(&src.view(), &to, Some(Notify::value(n as u64)), Some(LONG));
            assert_eq!(wrote.unwrap(), len as u64);
            assert_eq!(s.peer.wait_for_write_blocking(Some(LONG)).unwrap(), n as u64);
            check(&s.there, 0, len, n as u64);
            let mut behind = vec![0; most - len];
            s.there.read(len, &mut behind).unwrap();
            assert!(behind == vec![0xEE; most - len], "bytes behind {len}");
            let back = Memory::host(len);
            assert_eq!(s.own.read_blocking(&back.view_mut().unwrap(), &to, Some(LONG)).unwrap(), len as u64);
            check(&back, 0, len, n as u64);
        }
    }
}

#[test]
fn single_chunk() {
    there_and_back(&[CHUNK / 2]);
}

#[test]
fn multi_chunk() {
    there_and_back(&[4 * CHUNK]);
}

#[test]
fn last_chunk_smaller() {
    there_and_back(&[2 * CHUNK + CHUNK / 3]);
}

#[test]
fn exactly_one_chunk() {
    there_and_back(&[CHUNK / 8, CHUNK / 2, CHUNK]);
}

#[test]
fn large_chunk() {
    there_and_back(&[24 * CHUNK]);
}

#[test]
fn many_chunks() {
    there_and_back(&[64 * CHUNK / 8]);
}

#[test]
fn sizes() {
    let around = |n: usize| [n - 1, n, n + 1];
    let mut sizes = vec![0, 1, 1023, 1024, 1025];
    sizes.extend([8 << 10, 16 << 10, 48 << 10, 64 << 10, CHUNK / 8, CHUNK / 2, CHUNK].into_iter().flat_map(around));
    there_and_back(&sizes);
}

#[test]
fn unique_pattern_integrity() {
    // Every word tells its own place, so a piece at the wrong one shows.
    let words: Vec<u8> = (0..3 * CHUNK as u64 / 8 + 5).flat_map(u64::to_le_bytes).collect();
    for (_, extra) in PATHS {
        let s = side(extra, words.len());
        s.own.write_blocking(&Memory::copy_of(&words).view(), &s.remote, None, Some(LONG)).unwrap();
        assert!(s.there.to_vec() == words);
    }
}

#[test]
fn sequential_transfers() {
    for (_, extra) in PATHS {
        let s = side(extra, 2 * CHUNK);
        for n in 0..50u64 {
            let len = 1 + (n as usize * 77_777) % (2 * CHUNK);
            let src = filled(len, n);
            let to = s.remote.slice(0, len as u64).unwrap();
            s.own.write_blocking(&src.view(), &to, Some(Notify::value(n)), Some(LONG)).unwrap();
            assert_eq!(s.peer.wait_for_write_blocking(Some(LONG)).unwrap(), n);
            check(&s.there, 0, len, n);
        }
    }
}

/// Lengths of parts, as uneven as they come: none, one byte, around a page, some pieces.
const UNEVEN: [usize; 9] = [0, 1, 4095, 4096, 4097, 300_000, 17, CHUNK + 9, 8192];

/// Where each part lies when they follow one another with a gap behind each.
fn places(gap: usize) -> Vec<usize> {
    UNEVEN.iter().scan(0, |at, len| Some(std::mem::replace(at, *at + len + gap))).collect()
}

/// One call with a part for each of `UNEVEN`, gaps here and there as given; both ways.
fn scattered(gap_here: usize, gap_there: usize) {
    let total: usize = UNEVEN.iter().sum();
    for (_, extra) in PATHS {
        let s = side(extra, total + UNEVEN.len() * gap_there);
        let whole = filled(total + UNEVEN.len() * gap_here, 1);
        s.there.fill(0, &vec![0xEE; s.there.len()]).unwrap();
        let (here, there) = (places(gap_here), places(gap_there));
        let remote = |n: usize| s.remote.slice(there[n] as u64, UNEVEN[n] as u64).unwrap();
        let parts: Vec<Write<'_>> =
            (0..UNEVEN.len()).map(|n| (whole.slice(here[n], UNEVEN[n]).unwrap(), remote(n))).collect();
        let wrote = s.own.write_batch_blocking(&parts, Some(Notify::value(9)), Some(LONG)).unwrap();
        assert_eq!(wrote, total as u64);
        assert_eq!(s.peer.wait_for_write_blocking(Some(LONG)).unwrap(), 9);
        let (sent, got) = (whole.to_vec(), s.there.to_vec());
        let mut untouched = vec![true; got.len()];
        for (n, &len) in UNEVEN.iter().enumerate() {
            assert!(got[there[n]..][..len] == sent[here[n]..][..len], "part {n}");
            untouched[there[n]..][..len].fill(false);
        }
        assert!(got.iter().zip(untouched).all(|(&b, free)| !free || b == 0xEE), "bytes between the parts");
        // And back into another arrangement.
        let back = Memory::host(whole.len());
        let into = |n: usize| -> MutableView<'_> { back.slice_mut(here[n], UNEVEN[n]).unwrap() };
        let parts: Vec<Read<'_>> = (0..UNEVEN.len()).map(|n| (into(n), remote(n))).collect();
        assert_eq!(s.own.read_batch_blocking(&parts, Some(LONG)).unwrap(), total as u64);
        let back = back.to_vec();
        for (n, &len) in UNEVEN.iter().enumerate() {
            assert!(back[here[n]..][..len] == sent[here[n]..][..len], "part {n} back");
        }
    }
}

#[test]
fn scatter_recv() {
    scattered(0, 100);
}

#[test]
fn gather_put() {
    scattered(4096, 0);
}

#[test]
fn scatter_and_gather_multi_chunk_uneven_entries() {
    scattered(64, 3);
}

/// Parts that are neighbours on both sides travel as one; the answer and the bytes are the same.
#[test]
fn neighbours_are_merged() {
    scattered(0, 0);
}
