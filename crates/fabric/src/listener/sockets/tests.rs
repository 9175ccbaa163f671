use std::net::Ipv4Addr;

use super::*;
use crate::{Config, Listener, Log};

fn listener() -> Listener {
    let env = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_STATS_DIR", "off")];
    let config = Config::read(&|name| env.iter().find(|p| p.0 == name).map(|p| p.1.to_owned())).unwrap();
    Fabric::apart(config, Log::off(), false, Vec::new()).unwrap().listen(0).unwrap()
}

#[test]
fn a_listener_stays_on_its_interfaces_when_others_come_and_their_number_is_another_one() {
    let listener = listener();
    let before = listener.handle();
    // As it is when an interface that sorts before them has gone.
    listener.lock().members[0].index = 1;
    assert_eq!(listener.renew().unwrap(), before);
    assert_eq!(listener.lock().members[0].index, 0);
    listener.lock().members[0].names = vec!["gone".into()];
    assert_eq!(listener.renew().unwrap(), before, "by its number where it has none of them");
}

#[test]
fn a_socket_goes_with_its_address_and_not_with_its_interface_being_another_devices() {
    let listener = listener();
    let bind = |last| {
        let at = SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0));
        Listen::bind(at, &Options::default()).unwrap()
    };
    let (there, gone) = (bind(1), bind(9));
    let kept = there.local_addr();
    let own = listener.lock().sockets[0].local_addr();
    listener.lock().sockets.extend([there, gone]);
    listener.renew().unwrap();
    let left: Vec<SocketAddr> = listener.lock().sockets.iter().map(Listen::local_addr).collect();
    assert_eq!(left, [own, kept]);
}
