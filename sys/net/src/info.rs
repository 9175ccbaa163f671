//! TCP_INFO: what the kernel knows of a connection.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// A connection's state as the kernel sees it. Fields that this kernel does not have are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// It was reset, or nobody answered: nothing comes or leaves any more but what is queued here.
    pub closed: bool,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// How long the kernel waits for an answer before it sends again; it doubles with each of `timeouts`.
    pub wait: Duration,
    /// Smallest round-trip time seen lately.
    pub min_rtt: Duration,
    /// Segments sent again since the connection began.
    pub retransmitted: u32,
    /// Retransmission timeouts in a row that nothing has answered (not zero-window probes, which a full peer answers).
    pub timeouts: u8,
    /// Probes in a row that nothing has answered: of a window that is full or seems so, and of keepalive.
    pub probes: u8,
    /// Segments sent and not acknowledged.
    pub unacked: u32,
    /// Congestion window, segments.
    pub window: u32,
    /// Payload bytes of one segment.
    pub mss: u32,
    /// Payload bytes that the peer has acknowledged.
    pub bytes_acked: u64,
    /// Payload bytes received.
    pub bytes_received: u64,
    /// Bytes handed to the kernel and not yet sent.
    pub unsent: u32,
    /// Time since the peer's last payload, or since the connection was made where there was none.
    pub quiet: Duration,
    /// Time since the peer's last payload or acknowledgement, likewise.
    pub heard: Duration,
    /// Latest measured delivery, bytes per second.
    pub delivery_rate: u64,
}

/// `struct tcp_info` of linux/tcp.h up to the last field read here; the kernel only ever appends.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Raw {
    state_to_wscale: [u8; 8],
    rto: u32,
    ato: u32,
    snd_mss: u32,
    rcv_mss: u32,
    unacked: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    fackets: u32,
    last_data_sent: u32,
    last_ack_sent: u32,
    last_data_recv: u32,
    last_ack_recv: u32,
    pmtu: u32,
    rcv_ssthresh: u32,
    rtt: u32,
    rttvar: u32,
    snd_ssthresh: u32,
    snd_cwnd: u32,
    advmss: u32,
    reordering: u32,
    rcv_rtt: u32,
    rcv_space: u32,
    total_retrans: u32,
    pacing_rate: u64,
    max_pacing_rate: u64,
    bytes_acked: u64,
    bytes_received: u64,
    segs_out: u32,
    segs_in: u32,
    notsent_bytes: u32,
    min_rtt: u32,
    data_segs_in: u32,
    data_segs_out: u32,
    delivery_rate: u64,
}

/// `TCP_CLOSE` of linux/tcp_states.h.
const CLOSED: u8 = 7;

// Offsets of the same fields in linux/tcp.h.
const _: () = assert!(std::mem::offset_of!(Raw, rto) == 8);
const _: () = assert!(std::mem::offset_of!(Raw, last_data_recv) == 52);
const _: () = assert!(std::mem::offset_of!(Raw, last_ack_recv) == 56);
const _: () = assert!(std::mem::offset_of!(Raw, total_retrans) == 100);
const _: () = assert!(std::mem::offset_of!(Raw, bytes_acked) == 120);
const _: () = assert!(std::mem::offset_of!(Raw, min_rtt) == 148);
const _: () = assert!(std::mem::offset_of!(Raw, delivery_rate) == 160);

/// Asks the kernel about a TCP socket. A system call: for statistics, not for every operation.
///
/// # Errors
/// The error of `getsockopt(TCP_INFO)`: EOPNOTSUPP or ENOPROTOOPT where the socket is not TCP.
pub fn tcp_info(fd: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    let mut raw = Raw::default();
    let mut len = size_of::<Raw>() as libc::socklen_t;
    // SAFETY: `raw` is `len` bytes of plain integers, ours to write; the kernel writes at most `len`.
    let rc = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut raw).cast(), &raw mut len)
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    // ~0 means "not measured yet" for min_rtt.
    let min_rtt = if raw.min_rtt == u32::MAX { 0 } else { raw.min_rtt };
    Ok(TcpInfo {
        // tcpi_state of linux/tcp.h, the first byte.
        closed: raw.state_to_wscale[0] == CLOSED,
        rtt: Duration::from_micros(raw.rtt.into()),
        wait: Duration::from_micros(raw.rto.into()),
        min_rtt: Duration::from_micros(min_rtt.into()),
        retransmitted: raw.total_retrans,
        // tcpi_retransmits of linux/tcp.h, the third byte.
        timeouts: raw.state_to_wscale[2],
        // tcpi_probes, the fourth.
        probes: raw.state_to_wscale[3],
        unacked: raw.unacked,
        window: raw.snd_cwnd,
        mss: raw.snd_mss,
        bytes_acked: raw.bytes_acked,
        bytes_received: raw.bytes_received,
        unsent: raw.notsent_bytes,
        quiet: Duration::from_millis(raw.last_data_recv.into()),
        heard: Duration::from_millis(raw.last_data_recv.min(raw.last_ack_recv).into()),
        delivery_rate: raw.delivery_rate,
    })
}

#[cfg(test)]
mod tests;
