use std::process::Command;

use linkspan_topology::fixture::Fixture;

use crate::finding::Step;
use crate::snapshot::{Snapshot, Sources};

fn snapshot(fixture: &Fixture) -> Snapshot {
    Snapshot::read(Sources { roots: fixture.roots(), ..Sources::default() })
}

#[test]
fn the_option_leaves_the_file_and_everything_else_stays() {
    let fixture = Fixture::new();
    let file = fixture.root.join("tb.conf");
    let before = "# options thunderbolt xdomain=0\noptions thunderbolt host_reset=0 xdomain=0 dyndbg=+p\n  options\tthunderbolt\txdomain=0\n\
                  options thunderbolt xdomain=0 clx=0\noptions thunderbolt_net xdomain=0\noptions other xdomain=0\n";
    std::fs::write(&file, before).unwrap();
    let Step::Run(command) = super::out_of_file("/etc/modprobe.d/tb.conf") else { panic!() };
    let command = command.replace("sudo ", "").replace("/etc/modprobe.d/tb.conf", file.to_str().unwrap());
    assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success(), "{command}");
    let after = "# options thunderbolt xdomain=0\noptions thunderbolt host_reset=0 dyndbg=+p\noptions thunderbolt clx=0\n\
                 options thunderbolt_net xdomain=0\noptions other xdomain=0\n";
    assert_eq!(std::fs::read_to_string(&file).unwrap(), after);
}

#[test]
fn each_folder_of_modprobe_is_looked_at_and_the_first_file_of_a_name_counts() {
    let fixture = Fixture::tree(
        "etc/modprobe.d/a.conf\toptions thunderbolt clx=0\n\
         usr/lib/modprobe.d/a.conf\toptions thunderbolt xdomain=0\n\
         usr/lib/modprobe.d/b.conf\toptions thunderbolt  clx=0 xdomain=0\n\
         run/modprobe.d/c.conf\toptions thunderbolt xdomain=0\n\
         etc/modprobe.d/d.conf.save\toptions thunderbolt xdomain=0\n\
         etc/modprobe.d/e.conf\toptions thunderbolt_net xdomain=0",
    );
    assert_eq!(super::option_files(&snapshot(&fixture)), ["/run/modprobe.d/c.conf", "/usr/lib/modprobe.d/b.conf"]);
    let Step::Run(command) = super::out_of_file("/usr/lib/modprobe.d/b.conf") else { panic!() };
    assert!(command.starts_with("sudo cp /usr/lib/modprobe.d/b.conf /etc/modprobe.d/b.conf && sudo sed"), "{command}");
    assert!(command.ends_with(" /etc/modprobe.d/b.conf"), "{command}");
}

#[test]
fn a_build_for_a_kernel_whose_name_is_longer_is_none_for_this_one() {
    let log =
        "var/lib/dkms/linkspan/1/build/make.log\tDKMS make.log for linkspan-1 for kernel 6.12.117 (x86_64)\\nerror";
    let fixture = Fixture::tree(log);
    assert_eq!(super::failed(&snapshot(&fixture), "6.12.1"), None);
    assert!(super::failed(&snapshot(&fixture), "6.12.117").is_some());
}

#[test]
fn where_the_module_is_not_for_the_running_kernel_another_one_is_to_be_booted() {
    let mut lines = crate::tests::machines()["strix-halo"].clone();
    lines.retain(|line| !line.starts_with("proc/sys/kernel/osrelease"));
    lines.push("proc/sys/kernel/osrelease\t6.1.0-44-amd64".to_owned());
    lines.push("lib/modules/6.12.63+deb12-amd64/modules.dep\tupdates/dkms/linkspan.ko:".to_owned());
    let found = crate::judge::judge(&crate::tests::build(&lines).snapshot, None).findings;
    let [one] = &found[..] else { panic!("{found:?}") };
    assert_eq!(one.rule.code(), "LS2113");
    let [Step::Do(step)] = &one.mend[..] else { panic!("{:?}", one.mend) };
    assert!(step.starts_with("boot 6.12.63+deb12-amd64: "), "{step}");
}
