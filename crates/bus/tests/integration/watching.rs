//! Statistics go to those who watch, and to nobody else.

use std::sync::Arc;
use std::time::Duration;

use linkspan_bus::zbus::{Connection, MatchRule, MessageStream};
use linkspan_bus::{ManagerProxy, Server};
use tokio::time::timeout;

use super::Machine;
use super::bus::Bus;

/// How long what must come may take on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

async fn signals(client: &Connection) -> MessageStream {
    let rule =
        MatchRule::builder().interface("org.linkspan.Link1.Manager").unwrap().member("StatisticsChanged").unwrap();
    MessageStream::for_match_rule(rule.build(), client, None).await.unwrap()
}

async fn next(stream: &mut MessageStream) -> bool {
    use linkspan_bus::zbus::export::futures_core::Stream;
    std::future::poll_fn(|context| std::pin::Pin::new(&mut *stream).poll_next(context)).await.is_some()
}

#[tokio::test]
async fn two_hundred_clients_watch_and_are_forgotten_when_they_leave() {
    let Some(bus) = Bus::start() else { return };
    let machine = Machine::new();
    let server = Server::start(bus.builder(), &machine.system, Arc::default()).await.unwrap();
    let outsider = bus.client().await;
    let mut others = signals(&outsider).await;
    let mut clients = Vec::new();
    // Root's are not counted among those of a user.
    let many = if super::is_root() { 200 } else { 64 };
    for _ in 0..many {
        let client = bus.client().await;
        let stream = signals(&client).await;
        ManagerProxy::new(&client).await.unwrap().watch(1000, false).await.unwrap();
        clients.push((client, stream));
    }
    for (_, stream) in &mut clients {
        assert!(timeout(PATIENCE, next(stream)).await.unwrap());
    }
    assert_eq!(server.watching(), many);
    let (first, _) = &clients[0];
    let manager = ManagerProxy::new(first).await.unwrap();
    assert!(manager.unwatch().await.unwrap() && !manager.unwatch().await.unwrap());
    // Again and again is once.
    for _ in 0..10 {
        manager.watch(1000, false).await.unwrap();
    }
    assert_eq!(server.watching(), many);
    if !super::is_root() {
        let one_more = ManagerProxy::new(&outsider).await.unwrap().watch(1000, false).await;
        assert!(matches!(one_more, Err(linkspan_bus::Error::LimitReached(why)) if why.starts_with("LS3222")));
    }
    drop(manager);
    drop(clients);
    let gone = async {
        while server.watching() > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, gone).await.unwrap();
    // All that was sent has passed the bus before this answer, and nothing of it went to who does not watch.
    ManagerProxy::new(&outsider).await.unwrap().get_statistics(false).await.unwrap();
    assert!(timeout(Duration::ZERO, next(&mut others)).await.is_err());
}
