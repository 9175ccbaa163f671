use super::*;
use crate::{Config, Log};

const SOON: Duration = Duration::from_secs(30);

#[test]
fn a_plan_that_has_arrived_counts_however_late_the_listener_looks() {
    let env = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_STATS_DIR", "off"), ("LINKSPAN_PATH", "tcp")];
    let config = Config::read(&|name| env.iter().find(|p| p.0 == name).map(|p| p.1.to_owned())).unwrap();
    let fabric = Fabric::apart(config, Log::off(), false, Vec::new()).unwrap();
    let listener = fabric.listen(0).unwrap();
    let since = Instant::now();
    let mut connecting = fabric.connect(0, &listener.handle()).unwrap();
    loop {
        assert!(since.elapsed() < SOON);
        assert!(connecting.poll().unwrap().is_none());
        if connecting.proposed.is_some() {
            break;
        }
        listener.lock().pump().unwrap();
    }
    listener.lock().pending_conns.values_mut().for_each(|conn| conn.since -= fabric.config().connect_timeout);
    // Others that have come with it are accepted first.
    (0..2).for_each(|_| listener.lock().pump().unwrap());
    assert!(listener.accept().unwrap().is_some(), "its plan was there");
}
