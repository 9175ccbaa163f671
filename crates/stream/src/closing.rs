//! Streams that were closed with bytes still on their way.
//!
//! A socket that is closed while the peer goes on sending (grants, acknowledgements) answers with a reset, and a reset
//! throws away what had been sent and not yet acknowledged: messages that had reported. So such a stream is only shut for
//! writing, kept here, and its incoming bytes are read and dropped, until the peer's kernel has everything. The transports'
//! own calls look after it; nothing here starts a thread or waits, but [`settle`].

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use linkspan_net::tcp_info;
use socket2::Socket;

use crate::Stream;

/// Longest time a stream is kept: a peer that is alive and takes nothing for so long has been given up by its job.
const PATIENCE: Duration = Duration::from_secs(30);

/// Streams kept at a time; the oldest goes.
const MOST: usize = 256;

static KEPT: Mutex<Vec<(Arc<Socket>, Instant)>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Called when a stream is about to be dropped: keeps its socket where bytes are still on their way.
pub fn close(stream: &Stream) {
    let socket = stream.socket();
    read_off(socket);
    if !busy(socket) || socket.shutdown(std::net::Shutdown::Write).is_err() {
        return;
    }
    let mut kept = KEPT.lock().unwrap_or_else(|e| e.into_inner());
    if kept.len() >= MOST {
        kept.remove(0);
    }
    kept.push((socket.clone(), Instant::now() + PATIENCE));
    COUNT.store(kept.len(), Ordering::Relaxed);
}

/// Closes kept streams whose data was acknowledged or whose time is over. One atomic load when there are none.
pub fn sweep() {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut kept = KEPT.lock().unwrap_or_else(|e| e.into_inner());
    kept.retain(|(socket, until)| {
        read_off(socket);
        busy(socket) && Instant::now() < *until
    });
    COUNT.store(kept.len(), Ordering::Relaxed);
}

/// Waits until no stream is kept any more, at most `most`, then closes the rest: before a library is unloaded.
pub fn settle(most: Duration) {
    let until = Instant::now() + most;
    loop {
        sweep();
        if COUNT.load(Ordering::Relaxed) == 0 {
            return;
        }
        if Instant::now() >= until {
            KEPT.lock().unwrap_or_else(|e| e.into_inner()).clear();
            COUNT.store(0, Ordering::Relaxed);
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn busy(socket: &Socket) -> bool {
    tcp_info(socket.as_fd()).is_ok_and(|info| info.unacked > 0 || info.unsent > 0)
}

/// Reads and drops what has come, a bounded amount.
fn read_off(socket: &Socket) {
    let mut scratch = [0; 4096];
    for _ in 0..64 {
        match linkspan_net::recv(socket.as_fd(), &mut scratch) {
            Ok(Some(n)) if n > 0 => {}
            _ => return,
        }
    }
}
