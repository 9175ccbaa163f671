use super::*;

fn config(msi: bool, pm: bool) -> PciConfig {
    PciConfig::new(PciShape { id: 3, intel: false, msi, pm })
}

/// Capabilities by walking the list, as software does.
fn capabilities(config: &PciConfig) -> Vec<u8> {
    let at = |o: usize| {
        let mut byte = [0];
        config.read(o, &mut byte);
        byte[0]
    };
    let (mut all, mut next) = (Vec::new(), at(0x34));
    while next != 0 && all.len() < 10 {
        all.push(at(next.into()));
        next = at(usize::from(next) + 1);
    }
    all
}

#[test]
fn capability_lists() {
    assert_eq!(capabilities(&config(false, false)), [0x11]);
    assert_eq!(capabilities(&config(true, false)), [0x05]);
    assert_eq!(capabilities(&config(false, true)), [0x01, 0x11]);
}

#[test]
fn identity_is_read_only_and_the_end_reads_as_zero() {
    let mut config = config(false, false);
    config.write(0, &[0xff; 64]);
    let mut head = [0; 12];
    config.read(0, &mut head);
    assert_eq!(head, [0x34, 0x12, 0x40, 0x03, 0xff, 0xff, 0x10, 0, 1, 0x40, 0x03, 0x0c]);
    let mut beyond = [9; 4];
    config.read(CONFIG_LEN - 1, &mut beyond);
    config.read(usize::MAX, &mut beyond);
    assert_eq!(beyond, [0; 4]);
    config.write(usize::MAX, &[1, 2]);
}

#[test]
fn msix_is_enabled_by_its_bit_only() {
    let mut config = config(false, false);
    assert!(!config.msix());
    config.write(0x52, &[0, 0x80]);
    assert!(config.msix());
    let mut msi = tests::config(true, false);
    msi.write(0x52, &[0, 0x80]);
    assert!(!msi.msix());
}

#[test]
fn wake_needs_d3_and_permission_and_is_cleared_by_a_one() {
    let mut config = config(false, true);
    assert!(!config.wake());
    config.write(0x44, &[3, 0]);
    assert!(!config.wake());
    config.write(0x44, &[3, 1]);
    assert!(config.wake());
    assert!(!config.wake(), "once");
    config.write(0x45, &[0x01]);
    let mut status = [0];
    config.read(0x45, &mut status);
    assert_eq!(status, [0x81]);
    config.write(0x45, &[0x81]);
    config.read(0x45, &mut status);
    assert_eq!(status, [0x01]);
}
