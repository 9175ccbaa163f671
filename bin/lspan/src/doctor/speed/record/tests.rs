use linkspan_topology::fixture::{Fixture, STRIX_HALO};

use super::*;

fn ids(list: &[&str]) -> Vec<String> {
    list.iter().map(|id| (*id).to_owned()).collect()
}

#[test]
fn a_record_is_kept_and_what_is_none_is_written_anew() {
    let dir = std::env::temp_dir().join(format!("lspan-speeds-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let place = dir.join("linkspan/speeds.json");
    assert!(load(&place).unwrap().peers.is_empty(), "none yet");
    let mut file = File::default();
    file.of(&ids(&["mac b"]), 1).insert("tcp over eth0".into(), vec![1.5; 20]);
    save(&place, &mut file).unwrap();
    let mut file = load(&place).unwrap();
    assert_eq!(file.of(&ids(&["mac b"]), 2)["tcp over eth0"], vec![1.5; RECORD]);
    for junk in ["", "junk", "{\"schema\": \"linkspan.speeds/9\", \"peers\": []}", "{\"schema\": 1}"] {
        std::fs::write(&place, junk).unwrap();
        assert!(load(&place).unwrap_err().contains("written anew"), "{junk}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn the_peers_that_were_not_measured_for_longest_are_forgotten() {
    let dir = std::env::temp_dir().join(format!("lspan-speeds-age-{}", std::process::id()));
    let mut file = File::default();
    let peers = PEERS_MAX as u64 + 5;
    for n in 0..peers {
        // The last names of the alphabet are the oldest.
        file.of(&ids(&[&format!("mac {:04}", peers - n)]), 100 + n);
    }
    file.of(&ids(&[&format!("mac {peers:04}")]), 1000);
    let place = dir.join("speeds.json");
    save(&place, &mut file).unwrap();
    let left: Vec<String> = load(&place).unwrap().peers.into_iter().flat_map(|entry| entry.ids).collect();
    assert_eq!(left.len(), PEERS_MAX);
    assert_eq!((&*left[0], &*left[PEERS_MAX - 1]), ("mac 0261", "mac 0255"), "one that is measured anew stays");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn ways_that_are_measured_stay() {
    let way = |n: usize| format!("tcp over eth{n:03}");
    let mut kept: Kept = (0..WAYS_MAX + 3).map(|n| (way(n), vec![1.0])).collect();
    let one =
        |n: usize| Measured { way: way(n), over: String::new(), kind: "tcp".into(), equal: String::new(), gbit_s: 1.0 };
    cut(&mut kept, &[one(0), one(2)]);
    assert_eq!(kept.len(), WAYS_MAX);
    assert!([0, 2, 5].iter().all(|n| kept.contains_key(&way(*n))) && !kept.contains_key(&way(4)));
}

#[test]
fn a_host_has_one_record_whatever_it_is_called_and_another_host_has_another() {
    let mut file = File::default();
    file.of(&ids(&["key k1", "router r1", "mac 1"]), 1).insert("tcp".into(), vec![20.0]);
    // The same by an address, or over another cable once both are known of.
    assert_eq!(file.of(&ids(&["mac 1"]), 2)["tcp"], [20.0]);
    assert_eq!(file.of(&ids(&["router r1", "mac 2"]), 3)["tcp"], [20.0]);
    assert_eq!(file.of(&ids(&["mac 2"]), 4)["tcp"], [20.0]);
    // `cable` is another host now, and a card that was put into another host goes with its key.
    assert!(file.of(&ids(&["router r2", "mac 3"]), 5).is_empty());
    assert!(file.of(&ids(&["key k2", "mac 1"]), 6).is_empty());
    assert_eq!(file.peers.len(), 3);
}

#[test]
fn hosts_are_known_by_what_is_their_own() {
    let arp = "proc/net/arp\tIP address HW type Flags HW address Mask Device\\n\
               10.0.0.2 0x1 0x2 02:00:00:00:00:02 * thunderbolt0\\n\
               10.0.9.2 0x1 0x0 00:00:00:00:00:00 * enp193s0\\n";
    let fixture = Fixture::tree(&format!("{STRIX_HALO}\n{arp}\n"));
    let machine = Machine::read(&fixture.roots());
    let uuid = machine.thunderbolt.iter().flat_map(|d| &d.xdomains).find_map(|x| x.unique_id.clone()).unwrap();
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let over = |name: &str| Some(name.to_owned());
    let at = |first: &str, name, all: &[&str]| {
        marks(&machine, None, Some((ip(first), over(name))), all.iter().map(|text| ip(text)))
    };
    let cable = at("10.0.0.2", "thunderbolt0", &["10.0.9.2", "10.0.0.2"]);
    assert_eq!(cable, [format!("router {uuid}"), "mac 02:00:00:00:00:02".into()], "one that is silent tells nothing");
    assert_eq!(at("10.0.9.2", "enp193s0", &[]), ["address 10.0.9.2"], "behind a router");
    let paired = marks(&machine, Some("f".into()), Some((ip("10.0.9.2"), None)), std::iter::empty());
    assert_eq!(paired, ["key f"]);
}
