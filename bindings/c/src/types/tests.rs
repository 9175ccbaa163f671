//! The layout that C is promised: the same lines as `tests/c/abi.c` prints, held against `tests/abi.txt`.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::mem::offset_of;

use super::*;

fn size_of_field<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

macro_rules! layout {
    ($text:ident, $($of:ident { $($field:ident),* })*) => {$(
        writeln!($text, "struct {} {} {}", stringify!($of), size_of::<$of>(), align_of::<$of>()).unwrap();
        $(writeln!(
            $text,
            "field {}.{} {} {}",
            stringify!($of),
            stringify!($field),
            offset_of!($of, $field),
            size_of_field::<$of, _>(|one| &one.$field)
        )
        .unwrap();)*
    )*};
}

macro_rules! constants {
    ($text:ident, $($name:ident)*) => {$(writeln!($text, "constant {} {}", stringify!($name), $name).unwrap();)*};
}

#[test]
fn the_layout_is_the_one_that_c_was_promised() {
    let mut text = String::new();
    constants! { text,
        LINKSPAN_OK
        LINKSPAN_TIMEOUT
        LINKSPAN_TIMED_OUT_UNREVOKED
        LINKSPAN_ABORTED
        LINKSPAN_BROKEN
        LINKSPAN_INTERRUPTED
        LINKSPAN_NOT_CONNECTED
        LINKSPAN_HAS_PEER
        LINKSPAN_NO_CONNECTION
        LINKSPAN_BOUNDS
        LINKSPAN_NOT_INSIDE
        LINKSPAN_NO_RIGHT
        LINKSPAN_WRONG_PEER
        LINKSPAN_READ_ONLY_MEMORY
        LINKSPAN_NOT_EXPOSED
        LINKSPAN_DEVICE_MEMORY
        LINKSPAN_UNKNOWN_PEER
        LINKSPAN_PEER_NAME
        LINKSPAN_PEER_NAME_TAKEN
        LINKSPAN_TOO_MANY_PEERS
        LINKSPAN_ENDPOINT_CLOSED
        LINKSPAN_NOT_PAIRED
        LINKSPAN_NO_KEY
        LINKSPAN_UNKNOWN_HOST
        LINKSPAN_NO_ANSWER
        LINKSPAN_NO_GPU_DRIVER
        LINKSPAN_NO_GPU
        LINKSPAN_GPU_RANGE
        LINKSPAN_REMOTE_ACCESS
        LINKSPAN_NULL
        LINKSPAN_HANDLE
        LINKSPAN_VALUE
        LINKSPAN_TOO_SMALL
        LINKSPAN_MEMORY_IN_USE
        LINKSPAN_OP_TAKEN
        LINKSPAN_FORKED
        LINKSPAN_FOREVER
        LINKSPAN_PORT
        LINKSPAN_URL_SIZE
        LINKSPAN_REMOTE_SIZE
        LINKSPAN_COUNTERS
        LINKSPAN_LATENCY_BUCKETS
        LINKSPAN_READ_ONLY
        LINKSPAN_MEMORY_HOST
        LINKSPAN_MEMORY_MAPPED
        LINKSPAN_MEMORY_DEVICE
        LINKSPAN_GPU_NAME_SIZE
        LINKSPAN_ACCESS_READ
        LINKSPAN_ACCESS_WRITE
        LINKSPAN_FENCE
        LINKSPAN_PEER_NAME_SIZE
        LINKSPAN_PEER_CONNECTED
        LINKSPAN_PEER_NOTIFIED
        LINKSPAN_PEER_LOST
        LINKSPAN_IN_CALL
        LINKSPAN_QUEUE_FULL
        LINKSPAN_NO_DEVICE
        LINKSPAN_LINK_NOT_UP
        LINKSPAN_LINK_LOST
        LINKSPAN_DEVICE_REFUSED
        LINKSPAN_REGION_BOUNDS
        LINKSPAN_CHANNEL_ENDED
        LINKSPAN_MESSAGE_LONG
        LINKSPAN_CHANNEL_LATE
        LINKSPAN_RING_SEND
        LINKSPAN_RING_RECEIVE
        LINKSPAN_DOORBELL_SPIN
        LINKSPAN_LINK_WAITING
        LINKSPAN_LINK_LOGIN
        LINKSPAN_LINK_STARTING
        LINKSPAN_LINK_READY
        LINKSPAN_LINK_UP
        LINKSPAN_LINK_GONE
        LINKSPAN_LINK_NETWORK
        LINKSPAN_LINK_REFUSED
    }
    layout! { text,
        linkspan_setting { name, value }
        linkspan_support { path, why, usable, reserved }
        linkspan_stats { pid, used, uptime_ns, device, transport, counters, latency }
        linkspan_memory_info { address, length, writable, allocated, kind, reserved, gpu }
        linkspan_view { memory, offset, length }
        linkspan_remote { bytes }
        linkspan_remote_info { length, key, generation, access, reserved }
        linkspan_peer_info { path, connected, epoch }
        linkspan_peer_name { name }
        linkspan_event { kind, reserved, value, peer, why }
        linkspan_notify { value, flags, reserved }
        linkspan_part { local, remote }
        linkspan_ring_options { wait_ms, submissions, completions, thread_us, reserved }
        linkspan_completion { cookie, length, status, error, channel, operation }
        linkspan_link_info { local_uuid, peer_uuid, state, generation, lane_gbps, lanes, ring_size, ring_pairs, sent_frames, received_frames, sent_bytes, received_bytes, copied_bytes, control_frames, doorbells, restarts, polled_ns, reserved }
    }
    let promised = include_str!("../../tests/abi.txt");
    let promised: Vec<&str> = promised.lines().filter(|l| !l.starts_with("function ")).collect();
    assert_eq!(text.lines().collect::<Vec<_>>(), promised);
}
