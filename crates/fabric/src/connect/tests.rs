//! Ways whose rails take long to come up.

use linkspan_tcp::{Dial, Listen, Options, Stream};
use linkspan_topology::mesh::Route;

use super::*;
use crate::handshake::Handshake;
use crate::secured::Secured;
use crate::{Config, Log};

const SOON: Duration = Duration::from_secs(30);

fn fabric() -> Fabric {
    let env = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_STATS_DIR", "off")];
    let config = Config::read(&|name| env.iter().find(|p| p.0 == name).map(|p| p.1.to_owned())).unwrap();
    Fabric::with_nics(config, Log::off(), false, Vec::new()).unwrap()
}

fn streams() -> (Stream, Stream) {
    let mut listen = Listen::bind("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
    let mut dial = Dial::start(None, listen.local_addr(), &Options::default(), SOON).unwrap();
    let (mut a, mut b) = (None, None);
    while a.is_none() || b.is_none() {
        a = a.or_else(|| dial.poll().unwrap());
        b = b.or_else(|| listen.accept().unwrap().map(|b| b.0));
    }
    (a.unwrap(), b.unwrap())
}

/// The far end sets its queue pairs up, which soft-RoCE takes seconds for: the way is not given up for another meanwhile, or it
/// never comes up.
#[test]
fn a_way_over_others_is_waited_for_while_its_rails_are_set_up() {
    let here = fabric();
    let device = here.devices().iter().position(|d| d.name == "lo").unwrap();
    let handle = fabric().listen(device).unwrap().handle();
    let mut connecting = Connecting::new(&here, device, &handle).unwrap();
    let (near, far) = streams();
    let hops = vec![far.local_addr(), far.local_addr()];
    let reach = Path::Over(Route { interface: "lo".into(), from: hops[0].ip(), hops, over: vec!["b".into()], mbps: 0 });
    connecting.tries.clear();
    connecting.start(reach, "a test", 0);
    let blob = Greeting { rdma: true, ..Greeting::default() }.encode().to_vec();
    connecting.tries[0].state = TryState::Meet(Box::new((Secured::new(near, None), Handshake::answer())), blob);
    (connecting.relayed, connecting.asked) = (true, Some((Instant::now(), String::new())));

    let since = Instant::now();
    while since.elapsed() < ASK_ANEW * 2 {
        assert!(connecting.poll().unwrap().is_none());
    }
    assert!(connecting.tries.iter().any(Try::is_handshake), "given up while the far end was at work");

    // It ends as the far end has it.
    let (mut far, mut refusal) = (Secured::new(far, None), Handshake::decline("no".into()));
    while connecting.tries[0].is_handshake() {
        assert!(since.elapsed() < SOON);
        let _ = refusal.poll(&mut far, &|_| Err("no".into()));
        assert!(connecting.poll().unwrap().is_none());
    }
    assert!(connecting.tries[0].verbs.as_ref().is_err_and(|why| why.contains("the peer says: no")));
}
