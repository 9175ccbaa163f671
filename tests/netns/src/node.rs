//! One end of a connection: a process of its own on one of the hosts. What it has to say goes to standard output,
//! one line each.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use linkspan::{Access, Context, Memory, Notify, RemoteBuffer};
use linkspan_fabric::{Buf, Channel, Config, Fabric, HANDLE_LEN, Level, Log, Poll, Ticket};
use linkspan_proto::login::{ClientParams, Guard, Login, Seed};
use linkspan_proto::mesh::{Keys, LISTEN_ID};
use linkspan_transport::StaticBuf;
use linkspan_verbs::Rdma;
use linkspan_verbs_sys::soft::{SoftConfig, SoftNet, SoftNic};

/// Messages in flight.
const WINDOW: usize = 8;

/// Bytes of a one-sided write, and the time that it has.
const PAGE: usize = 4096;
const WRITE: Duration = Duration::from_millis(500);

pub(crate) fn main(args: &[&str]) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("error {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[&str]) -> Result<(), String> {
    match args {
        ["expose"] => return expose().map_err(|e| linkspan_fabric::chain(&e)),
        ["write", url, remote] => return write(url, remote),
        ["crowd", server, count] => return crowd(server, number(count)?),
        ["attack", rest @ ..] => return crate::hostile::enemy(rest),
        _ => {}
    }
    let config = Config::from_env().map_err(|e| linkspan_fabric::chain(&e))?;
    let log = Log::to(|level, line| println!("{} {line}", if level == Level::Warn { "WARN" } else { "INFO" }));
    let (fabric, args) = match args {
        ["soft", interfaces, rest @ ..] => {
            (Fabric::apart(config, log, false, vec![Box::new(Rdma::given(soft(interfaces)?))]), rest)
        }
        args => (Fabric::new(config, log, false, linkspan_transports::all()), args),
    };
    let fabric = fabric.map_err(|e| linkspan_fabric::chain(&e))?;
    match args {
        ["listen", count, size, rest @ ..] => {
            let listener = fabric.listen(0).map_err(|e| linkspan_fabric::chain(&e))?;
            println!("handle {}", hex(&listener.handle()));
            loop {
                if let Some(mut channel) = listener.accept().map_err(|e| linkspan_fabric::chain(&e))? {
                    println!("up {}", channel.describe());
                    return transfer(&mut channel, number(count)?, number(size)?, false, rest != ["bare"]);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        ["connect", handle, count, size, rest @ ..] => {
            let bytes: [u8; HANDLE_LEN] = from_hex(handle)?.try_into().map_err(|_| "a handle of another length")?;
            let mut connecting = fabric.connect(0, &bytes).map_err(|e| linkspan_fabric::chain(&e))?;
            loop {
                if let Some(mut channel) = connecting.poll().map_err(|e| linkspan_fabric::chain(&e))? {
                    println!("up {}", channel.describe());
                    return transfer(&mut channel, number(count)?, number(size)?, true, rest != ["bare"]);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        // A rank of a job that computes: it has listened and calls nothing.
        ["sit"] => {
            let _listener = fabric.listen(0).map_err(|e| linkspan_fabric::chain(&e))?;
            println!("sitting");
            loop {
                std::thread::sleep(Duration::from_secs(60));
            }
        }
        ["repeat", server] => repeat(&fabric, server.parse().map_err(|_| format!("{server} is no address"))?),
        ["idle", count, seconds] => idle(&fabric, number(count)?, number(seconds)?),
        other => Err(format!("a node does not know {other:?}")),
    }
}

/// Streams that say nothing; one that is ended comes again.
fn crowd(server: &str, count: usize) -> Result<(), String> {
    let connect = || TcpStream::connect(server).map_err(|e| format!("{server}: {e}"));
    let mut streams = (0..count).map(|_| connect()).collect::<Result<Vec<_>, _>>()?;
    streams.iter().try_for_each(|stream| stream.set_nonblocking(true)).map_err(|e| e.to_string())?;
    println!("crowding");
    loop {
        for stream in &mut streams {
            if !stream.read(&mut [0]).is_err_and(|e| e.kind() == ErrorKind::WouldBlock) {
                *stream = connect()?;
                stream.set_nonblocking(true).map_err(|e| e.to_string())?;
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends one hello of a login at the mesh port again and again, as somebody would who overheard it: over 400 streams at a time,
/// each as soon as it is ended.
fn repeat(fabric: &Fabric, server: SocketAddr) -> Result<(), String> {
    let Guard::Psk { psk, .. } = fabric.config().guard.clone() else { return Err("no key".into()) };
    let params = ClientParams::new(LISTEN_ID, Keys::new(&psk).token(), 7, 0);
    let params = ClientParams { guard: Guard::Psk { psk, encrypt: false }, ..params };
    let seed = Seed::random().map_err(|e| e.to_string())?;
    let login = Login::client(params, seed, Duration::ZERO).map_err(|e| e.to_string())?;
    let mut streams: Vec<TcpStream> = Vec::new();
    let mut said = false;
    loop {
        streams.retain_mut(|stream| {
            let read = stream.read(&mut [0; 512]);
            matches!(&read, Ok(n) if *n > 0) || read.is_err_and(|e| e.kind() == ErrorKind::WouldBlock)
        });
        while streams.len() < 400 {
            let mut stream = TcpStream::connect_timeout(&server, Duration::from_secs(5)).map_err(|e| e.to_string())?;
            stream.write_all(login.output()).map_err(|e| e.to_string())?;
            stream.set_nonblocking(true).map_err(|e| e.to_string())?;
            streams.push(stream);
        }
        if !said {
            println!("repeating");
            said = true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// RDMA devices in software on these interfaces, for what hosts tell each other of theirs: no cable joins those of two processes.
fn soft(interfaces: &str) -> Result<Vec<SoftNic>, String> {
    let net = SoftNet::new(1);
    let nic = |(n, name): (u8, &str)| {
        let file = format!("/sys/class/net/{name}/ifindex");
        let text = std::fs::read_to_string(&file).map_err(|e| format!("{file}: {e}"))?;
        let index = text.trim().parse().map_err(|_| format!("{file}: {text}"))?;
        Ok(net.nic(SoftConfig::roce(&format!("soft-{name}"), [10, 78, 0, n].into(), index)))
    };
    (1..).zip(interfaces.split(',').filter(|name| !name.is_empty())).map(nic).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let byte = |at| u8::from_str_radix(text.get(at..at + 2).unwrap_or("x"), 16).map_err(|e| e.to_string());
    (0..text.len()).step_by(2).map(byte).collect()
}

/// The library's side that is written to: a line for each notification.
fn expose() -> Result<(), linkspan::Error> {
    let transport = Context::new(Config::from_env()?, Log::off())?.transport()?;
    let memory = Memory::host(PAGE);
    let region = transport.expose(&memory.view(), Access::Write)?;
    println!("at {} {}", transport.bind()?, hex(&region.remote().encode()));
    transport.wait_connected_blocking(WRITE * 20)?;
    loop {
        println!("got {}", transport.wait_for_write_blocking(None)?);
    }
}

/// The one that writes: a line for each write, with its error if it has one. Ends when the transport is broken.
fn write(url: &str, remote: &str) -> Result<(), String> {
    let all = |e: linkspan::Error| linkspan_fabric::chain(&e);
    let transport = Context::new(Config::from_env().map_err(|e| all(e.into()))?, Log::off()).map_err(all)?;
    let transport = transport.transport().map_err(all)?;
    let to = RemoteBuffer::decode(&from_hex(remote)?).map_err(all)?;
    transport
        .connect_blocking(&url.parse().map_err(|e: linkspan::UrlError| e.to_string())?, WRITE * 20)
        .map_err(all)?;
    let memory = Memory::host(PAGE);
    for n in 0.. {
        match transport.write_blocking(&memory.view(), &to, Some(Notify::value(n)), Some(WRITE)) {
            Ok(_) => println!("wrote {n}"),
            Err(error) if error.is_broken() => return Err(all(error)),
            Err(error) => println!("late {n}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("{text} is not a number"))
}

/// Connections to itself on which nothing happens: what does sleeping cost?
fn idle(fabric: &Fabric, count: usize, seconds: usize) -> Result<(), String> {
    let mut ends = Vec::new();
    for _ in 0..count {
        let listener = fabric.listen(0).map_err(|e| linkspan_fabric::chain(&e))?;
        let mut connecting = fabric.connect(0, &listener.handle()).map_err(|e| linkspan_fabric::chain(&e))?;
        let (mut here, mut there) = (None, None);
        while here.is_none() || there.is_none() {
            if here.is_none() {
                here = connecting.poll().map_err(|e| linkspan_fabric::chain(&e))?;
            }
            if there.is_none() {
                there = listener.accept().map_err(|e| linkspan_fabric::chain(&e))?;
            }
        }
        ends.extend(here);
        ends.extend(there);
    }
    let (begun, busy) = (Instant::now(), cpu_ns()?);
    let until = begun + Duration::from_secs(seconds as u64);
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) {
        let mut all: Vec<&mut Channel> = ends.iter_mut().collect();
        linkspan_fabric::wait_any(&mut all, left);
        for end in &mut ends {
            end.progress().map_err(|e| e.to_string())?;
        }
    }
    let threads = std::fs::read_dir("/proc/self/task").map_err(|e| e.to_string())?.count();
    let percent = (cpu_ns()? - busy) as f64 * 1e-7 / begun.elapsed().as_secs_f64();
    println!("idle {} ends, {threads} threads, {percent:.2} % of a core", ends.len());
    Ok(())
}

/// Time this thread, the only one, has run, ns (the first field of schedstat).
fn cpu_ns() -> Result<u64, String> {
    let stat = std::fs::read_to_string("/proc/self/schedstat").map_err(|e| e.to_string())?;
    stat.split_whitespace().next().and_then(|w| w.parse().ok()).ok_or_else(|| "schedstat cannot be read".into())
}

/// The byte at `offset` of message `n`.
fn pattern(n: usize, size: usize) -> Vec<u8> {
    let seed = (n as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let words = (0..size.div_ceil(8) as u64).flat_map(|w| (seed ^ w.wrapping_mul(0xD6E8_FEB8_6659_FD93)).to_le_bytes());
    words.take(size).collect()
}

/// Processor time of a process with all its threads, those that have ended too, in ticks of 10 ms (proc(5), `stat`).
pub(crate) fn cpu_ticks(pid: &str) -> Result<u64, String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|e| e.to_string())?;
    // The name may have blanks in it; user and system time are the 12th and 13th word behind it.
    let behind = stat.rsplit(')').next().unwrap_or_default();
    let ticks: Option<Vec<u64>> = behind.split_whitespace().skip(11).take(2).map(|w| w.parse().ok()).collect();
    ticks.filter(|t| t.len() == 2).map(|t| t.iter().sum()).ok_or_else(|| format!("/proc/{pid}/stat: {stat}"))
}

/// Moves messages one way. Without `checks` nothing is written into them nor looked at: what is left is the cost of moving.
fn transfer(channel: &mut Channel, count: usize, size: usize, sends: bool, checks: bool) -> Result<(), String> {
    let bufs: Vec<StaticBuf> = (0..WINDOW.min(count)).map(|_| StaticBuf::new(size)).collect();
    let lost = |channel: &Channel, error: &dyn std::error::Error| {
        println!("lost {}", channel.lost().unwrap_or_else(|| error.to_string()));
        format!("the connection was lost: {error}")
    };
    let mut tickets: Vec<Option<Ticket>> = vec![None; bufs.len()];
    let (mut posted, mut done, mut idle) = (0, 0, 0u32);
    let (begun, mut told, busy) = (Instant::now(), Instant::now(), cpu_ticks("self")?);
    while done < count {
        while posted < count && tickets[posted % bufs.len()].is_none() {
            let mem = bufs[posted % bufs.len()].slice();
            let ticket = if sends {
                if checks && !mem.fill(0, &pattern(posted, size)) {
                    return Err("pattern does not fit".into());
                }
                channel.post_send(1, mem)
            } else {
                channel.post_recv(&[(1, mem)])
            };
            match ticket.map_err(|e| lost(channel, &e))? {
                Some(ticket) => tickets[posted % bufs.len()] = Some(ticket),
                None => break,
            }
            posted += 1;
        }
        match channel.progress() {
            Ok(Poll::Active) => idle = 0,
            Ok(Poll::Idle) => idle += 1,
            Err(error) if tickets[done % bufs.len()].is_none() => return Err(lost(channel, &error)),
            Err(_) => {}
        }
        if idle > 200 {
            channel.wait(Duration::from_millis(50));
            idle = 0;
        }
        while let Some(ticket) = tickets[done % bufs.len()] {
            let Some(bytes) = channel.test(ticket).map_err(|e| lost(channel, &e))? else { break };
            if bytes != size as u64
                || (checks && !sends && bufs[done % bufs.len()].slice().to_vec() != pattern(done, size))
            {
                println!("wrong message {done}: {bytes} bytes");
                return Err(format!("message {done} is not what was sent"));
            }
            tickets[done % bufs.len()] = None;
            done += 1;
            if done == count {
                break;
            }
        }
        if told.elapsed() > Duration::from_millis(200) {
            told = Instant::now();
            println!("at {done} rails {}", channel.rails().count());
        }
    }
    let secs = begun.elapsed().as_secs_f64();
    println!(
        "done {} bytes {secs:.3} s {:.1} Mbit/s rails_lost {} cpu_ticks {}",
        count * size,
        (count * size) as f64 * 8e-6 / secs,
        channel.rails_lost(),
        cpu_ticks("self")? - busy
    );
    // Both ends stay until the other one has everything: the kernel keeps what was sent, but not for a dead process.
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until && channel.progress().is_ok() {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
