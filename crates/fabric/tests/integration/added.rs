//! Rails that are added to a connection that is up.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use linkspan_fabric::{Config, Fabric, Level, Log};
use linkspan_proto::greeting::Greeting;
use linkspan_proto::login::Guard;
use linkspan_proto::plan::{Carrier, Plan};

use super::common::{greet, is_over, log_stream_in};

#[test]
fn a_rail_over_other_hosts_is_a_downgrade_also_where_it_is_added_later() {
    for strict in [false, true] {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let said = lines.clone();
        let log = Log::to(move |level, line| {
            if level == Level::Warn {
                said.lock().unwrap().push(line.to_owned());
            }
        });
        let get = |name: &str| match name {
            "LINKSPAN_IFNAME" => Some("=lo".to_owned()),
            "LINKSPAN_PATH" => Some("tcp".to_owned()),
            "LINKSPAN_STATS_DIR" => Some("off".to_owned()),
            "LINKSPAN_STRICT" => Some(u8::from(strict).to_string()),
            _ => None,
        };
        let fabric = Fabric::new(Config::read(&get).unwrap(), log, true, Vec::new()).unwrap();
        let listener = fabric.listen(0).unwrap();
        let mut stream = log_stream_in(&listener, Guard::Token, 7, 0);
        let plan = Plan { carrier: Carrier::Tcp, acked: true, streams: vec![0], keepalive: None };
        stream.write_all(&plan.encode()).unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        let mut channel = loop {
            assert!(Instant::now() < until, "the connection does not come up");
            if let Some(channel) = listener.accept().unwrap() {
                break channel;
            }
        };
        let before = lines.lock().unwrap().len();
        let greeting = Greeting { relays: 1, ..Greeting::default() };
        let mut added = [64, 65].map(|number| greet(&listener, Guard::Token, 7, number, &greeting).unwrap());
        let rails = if strict { 1 } else { 3 };
        let mut over = [false; 2];
        while channel.rails().count() != rails || over != [strict; 2] {
            assert!(Instant::now() < until, "they are neither taken nor ended");
            channel.progress().unwrap();
            let now = added.each_mut().map(is_over);
            over = [over[0] || now[0], over[1] || now[1]];
        }
        let warnings = lines.lock().unwrap().split_off(before);
        let [once] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(once.contains("downgrade: a rail is relayed over 1 host(s)"), "{once}");
        assert_eq!(once.contains("LINKSPAN_STRICT=1 forbids"), strict, "{once}");
    }
}
