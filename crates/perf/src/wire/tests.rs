use super::*;
use crate::units::SIZE_MAX;
use proptest::prelude::*;
use std::time::Duration;

fn spec() -> Spec {
    Spec {
        stop: Stop::Messages(7),
        seed: 0x0102_0304_0506_0708,
        interval: Duration::from_nanos(9),
        ..Spec::new(Test::Lat, 300)
    }
}

#[test]
fn golden_bytes() {
    let params = Params { token: *b"sixteen bytes ok", ..Params::new(&spec()) };
    let hex: String = params.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        concat!(
            "4c535046",
            "0100",
            "01",
            "02",
            "01",
            "02",
            "0000",
            "20000000",
            "08000000",
            "e8030000",
            "00010000",
            "04000000",
            "2c01000000000000",
            "0000100000000000",
            "0700000000000000",
            "0000000000000000",
            "0900000000000000",
            "0807060504030201",
            "7369787465656e206279746573206f6b",
            "0000000000000000000000000000000000000000000000000000000000000000"
        )
    );
    let reply = Reply { port: 0x1234.into(), wrong: 5.into(), ..Reply::refuse(Status::Memory, 6) };
    let hex: String = reply.as_bytes()[..64].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        concat!(
            "4c535046",
            "0100",
            "04",
            "03",
            "3412",
            "0000",
            "0000000000000000",
            "0000000000000000",
            "0000000000000000",
            "0000000000000000",
            "0500000000000000",
            "0600000000000000",
            "00000000"
        )
    );
}

#[test]
fn a_plan_is_what_was_asked_for() {
    let plan = Params::new(&spec()).plan().unwrap();
    assert_eq!((plan.test, plan.size, plan.window, plan.stop), (Test::Lat, 300, 32, Stop::Messages(7)));
    let huge = Spec { window: 4096, ..Spec::new(Test::Bw, SIZE_MAX) };
    assert_eq!(Params::new(&huge).plan().unwrap().window, 1, "a gigabyte at a time");
    assert!(Params::new(&huge).plan().unwrap().memory() <= crate::Limits::default().memory.left());
    let memory =
        |test, direction| Params::new(&Spec { direction, ..Spec::new(test, 1 << 20) }).plan().unwrap().memory();
    assert_eq!([Direction::Send, Direction::Recv, Direction::Both].map(|way| memory(Test::Bw, way) >> 20), [8, 8, 16]);
    // What is checked after a ping-pong goes both ways.
    assert_eq!(memory(Test::Lat, Direction::Send) >> 20, 16);
    let load = Spec { load_size: SIZE_MAX, ..Spec::new(Test::Load, SIZE_MAX) };
    assert!(Params::new(&load).plan().unwrap().memory() <= crate::Limits::default().memory.left());
}

#[test]
fn every_field_is_checked() {
    let good = Params::new(&spec());
    assert!(good.plan().is_ok());
    let cases: [(&str, Params); 13] = [
        ("test", Params { test: 9, ..good }),
        ("direction", Params { direction: 0, ..good }),
        ("wait", Params { wait: 4, ..good }),
        ("window", Params { window: 0.into(), ..good }),
        ("window", Params { window: u32::MAX.into(), ..good }),
        ("load_window", Params { load_window: 5000.into(), ..good }),
        ("warmup", Params { warmup: u32::MAX.into(), ..good }),
        ("verify", Params { verify: u32::MAX.into(), ..good }),
        ("depth", Params { depth: 65.into(), ..good }),
        ("size", Params { size: 0.into(), ..good }),
        ("load_size", Params { load_size: u64::MAX.into(), ..good }),
        ("duration_ns", Params { messages: 0.into(), duration_ns: 0.into(), ..good }),
        ("messages", Params { duration_ns: 5.into(), ..good }),
    ];
    for (name, params) in cases {
        match params.plan() {
            Err(BadMessage::Field { field, .. }) => assert_eq!(field, name),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn envelopes() {
    let good = Params::new(&spec());
    assert!(matches!(decode(good.as_bytes()), Ok(Message::Params(Kind::Params, _))));
    assert!(matches!(decode(Reply::new(Kind::Go).as_bytes()), Ok(Message::Reply(Kind::Go, _))));
    assert_eq!(decode(&good.as_bytes()[1..]).unwrap_err(), BadMessage::Length(127));
    let other = Params { version: 2.into(), ..good };
    assert!(
        decode(other.as_bytes())
            .unwrap_err()
            .to_string()
            .contains("version 1 of the test protocol, the peer version 2")
    );
    assert_eq!(decode(Params { magic: 1.into(), ..good }.as_bytes()).unwrap_err(), BadMessage::Magic(1));
    assert_eq!(decode(Params { kind: 99, ..good }.as_bytes()).unwrap_err(), BadMessage::Kind(99));
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_bounded(bytes in prop::array::uniform32(any::<u8>()), kind in 0u8..9, real in any::<bool>()) {
        let mut all = [0u8; CTRL_LEN];
        for part in all.chunks_exact_mut(32) {
            part.copy_from_slice(&bytes);
        }
        if real {
            all[..4].copy_from_slice(b"LSPF");
            all[4..6].copy_from_slice(&1u16.to_le_bytes());
            all[6] = kind;
        }
        if let Ok(Message::Params(_, params)) = decode(&all)
            && let Ok(plan) = params.plan()
        {
            prop_assert!(plan.memory() < 1 << 45);
        }
    }
}

#[test]
fn memory_travels() {
    use linkspan_gpu::Kind as GpuKind;
    for name in [MemoryName::Host, MemoryName::Device(GpuKind::Cuda, 0), MemoryName::Device(GpuKind::Hip, 4095)] {
        assert_eq!(unpack_memory(pack_memory(name)), name);
    }
    // A kind of later versions is not taken for host memory.
    assert_ne!(unpack_memory(U16::new(0x7000)), MemoryName::Host);
}
