//! The device of linkspan.ko: links, queues, registered memory, channels.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan_tbring::{Access, Completion, Error, Info, Operation, Options, Ring, RingMr, RingState};

use super::objects::{device, handle, id, limit};
use crate::numbers::Numbers;
use crate::raw::{self, Out, Rows};
use crate::single::Single;
use crate::status::{CallResult, Refusal, border};
use crate::table::Table;
use crate::types::*;

/// An open device. In this order: regions go before the ring, whose end waits for what still moves in their memory.
struct Open {
    regions: Numbers<RingMr>,
    ring: Ring,
}

static RINGS: Table<Single<Open>> = Table::new(0xA6, "ring");

/// Runs a call on a ring, as its only thread.
#[inline]
fn with<T>(ring: *mut linkspan_ring, call: impl FnOnce(&mut Open) -> CallResult<T>) -> CallResult<T> {
    let found = RINGS.get(id(ring))?;
    let mut inside = found.enter(id(ring))?;
    call(&mut inside)
}

pub(super) fn link_info(info: &Info) -> linkspan_link_info {
    let raw = &info.raw;
    linkspan_link_info {
        local_uuid: raw.local_uuid,
        peer_uuid: raw.peer_uuid,
        state: match info.state {
            RingState::Waiting => LINKSPAN_LINK_WAITING,
            RingState::Login => LINKSPAN_LINK_LOGIN,
            RingState::Starting => LINKSPAN_LINK_STARTING,
            RingState::Ready => LINKSPAN_LINK_READY,
            RingState::Up => LINKSPAN_LINK_UP,
            RingState::Gone => LINKSPAN_LINK_GONE,
            RingState::Network => LINKSPAN_LINK_NETWORK,
            RingState::Modes => LINKSPAN_LINK_REFUSED,
        },
        generation: raw.epoch,
        lane_gbps: raw.link_speed,
        lanes: raw.link_width,
        ring_size: raw.ring_size,
        ring_pairs: raw.ring_pairs,
        sent_frames: raw.tx_frames,
        received_frames: raw.rx_frames,
        sent_bytes: raw.tx_bytes,
        received_bytes: raw.rx_bytes,
        copied_bytes: raw.copied_bytes,
        control_frames: raw.control_frames,
        doorbells: raw.doorbells,
        restarts: raw.restarts,
        polled_ns: raw.polled_ns,
        reserved: [0; 4],
    }
}

fn rights(access: u32) -> CallResult<Access> {
    match access {
        LINKSPAN_RING_SEND => Ok(Access::Send),
        LINKSPAN_RING_RECEIVE => Ok(Access::Receive),
        3 => Ok(Access::Both),
        _ => {
            Err(Refusal::Value { name: "access", value: access.into(), takes: "LINKSPAN_RING_SEND, _RECEIVE or both" })
        }
    }
}

fn entries(name: &'static str, given: u32, unset: u32) -> CallResult<u32> {
    match given {
        0 => Ok(unset),
        8..=4096 if given.is_power_of_two() => Ok(given),
        _ => Err(Refusal::Value { name, value: given.into(), takes: "a power of two from 8 to 4096, or 0" }),
    }
}

fn options(given: Option<linkspan_ring_options>) -> CallResult<Options> {
    let unset = Options::default();
    let Some(given) = given else { return Ok(unset) };
    if given.reserved != 0 {
        return Err(Refusal::Value { name: "how.reserved", value: given.reserved.into(), takes: "0" });
    }
    let thread = match given.thread_us {
        0 => None,
        1..=1_000_000 => Some(Duration::from_micros(given.thread_us.into())),
        us => return Err(Refusal::Value { name: "how.thread_us", value: us.into(), takes: "0 to 1000000" }),
    };
    Ok(Options {
        submissions: entries("how.submissions", given.submissions, unset.submissions)?,
        completions: entries("how.completions", given.completions, unset.completions)?,
        wait: limit(given.wait_ms)?,
        thread,
    })
}

/// What the device at `path` (/dev/linkspan/0) says about its link and the other host, without waiting for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_link_get(path: *const c_char, out: *mut linkspan_link_info) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let (out, path) = unsafe { (Out::new(out, "out")?, device(path)?) };
        out.set(link_info(&linkspan_tbring::info(&path)?));
        Ok(())
    })
}

/// Opens the device at `path` (/dev/linkspan/0) and waits for its link. `how` null: 256 and 512 entries, 5 s, no thread.
///
/// Threads: one at a time, here and in all calls on a ring; another one gets LINKSPAN_IN_CALL, and may call later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_ring_open(
    path: *const c_char,
    how: *const linkspan_ring_options,
    out: *mut *mut linkspan_ring,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let (out, path, how) = unsafe { (Out::new(out, "out")?, device(path)?, raw::maybe(how, "how")?) };
        let ring = Ring::open(&path, options(how)?)?;
        let open = Open { regions: Numbers::new("region of this ring"), ring };
        out.set(handle(RINGS.insert(Arc::new(Single::new("ring", open)))?));
        Ok(())
    })
}

/// Ends a ring with its channels and regions: what has not begun is taken back, what moves is waited for. Afterwards the memory that
/// was registered is the caller's alone.
///
/// Threads: while another thread is in a call on it, LINKSPAN_IN_CALL, and the ring stays open.
#[unsafe(no_mangle)]
pub extern "C" fn linkspan_ring_close(ring: *mut linkspan_ring) -> i32 {
    border(|| {
        let found = RINGS.get(id(ring))?;
        let open = found.enter(id(ring))?.close();
        RINGS.remove(id(ring))?;
        drop(open);
        Ok(())
    })
}

/// What the device says about its link and the other host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_ring_get(ring: *mut linkspan_ring, out: *mut linkspan_link_info) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        out.set(link_info(&with(ring, |open| Ok(open.ring.info()?))?));
        Ok(())
    })
}

/// Registers memory of this process: its pages are pinned and count against the limit of locked memory (ulimit -l). `access`:
/// LINKSPAN_RING_SEND, LINKSPAN_RING_RECEIVE or both. Memory that begins at a page moves without a copy. The bytes must stay mapped
/// until linkspan_ring_release or linkspan_ring_close has returned LINKSPAN_OK. `region`: its number in this ring, never 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_ring_register(
    ring: *mut linkspan_ring,
    address: *mut c_void,
    length: usize,
    access: u32,
    region: *mut u64,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module; the bytes stay as long as the region, or the ring with it.
        let (out, memory) = unsafe { (Out::new(region, "region")?, raw::lasting(address, length)?) };
        let access = rights(access)?;
        out.set(with(ring, |open| open.regions.add(open.ring.register(memory, access)?))?);
        Ok(())
    })
}

/// Registers `length` bytes at `offset` (a multiple of the page size) of a dma-buf. The region keeps the dma-buf, whatever becomes of
/// the descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_ring_register_dmabuf(
    ring: *mut linkspan_ring,
    fd: c_int,
    offset: u64,
    length: u64,
    access: u32,
    region: *mut u64,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let (out, fd) = unsafe { (Out::new(region, "region")?, raw::fd(fd, "fd")?) };
        let access = rights(access)?;
        out.set(with(ring, |open| open.regions.add(open.ring.register_dmabuf(fd, offset, length, access)?))?);
        Ok(())
    })
}

/// Lets registered memory go. After LINKSPAN_OK the bytes are the caller's alone; LINKSPAN_MEMORY_IN_USE while operations on it are
/// under way: the region stays as it was.
#[unsafe(no_mangle)]
pub extern "C" fn linkspan_ring_release(ring: *mut linkspan_ring, region: u64) -> i32 {
    border(|| match with(ring, |open| open.regions.remove(region, RingMr::release))? {
        true => Ok(()),
        false => Err(Refusal::MemoryInUse),
    })
}

/// Opens a channel (0 to 255); what is sent waits until the other host opens it too.
#[unsafe(no_mangle)]
pub extern "C" fn linkspan_ring_open_channel(ring: *mut linkspan_ring, channel: u32) -> i32 {
    border(|| with(ring, |open| Ok(open.ring.open_channel(channel)?)))
}

/// Closes a channel: operations that have not begun end with ECANCELED, those of the other host with LINKSPAN_CHANNEL_ENDED.
#[unsafe(no_mangle)]
pub extern "C" fn linkspan_ring_close_channel(ring: *mut linkspan_ring, channel: u32) -> i32 {
    border(|| with(ring, |open| Ok(open.ring.close_channel(channel)?)))
}

fn put(done: Result<bool, Error>) -> CallResult {
    if done? { Ok(()) } else { Err(Refusal::QueueFull) }
}

/// Puts a send of one message, `length` bytes at `offset` of a region, into the queue; linkspan_ring_submit or _doorbell hands it
/// over. `cookie` comes back in its completion; until then the bytes must not change. LINKSPAN_QUEUE_FULL: it was not put.
#[unsafe(no_mangle)]
pub extern "C" fn linkspan_ring_send(
    ring: *mut linkspan_ring,
    channel: u32,
    region: u64,
    offset: u64,
    length: u64,
    cookie: u64,
) -> i32 {
    border(|| with(ring, |open| put(open.ring.send(channel, open.regions.get(region)?, offset, length, cookie))))
}

/// Puts a receive of one message of at most `length` bytes into the queue, as linkspan_ring_send.
#[unsafe(no_mangle)]
pub extern "C" fn linkspan_ring_receive(
    ring: *mut linkspan_ring,
    channel: u32,
    region: u64,
    offset: u64,
    length: u64,
    cookie: u64,
) -> i32 {
    border(|| with(ring, |open| put(open.ring.receive(channel, open.regions.get(region)?, offset, length, cookie))))
}

/// Hands over what was put, without waiting: a system call. `waiting` may be null: entries that were not taken yet; where no
/// completions were taken for long, call it again when some were.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_ring_submit(ring: *mut linkspan_ring, waiting: *mut u32) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::maybe(waiting, "waiting")? };
        let left = with(ring, |open| {
            open.ring.submit()?;
            Ok(open.ring.waiting())
        })?;
        out.into_iter().for_each(|out| out.set(left));
        Ok(())
    })
}

/// Rings the doorbell; a signal ends the wait, with nothing taken that is not told.
fn doorbell(ring: &mut Ring, completions: u32, wait: Duration, spin: bool) -> CallResult<u32> {
    match ring.doorbell(completions, wait, spin) {
        Err(error) if error.errno() == Some(EINTR) => Ok(0),
        waited => Ok(waited?),
    }
}

/// `errno.h`: a signal.
const EINTR: i32 = 4;

fn spin(flags: u32) -> CallResult<bool> {
    match flags {
        0 => Ok(false),
        LINKSPAN_DOORBELL_SPIN => Ok(true),
        _ => Err(Refusal::Value { name: "flags", value: flags.into(), takes: "0 or LINKSPAN_DOORBELL_SPIN" }),
    }
}

/// Hands over what was put, then waits until `completions` completions are there to be taken, or the time is up, which is no error;
/// a signal ends the wait too. `flags`: 0 or LINKSPAN_DOORBELL_SPIN. `taken` may be null: entries that were taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_ring_doorbell(
    ring: *mut linkspan_ring,
    completions: u32,
    timeout_ms: i64,
    flags: u32,
    taken: *mut u32,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::maybe(taken, "taken")? };
        let (wait, spin) = (limit(timeout_ms)?, spin(flags)?);
        let n = with(ring, |open| doorbell(&mut open.ring, completions, wait, spin))?;
        out.into_iter().for_each(|out| out.set(n));
        Ok(())
    })
}

/// `errno.h`, and what they mean.
fn meaning(errno: i32) -> i32 {
    match errno {
        32 => LINKSPAN_CHANNEL_ENDED,
        19 => LINKSPAN_LINK_LOST,
        90 => LINKSPAN_MESSAGE_LONG,
        _ => LINKSPAN_DEVICE_REFUSED,
    }
}

fn completion(done: &Completion) -> linkspan_completion {
    let error = done.result.err();
    linkspan_completion {
        cookie: done.cookie,
        length: done.length,
        status: error.map_or(LINKSPAN_OK, meaning),
        error: error.unwrap_or(0),
        channel: done.channel,
        operation: match done.operation {
            Operation::Send => LINKSPAN_RING_SEND,
            Operation::Receive => LINKSPAN_RING_RECEIVE,
        },
    }
}

/// Takes what is there and fits. An error is told when nothing was taken before it.
#[inline]
fn take(ring: &mut Ring, list: &mut Rows<linkspan_completion>) -> CallResult<usize> {
    list.fill(|| Ok(ring.pop()?.as_ref().map(completion)))
}

/// Takes completions that are there, `capacity` at most, into `list`. No system call. LINKSPAN_LINK_LOST when the link was lost and all
/// were taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_ring_poll(
    ring: *mut linkspan_ring,
    list: *mut linkspan_completion,
    capacity: usize,
    count: *mut usize,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let (out, mut list) = unsafe { (Out::new(count, "count")?, Rows::new(list, capacity, "list")?) };
        out.set(with(ring, |open| take(&mut open.ring, &mut list))?);
        Ok(())
    })
}

/// Hands over what was put, waits for the first completion, and takes those that are there, as linkspan_ring_poll. `count` 0: none came
/// in time. `flags` as for linkspan_ring_doorbell.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_ring_wait(
    ring: *mut linkspan_ring,
    timeout_ms: i64,
    flags: u32,
    list: *mut linkspan_completion,
    capacity: usize,
    count: *mut usize,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let (out, mut list) = unsafe { (Out::new(count, "count")?, Rows::new(list, capacity, "list")?) };
        let (until, spin) = (Instant::now() + limit(timeout_ms)?, spin(flags)?);
        let taken = with(ring, |open| {
            let mut handed = Ok(());
            loop {
                if handed.is_ok() && open.ring.waiting() > 0 {
                    handed = open.ring.submit().map_err(Refusal::from);
                }
                // First: a link that was lost may have left some.
                let taken = take(&mut open.ring, &mut list)?;
                if taken > 0 {
                    return Ok(taken);
                }
                handed?;
                let left = until.saturating_duration_since(Instant::now());
                if capacity == 0 || left.is_zero() {
                    return Ok(0);
                }
                handed = doorbell(&mut open.ring, 1, left, spin).map(drop);
            }
        })?;
        out.set(taken);
        Ok(())
    })
}

/// Has an eventfd of the caller's signalled with every completion and when the link is lost; -1 ends that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_ring_set_eventfd(ring: *mut linkspan_ring, fd: c_int) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let fd = if fd == -1 { None } else { Some(unsafe { raw::fd(fd, "fd")? }) };
        with(ring, |open| Ok(open.ring.set_eventfd(fd)?))
    })
}

/// A descriptor for epoll, poll or select: readable when completions are there, hung up when the link was lost. It belongs to the
/// ring and is closed with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_ring_fd(ring: *mut linkspan_ring, out: *mut c_int) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        out.set(with(ring, |open| Ok(open.ring.as_fd().as_raw_fd()))?);
        Ok(())
    })
}
