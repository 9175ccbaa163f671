//! What tests of several files do to get connections and streams.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use linkspan_fabric::{Channel, Error, Fabric, HANDLE_LEN, Listener};
use linkspan_proto::greeting::Greeting;
use linkspan_proto::handle::Handle;
use linkspan_proto::login::{ClientParams, Guard, Login, LoginError, Progress, Seed};

/// Connects until both ends are up or the connecting one fails; then the listener is served until it knows too.
pub(crate) fn connect(
    from: &Fabric,
    listener: &Listener,
    handle: &[u8; HANDLE_LEN],
) -> Result<(Channel, Channel), Error> {
    let mut connecting = from.connect(0, handle)?;
    let (mut here, mut there) = (None, None);
    let until = Instant::now() + Duration::from_secs(30);
    while here.is_none() || there.is_none() {
        assert!(Instant::now() < until, "neither up nor refused within 30 s");
        if here.is_none() {
            here = connecting.poll().inspect_err(|_| {
                for _ in 0..50 {
                    assert!(listener.accept().unwrap().is_none(), "one side has a connection");
                    std::thread::sleep(Duration::from_millis(1));
                }
            })?;
        }
        if there.is_none() {
            there = listener.accept().unwrap();
        }
    }
    Ok((here.unwrap(), there.unwrap()))
}

/// The handle with the port of what `before` puts before the listener, as if from another host: no shared memory, rails and a
/// keepalive connection.
pub(crate) fn elsewhere<P>(
    handle: &[u8; HANDLE_LEN],
    before: impl FnOnce(SocketAddr) -> (P, u16),
) -> (P, [u8; HANDLE_LEN]) {
    let handle = Handle::decode(handle).unwrap();
    let mut addr = handle.addrs()[0];
    let (proxy, port) = before(addr.socket());
    addr.port = port;
    let mut other = Handle::new(handle.listen_id, handle.token.clone(), handle.host ^ 1);
    (other.psk, other.encrypt) = (handle.psk, handle.encrypt);
    other.push(addr).unwrap();
    (proxy, other.encode())
}

/// Logs a stream in over a plain socket, while `listener` is served.
pub(crate) fn log_stream_in(listener: &Listener, guard: Guard, conn: u64, number: u16) -> TcpStream {
    try_log_stream_in(listener, guard, conn, number).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn try_log_stream_in(
    listener: &Listener,
    guard: Guard,
    conn: u64,
    number: u16,
) -> Result<TcpStream, LoginError> {
    greet(listener, guard, conn, number, &Greeting::default())
}

/// The same with this greeting.
pub(crate) fn greet(
    listener: &Listener,
    guard: Guard,
    conn: u64,
    number: u16,
    greeting: &Greeting,
) -> Result<TcpStream, LoginError> {
    say(listener, guard, conn, number, greeting.encode())
}

/// The same with these bytes in its place.
pub(crate) fn say(
    listener: &Listener,
    guard: Guard,
    conn: u64,
    number: u16,
    blob: Vec<u8>,
) -> Result<TcpStream, LoginError> {
    let handle = Handle::decode(&listener.handle()).unwrap();
    let mut stream = TcpStream::connect(handle.addrs()[0].socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let params =
        ClientParams { guard, blob, ..ClientParams::new(handle.listen_id, handle.token.clone(), conn, number) };
    let start = Instant::now();
    let mut login = Login::client(params, Seed::random().unwrap(), start.elapsed()).unwrap();
    loop {
        assert!(start.elapsed() < Duration::from_secs(30));
        if !login.output().is_empty() {
            stream.write_all(login.output()).unwrap();
            login.sent(login.output().len());
        }
        assert!(listener.accept().unwrap().is_none());
        let mut bytes = vec![0; login.wants()];
        match stream.read(&mut bytes) {
            Ok(0) => login.closed(),
            Ok(n) => drop(login.feed(&bytes[..n])),
            Err(_) => {}
        }
        match login.poll(start.elapsed()) {
            Progress::Done(_) => return Ok(stream),
            Progress::Failed(error) => return Err(error),
            _ => {}
        }
    }
}

/// Resets a stream.
pub(crate) fn reset(stream: TcpStream) {
    socket2::Socket::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Whether the other side has closed or reset it.
pub(crate) fn is_over(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 64]) {
        Ok(n) => n == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}
