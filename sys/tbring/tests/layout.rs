//! The structures of Rust against the header, by the C compiler.

use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use linkspan_tbring::abi;

/// One line of the C program and what Rust says: an expression and its value.
fn expected() -> Vec<(String, u64)> {
    let mut all = Vec::new();
    macro_rules! structure {
        ($c:literal, $rust:ty, $($field:ident),+) => {
            all.push((format!("sizeof(struct {})", $c), size_of::<$rust>() as u64));
            $(all.push((format!("offsetof(struct {}, {})", $c, stringify!($field)), offset_of!($rust, $field) as u64));)+
        };
    }
    structure!(
        "ls_ioc_hello",
        abi::Hello,
        version,
        timeout_ms,
        sq_entries,
        cq_entries,
        map_bytes,
        sq_offset,
        cq_offset,
        channels,
        eager_bytes,
        message_bytes,
        flags,
        idle_us,
        reserved
    );
    structure!(
        "ls_ioc_info",
        abi::Info,
        local_uuid,
        peer_uuid,
        state,
        epoch,
        link_speed,
        link_width,
        ring_size,
        ring_pairs,
        in_hopid,
        out_hopid,
        tx_frames,
        rx_frames,
        tx_bytes,
        rx_bytes,
        copied_bytes,
        control_frames,
        doorbells,
        restarts,
        polled_ns,
        reserved
    );
    structure!("ls_pair_info", abi::PairInfo, state, error, in_hopid, out_hopid, tx_frames, rx_frames, reserved);
    structure!("ls_ioc_pairs", abi::Pairs, pair);
    structure!("ls_ioc_register", abi::Register, addr, length, flags, fd, region, reserved);
    structure!("ls_ioc_id", abi::Id, id, reserved);
    structure!("ls_ioc_eventfd", abi::Event, fd, reserved);
    structure!("ls_ioc_doorbell", abi::Doorbell, flags, min_complete, timeout_us, submitted);
    structure!("ls_sqe", abi::Sqe, opcode, channel, cookie, region, reserved0, offset, length, reserved1);
    structure!("ls_cqe", abi::Cqe, cookie, length, result, channel, opcode, reserved);
    for (name, offset) in [
        ("sq_tail", abi::queue::SQ_TAIL),
        ("sq_head", abi::queue::SQ_HEAD),
        ("cq_tail", abi::queue::CQ_TAIL),
        ("cq_head", abi::queue::CQ_HEAD),
        ("dead", abi::queue::DEAD),
        ("flags", abi::queue::FLAGS),
    ] {
        all.push((format!("offsetof(struct ls_queue, {name})"), offset as u64));
    }
    all.push(("sizeof(struct ls_queue)".to_owned(), abi::queue::BYTES as u64));
    for (name, value) in [
        ("LS_ABI_VERSION", u64::from(abi::VERSION)),
        ("LS_EAGER_BYTES", abi::EAGER_BYTES),
        ("LS_MESSAGE_BYTES", abi::MESSAGE_BYTES),
        ("LS_CHANNELS", u64::from(abi::CHANNELS)),
        ("LS_CREDITS", u64::from(abi::CREDITS)),
        ("LS_PAIRS", abi::PAIRS as u64),
        ("LS_PAIR_DOWN", u64::from(abi::pair::DOWN)),
        ("LS_PAIR_UP", u64::from(abi::pair::UP)),
        ("LS_PAIR_LIMIT", u64::from(abi::pair::LIMIT)),
        ("LS_PAIR_NO_RING", u64::from(abi::pair::NO_RING)),
        ("LS_PAIR_NO_HOPID", u64::from(abi::pair::NO_HOPID)),
        ("LS_PAIR_REFUSED", u64::from(abi::pair::REFUSED)),
        ("LS_PAIR_SILENT", u64::from(abi::pair::SILENT)),
        ("LS_PAIR_PEER", u64::from(abi::pair::PEER)),
        ("LS_OP_SEND", u64::from(abi::OP_SEND)),
        ("LS_OP_RECV", u64::from(abi::OP_RECV)),
        ("LS_REGION_READ", u64::from(abi::REGION_READ)),
        ("LS_REGION_WRITE", u64::from(abi::REGION_WRITE)),
        ("LS_REGION_DMABUF", u64::from(abi::REGION_DMABUF)),
        ("LS_HELLO_POLL", u64::from(abi::HELLO_POLL)),
        ("LS_POLL_IDLE_MAX_US", u64::from(abi::POLL_IDLE_MAX_US)),
        ("LS_QUEUE_WAKE", u64::from(abi::queue::WAKE)),
        ("LS_DOORBELL_POLL", u64::from(abi::DOORBELL_POLL)),
        ("LS_IOC_HELLO", u64::from(abi::IOC_HELLO)),
        ("LS_IOC_INFO", u64::from(abi::IOC_INFO)),
        ("LS_IOC_REGISTER", u64::from(abi::IOC_REGISTER)),
        ("LS_IOC_UNREGISTER", u64::from(abi::IOC_UNREGISTER)),
        ("LS_IOC_OPEN", u64::from(abi::IOC_OPEN)),
        ("LS_IOC_CLOSE", u64::from(abi::IOC_CLOSE)),
        ("LS_IOC_DOORBELL", u64::from(abi::IOC_DOORBELL)),
        ("LS_IOC_EVENTFD", u64::from(abi::IOC_EVENTFD)),
        ("LS_IOC_PAIRS", u64::from(abi::IOC_PAIRS)),
    ] {
        all.push((name.to_owned(), value));
    }
    all
}

#[test]
fn the_header_says_the_same() {
    if Command::new("cc").arg("--version").output().is_err() {
        println!("skipped: no C compiler: linkspan.h was not compared");
        return;
    }
    let expected = expected();
    let mut source = "#include <stddef.h>\n#include <stdio.h>\n#include \"linkspan.h\"\nint main(void) {\n".to_owned();
    for (expression, _) in &expected {
        source.push_str(&format!("printf(\"%llu\\n\", (unsigned long long)({expression}));\n"));
    }
    source.push_str("return 0;\n}\n");
    let folder = std::env::temp_dir().join(format!("tbring-layout-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (file, program) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&file, source).unwrap();
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/uapi");
    // -Wpadded: a hole is an error too.
    let words = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wpadded", "-I"];
    let compiled = Command::new("cc").args(words).arg(header).arg(&file).arg("-o").arg(&program).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let said = Command::new(&program).output().unwrap();
    let said: Vec<u64> = String::from_utf8_lossy(&said.stdout).lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(said.len(), expected.len());
    for ((expression, rust), c) in expected.iter().zip(said) {
        assert_eq!(*rust, c, "{expression}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
