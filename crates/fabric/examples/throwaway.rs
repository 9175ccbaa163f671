use std::time::Instant;
use linkspan_fabric::*;
fn fabric() -> Fabric {
    let get = move |name: &str| [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_PATH", "tcp")].iter().find(|p| p.0 == name).map(|p| p.1.to_owned());
    Fabric::new(Config::read(&get).unwrap(), Log::stderr(), false).unwrap()
}
fn pair() -> (Channel, Channel) {
    let f = fabric();
    let l = f.listen(0).unwrap();
    let mut c = f.connect(0, &l.handle()).unwrap();
    let (mut a, mut b) = (None, None);
    while a.is_none() || b.is_none() {
        if a.is_none() { a = c.poll().unwrap(); }
        if b.is_none() { b = l.accept().unwrap(); }
    }
    (a.unwrap(), b.unwrap())
}
fn send(c: &mut Channel, m: MemSlice) -> Ticket { loop { if let Some(t) = c.post_send(0, m).unwrap() { return t; } c.progress().unwrap(); } }
fn recv(c: &mut Channel, m: MemSlice) -> Ticket { loop { if let Some(t) = c.post_recv(&[(0, m)]).unwrap() { return t; } c.progress().unwrap(); } }
fn wait(c: &mut Channel, t: Ticket) { loop { if c.test(t).unwrap().is_some() { return; } c.progress().unwrap(); } }
fn main() {
    for size in [8usize, 4096, 16384, 65536, 131072] {
        // two connections, one per direction, as NCCL has
        let (mut s1, mut r1) = pair();
        let (mut s2, mut r2) = pair();
        let n = if size < 10000 { 100000 } else { 20000 };
        let th = std::thread::spawn(move || {
            let a = HostBuf::new(size); let b = HostBuf::new(size);
            let mut t = recv(&mut r1, a.slice());
            for i in 0..n {
                wait(&mut r1, t);
                let s = send(&mut s2, b.slice());
                if i + 1 < n { t = recv(&mut r1, a.slice()); }
                wait(&mut s2, s);
                let _ = r1.progress();
            }
            std::thread::sleep(std::time::Duration::from_millis(300));
        });
        let a = HostBuf::new(size); let b = HostBuf::new(size);
        let t0 = Instant::now();
        let mut t = recv(&mut r2, a.slice());
        let _ = r2.progress();
        for i in 0..n {
            let s = send(&mut s1, b.slice());
            wait(&mut s1, s);
            wait(&mut r2, t);
            if i + 1 < n { t = recv(&mut r2, a.slice()); }
        }
        println!("lat {size}: {:.2} us", t0.elapsed().as_secs_f64() * 1e6 / n as f64 / 2.0);
        th.join().unwrap();
    }
    for (size, window) in [(8usize, 8usize), (8, 32), (65536, 8), (262144, 8), (1 << 20, 8), (8 << 20, 8), (32 << 20, 4)] {
        let (mut s, mut r) = pair();
        let n = (8usize << 30) / size.max(4096) ;
        let n = n.min(2_000_000);
        let th = std::thread::spawn(move || {
            let bufs: Vec<_> = (0..window).map(|_| HostBuf::new(size)).collect();
            let mut ts: Vec<_> = bufs.iter().map(|b| recv(&mut r, b.slice())).collect();
            for i in 0..n { wait(&mut r, ts[i % window]); if i + window < n { ts[i % window] = recv(&mut r, bufs[i % window].slice()); } }
            std::thread::sleep(std::time::Duration::from_millis(300));
        });
        let bufs: Vec<_> = (0..window).map(|_| { let b = HostBuf::new(size); b }).collect();
        let t0 = Instant::now();
        let mut ts: Vec<_> = (0..window).map(|i| send(&mut s, bufs[i].slice())).collect();
        for i in 0..n { wait(&mut s, ts[i % window]); if i + window < n { ts[i % window] = send(&mut s, bufs[i % window].slice()); } }
        let e = t0.elapsed().as_secs_f64();
        println!("stream {size} w{window}: {:.2} GB/s {:.2} M/s", (n * size) as f64 / e / 1e9, n as f64 / e / 1e6);
        th.join().unwrap();
    }
}
