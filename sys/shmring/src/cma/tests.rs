use linkspan_transport::{Buf, StaticBuf};

use super::{Ranges, Remote};
use crate::revoke::AccessGuard;
use crate::slot::MAX_SLICES;

fn me() -> i32 {
    std::process::id() as i32
}

#[test]
fn pull_and_push_pass_an_open_gate() {
    let guard = AccessGuard::new([1, 2]).unwrap();
    let remote = Remote::new(me(), guard.address());
    remote.probe([1, 2]).unwrap();
    let (src, dst) = (StaticBuf::new(100_000), StaticBuf::new(100_000));
    assert!(src.slice().fill(99_999, &[42]));
    remote.pull(src.slice().as_ptr() as u64, dst.slice()).unwrap();
    assert_eq!(dst.slice().to_vec()[99_999], 42);
    let dst = StaticBuf::new(100_000);
    remote.push(src.slice(), dst.slice().as_ptr() as u64).unwrap();
    assert_eq!(dst.slice().to_vec()[99_999], 42);
}

/// Neighbours on one side need not be neighbours on the other.
#[test]
fn many_ranges_go_each_to_its_place() {
    const LEN: u64 = 5000;
    let guard = AccessGuard::new([1, 2]).unwrap();
    let remote = Remote::new(me(), guard.address());
    let bytes: Vec<u8> = (0..u64::from(MAX_SLICES) * LEN).map(|n| (n * 7 % 251) as u8).collect();
    let src = StaticBuf::new(bytes.len());
    assert!(src.slice().fill(0, &bytes));
    for pulls in [false, true] {
        let dst = StaticBuf::new(bytes.len());
        let mut ranges = Ranges::new();
        assert!(ranges.is_empty());
        for n in 0..u64::from(MAX_SLICES) {
            // Backwards in pairs: 1, 0, 3, 2, ...
            let (from, to) = (src.slice().sub(n * LEN, LEN).unwrap(), dst.slice().sub((n ^ 1) * LEN, LEN).unwrap());
            let (ours, theirs) = if pulls { (to, from) } else { (from, to) };
            assert!(ranges.add(ours, theirs.as_ptr() as u64));
        }
        assert!(!ranges.add(src.slice(), 0), "a full list takes no more");
        if pulls {
            remote.pull_all(&mut ranges).unwrap()
        } else {
            remote.push_all(&mut ranges).unwrap()
        }
        let got = dst.slice().to_vec();
        for n in 0..MAX_SLICES as usize {
            let (from, to) = (n * LEN as usize, (n ^ 1) * LEN as usize);
            assert!(got[to..to + LEN as usize] == bytes[from..from + LEN as usize], "range {n}");
        }
    }
}

/// The claim that the whole revocation stands on: a closed guard page ends a copy before its first byte of payload.
#[test]
fn a_closed_gate_stops_a_copy_before_its_first_byte() {
    let mut guard = AccessGuard::new([1, 2]).unwrap();
    let remote = Remote::new(me(), guard.address());
    guard.close().unwrap();
    let (src, dst) = (StaticBuf::new(8192), StaticBuf::new(8192));
    assert!(src.slice().fill(0, &[42; 8192]));
    let fault = Some(libc::EFAULT);
    assert_eq!(remote.push(src.slice(), dst.slice().as_ptr() as u64).unwrap_err().raw_os_error(), fault);
    assert_eq!(remote.pull(src.slice().as_ptr() as u64, dst.slice()).unwrap_err().raw_os_error(), fault);
    assert_eq!(dst.slice().to_vec(), vec![0; 8192]);
}

#[test]
fn an_address_that_was_kept_closed_stays_closed() {
    let (address, src) = (guard_left_closed(), StaticBuf::new(8));
    let more: Vec<AccessGuard> = (0..64).filter_map(|_| AccessGuard::new([0; 2]).ok()).collect();
    assert!(more.iter().all(|g| g.address() != address), "the address is not handed out again");
    assert!(Remote::new(me(), address).push(src.slice(), src.slice().as_ptr() as u64).is_err());
}

fn guard_left_closed() -> u64 {
    let mut guard = AccessGuard::new([0; 2]).unwrap();
    guard.close().unwrap();
    guard.address()
}

#[test]
fn a_wrong_nonce_and_an_ended_process_are_refused() {
    let guard = AccessGuard::new([1, 2]).unwrap();
    assert!(Remote::new(me(), guard.address()).probe([1, 3]).is_err());
    let mut child = crate::page::tests::spawn(&mut std::process::Command::new("true"));
    child.wait().unwrap();
    let gone = Remote::new(child.id() as i32, guard.address()).probe([1, 2]).unwrap_err();
    assert_eq!(gone.raw_os_error(), Some(libc::ESRCH));
}

#[test]
fn memory_the_kernel_will_not_reach_is_an_error() {
    let guard = AccessGuard::new([1, 2]).unwrap();
    let remote = Remote::new(me(), guard.address());
    let buf = StaticBuf::new(4096);
    let fault = Some(libc::EFAULT);
    assert_eq!(remote.pull(8, buf.slice()).unwrap_err().raw_os_error(), fault);
    assert_eq!(remote.push(buf.slice(), 8).unwrap_err().raw_os_error(), fault);
}
