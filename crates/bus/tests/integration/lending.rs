//! A card's queues, lent and taken back over the bus: the journal, the socket and the calls are the real ones, the card is in software.

use std::any::Any;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};

use linkspan_bus::{Error, ManagerProxy, Server};
use linkspan_fabric::devmem::client::Session;
use linkspan_netdev::{HeaderSplit, Rings};
use linkspan_service::devmem::CardControl;
use linkspan_service::system::{Places, System};
use linkspan_topology::fixture::{Fixture, STRIX_HALO};

use super::bus::Bus;
use super::{Machine, is_root};

/// What is set on the card.
#[derive(Clone, Debug, PartialEq)]
struct Settings {
    rings: Rings,
    table: Vec<u32>,
    rules: bool,
}

/// A card of eight queues that keeps what it is told.
struct SoftCard(Arc<Mutex<Settings>>);

impl CardControl for SoftCard {
    fn queues(&self) -> Result<u32, String> {
        Ok(8)
    }

    fn rings(&self) -> Result<Rings, String> {
        Ok(self.0.lock().unwrap().rings)
    }

    fn split(&self, on: bool, threshold: Option<u32>) -> Result<(), String> {
        let rings = &mut self.0.lock().unwrap().rings;
        rings.split = if on { HeaderSplit::On } else { HeaderSplit::Off };
        rings.threshold = threshold;
        Ok(())
    }

    fn spread(&self) -> Result<Vec<u32>, String> {
        Ok(self.0.lock().unwrap().table.clone())
    }

    fn set_spread(&self, table: &[u32]) -> Result<(), String> {
        self.0.lock().unwrap().table = table.to_vec();
        Ok(())
    }

    fn takes_rules(&self) -> Result<bool, String> {
        Ok(self.0.lock().unwrap().rules)
    }

    fn take_rules(&self, on: bool) -> Result<(), String> {
        self.0.lock().unwrap().rules = on;
        Ok(())
    }

    fn bind(&self, _: &[u32], _: BorrowedFd<'_>) -> Result<(u32, Box<dyn Any>), String> {
        Err("software has no GPU memory".into())
    }

    fn steer(&self, _: SocketAddr, _: SocketAddr, _: u32) -> Result<u32, String> {
        Err("software steers nothing".into())
    }

    fn unsteer(&self, _: Option<u32>, _: SocketAddr, _: SocketAddr) -> Result<(), String> {
        Ok(())
    }
}

#[tokio::test]
async fn queues_are_lent_and_taken_back_and_the_card_is_as_it_was() {
    let Some(bus) = Bus::start() else { return };
    if !is_root() {
        eprintln!("skipped: without root and without polkit nobody may");
        return;
    }
    let rings = Rings { receive: Some(1024), split: HeaderSplit::Off, threshold: Some(256) };
    let before = Settings { rings, table: (0..128).map(|n| n % 8).collect(), rules: false };
    let card = Arc::new(Mutex::new(before.clone()));
    let of = card.clone();
    let machine = Machine::with_cards(Arc::new(move |_| Ok(Box::new(SoftCard(of.clone())))));
    let _server = Server::start(bus.builder(), &machine.system, Arc::default()).await.unwrap();
    let manager = ManagerProxy::new(&bus.client().await).await.unwrap();
    let line = manager.lend_queues("enp193s0", 2, 1, &[1000]).await.unwrap();
    assert!(line.contains("queues 6 to 7") && line.contains("enp193s0"), "{line}");
    assert_eq!(manager.lendings().await.unwrap(), ["enp193s0"]);
    let set = card.lock().unwrap().clone();
    assert!(set.rules && set.rings.split == HeaderSplit::On && set.table.iter().all(|queue| *queue < 6), "{set:?}");
    let socket = line.rsplit(' ').next().unwrap();
    assert!(std::fs::symlink_metadata(socket).is_ok(), "{line}");
    // Once at a time.
    assert!(
        matches!(manager.lend_queues("enp193s0", 1, 1, &[]).await, Err(Error::Busy(why)) if why.starts_with("LS3203"))
    );
    assert_eq!(manager.end_lending("enp193s0").await.unwrap(), "all settings are restored");
    assert!(manager.lendings().await.unwrap().is_empty() && std::fs::symlink_metadata(socket).is_err());
    assert_eq!(*card.lock().unwrap(), before);
    assert_eq!(manager.end_lending("enp193s0").await.unwrap(), "nothing is lent");
    // And again, until the service ends.
    manager.lend_queues("enp193s0", 3, 3, &[]).await.unwrap();
    machine.system.end();
    assert_eq!(*card.lock().unwrap(), before);
}

#[test]
fn who_comes_to_lent_queues_without_end_leaves_lines_of_the_log_to_others() {
    let rings = Rings { receive: Some(1024), split: HeaderSplit::Off, threshold: Some(256) };
    let card = Settings { rings, table: (0..128).map(|n| n % 8).collect(), rules: false };
    let (fix, told) = (Fixture::tree(STRIX_HALO), Arc::new(Mutex::new(Vec::new())));
    let at = |name: &str| fix.root.join(name);
    let places = Places { root: fix.root.clone(), allowed: at("var"), statistics: at("stats"), devmem: at("run") };
    let lines = told.clone();
    let tell = move |_: bool, line: &str| lines.lock().unwrap().push(line.to_owned());
    let cards = move |_: &_| Ok(Box::new(SoftCard(Arc::new(Mutex::new(card.clone())))) as Box<dyn CardControl>);
    let system = System::new(places, 100, Box::new(tell)).with_cards(Arc::new(cards));
    let line = system.lend("enp193s0", 2, 1, vec![]).unwrap();
    let socket = line.rsplit(' ').next().unwrap();
    for _ in 0..100 {
        // Answered, and so looked at.
        let session = Session::open(Path::new(socket)).unwrap();
        session.bind(std::fs::File::open("/dev/null").unwrap().as_fd(), 1).unwrap_err();
    }
    system.end_lending("enp193s0").unwrap();
    assert_eq!(told.lock().unwrap().len(), 30);
}

/// While the set-up of the card is under way, and after.
#[test]
fn the_end_of_the_service_leaves_nothing_lent_by_a_call_of_that_moment() {
    let rings = Rings { receive: Some(1024), split: HeaderSplit::Off, threshold: Some(256) };
    let before = Settings { rings, table: (0..128).map(|n| n % 8).collect(), rules: false };
    let card = Arc::new(Mutex::new(before.clone()));
    let (of, (begun, begins), (go, goes)) = (card.clone(), mpsc::channel(), mpsc::channel::<()>());
    let goes = Mutex::new(goes);
    let machine = Machine::with_cards(Arc::new(move |_| {
        begun.send(()).unwrap();
        let _ = goes.lock().unwrap().recv();
        Ok(Box::new(SoftCard(of.clone())))
    }));
    std::thread::scope(|threads| {
        let lend = threads.spawn(|| machine.system.lend("enp193s0", 2, 1, vec![]));
        begins.recv().unwrap();
        let end = threads.spawn(|| machine.system.end());
        // It waits for the set-up, or has missed it.
        let missed = std::iter::repeat_with(std::thread::yield_now).take(1000).any(|()| end.is_finished());
        drop(go);
        end.join().unwrap();
        assert!(!missed, "the service has ended and the set-up goes on");
        let _ = lend.join().unwrap();
    });
    assert!(machine.system.lent().is_empty());
    assert_eq!(*card.lock().unwrap(), before);
    let refused = machine.system.lend("enp193s0", 2, 1, vec![]).unwrap_err().to_string();
    assert!(refused.contains("the service is ending"), "{refused}");
    assert_eq!(*card.lock().unwrap(), before);
}
