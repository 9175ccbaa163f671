//! A peer that holds the handle and logs in like an honest one, over a plain socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use linkspan_fabric::{Channel, Config, Fabric, Listener, Log};
use linkspan_proto::handle::Handle;
use linkspan_proto::login::{ClientParams, Login, Progress, Seed};

/// How long anything on loopback may take.
pub const PATIENCE: Duration = Duration::from_secs(4);

/// A fabric on loopback that shares no memory with its neighbours and keeps no statistics.
pub fn fabric(acked: bool) -> Fabric {
    let env = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_PATH", "tcp"), ("LINKSPAN_STATS_DIR", "off")];
    let get = |name: &str| env.iter().find(|p| p.0 == name).map(|p| p.1.to_owned());
    // What a peer can make us say is bounded as well.
    let log = Log::to(|_, line| assert!(line.len() < 4096, "a line of {} bytes", line.len()));
    Fabric::new(Config::read(&get).expect("fixed values"), log, acked, Vec::new()).expect("loopback")
}

/// The same for those who have this cluster key, with or without encryption.
pub fn keyed(key: &[u8; 32], encrypt: bool) -> Fabric {
    use std::os::unix::fs::OpenOptionsExt;
    let path = std::env::temp_dir().join(format!("linkspan-fuzz-{}-{encrypt}.key", std::process::id()));
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
    file.and_then(|mut file| file.write_all(key)).expect("a file of our own");
    let mode = if encrypt { "encrypt" } else { "auth" };
    let text = path.to_str().expect("a name that is text");
    let env = [
        ("LINKSPAN_IFNAME", "=lo"),
        ("LINKSPAN_PATH", "tcp"),
        ("LINKSPAN_STATS_DIR", "off"),
        ("LINKSPAN_PSK_FILE", text),
        ("LINKSPAN_PSK_MODE", mode),
    ];
    let get = |name: &str| env.iter().find(|p| p.0 == name).map(|p| p.1.to_owned());
    let fabric = Fabric::new(Config::read(&get).expect("fixed values"), Log::off(), true, Vec::new()).expect("loopback");
    let _ = std::fs::remove_file(path);
    fabric
}

/// Where a listener is to be found.
pub fn address(listener: &Listener) -> SocketAddr {
    Handle::decode(&listener.handle()).expect("our own handle").addrs()[0].socket()
}

/// A socket whose end leaves nothing behind in the kernel: ports must last for millions of inputs.
pub fn dial(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a listener that lives");
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("a socket option");
    stream.set_nodelay(true).expect("a socket option");
    stream.set_nonblocking(true).expect("a socket option");
    stream
}

/// Logs one stream in. `served` is called until the other side has done its part.
pub fn log_in(listener: &Listener, conn: u64, stream_number: u16, blob: &[u8]) -> Option<TcpStream> {
    let handle = Handle::decode(&listener.handle()).expect("our own handle");
    let mut stream = dial(address(listener));
    let mut params = ClientParams::new(handle.listen_id, handle.token.clone(), conn, stream_number);
    params.blob = blob.to_vec();
    let start = Instant::now();
    let mut login = Login::client(params, Seed::random().expect("random numbers"), start.elapsed()).ok()?;
    loop {
        assert!(start.elapsed() < PATIENCE, "a login that never ends");
        if !login.output().is_empty() {
            let sent = stream.write(login.output()).ok()?;
            login.sent(sent);
        }
        assert!(listener.accept().expect("a listener that lives").is_none());
        let mut bytes = vec![0; login.wants()];
        match stream.read(&mut bytes) {
            Ok(0) => return None,
            Ok(n) => drop(login.feed(&bytes[..n])),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
        match login.poll(start.elapsed()) {
            Progress::Done(_) => return Some(stream),
            Progress::Failed(_) => return None,
            _ => {}
        }
    }
}

/// An honest connection through the listener, and a message over it.
pub fn honest(fabric: &Fabric, listener: &Listener) -> (Channel, Channel) {
    let mut connecting = fabric.connect(0, &listener.handle()).expect("our own handle");
    let (mut here, mut there) = (None, None);
    let start = Instant::now();
    while here.is_none() || there.is_none() {
        assert!(start.elapsed() < PATIENCE, "an honest peer is kept out");
        if here.is_none() {
            here = connecting.poll().expect("an honest connection");
        }
        if there.is_none() {
            there = listener.accept().expect("a listener that lives");
        }
    }
    here.zip(there).expect("both ends")
}
