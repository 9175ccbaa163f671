use super::*;

fn unit(edge: Edge) -> Interrupts {
    let mut irq = Interrupts::new(12, edge);
    irq.set_vectors(0, 0x0000_0210);
    irq.set_vectors(1, 0x0003_0000); // RX ring 0 (interrupt 12) on vector 3
    irq
}

#[test]
fn a_masked_interrupt_fires_when_it_is_unmasked() {
    let (mut irq, mut out) = (unit(Edge::Completion), Vec::new());
    irq.raise(irq.rx_bit(0), 5, &mut out);
    assert!(out.is_empty());
    irq.set_enabled(0, 1 << 12, 6, &mut out);
    assert_eq!(out, [IrqOut::Fire(3)]);
    assert_eq!(irq.read_status(0), 1 << 12);
    assert_eq!(irq.read_status(0), 0, "reading clears");
}

#[test]
fn reading_keeps_the_status_when_the_driver_says_so() {
    let (mut irq, mut out) = (unit(Edge::Completion), Vec::new());
    irq.set_misc(READ_KEEPS);
    irq.raise(2, 0, &mut out);
    assert_eq!(irq.read_status(0), 4);
    assert_eq!(irq.read_status(0), 4);
    irq.clear_status(0, 4);
    assert_eq!(irq.read_status(0), 0);
}

#[test]
fn throttling_gathers_completions_into_one_interrupt() {
    let (mut irq, mut out) = (unit(Edge::Completion), Vec::new());
    irq.set_throttle(3, 4); // 1024 ns
    irq.set_enabled(0, 1 << 12, 0, &mut out);
    for now in 100..150 {
        irq.raise(12, now, &mut out);
    }
    assert_eq!(out, [IrqOut::Fire(3), IrqOut::Timer(3, 100 + 1024)]);
    out.clear();
    irq.timer(3, 1124, &mut out);
    assert_eq!(out, [IrqOut::Fire(3)]);
    out.clear();
    irq.clear_status(0, !0);
    irq.timer(3, 9000, &mut out);
    assert!(out.is_empty(), "nothing was pending any more");
}

#[test]
fn a_clear_within_the_throttling_interval_loses_nothing_but_on_status_edges() {
    for edge in [Edge::Completion, Edge::Status] {
        let (mut irq, mut out) = (unit(edge), Vec::new());
        irq.set_throttle(3, 4);
        irq.set_enabled(0, 1 << 12, 0, &mut out);
        irq.raise(12, 0, &mut out);
        irq.raise(12, 1, &mut out);
        irq.clear_status(0, 1 << 12);
        out.clear();
        irq.timer(3, 1024, &mut out);
        assert_eq!(out.is_empty(), edge == Edge::Status, "{edge:?}");
        irq.timer(3, 4096, &mut out);
        assert_eq!(out.len(), usize::from(edge == Edge::Completion), "told once");
    }
}

#[test]
fn automatic_clearing_takes_only_the_vectors_own_bits() {
    let (mut irq, mut out) = (unit(Edge::Completion), Vec::new());
    irq.set_misc(AUTO_CLEAR | READ_KEEPS);
    irq.set_enabled(0, 1 << 12 | 1 << 1, 0, &mut out);
    irq.clear_enabled(0, 1 << 1);
    irq.raise(1, 0, &mut out);
    irq.raise(12, 0, &mut out);
    assert_eq!(out, [IrqOut::Fire(3)]);
    assert_eq!(irq.read_status(0), 1 << 1);
}

#[test]
fn one_vector_for_all_without_msix() {
    let (mut irq, mut out) = (unit(Edge::Completion), Vec::new());
    irq.set_msix(false);
    irq.set_enabled(0, !0, 0, &mut out);
    irq.raise(12, 0, &mut out);
    assert_eq!(out, [IrqOut::Fire(0)]);
}

#[test]
fn on_status_edges_a_late_clear_loses_the_interrupt() {
    let (mut irq, mut out) = (unit(Edge::Status), Vec::new());
    irq.set_enabled(0, 1 << 12, 0, &mut out);
    irq.raise(12, 0, &mut out);
    irq.raise(12, 1, &mut out);
    assert_eq!(out.len(), 1);
    irq.clear_status(0, 1 << 12);
    irq.raise(12, 2, &mut out);
    assert_eq!(out.len(), 2);
}

#[test]
fn overflow_is_the_third_field_and_interrupts_nobody() {
    let (mut irq, mut out) = (unit(Edge::Completion), Vec::new());
    irq.set_enabled(0, !0, 0, &mut out);
    irq.overflow(9);
    assert!(out.is_empty());
    assert_eq!(irq.read_status(1), 1 << (24 + 9 - 32));
}

#[test]
fn silent_edges_do_not_fire_when_a_ring_is_unmasked_with_its_status_set() {
    for edge in [Edge::Status, Edge::Silent] {
        let (mut irq, mut out) = (unit(edge), Vec::new());
        irq.set_enabled(0, 0, 0, &mut out);
        irq.raise(irq.tx_bit(1), 1, &mut out);
        assert!(out.is_empty());
        irq.set_enabled(0, 1 << 1, 2, &mut out);
        assert_eq!(out.len(), usize::from(edge == Edge::Status), "{edge:?}");
    }
}
