//! As much of HTTP/1.1 as a scraper needs, with bounds: a client may be slow, hostile or many.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use linkspan_net::Quota;

/// Most connections at a time; more are closed unanswered.
const CONNECTIONS: u64 = 16;

/// Most bytes of a request's head.
const HEAD: usize = 8192;

/// How long a connection may last: the default of Prometheus' scrape_timeout.
const TIME: Duration = Duration::from_secs(10);

/// Pause after an error of accept(2), as for want of descriptors, which comes back at once.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers each GET of `/metrics` with what `page` gives, which is made for one client at a time: on one processor, however many ask.
pub(super) fn serve(listener: &TcpListener, page: impl Fn() -> io::Result<String> + Send + 'static) -> ! {
    let page = Arc::new(Mutex::new(page));
    let places = Quota::new(CONNECTIONS);
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let Some(place) = places.take(1) else { continue };
                let page = page.clone();
                let answered = thread::Builder::new().spawn(move || {
                    // The client's fault or loss.
                    let one = || page.lock().unwrap_or_else(|e| e.into_inner())();
                    let _ = answer(&stream, one, Instant::now() + TIME);
                    drop(place);
                });
                drop(answered);
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

fn answer(mut stream: &TcpStream, page: impl Fn() -> io::Result<String>, until: Instant) -> io::Result<()> {
    let left = || match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::Error::from(io::ErrorKind::TimedOut)),
        left => Ok(Some(left)),
    };
    let (mut head, mut len) = ([0; HEAD], 0);
    while !head[..len].windows(4).any(|end| end == b"\r\n\r\n") && len < HEAD {
        stream.set_read_timeout(left()?)?;
        match stream.read(&mut head[len..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => len += more,
        }
    }
    let response = respond(&head[..len], page);
    let mut rest = response.as_bytes();
    while !rest.is_empty() {
        stream.set_write_timeout(left()?)?;
        let sent = stream.write(rest)?;
        rest = rest.get(sent..).unwrap_or_default();
    }
    Ok(())
}

fn respond(head: &[u8], page: impl Fn() -> io::Result<String>) -> String {
    const TEXT: &str = "text/plain; charset=utf-8";
    let line = head.split(|byte| *byte == b'\r').next().and_then(|line| std::str::from_utf8(line).ok()).unwrap_or("");
    let mut words = line.split(' ');
    let (method, target, version) = (words.next(), words.next().unwrap_or(""), words.next().unwrap_or(""));
    let path = target.split('?').next();
    let (status, kind, body) = match method {
        _ if head.len() == HEAD => ("431 Request Header Fields Too Large", TEXT, "the request is too large\n".into()),
        _ if !version.starts_with("HTTP/1.") || words.next().is_some() => {
            ("400 Bad Request", TEXT, "not a request of HTTP/1.1\n".into())
        }
        Some("GET" | "HEAD") if path == Some("/metrics") => match page() {
            Ok(text) => ("200 OK", "text/plain; version=0.0.4; charset=utf-8", text),
            Err(error) => ("500 Internal Server Error", TEXT, format!("statistics: {error}\n")),
        },
        Some("GET" | "HEAD") => ("404 Not Found", TEXT, "the statistics are at /metrics\n".into()),
        _ => ("405 Method Not Allowed", TEXT, "GET and HEAD only\n".into()),
    };
    let length = body.len();
    let body = if method == Some("HEAD") { "" } else { &body };
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use super::*;

    /// A server that lasts as long as the tests.
    fn server(page: impl Fn() -> io::Result<String> + Send + Sync + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || serve(&listener, page));
        address
    }

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn requests_get_what_http_says() {
        let address = server(|| Ok("a_total 1\n".into()));
        let whole = ask(address, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(whole.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
        assert!(whole.ends_with("\r\n\r\na_total 1\n"));
        let head = ask(address, b"HEAD /metrics HTTP/1.0\r\n\r\n");
        assert!(head.contains("Content-Length: 10\r\n") && head.ends_with("\r\n\r\n"));
        let large = [b"GET /metrics HTTP/1.1\r\nA: ".to_vec(), vec![b'a'; HEAD]].concat();
        for (request, status) in [
            (&b"GET /metrics?a=b HTTP/1.1\r\n\r\n"[..], "200"),
            (b"GET / HTTP/1.1\r\n\r\n", "404"),
            (b"GET /metrics/../etc HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"\xff\xfe\r\n\r\n", "400"),
            (b"GET /metrics HTTP/1.1 more\r\n\r\n", "400"),
            (b"\r\n\r\n", "400"),
            (&large[..HEAD], "431"),
        ] {
            let text = ask(address, request);
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
        }
        let failing = server(|| Err(io::ErrorKind::PermissionDenied.into()));
        assert!(ask(failing, b"GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 500 "));
    }

    #[test]
    fn clients_that_never_finish_take_a_bounded_number_of_places_and_time() {
        let address = server(|| Ok("a_total 1\n".into()));
        let request = b"GET /metrics HTTP/1.1\r\n\r\n";
        // Places are taken in the order of connecting.
        let mut silent: Vec<TcpStream> = (0..CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
        silent.iter_mut().for_each(|stream| stream.write_all(b"GET /me").unwrap());
        assert_eq!(ask(address, request), "", "one more is closed unanswered");
        // Those that leave make place for others.
        drop(silent);
        while ask(address, request).is_empty() {}
    }

    #[test]
    fn a_connection_ends_when_its_time_is_up_however_little_comes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        client.write_all(b"GET").unwrap();
        let past = Instant::now();
        let ended = answer(&stream, || Ok(String::new()), past).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        // One that sends a byte now and then wins no time.
        let drip = thread::spawn(move || while client.write_all(b"a").is_ok() && client.read(&mut [0; 1]).is_err() {});
        let soon = Instant::now() + Duration::from_millis(200);
        assert!(answer(&stream, || Ok(String::new()), soon).is_err());
        drop(stream);
        drip.join().unwrap();
    }
}
