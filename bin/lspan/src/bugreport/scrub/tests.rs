use super::*;

fn clean(text: &str) -> String {
    Scrub::default().text(text)
}

#[test]
fn values_with_a_telling_name_are_removed() {
    for (line, part) in [
        ("NCCL_API_TOKEN=abc def\n", "abc"),
        ("  \"wifi_password\": \"hunter2\",\n", "hunter2"),
        ("run --secret s3same now", "s3same"),
        ("aws_secret_access_key = AKIAxyz", "AKIAxyz"),
        ("Authorization: Bearer x.y.z", "x.y.z"),
        ("psk=0a0b", "0a0b"),
        ("luks-passphrase:word", "word\n"),
        (concat!("proxy https:", "//me:pass@proxy.example:3128/x"), "me:pass"),
        ("key 0123456789abcdef0123456789ABCDEF end", "0123456789abcdef"),
        ("MODE=0123456789abcdef0123456789ABCDEF", "0123456789abcdef"),
        (
            "/sys/devices/domain0/0-0/0-1/key\t0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n",
            "0123456789abcdef",
        ),
        ("/sys/x/uevent\tA=b\\n0123456789abcdef0123456789abcdef\n", "0123456789abcdef"),
        ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGq0zD3Yd6C3l5bH1d2k3f4g5h6j7k8l9m0n", "AAAAC3"),
        ("peer q83vEjRWeJCrze/+EjRWeJCrze8SNFZ4kKvN7xI0Vng= 10.0.0.1", "q83vEjRW"),
        ("peer q83vEjRWeJCrze-_EjRWeJCrze8SNFZ4kKvN7xI0Vng= 10.0.0.1", "8SNFZ4kK"),
    ] {
        let text = clean(line);
        assert!(!text.contains(part) && text.contains(REMOVED), "{line:?}: {text:?}");
    }
    assert_eq!(clean("  \"token\": \"x\",\n"), "  \"token\": \"[removed]\",\n", "JSON stays JSON");
    assert_eq!(
        clean("a\n-----BEGIN OPENSSH PRIVATE KEY-----\nMzM\n-----END OPENSSH PRIVATE KEY-----\nb\n"),
        "a\n[removed]\nb\n"
    );
}

#[test]
fn what_a_report_is_for_stays() {
    for line in [
        "NCCL_NET_PLUGIN=linkspan\n",
        "LINKSPAN_PSK_FILE=/etc/linkspan.psk LINKSPAN_PSK_MODE=auth\n",
        "/sys/bus/thunderbolt/devices/0-1.0/key\tnetwork\n",
        "unique_id\td1f20c80-0023-77ab-ffff-ffffffffffff\n",
        "gids/3\t0000:0000:0000:0000:0000:ffff:0a0a:0301\n",
        "/proc/net/ipv6_route\tfe800000000000000000000000000000 40 00000000000000000000000000000000 00\n",
        "/sys/devices/pci0000:00/uevent\tMODALIAS=pci:v00001AF4d00001041sv00001AF4sd00001041bc02sc00i00\n",
        "address eth0 10.0.0.1/24 aa:bb:cc:dd:ee:ff\n",
        "http://10.0.0.1:8080/x\n",
        "\"kernel\": \"6.18.0-rc5+deb13-amd64\"\n",
    ] {
        assert_eq!(clean(line), line);
    }
}

#[test]
fn known_keys_are_found_wherever_they_are_and_home_is_not_named() {
    let scrub = Scrub { known: vec!["correct-horse-battery".into()], home: Some("/home/anna".into()) };
    assert_eq!(
        scrub.text("x=correct-horse-battery; /home/anna/lib /home/annabel/lib"),
        "x=[removed]; ~/lib /home/annabel/lib"
    );
}
