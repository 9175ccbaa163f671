use super::*;

#[test]
fn a_record_is_kept_and_what_is_none_is_written_anew() {
    let dir = std::env::temp_dir().join(format!("lspan-speeds-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let place = dir.join("linkspan/speeds.json");
    assert!(load(&place).unwrap().peers.is_empty(), "none yet");
    let mut file = File::default();
    file.peers.entry("b".into()).or_default().insert("tcp over eth0".into(), vec![1.5; 20]);
    for n in 0..PEERS_MAX + 5 {
        file.peers.entry(format!("c{n}")).or_default();
    }
    save(&place, &mut file).unwrap();
    assert_eq!(load(&place).unwrap().peers.len(), PEERS_MAX);
    file.peers.retain(|peer, _| !peer.starts_with('c'));
    file.peers.entry("b".into()).or_default().insert("tcp over eth0".into(), vec![1.5; 20]);
    save(&place, &mut file).unwrap();
    assert_eq!(load(&place).unwrap().peers["b"]["tcp over eth0"], vec![1.5; RECORD]);
    for junk in ["", "junk", "{\"schema\": \"linkspan.speeds/9\", \"peers\": {}}", "{\"schema\": 1}"] {
        std::fs::write(&place, junk).unwrap();
        assert!(load(&place).unwrap_err().contains("written anew"), "{junk}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
