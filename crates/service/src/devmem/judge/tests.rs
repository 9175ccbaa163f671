//! Cards that can, that could, and that never will.

use super::*;

fn card(driver: &str) -> Card {
    Card {
        name: "eth0".into(),
        driver: Some(driver.into()),
        queues: Some(8),
        split: HeaderSplit::On,
        threshold: Some(0),
        may_receive: BindVerdict::Yes,
        may_send: BindVerdict::Yes,
    }
}

#[test]
fn a_card_that_is_set_up() {
    let card = card("mlx5_core");
    assert_eq!((receive("6.17.0", &card), send("6.17.0", &card)), (Verdict::Yes, Verdict::Yes));
}

#[test]
fn what_is_missing_comes_with_its_command() {
    let split = Card { split: HeaderSplit::Off, queues: Some(1), ..card("bnxt_en") };
    let text = receive("6.16.2-arch1", &split).to_string();
    assert!(
        text.starts_with("after set-up: one receive queue only") && text.contains("ethtool -L eth0 combined 2"),
        "{text}"
    );
    assert!(text.contains("ethtool -G eth0 tcp-data-split on hds-thresh 0"), "{text}");
    let threshold = Card { threshold: Some(1024), ..card("bnxt_en") };
    assert!(
        receive("6.16.2", &threshold)
            .to_string()
            .contains("below 1024 bytes are not split: ethtool -G eth0 hds-thresh 0")
    );
    assert!(receive("6.16.2", &threshold).is_yes());
}

#[test]
fn the_kernel_and_the_driver_are_too_old_or_never_can() {
    let old = receive("6.8.0-45-generic", &card("mlx5_core")).to_string();
    assert_eq!(old, "no: the kernel's interface came with Linux 6.12, this is 6.8.0-45-generic");
    let refused = BindVerdict::No(
        "LS1333 the kernel refuses binding device memory for receiving: Operation not supported".into(),
    );
    let said = receive("6.12.3", &Card { may_receive: refused.clone(), ..card("mlx5_core") }).to_string();
    assert!(said.contains("Operation not supported; mlx5_core has it since Linux 6.17, this is 6.12.3"), "{said}");
    let never = receive("6.18.44", &Card { may_receive: refused, ..card("virtio_net") });
    assert!(
        never.to_string().contains("Operation not supported; bnxt_en since Linux 6.16") && !never.is_yes(),
        "{never}"
    );
    assert!(send("6.15.1", &card("gve")).to_string().contains("Linux 6.16, this is 6.15.1"));
    let gve = Card { may_receive: BindVerdict::NotAllowed, ..card("gve") };
    assert!(receive("6.18.0", &gve).to_string().starts_with("no: no released kernel has it for gve"));
}

#[test]
fn without_root_nobody_claims_anything() {
    let card = Card {
        may_receive: BindVerdict::NotAllowed,
        may_send: BindVerdict::NotAllowed,
        split: HeaderSplit::Off,
        ..card("bnxt_en")
    };
    let verdict = receive("6.18.0", &card);
    assert!(
        !verdict.is_yes() && verdict.to_string().contains("asked as root only (sudo); missing in any case: "),
        "{verdict}"
    );
    assert_eq!(send("6.18.0", &card), Verdict::AskAsRoot { steps: Vec::new() });
}
