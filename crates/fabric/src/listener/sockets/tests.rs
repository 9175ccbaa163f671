use std::net::Ipv4Addr;

use super::*;
use crate::{Config, Listener, Log};

fn fabric(strict: &str) -> Fabric {
    let env = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_STATS_DIR", "off"), ("LINKSPAN_STRICT", strict)];
    let config = Config::read(&|name| env.iter().find(|p| p.0 == name).map(|p| p.1.to_owned())).unwrap();
    Fabric::apart(config, Log::off(), false, Vec::new()).unwrap()
}

fn listener() -> Listener {
    fabric("0").listen(0).unwrap()
}

/// Listens on loopback by these addresses; one that begins with 192 is none of this machine's.
fn on(fabric: &Fabric, addrs: &[[u8; 4]]) -> Result<Vec<IpAddr>, Error> {
    let device = fabric.device(0).unwrap();
    let of = |ip: &[u8; 4]| {
        let mut port = device.ports[0].clone();
        (port.addr.ip, port.beside) = (Ipv4Addr::from(*ip).into(), None);
        port
    };
    let ports = addrs.iter().map(of).collect();
    fabric.0.devices.write().unwrap()[0] = Device { ports, ..device };
    let handle = Handle::decode(&fabric.listen(0)?.handle()).unwrap();
    Ok(handle.addrs().iter().map(|addr| addr.ip).collect())
}

#[test]
fn an_address_that_went_costs_the_others_nothing_but_strict_mode_and_where_all_went_the_interfaces_are_looked_at_anew()
{
    const HERE: [u8; 4] = [127, 0, 0, 7];
    for gone_first in [false, true] {
        let addrs = if gone_first { [[192, 0, 2, 1], HERE] } else { [HERE, [192, 0, 2, 1]] };
        assert_eq!(on(&fabric("0"), &addrs).unwrap(), [IpAddr::from(HERE)]);
        let error = on(&fabric("1"), &addrs).unwrap_err();
        assert!(matches!(&error, Error::Strict { what } if what.contains("192.0.2.1")), "{error}");
    }
    assert_eq!(on(&fabric("1"), &[[192, 0, 2, 1]]).unwrap(), [IpAddr::from([127, 0, 0, 1])]);
}

#[test]
fn an_interface_that_does_not_fit_into_the_handle_is_a_downgrade() {
    let seven: Vec<[u8; 4]> = (1..8).map(|n| [127, 0, 0, n]).collect();
    assert_eq!(on(&fabric("0"), &seven).unwrap().len(), 6);
    let error = on(&fabric("1"), &seven).unwrap_err();
    assert!(matches!(&error, Error::Strict { what } if what.contains("LS0208")), "{error}");
    assert_eq!(on(&fabric("1"), &seven[1..]).unwrap().len(), 6);
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
