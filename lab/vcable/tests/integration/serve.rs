//! The server, with a vfio-user client in the place of QEMU.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use linkspan_vcable::control::{pdf, seal, unseal};
use linkspan_vcable::fault::Script;
use linkspan_vcable::nhi::regs::*;
use linkspan_vcable::serve::{Config, Server, ask};
use linkspan_vcable::topology::Topology;
use linkspan_vcable::trace::{Trace, What};
use linkspan_vcable::world::Options;
use vfio_user::Client;

const BAR0: u32 = 0;
const CONFIG: u32 = 7;
const MSIX: u32 = 2;
/// VFIO_IRQ_SET_DATA_EVENTFD with VFIO_IRQ_SET_ACTION_TRIGGER.
const EVENTFD: u32 = 1 << 2 | 1 << 5;
const RAM: u64 = 64 * 1024;
/// Bus address of the memory: not where the file begins.
const IOVA: u64 = 0x1_0000_0000;
const TX: u64 = 0x100;
const RX: u64 = 0x200;
const PACKET: u64 = 0x400;

/// A folder that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("vcable-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn serve(dir: &Path, topology: &str) -> JoinHandle<u64> {
    let config = Config {
        topology: Topology::parse(topology).unwrap(),
        options: Options { wire_time: false, ..Options::default() },
        script: Script::default(),
        dir: dir.to_owned(),
        control: Some(dir.join("control")),
        trace: Some(dir.join("trace.pcapng")),
        snap: 64,
    };
    let server = Server::start(config).unwrap();
    assert!(server.sockets().iter().all(|(_, path)| path.exists()));
    std::thread::spawn(move || server.run())
}

/// A guest: client, memory, interrupt line of vector 1.
struct Guest {
    client: Client,
    memory: File,
    line: UnixStream,
    sent: u16,
}

impl Guest {
    fn new(dir: &Path) -> Guest {
        let mut client = Client::new(&dir.join("a.sock")).unwrap();
        let path = dir.join("memory");
        let memory = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
        memory.set_len(RAM).unwrap();
        client.dma_map(0, IOVA, RAM, memory.as_raw_fd()).unwrap();
        // In the place of an eventfd: eight bytes come out of the other end.
        let (line, other) = UnixStream::pair().unwrap();
        line.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        client.set_irqs(MSIX, EVENTFD, 1, 1, &[other.as_raw_fd()]).unwrap();
        Guest { client, memory, line, sent: 0 }
    }

    fn write(&mut self, offset: u32, value: u32) {
        self.client.region_write(BAR0, offset.into(), &value.to_le_bytes()).unwrap();
    }

    fn read(&mut self, offset: u32) -> u32 {
        let mut raw = [0; 4];
        self.client.region_read(BAR0, offset.into(), &mut raw).unwrap();
        u32::from_le_bytes(raw)
    }

    fn start(&mut self) {
        self.client.region_write(CONFIG, 0x52, &[15, 0x80]).unwrap(); // MSI-X on
        for (ring, options, at) in [(TX_RINGS, TX_OPTIONS, TX), (RX_RINGS, RX_OPTIONS, RX)] {
            self.write(ring, (IOVA + at) as u32);
            self.write(ring + 4, ((IOVA + at) >> 32) as u32);
            self.write(ring + 12, 10 | 256 << 16);
            self.write(options, ENABLE | RAW);
        }
        for index in 0..10 {
            let mut desc = (IOVA + 0x1000 + 0x100 * index).to_le_bytes().to_vec();
            desc.extend((DESC_INTERRUPT << 20).to_le_bytes());
            self.memory.write_all_at(&desc, RX + 16 * index).unwrap();
        }
        self.write(DMA_MISC, READ_KEEPS);
        self.write(VECTOR + 32 / 8 * 4, 1); // RX ring 0 is interrupt 32: vector 1
        self.write(INTERRUPT + 4, 1);
        self.write(RX_RINGS + 8, 9);
    }

    /// Sends a control packet from a bus address.
    fn send(&mut self, kind: u8, words: &[u32], from: u64) {
        let bytes = seal(words);
        self.memory.write_all_at(&bytes, PACKET).unwrap();
        let mut desc = from.to_le_bytes().to_vec();
        desc.extend((bytes.len() as u32 | u32::from(kind) << 12).to_le_bytes());
        self.memory.write_all_at(&desc, TX + 16 * u64::from(self.sent)).unwrap();
        self.sent = (self.sent + 1) % 10;
        self.write(TX_RINGS + 8, u32::from(self.sent) << 16);
    }

    /// Waits for the interrupt, then gives the packet in receive descriptor `index`.
    fn receive(&mut self, index: u64) -> (u8, Vec<u32>) {
        self.line.read_exact(&mut [0; 8]).unwrap();
        let mut word = [0; 4];
        self.memory.read_exact_at(&mut word, RX + 16 * index + 8).unwrap();
        let word = u32::from_le_bytes(word);
        assert_eq!(word >> 20 & DESC_COMPLETED, DESC_COMPLETED);
        let mut data = vec![0; (word & 0xfff) as usize];
        self.memory.read_exact_at(&mut data, 0x1000 + 0x100 * index).unwrap();
        ((word >> 12 & 0xf) as u8, unseal(&data).unwrap())
    }
}

#[test]
fn a_client_reads_configuration_over_rings_in_shared_memory_and_is_interrupted() {
    let folder = Folder::new("rings");
    let server = serve(&folder.0, "host a\npeer p\ncable ap a:1 p:1");
    let mut guest = Guest::new(&folder.0);
    let mut ids = [0; 4];
    guest.client.region_read(CONFIG, 8, &mut ids).unwrap();
    assert_eq!(ids, [1, 0x40, 3, 0x0c]);
    assert_eq!(guest.read(CAPS), 32);
    guest.start();
    guest.send(pdf::READ, &[0, 0, 7 | 2 << 13 | 2 << 25], IOVA + PACKET);
    let (kind, words) = guest.receive(0);
    assert_eq!((kind, &words[3..]), (pdf::READ, &[0xcab1_e001, 0x0012_3400][..]));
    let stats = ask(&folder.0.join("control"), "stats").unwrap();
    assert!(stats.contains("\"control_received\":1") && stats.contains("\"failure_count\":0"), "{stats}");
    ask(&folder.0.join("control"), "check").unwrap();
    assert!(ask(&folder.0.join("control"), "pull ap").unwrap_err().to_string().contains("LS0921"));
    ask(&folder.0.join("control"), "quit").unwrap();
    assert_eq!(server.join().unwrap(), 0);
    let bytes = std::fs::read(folder.0.join("trace.pcapng")).unwrap();
    let trace = Trace::parse(&bytes).unwrap();
    let packets = trace.entries.iter().filter(|e| matches!(e.what, What::Control { .. })).count();
    assert_eq!((trace.names.as_slice(), packets), (&["a", "p", "world"].map(String::from)[..], 2));
}

#[test]
fn dma_outside_of_what_the_client_mapped_is_a_failure_and_the_next_client_starts_afresh() {
    let folder = Folder::new("dma");
    let server = serve(&folder.0, "host a\npeer p\ncable ap a:1 p:1");
    let control = folder.0.join("control");
    let mut guest = Guest::new(&folder.0);
    guest.start();
    guest.send(pdf::READ, &[0, 0, 1 << 13 | 2 << 25], IOVA + RAM - 8);
    // The answer to a read says that the write before it was done.
    guest.read(CAPS);
    let error = ask(&control, "check").unwrap_err().to_string();
    assert!(error.contains("1 failures") && error.contains("LS0901 DMA Read of 16 bytes at 0x10000fff8"), "{error}");
    guest.client.dma_unmap(IOVA, RAM).unwrap();
    guest.write(TX_RINGS + 8, 2 << 16);
    guest.read(CAPS);
    assert!(ask(&control, "check").unwrap_err().to_string().contains("2 failures"));
    drop(guest);
    let mut guest = Guest::new(&folder.0);
    assert_eq!(guest.read(TX_OPTIONS), 0);
    guest.start();
    guest.send(pdf::READ, &[0, 0, 1 << 13 | 2 << 25], IOVA + PACKET);
    assert_eq!(guest.receive(0).1[3], 0x0340_1234);
    ask(&control, "quit").unwrap();
    assert_eq!(server.join().unwrap(), 2);
}

#[test]
fn narrow_and_wrong_accesses_are_refused_or_split() {
    let folder = Folder::new("narrow");
    let server = serve(&folder.0, "host a\npeer p\ncable ap a:1 p:1");
    let mut guest = Guest::new(&folder.0);
    let mut two = [0; 2];
    guest.client.region_read(BAR0, u64::from(CAPS), &mut two).unwrap();
    assert_eq!(two, [32, 0]);
    let mut eight = [0; 8];
    guest.client.region_read(BAR0, u64::from(CAPS) - 4, &mut eight).unwrap();
    assert_eq!(eight, [0, 0, 0, 0, 32, 0, 0, 0]);
    guest.client.region_write(BAR0, u64::from(DMA_MISC), &[0, 0, 2, 0, 0, 0, 0, 0]).unwrap();
    assert_eq!(guest.read(DMA_MISC), READ_KEEPS);
    ask(&folder.0.join("control"), "quit").unwrap();
    assert_eq!(server.join().unwrap(), 0);
}
