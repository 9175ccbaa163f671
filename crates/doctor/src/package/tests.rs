use linkspan_topology::fixture::Fixture;

use super::*;

fn removed(tree: &str, file: &str) -> String {
    let fixture = Fixture::tree(tree);
    let step = remove(&fixture.roots(), file).remove(0);
    let (Step::Run(text) | Step::Do(text)) = step;
    text
}

#[test]
fn a_file_is_taken_away_by_what_has_put_it_there() {
    let dpkg = "usr/lib/x86_64-linux-gnu/a.so\tx\nlib -> /usr/lib\nvar/lib/dpkg/info/other.list\t/usr/lib/a\n\
                var/lib/dpkg/info/linkspan-nccl:amd64.list\t/.\\n/usr\\n/usr/lib/x86_64-linux-gnu/a.so\n";
    for file in ["/usr/lib/x86_64-linux-gnu/a.so", "/lib/x86_64-linux-gnu/a.so"] {
        assert_eq!(removed(dpkg, file), "sudo apt remove linkspan-nccl:amd64");
    }
    let old = "usr/lib/a.so\tx\nvar/lib/dpkg/info/p.list\t/lib/a.so\n";
    assert_eq!(removed(old, "/usr/lib/a.so"), "sudo apt remove p");
    assert_eq!(removed("opt/my lib/a.so\tx\n", "/opt/my lib/a.so"), "sudo rm '/opt/my lib/a.so'");
    let rpm = "usr/lib64/a.so\tx\nusr/lib/sysimage/rpm/rpmdb.sqlite\tx\nusr/local/lib/a.so\tx\n";
    assert!(removed(rpm, "/usr/lib64/a.so").contains("rpm -qf /usr/lib64/a.so"));
    assert_eq!(removed(rpm, "/usr/local/lib/a.so"), "sudo rm /usr/local/lib/a.so");
}

#[test]
fn a_file_of_a_wheel_goes_with_it() {
    let site = "home/anna/venv/lib/python3.12/site-packages";
    let wheel = format!(
        "{site}/linkspan/lib/a.so\tx\n{site}/numpy-2.0.dist-info/RECORD\tnumpy/x.so,,\n\
         {site}/linkspan-0.1.0.dist-info/RECORD\tlinkspan/__init__.py,sha256=x,1\\nlinkspan/lib/a.so,sha256=y,2\n"
    );
    let file = format!("/{site}/linkspan/lib/a.so");
    assert_eq!(removed(&wheel, &file), "python3 -m pip uninstall --yes linkspan");
    let own = format!("{wheel}home/anna/venv/bin/python3\tx\n");
    assert_eq!(removed(&own, &file), "/home/anna/venv/bin/python3 -m pip uninstall --yes linkspan");
    assert_eq!(removed(&own, &format!("/{site}/b.so")), format!("sudo rm /{site}/b.so"));
}
