//! What a posted receive tells the peer; and what regMrDmaBuf comes to where the connection has an RDMA device: NICs and a GPU in software.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use linkspan_fabric::{Buf, Channel, Config, Fabric, Gpu, Level, Log, MemSlice};
use linkspan_gpu::conformance::StaticGpuBuf;
use linkspan_gpu::{Event, SimConfig, SimGpu};
use linkspan_transport::StaticBuf;
use linkspan_verbs::Rdma;
use linkspan_verbs_sys::soft::{SoftConfig, SoftNet, SoftNic};

use super::{LARGE, Receiving, Sending};
use crate::memory::{Domain, Mr};
use crate::{Fail, Logger, Mem, Part, RecvComm, RecvHints, SendComm};

const LEN: usize = 1 << 20;

/// The first byte's place in its dma-buf.
const OFFSET: u64 = 4096;

struct World {
    net: SoftNet,
    fabrics: [Fabric; 2],
    gpu: Arc<dyn Gpu>,
    ends: [Channel; 2],
}

fn world(dmabuf: bool, strict: bool) -> World {
    over("auto", dmabuf, strict)
}

fn over(path: &str, dmabuf: bool, strict: bool) -> World {
    with_gpu(SimConfig::default(), path, dmabuf, strict)
}

fn with_gpu(gpu: SimConfig, path: &str, dmabuf: bool, strict: bool) -> World {
    logged(Log::off(), gpu, path, dmabuf, strict)
}

fn logged(log: Log, gpu: SimConfig, path: &str, dmabuf: bool, strict: bool) -> World {
    let net = SoftNet::new(1);
    let lo = linkspan_net::interface_of(Ipv4Addr::LOCALHOST.into(), 0).unwrap().unwrap().index;
    let env = [
        ("LINKSPAN_IFNAME", "=lo"),
        ("LINKSPAN_PATH", path),
        ("LINKSPAN_STATS_DIR", "off"),
        ("LINKSPAN_GPU", "staged"),
        ("LINKSPAN_STRICT", if strict { "1" } else { "0" }),
    ];
    let fabrics = [1, 2].map(|n| {
        let nic = SoftConfig { dmabuf, ..SoftConfig::roce("soft", Ipv4Addr::new(10, 0, 0, n), lo) };
        let get = |name: &str| env.iter().find(|p| p.0 == name).map(|p| p.1.to_owned());
        let nics = vec![net.nic(nic)];
        Fabric::apart(Config::read(&get).unwrap(), log.clone(), false, vec![Box::new(Rdma::given(nics))]).unwrap()
    });
    let listener = fabrics[1].listen(0).unwrap();
    let mut connecting = fabrics[0].connect(0, &listener.handle()).unwrap();
    let (mut here, mut there) = (None, None);
    let until = Instant::now() + Duration::from_secs(60);
    while here.is_none() || there.is_none() {
        assert!(Instant::now() < until, "not up in 60 s");
        here = here.or_else(|| connecting.poll().unwrap());
        there = there.or_else(|| listener.accept().unwrap());
    }
    let mut ends = [here.unwrap(), there.unwrap()];
    let gpu: Arc<dyn Gpu> = SimGpu::new(gpu).unwrap();
    ends.iter_mut().for_each(|end| end.attach(&gpu).unwrap());
    World { net, fabrics, gpu, ends }
}

impl World {
    /// Device memory in a dma-buf, with a descriptor that stands for it.
    fn memory(&self) -> (StaticGpuBuf, MemSlice, UnixStream) {
        let (whole, (file, _)) =
            (StaticGpuBuf::new(&self.gpu, LEN + OFFSET as usize).unwrap(), UnixStream::pair().unwrap());
        self.net.dmabuf(file.as_fd(), whole.slice()).unwrap();
        let part = whole.slice().sub(OFFSET, LEN as u64).unwrap();
        (whole, part, file)
    }

    fn domains(&self) -> [Domain; 2] {
        let [a, b] = &self.ends;
        [Domain::sending(&self.fabrics[0], a), Domain::receiving(&self.fabrics[1], b)]
    }

    fn registrations(&self) -> [u64; 2] {
        self.fabrics.each_ref().map(|fabric| fabric.transport().map_or(0, Rdma::<SoftNic>::registrations))
    }
}

#[test]
fn device_memory_is_registered_by_its_dma_buf_and_moved_from_where_it_lies() {
    let mut world = world(true, true);
    let [sending, receiving] = world.domains();
    let (src, dst) = (world.memory(), world.memory());
    let before = world.registrations();
    let held = [(&sending, &src), (&receiving, &dst)]
        .map(|(domain, (_, mem, file))| domain.direct(&world.gpu, Some((file.as_fd(), OFFSET)), *mem).unwrap());
    assert!(held.iter().all(Option::is_some), "the cards took it");
    let after = world.registrations();
    assert_eq!(after, before.map(|n| n + 1));
    let pattern: Vec<u8> = (0..LEN).map(|i| (i * 7 + i / 251) as u8).collect();
    assert!(src.1.fill(0, &pattern));
    let [a, b] = &mut world.ends;
    let (mut recv, mut send, mut sent, mut got) = (None, None, false, false);
    let until = Instant::now() + Duration::from_secs(60);
    while !sent || !got {
        assert!(Instant::now() < until, "not moved in 60 s");
        recv = recv.or_else(|| b.post_recv(&[(1, dst.1)]).unwrap());
        send = send.or_else(|| a.post_send(1, src.1).unwrap());
        a.progress().unwrap();
        b.progress().unwrap();
        sent = sent || send.is_some_and(|t| a.test(t).unwrap().is_some());
        got = got || recv.is_some_and(|t| b.test(t).unwrap().is_some());
    }
    assert!(dst.1.to_vec() == pattern);
    assert_eq!(world.registrations(), after, "no bounce buffer and nothing else was registered for it");
    // deregMr gives it back; what comes at the same address is registered anew.
    drop(held);
    let again = sending.direct(&world.gpu, Some((src.2.as_fd(), OFFSET)), src.1).unwrap();
    assert!(again.is_some());
    assert_eq!(world.registrations()[0], after[0] + 1);
}

#[test]
fn a_card_that_takes_none_is_staged_before_and_in_strict_mode_refused() {
    for strict in [false, true] {
        let world = world(false, strict);
        let (_whole, mem, file) = world.memory();
        let [sending, _] = world.domains();
        match sending.direct(&world.gpu, Some((file.as_fd(), OFFSET)), mem) {
            Ok(None) => assert!(!strict),
            Err(Fail::InvalidUsage) => assert!(strict),
            other => panic!("{strict}: {:?}", other.map(|held| held.is_some())),
        }
    }
}

#[test]
fn each_of_reached_and_staged_memory_is_said_once_whichever_comes_first() {
    let (told, lines) = channel();
    let log = Log::to(move |level, line| drop(told.send((level, line.to_owned()))));
    let world = logged(log, SimConfig::default(), "auto", true, false);
    let (known, unknown) = (world.memory(), UnixStream::pair().unwrap().0);
    let mut ways = [known.2.as_fd(), unknown.as_fd()];
    for domain in world.domains() {
        lines.try_iter().for_each(drop);
        for _ in 0..2 {
            let held = ways.map(|file| domain.direct(&world.gpu, Some((file, OFFSET)), known.1).unwrap().is_some());
            assert!(held.contains(&true) && held.contains(&false));
        }
        let said: Vec<_> = lines.try_iter().collect();
        let of = |level, text| said.iter().filter(|(l, line)| *l == level && line.starts_with(text)).count();
        assert_eq!(of(Level::Warn, "downgrade: device memory is staged for RDMA: "), 1, "{said:?}");
        assert_eq!(of(Level::Info, "RDMA devices access device memory "), 1, "{said:?}");
        ways.reverse();
    }
}

/// As on AMD: the card may read its memory, and what it would write could not be flushed.
#[test]
fn memory_of_a_gpu_that_cannot_flush_is_staged_where_it_is_received_into() {
    for strict in [false, true] {
        let world = with_gpu(SimConfig { flushes: false, ..SimConfig::default() }, "auto", true, strict);
        let (_whole, mem, file) = world.memory();
        let [sending, receiving] = world.domains();
        let direct = |domain: &Domain| domain.direct(&world.gpu, Some((file.as_fd(), OFFSET)), mem);
        assert!(direct(&sending).unwrap().is_some());
        match direct(&receiving) {
            Ok(keys) => assert!(!strict && keys.is_none()),
            Err(fail) => assert!(strict && fail == Fail::InvalidUsage, "{fail:?}"),
        }
        let [_, end] = world.ends;
        let (mr, host) = (Mr::staged(&world.gpu), StaticBuf::new(8));
        let part = Part { mem: Mem::Host(host.slice()), tag: 1, mr: Some(&mr) };
        assert!(Receiving::new(Logger::SILENT, end).flush(&[part]).unwrap().is_none(), "a copy has nothing to flush");
    }
}

#[test]
fn what_ended_at_this_side_is_not_told_as_the_peers_end() {
    for here in [true, false] {
        let world = over("tcp", false, false);
        let (whole, ..) = world.memory();
        let [mut a, b] = world.ends;
        // Otherwise it ends.
        let mut b = here.then_some(b);
        if here {
            // A simulated GPU that was misused fails from then on.
            let stream = world.gpu.stream().unwrap();
            assert!(world.gpu.after(stream, Event(u32::MAX)).is_err());
        }
        let (mut send, mut recv) = (None, None);
        let until = Instant::now() + Duration::from_secs(60);
        let error = loop {
            assert!(Instant::now() < until, "no error in 60 s");
            if let Some(b) = &mut b {
                recv = recv.or_else(|| b.post_recv(&[(1, whole.slice())]).ok().flatten());
                let _ = b.progress();
            }
            let done = match send {
                None => a.post_send(1, whole.slice()).map(|ticket| send = ticket),
                Some(ticket) => a.test(ticket).map(drop),
            };
            if let Err(error) = done.and_then(|()| a.progress().map(drop)) {
                break error;
            }
        };
        let code = super::code(&a, &error);
        assert_eq!(code, if here { Fail::Gpu } else { Fail::Remote }, "{error}: {:?}", a.lost());
    }
}

#[test]
fn a_send_that_waits_leaves_once_its_receive_is_posted_without_a_further_call() {
    let World { ends: [mut a, b], .. } = over("tcp", false, false);
    let mut b = Receiving::new(Logger::SILENT, b);
    // The first is alone; the second stands behind it, and is large.
    for len in [64 << 10, LARGE] {
        let [src, dst] = [0; 2].map(|_| StaticBuf::new(len));
        let sent = a.post_send(1, src.slice()).unwrap().unwrap();
        assert_eq!(a.waiting(), 1, "it waits for its receive");
        let part = Part { mem: Mem::Host(dst.slice()), tag: 1, mr: None };
        assert!(b.irecv(&[part], RecvHints::default()).unwrap().is_some());
        let until = Instant::now() + Duration::from_secs(60);
        while a.waiting() > 0 {
            assert!(Instant::now() < until, "{len} bytes still wait for a receive that was posted 60 s ago");
            a.progress().unwrap();
        }
        let _ = a.test(sent).unwrap();
    }
}

#[test]
fn sends_that_leave_together_hear_of_credit_before_it_ends() {
    const WINDOW: usize = 32;
    let World { ends: [a, b], .. } = over("tcp", false, false);
    let (mut a, mut b) = (Sending::new(Logger::SILENT, a), Receiving::new(Logger::SILENT, b));
    let [src, dst] = [0; 2].map(|_| StaticBuf::new(8));
    let part = |mem: MemSlice| Part { mem: Mem::Host(mem), tag: 1, mr: None };
    // The credit is enough for 512.
    for sent in (0..4096).step_by(WINDOW) {
        a.hold(true);
        // As isend posts them, but for what it does where one waits.
        let channel = a.channel.as_mut().unwrap();
        let sends: Vec<_> = (0..WINDOW).map(|_| channel.post_send(1, src.slice()).unwrap().unwrap()).collect();
        assert_eq!(channel.waiting(), 0, "behind {sent} sends that have all been received the next wait for credit");
        a.hold(false);
        for ticket in sends {
            assert!(a.test(ticket.to_u64()).unwrap().is_some(), "a stream that is read takes it at once");
        }
        let receives: Vec<u64> =
            (0..WINDOW).map(|_| b.irecv(&[part(dst.slice())], RecvHints::default()).unwrap().unwrap()).collect();
        for ticket in receives {
            while !b.test(ticket, &mut [0]).unwrap() {}
        }
    }
}
