use super::wrong;

const CALM: &str = "[    0.0] Linux version 6.12\n[    1.1] DMA-API: enable driver filter for driver [thunderbolt]\n[    1.2] thunderbolt 0-1: new host found, vendor=0x1d6b device=0x4\n\
                    [    1.3] thunderbolt_stream: loading out-of-tree module taints kernel.\n\
                    [    1.4] kmemleak: Kernel memory leak detector initialized\n\
                    [    1.5] thunderbolt 0000:00:03.0: device links to tunneled native ports are missing!\n";

#[test]
fn a_calm_log_is_calm() {
    assert_eq!(wrong(CALM, &[]), None);
    assert_eq!(wrong("", &[]), None);
}

#[test]
fn each_kind_of_trouble_is_seen_with_what_stands_around_it() {
    for line in [
        "[  3.1] WARNING: CPU: 0 PID: 33 at drivers/thunderbolt/ctl.c:400 tb_ctl_rx",
        "[  3.1] BUG: kernel NULL pointer dereference, address: 0000000000000010",
        "[  3.1] INFO: task modprobe:91 blocked for more than 25 seconds.",
        "[  3.1] WARNING: possible circular locking dependency detected",
        "[  3.1] BUG: KASAN: slab-use-after-free in ring_work+0x1",
        "[  3.1] kmemleak: 2 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
        "[  3.1] DMA-API: thunderbolt 0000:00:03.0: device driver frees DMA memory with wrong function",
        "[  3.1] DMAR: [DMA Write NO_PASID] Request device [00:03.0] fault addr 0xfffff000",
        "[  3.1] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
    ] {
        let said = wrong(&format!("{CALM}{line}\n[  3.2] after"), &[]).expect(line);
        assert!(said.contains(line) && said.contains("after") && said.contains("taints"), "{said}");
    }
}

#[test]
fn a_circle_of_the_kernels_own_locks_is_passed_over_unless_the_driver_is_in_it() {
    let report = |more: &str| {
        format!(
            "[8] ======\n[8] WARNING: possible circular locking dependency detected\n[8] poweroff/374 is trying to acquire lock:\n\
             [8] but task is already holding lock:\n[8] (&tb->lock){{+.+.}}-{{4:4}}, at: tb_domain_remove+0x21/0xc0 [thunderbolt]\n\
             [8]  nhi_pci_shutdown+0x6e/0x90 [thunderbolt]\n\
             [8]  tbnet_tear_down+0x259/0x350 [thunderbolt_net]\n{more}[8]  tbnet_handle_packet+0x522/0x6d0 [thunderbolt_net]\n\
             [8] Call Trace:\n[8]  <TASK>\n[8]  tb_ctl_stop+0x4b/0x160 [thunderbolt]\n[8]  </TASK>\n"
        )
    };
    assert_eq!(wrong(&format!("{CALM}{}{CALM}", report("")), &[]), None);
    for log in [
        report("[8]  ls_rings_down+0x1/0x2 [linkspan]\n"),
        report("").replace("nhi_pci_shutdown", "nhi_remove"),
        format!("{}[9] BUG: x\n", report("")),
        format!("[7] ------------[ cut here ]------------\n[7] WARNING: x\n{}", report("")),
    ] {
        assert!(wrong(&log, &[]).is_some(), "{log}");
    }
}

#[test]
fn a_data_race_is_passed_over_unless_the_driver_is_in_it_or_something_else() {
    let report = |by: &str| {
        format!(
            "[8] =====\n[8] BUG: KCSAN: data-race in a / b\n[8] \n[8] write to 0xffff888003d0a000 of 8 bytes by task 7 on cpu 1:\n\
             [8]  a+0x1/0x2\n[8] \n[8] read to 0xffff888003d0a000 of 8 bytes by task 8 on cpu 0:\n[8]  {by}\n[8] \n\
             [8] value changed: 0x1 -> 0x2\n[8] Reported by Kernel Concurrency Sanitizer on:\n[8] =====\n"
        )
    };
    let own = report("b+0x1/0x2 [thunderbolt]");
    assert_eq!(wrong(&format!("{CALM}{own}{own}{CALM}"), &[]), None);
    for log in [
        report("ls_tick+0x1/0x2 [linkspan]"),
        format!("{own}{}", report("ls_tick+0x1/0x2 [linkspan]")),
        report("b+0x1/0x2\n[8] BUG: unable to handle page fault"),
        own.replace("[8] =====\n", ""),
    ] {
        assert!(wrong(&log, &[]).is_some(), "{log}");
    }
}

#[test]
fn a_line_that_the_console_cuts_off_and_repeats_counts_once_it_is_whole() {
    let log = "[1] calm\n[2] DMA-API: thunderbolt: mapping sg segm\n** replaying previous printk message **\n";
    assert_eq!(wrong(&format!("{log}[3] reboot: Power down\n"), &[]), None);
    let said = wrong(&format!("{log}[2] DMA-API: thunderbolt: mapping sg segment\n"), &[]).unwrap();
    assert!(said.contains("segment") && !said.contains("segm\n"), "{said}");
    // Nothing of it comes again, and it is nobody's that is known.
    let bug = "[1] ------------[ cut here ]------------\n[2] BUG: unab\n** replaying previous printk message **\n";
    assert!(wrong(&format!("{bug}{bug}[3] reboot: Power down\n"), &[]).is_some());
    let again = "** replaying previous printk message **\n".repeat(3);
    assert!(wrong(&format!("{bug}{again}[2] BUG: unable\n[3] ---[ end trace 0 ]---\n"), &[]).is_some());
}

#[test]
fn what_a_test_expects_is_let_through_and_nothing_else() {
    let log = "[1] WARNING: CPU: 0 at a.c:1 f\n[2] WARNING: CPU: 0 at b.c:2 g\n";
    assert!(wrong(log, &["at a.c:1", "at b.c:2"]).is_none());
    assert!(wrong(log, &["at a.c:1"]).unwrap().contains("b.c"));
}

#[test]
fn a_warning_of_the_kernels_own_is_passed_over_and_what_stands_beside_it_is_not() {
    let report = |module: &str, end: &str| {
        format!(
            "[8.1] ------------[ cut here ]------------\n[8.1] thunderbolt: interrupt for RX ring 2 is already disabled\n\
             [8.1] WARNING: drivers/thunderbolt/nhi.c:143 at ring_interrupt_active+0x280/0x320\n[8.1] Call Trace:\n\
             [8.1]  tb_ring_stop+0x167/0x1d0 [thunderbolt]\n[8.1]  {module}+0x3a/0x90\n{end}"
        )
    };
    const END: &str = "[8.2] ---[ end trace 0000000000000000 ]---\n";
    let own = report("tbnet_stop", END);
    assert_eq!(wrong(&format!("{CALM}{own}{own}"), &[]), None);
    const LONG: &str =
        "thunderbolt 0000:00:02.0: mapping sg segment longer than device claims to support [len=110592] [max=65536]";
    const MANY: &str = "exceeded 7 overlapping mappings of cacheline 0x0000000000f93040";
    const SYNC: &str =
        "misc udmabuf: device driver syncs DMA memory with different direction [device address=0x3e4c1000]";
    let report_of_udmabuf = |what: &str, by: &str| {
        format!(
            "[8.1] ------------[ cut here ]------------\n[8.1] DMA-API: {what}\n\
             [8.1] WARNING: kernel/dma/debug.c:1231 at check+0x4a4/0x550\n[8.1] Call Trace:\n\
             [8.1]  {by}+0x91/0xd0\n[8.1]  dma_buf_map_attachment+0x9b/0x300\n[8.1]  ls_region_add+0x2e8/0xa10 [linkspan]\n{END}\
             [8.2] DMA-API: Mapped at:\n[8.2]  debug_dma_map_sg+0x2b9/0x550\n"
        )
    };
    for (what, by) in [(LONG, "get_sg_table.isra.0"), (MANY, "get_sg_table.isra.0"), (SYNC, "end_cpu_udmabuf")] {
        let own = report_of_udmabuf(what, by);
        let (_, without_its_first_line) = own.split_once('\n').unwrap();
        for report in [&*own, without_its_first_line] {
            assert_eq!(wrong(&format!("{CALM}{report}"), &[]), None);
        }
    }
    let refused = |by: &str| {
        format!(
            "[8.1] ------------[ cut here ]------------\n[8.1] thunderbolt 0000:00:02.0: path activation failed\n\
             [8.1] WARNING: CPU: 0 PID: 34 at drivers/thunderbolt/path.c:600 tb_path_activate+0x111/0x550\n[8.1] Call Trace:\n\
             [8.1]  {by}+0xe6/0x170 [thunderbolt]\n[8.1]  ls_paths_up+0xfd/0x220 [linkspan]\n{END}"
        )
    };
    assert_eq!(wrong(&format!("{CALM}{}", refused("tb_approve_xdomain_paths")), &[]), None);
    for log in [
        refused("tb_tunnel_pci"),
        report_of_udmabuf(LONG, "ls_map"),
        report_of_udmabuf(MANY, "ls_map"),
        report_of_udmabuf(SYNC, "ls_sync"),
        report_of_udmabuf(&SYNC.replace("misc udmabuf", "thunderbolt 0000:00:02.0"), "end_cpu_udmabuf"),
        report("linkspan_ring_stop", END),
        format!("{own}[9] BUG: x\n"),
        format!("[7] BUG: x\n{own}"),
        report("tbnet_stop", ""),
    ] {
        assert!(wrong(&log, &[]).is_some(), "{log}");
    }
}
