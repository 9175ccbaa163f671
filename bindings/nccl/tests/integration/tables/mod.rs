//! Drives a plugin in memory through all seven exported tables, as NCCL does and as it must not be driven.
#![allow(
    clippy::unwrap_used,
    clippy::type_complexity,
    unreachable_pub,
    reason = "a test that spells out C's shapes, in one binary"
)]

mod host;
mod mock;
mod tuner;

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard};

use self::host::{GARBAGE, Host, LOGS, Ptr, WARNINGS};
use self::mock::{ALIVE, DEREGISTERED, HINTS, LAST_INIT, PANIC, PLUGINS, REVOKED, TAG_BUSY, TAG_LOST, TRAFFIC_CLASS};
use linkspan_plugin::{Exported, abi};

/// The plugin's state is one per process, as under NCCL.
static ONE: Mutex<()> = Mutex::new(());

fn one_at_a_time() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

fn every_version(f: impl Fn(&mut Host)) {
    let _guard = one_at_a_time();
    for version in 6..=12 {
        let mut host = Host::new(version);
        f(&mut host);
        assert_eq!(host.finalize(), 0);
    }
}

/// Runs `f` and returns the warnings it caused.
fn warnings(f: impl FnOnce()) -> usize {
    let before = WARNINGS.load(Relaxed);
    f();
    WARNINGS.load(Relaxed) - before
}

#[test]
fn names_and_devices() {
    every_version(|host| {
        assert_eq!(host.devices(), 2);
        // Pointer support 1 host, 2 device, 4 dma-buf; maxRecvs cut to 8.
        assert_eq!(host.properties(0), Ok(("mock0".into(), 100, 3, 40_000, 17, 8)));
        assert_eq!(host.properties(1), Ok(("mock1".into(), 101, 7, 40_000, 17, 8)));
        for dev in [-1, 2, c_int::MAX] {
            assert_eq!(warnings(|| assert_eq!(host.properties(dev), Err(4))), 1);
        }
    });
    // SAFETY: a C string of the plugin.
    let name = unsafe { std::ffi::CStr::from_ptr(mock::ncclNetPlugin_v12.name) };
    assert_eq!(name, c"Mock");
}

#[test]
fn newest_properties_in_full() {
    let _guard = one_at_a_time();
    let mut host = Host::new(12);
    let p = host.properties_v12(1);
    // SAFETY: a C string of the plugin.
    let path = unsafe { std::ffi::CStr::from_ptr(p.pci_path) };
    assert_eq!(path, c"/sys/devices/x");
    assert_eq!((p.reg_is_global, p.force_flush, p.port, p.latency), (1, 1, 3, 2.5));
    assert_eq!((p.device_type, p.device_version), (abi::DEVICE_HOST, 0));
    assert_eq!((p.vprops.ndevs, p.vprops.devs[..2].to_vec()), (2, vec![0, 1]));
    assert_eq!((p.max_p2p_bytes, p.max_coll_bytes), (1 << 30, 1 << 40));
    assert_eq!((p.max_multi_request_size, p.rail_id, p.plane_id), (1, 4, -1));
    let q = host.properties_v12(0);
    assert!(q.pci_path.is_null());
    assert_eq!((q.vprops.ndevs, q.vprops.devs[0]), (1, 0));
    assert_eq!(q.name, host.properties_v12(0).name, "names stay where they are");
    assert_eq!(host.finalize(), 0);
}

#[test]
fn init_arguments() {
    let _guard = one_at_a_time();
    for version in 6..=12 {
        *LAST_INIT.lock().unwrap() = None;
        let mut host = Host::new(version);
        let init = LAST_INIT.lock().unwrap().take();
        if version >= 11 {
            let init = init.unwrap();
            assert_eq!((init.comm_id, init.traffic_class, init.version), (Some(42), Some(5), version));
        }
        let pair = host.pair();
        let class = match version {
            10 => Some(6),
            11 | 12 => Some(5),
            _ => None,
        };
        assert_eq!(*TRAFFIC_CLASS.lock().unwrap(), Some(class));
        host.close(pair);
        host.finalize();
    }
    assert!(LOGS.load(Relaxed) > 0);
}

#[test]
fn bytes_and_sizes_arrive() {
    every_version(|host| {
        let pair @ (send, recv, _) = host.pair();
        let mut out = vec![1u8; 1000];
        let mut into = vec![0u8; 4096];
        let smr = host.reg(send, out.as_mut_ptr().cast(), 1000, 1).unwrap();
        let rmr = host.reg(recv, into.as_mut_ptr().cast(), 4096, 1).unwrap();
        let r = host.irecv(recv, 1, &mut [(&mut into, 3, rmr)], GARBAGE).unwrap();
        assert_eq!(host.test(r, 0), Ok(None), "nothing was sent");
        let s = host.isend(send, &mut out, 3, smr).unwrap();
        assert_eq!(host.test(s, 1), Ok(Some(vec![1000])));
        assert_eq!(host.test(r, 1), Ok(Some(vec![1000])), "posted larger than sent");
        assert!(into[..1000].iter().all(|&b| b == 1) && into[1000..].iter().all(|&b| b == 0));
        // Nothing at all, without a handle and without an address.
        let r = host.irecv(recv, 1, &mut [(&mut into, 0, null_mut())], GARBAGE).unwrap();
        let s = host.isend_raw(send, null_mut(), 0, 0, null_mut()).unwrap();
        assert_eq!((host.test(s, 1), host.test(r, 1)), (Ok(Some(vec![0])), Ok(Some(vec![0]))));
        assert_eq!(host.iflush(recv, &mut []), Ok(null_mut()));
        let f = host.iflush(recv, &mut into).unwrap();
        assert_eq!(host.test(f, 1), Ok(Some(vec![4096])));
        assert_eq!((host.dereg(send, smr), host.dereg(recv, rmr)), (0, 0));
        host.close(pair);
    });
}

#[test]
fn grouped_receives_report_each_size() {
    every_version(|host| {
        let pair @ (send, recv, _) = host.pair();
        let mut bufs = vec![vec![0u8; 100]; 8];
        let mut parts: Vec<(&mut [u8], c_int, Ptr)> =
            bufs.iter_mut().enumerate().map(|(i, b)| (&mut b[..], i as c_int, null_mut())).collect();
        let r = host.irecv(recv, 8, &mut parts, GARBAGE).unwrap();
        for tag in (0..8).rev() {
            let mut data = vec![tag as u8; 10 + tag as usize];
            let s = host.isend(send, &mut data, tag, null_mut()).unwrap();
            assert!(host.test(s, 1).unwrap().is_some());
            assert_eq!(host.test(r, if tag == 0 { 8 } else { 0 }).unwrap().is_some(), tag == 0);
        }
        for (i, b) in bufs.iter().enumerate() {
            assert!(b[..10 + i].iter().all(|&x| x == i as u8) && b[10 + i] == 0);
        }
        // Counts that are none. The arrays are never read.
        let mut one = [0u8; 8];
        for n in [0, -1, 9, c_int::MIN, c_int::MAX] {
            assert_eq!(host.irecv(recv, n, &mut [(&mut one, 0, null_mut())], GARBAGE), Err(4));
        }
        host.close(pair);
    });
}

/// Device offload: who is told of it, what accept fills in, and requests that live until a kernel has read them.
#[test]
fn kernels_that_unpack() {
    let _guard = one_at_a_time();
    for version in 7..=12 {
        let mut host = Host::new(version);
        mock::UNPACKS.store(true, Relaxed);
        mock::QUEUE.store(0x7000_1000, Relaxed);
        let announced = host.device_type(1);
        assert_eq!(announced, if version >= 9 { (1, 7) } else { (0, 0) }, "version {version}");
        assert_eq!(host.properties(1).unwrap().5, 1, "maxRecvs");
        let (pair, told) = host.pair_unpack();
        let (send, recv, _) = pair;
        assert_eq!((told.device_type, told.version, told.handle as usize, told.size), (1, 7, 0x7000_1000, 24));
        assert_eq!(told.needs_proxy_progress, 1);
        let before = mock::CONSUMED.load(Relaxed);
        let mut requests = Vec::new();
        for n in 0..3 {
            let mut b = [0u8; 4];
            let r = host.irecv(recv, 1, &mut [(&mut b, n, null_mut())], GARBAGE).unwrap();
            let s = host.isend(send, &mut [1, 2, 3, n as u8], n, null_mut()).unwrap();
            assert_eq!(host.test(s, 1), Ok(Some(vec![4])));
            assert_eq!(host.test(r, 1), Ok(Some(vec![4])));
            assert_eq!(
                (b, requests.contains(&r)),
                ([1, 2, 3, n as u8], false),
                "a request of a kernel's was used again"
            );
            requests.push(r);
        }
        let words = warnings(|| assert_eq!(host.test(requests[0], 1), Err(4), "done is done"));
        assert_eq!(words, 1);
        for (n, &r) in requests.iter().enumerate() {
            assert_eq!(host.consumed(recv, r), 0);
            assert_eq!(mock::CONSUMED.load(Relaxed), before + n + 1);
        }
        // Once more, and of a request that is no more: nothing happens.
        assert_eq!(host.consumed(recv, requests[0]), 0);
        assert_eq!(mock::CONSUMED.load(Relaxed), before + 3);
        let words = warnings(|| assert_ne!(host.consumed(send, requests[0]), 0, "another comm's"));
        assert_eq!(words, 1);
        host.close(pair);
        // A comm that puts everything in place itself.
        mock::QUEUE.store(0, Relaxed);
        let (pair, told) = host.pair_unpack();
        let (send, recv, _) = pair;
        assert_eq!((told.device_type, told.version, told.handle, told.needs_proxy_progress), (0, 0, null_mut(), 1));
        let mut b = [0u8; 1];
        let r = host.irecv(recv, 1, &mut [(&mut b, 0, null_mut())], GARBAGE).unwrap();
        let s = host.isend(send, &mut [9], 0, null_mut()).unwrap();
        assert_eq!(host.test(s, 1), Ok(Some(vec![1])));
        assert_eq!(host.test(r, 1), Ok(Some(vec![1])));
        assert_eq!(host.consumed(recv, r), 0);
        assert_eq!(mock::CONSUMED.load(Relaxed), before + 3);
        host.close(pair);
        mock::UNPACKS.store(false, Relaxed);
        if version == 12 {
            let pair = host.pair();
            let mut bytes = [0u8; 8];
            let mr = host.reg(pair.1, bytes.as_mut_ptr().cast(), 8, 1).unwrap();
            assert_eq!(host.device_mr(pair.1, mr), (0, null_mut()));
            assert_eq!(host.dereg(pair.1, mr), 0);
            assert_ne!(host.device_mr(pair.1, mr).0, 0);
            host.close(pair);
        }
        host.finalize();
    }
}

#[test]
fn requests_in_any_order_all_256() {
    every_version(|host| {
        let pair @ (send, recv, _) = host.pair();
        let mut bufs = vec![[0u8; 8]; 256];
        let posts: Vec<Ptr> = bufs
            .iter_mut()
            .enumerate()
            .map(|(i, b)| host.irecv(recv, 1, &mut [(&mut b[..], i as c_int, null_mut())], GARBAGE).unwrap())
            .collect();
        assert!(posts.iter().all(|p| !p.is_null()));
        let mut extra = [0u8; 8];
        assert_eq!(host.irecv(recv, 1, &mut [(&mut extra, 0, null_mut())], GARBAGE), Ok(null_mut()), "no space");
        let sends: Vec<Ptr> = (0..256).map(|i| host.isend(send, &mut [i as u8; 8], i, null_mut()).unwrap()).collect();
        assert_eq!(host.isend(send, &mut [0; 8], 0, null_mut()), Ok(null_mut()), "no space");
        for i in (0..256).rev().step_by(2).chain((0..256).step_by(2)) {
            assert_eq!(host.test(posts[i], 1), Ok(Some(vec![8])));
            assert_eq!(host.test(sends[i], 1), Ok(Some(vec![8])));
            assert_eq!(host.test(posts[i], 0), Err(4), "done twice");
            assert_eq!(host.test(sends[i], 0), Err(4), "done twice");
        }
        for (i, b) in bufs.iter().enumerate() {
            assert_eq!(b, &[i as u8; 8]);
        }
        host.close(pair);
    });
}

#[test]
fn busy_is_null_and_failures_keep_their_code() {
    every_version(|host| {
        let pair @ (send, ..) = host.pair();
        assert_eq!(host.isend(send, &mut [1], TAG_BUSY, null_mut()), Ok(null_mut()));
        assert_eq!(host.isend(send, &mut [1], TAG_LOST, null_mut()), Err(6));
        assert_eq!(host.reg(send, 0xBADusize as Ptr, 8, 2), Err(1));
        host.close(pair);
    });
}

#[test]
fn negative_sizes_where_sizes_are_ints() {
    every_version(|host| {
        let pair @ (send, ..) = host.pair();
        let mut data = [0u8; 8];
        if host.version <= 8 {
            assert_eq!(
                warnings(|| {
                    let raw = data.as_mut_ptr().cast();
                    assert_eq!(host.isend_raw(send, raw, -1, 0, null_mut()), Err(4));
                }),
                1
            );
        }
        if host.version <= 7 {
            assert_eq!(host.reg(send, data.as_mut_ptr().cast(), -8, 1), Err(4));
        }
        host.close(pair);
    });
}

#[test]
fn misuse_is_refused_with_a_word() {
    every_version(|host| {
        let pair @ (send, recv, listen) = host.pair();
        let mut data = [0u8; 8];
        let raw: Ptr = data.as_mut_ptr().cast();
        let mr = host.reg(recv, raw, 8, 1).unwrap();
        let refused = warnings(|| {
            assert_eq!(host.isend(recv, &mut data, 0, null_mut()), Err(4), "send on a receive comm");
            assert_eq!(host.isend(listen, &mut data, 0, null_mut()), Err(4), "send on a listen comm");
            assert_eq!(host.isend(null_mut(), &mut data, 0, null_mut()), Err(4));
            assert_eq!(host.isend(send, &mut data, 0, send), Err(4), "a comm is no memory handle");
            assert_eq!(host.isend_raw(send, null_mut(), 8, 0, null_mut()), Err(4), "null with bytes");
            assert_eq!(host.reg(send, raw, 8, 4), Err(4), "memory type");
            assert_eq!(host.reg(listen, raw, 8, 1), Err(4), "no memory on a listen comm");
            assert_eq!(host.reg(raw, raw, 8, 1), Err(4), "not ours");
            assert_eq!(host.reg_dma_buf(send, raw, -1), Err(4));
            assert_eq!(host.dereg(send, null_mut()), 4);
            assert_eq!(host.dereg(send, raw), 4);
            assert_eq!(host.test(null_mut(), 0), Err(4));
            assert_eq!(host.test(2 as Ptr, 0), Err(4), "a flag is no request");
            assert_eq!(host.close_send(recv), 4, "wrong close");
            assert_eq!(host.close_recv(null_mut()), 4);
            assert_eq!(host.close_listen(send), 4);
            assert_eq!(host.accept(send), Err(4));
            assert_eq!(host.listen(2, &mut [0; 128]), Err(4), "no such device");
            assert_eq!(host.listen(-1, &mut [0; 128]), Err(4));
        });
        assert_eq!(refused, 19);
        assert_eq!(host.dereg(recv, mr), 0);
        assert_eq!(host.dereg(recv, mr), 4, "twice");
        host.close(pair);
        assert_eq!((host.close_send(send), host.close_recv(recv), host.close_listen(listen)), (4, 4, 4), "twice");
        assert_eq!(host.isend(send, &mut data, 0, null_mut()), Err(4), "closed");
    });
}

#[test]
fn garbage_and_flags_in_the_request_variable() {
    every_version(|host| {
        let pair @ (_, recv, _) = host.pair();
        let mut b = [0u8; 8];
        for (before, hint) in [(GARBAGE, 0), (null_mut(), 0), (1 as Ptr, 1), (2 as Ptr, 2), (3 as Ptr, 0)] {
            let r = host.irecv(recv, 1, &mut [(&mut b, 0, null_mut())], before).unwrap();
            assert!(!r.is_null() && r as usize > 2);
            assert_eq!(HINTS.load(Relaxed), if host.version >= 9 { hint } else { 0 });
        }
        host.close(pair);
    });
}

#[test]
fn close_and_deregister_with_requests_in_flight() {
    every_version(|host| {
        let (send, recv, listen) = host.pair();
        let mut b = [0u8; 8];
        let mr = host.reg(recv, b.as_mut_ptr().cast(), 8, 1).unwrap();
        let idle = host.reg(recv, b.as_mut_ptr().cast(), 8, 1).unwrap();
        // The places of those that stay were used before.
        let done = host.irecv(recv, 1, &mut [(&mut b, 9, mr)], GARBAGE).unwrap();
        let sent = host.isend(send, &mut [1; 4], 9, null_mut()).unwrap();
        assert_eq!((host.test(sent, 1), host.test(done, 1)), (Ok(Some(vec![4])), Ok(Some(vec![4]))));
        let r = host.irecv(recv, 1, &mut [(&mut b, 0, mr)], GARBAGE).unwrap();
        let s = host.isend(send, &mut [1; 4], 9, null_mut()).unwrap();
        let before = REVOKED.load(Relaxed);
        assert_eq!(host.dereg(recv, idle), 0);
        assert_eq!(REVOKED.load(Relaxed), before, "not in use");
        assert_eq!(host.dereg(recv, mr), 0);
        assert_eq!(REVOKED.load(Relaxed), before + 1, "in use");
        let left = host.reg(send, b.as_mut_ptr().cast(), 8, 1).unwrap();
        let deregistered = DEREGISTERED.load(Relaxed);
        host.close((send, recv, listen));
        assert_eq!(DEREGISTERED.load(Relaxed), deregistered + 1, "what was left is deregistered at close");
        assert_eq!(host.dereg(send, left), 4);
        assert_eq!((host.test(r, 0), host.test(s, 0)), (Err(4), Err(4)), "requests of closed comms");
        // The next pair may live at the same addresses: old requests are still none of its own.
        let pair @ (send, recv, _) = host.pair();
        let r2 = host.irecv(recv, 1, &mut [(&mut b, 0, null_mut())], GARBAGE).unwrap();
        let s2 = host.isend(send, &mut [1; 4], 9, null_mut()).unwrap();
        assert!(r2 != r && s2 != s);
        assert_eq!((host.test(r, 0), host.test(s, 0)), (Err(4), Err(4)));
        host.close(pair);
    });
}

#[test]
fn panics_stay_inside() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    every_version(|host| {
        let alive = ALIVE.load(Relaxed);
        let pair @ (send, recv, listen) = host.pair();
        let mut b = [0u8; 8];
        let s = host.isend(send, &mut b, 0, null_mut()).unwrap();
        PANIC.store(true, Relaxed);
        assert_eq!(warnings(|| assert_eq!(host.test(s, 0), Err(3))), 1);
        assert_eq!(host.test(s, 0), Err(3), "unusable from then on");
        assert_eq!(host.isend(send, &mut b, 0, null_mut()), Err(3));
        // Others are not concerned.
        let r = host.irecv(recv, 1, &mut [(&mut b, 0, null_mut())], GARBAGE).unwrap();
        assert_eq!(host.test(r, 1), Ok(Some(vec![8])));
        let mut handle = [0; 128];
        let other = host.listen(0, &mut handle).unwrap();
        handle[HANDLE_END] = 1;
        assert_eq!(host.connect(0, &mut handle), Err(3), "a panic in connect");
        assert_eq!(host.close_listen(other), 0);
        let mr = host.reg(send, b.as_mut_ptr().cast(), 8, 1).unwrap();
        assert_eq!(host.dereg(send, mr), 0);
        host.close(pair);
        assert_eq!(ALIVE.load(Relaxed), alive);
        let _ = listen;
    });
    std::panic::set_hook(hook);
}

/// Last byte of a handle that belongs to the plugin.
const HANDLE_END: usize = linkspan_plugin::HANDLE_LEN - 1;

#[test]
fn one_listener_accepts_several() {
    every_version(|host| {
        let mut handle = [0; 128];
        let listen = host.listen(0, &mut handle).unwrap();
        let fresh = handle;
        let mut comms = Vec::new();
        for _ in 0..3 {
            for poll in 0..5 {
                let send = host.connect(0, &mut handle).unwrap();
                assert_eq!(send.is_null(), poll < 4);
                if !send.is_null() {
                    comms.push((send, host.accept(listen).unwrap()));
                }
            }
            assert_eq!(handle, fresh, "the handle is as it was");
        }
        assert_eq!(host.close_listen(listen), 0);
        assert_eq!(host.connect(0, &mut handle), Ok(null_mut()));
        for _ in 0..3 {
            assert_eq!(host.connect(0, &mut handle), Ok(null_mut()));
        }
        assert_eq!(host.connect(0, &mut handle), Err(6), "there is no listener");
        for (send, recv) in comms {
            assert_eq!((host.close_send(send), host.close_recv(recv)), (0, 0));
        }
    });
}

#[test]
fn finalize_frees_what_was_left_open() {
    let _guard = one_at_a_time();
    for version in [11, 12] {
        let (alive, plugins) = (ALIVE.load(Relaxed), PLUGINS.load(Relaxed));
        let mut a = Host::new(version);
        let mut b = Host::new(version);
        assert_ne!(a.ctx, b.ctx);
        let (send, recv, listen) = a.pair();
        let mut handle = [0; 128];
        let _ = b.listen(0, &mut handle).unwrap();
        assert_eq!(b.connect(0, &mut handle), Ok(null_mut()), "half open");
        let mut data = [0u8; 8];
        let _ = a.reg(send, data.as_mut_ptr().cast(), 8, 1).unwrap();
        let r = a.irecv(recv, 1, &mut [(&mut data, 0, null_mut())], GARBAGE).unwrap();
        assert!(ALIVE.load(Relaxed) > alive);
        let ctx = a.ctx;
        assert_eq!(a.finalize(), 0);
        assert_eq!(a.test(r, 0), Err(4));
        assert_eq!(a.close_listen(listen), 4);
        a.ctx = ctx;
        assert_eq!(a.listen(0, &mut [0; 128]), Err(4), "context is gone");
        assert_eq!(a.finalize(), 4, "twice");
        assert_eq!(b.devices(), 2, "the other one goes on");
        assert_eq!(b.finalize(), 0);
        assert_eq!((ALIVE.load(Relaxed), PLUGINS.load(Relaxed)), (alive, plugins));
        // And again from the start.
        let mut c = Host::new(version);
        let pair = c.pair();
        c.close(pair);
        assert_eq!(c.finalize(), 0);
    }
}

#[test]
fn registering_runs_beside_the_data_path() {
    let _guard = one_at_a_time();
    let mut host = Host::new(12);
    let pair @ (send, recv, _) = host.pair();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        let (host, stop, send, recv) = (&host, &stop, send as usize, recv as usize);
        let service = s.spawn(move || {
            let mut data = [0u8; 64];
            let mut rounds = 0;
            while !stop.load(Relaxed) || rounds < 100 {
                for comm in [send as Ptr, recv as Ptr] {
                    let mr = host.reg(comm, data.as_mut_ptr().cast(), 64, 1).unwrap();
                    assert_eq!(host.dereg(comm, mr), 0);
                }
                rounds += 1;
            }
        });
        for round in 0..2000 {
            let (mut out, mut into) = ([round as u8; 16], [0u8; 16]);
            let r = host.irecv(recv as Ptr, 1, &mut [(&mut into, 0, null_mut())], GARBAGE).unwrap();
            let q = host.isend(send as Ptr, &mut out, 0, null_mut()).unwrap();
            assert_eq!(host.test(q, 1), Ok(Some(vec![16])));
            assert_eq!(host.test(r, 1), Ok(Some(vec![16])));
            assert_eq!(out, into);
        }
        stop.store(true, Relaxed);
        service.join().unwrap();
    });
    host.close(pair);
    assert_eq!(host.finalize(), 0);
}

#[test]
fn merging() {
    let _guard = one_at_a_time();
    // Contexts of older tables, which other tests have left.
    <mock::Mock as Exported>::global().unload();
    let mut host = Host::new(12);
    let mut dev = -1;
    let mut v8 = abi::VDevice8 { ndevs: 2, devs: [0; 8] };
    v8.devs[1] = 1;
    let mut v4 = abi::VDevice4 { ndevs: 2, devs: [0, 1, 0, 0] };
    let merge8 = mock::ncclNetPlugin_v12.make_vdevice.unwrap();
    let merge4 = mock::ncclNetPlugin_v9.make_vdevice.unwrap();
    // SAFETY: what the interface asks for.
    unsafe {
        assert_eq!((merge8(&raw mut dev, &raw mut v8), dev), (0, 9));
        assert_eq!(merge4(&raw mut dev, &raw mut v4), 0);
        v8.ndevs = 9;
        assert_eq!(merge8(&raw mut dev, &raw mut v8), 4);
        v4.ndevs = 1;
        assert_eq!(merge4(&raw mut dev, &raw mut v4), 5);
        v4.devs[0] = 7;
        assert_eq!(merge4(&raw mut dev, &raw mut v4), 4);
        assert_eq!(merge4(null_mut(), &raw mut v4), 4);
    }
    let attr = abi::NetAttr::default();
    let set = mock::ncclNetPlugin_v12.set_net_attr.unwrap();
    // SAFETY: as above.
    unsafe {
        assert_eq!(set(host.ctx, &raw const attr), 0);
        assert_eq!(set(host.ctx, std::ptr::null()), 4);
        assert_eq!(set(null_mut(), &raw const attr), 4);
    }
    // NCCL merges once, and keeps the number for communicators after the last one's end.
    let before = mock::MERGES.load(Relaxed);
    assert_eq!(host.finalize(), 0);
    let mut host = Host::new(12);
    assert_eq!(mock::MERGES.load(Relaxed), before + 1);
    assert_eq!(host.finalize(), 0);
    // Where that cannot be, as when a cable is lost, NCCL would take another network for an init that fails.
    mock::UNMERGEABLE.store(true, Relaxed);
    assert_eq!(host.init(), 0);
    assert_eq!(host.properties(2), Err(4), "the merged device");
    assert_eq!(host.finalize(), 0);
    // And it is merged once it is there.
    mock::UNMERGEABLE.store(false, Relaxed);
    assert_eq!(host.init(), 0);
    assert_eq!(mock::MERGES.load(Relaxed), before + 2);
    assert_eq!(host.finalize(), 0);
}
