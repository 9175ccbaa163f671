use std::path::Path;

use super::{depends, name_of, needs};

#[test]
fn names_and_needs() {
    assert_eq!(name_of(Path::new("kernel/drivers/net/virtio-net.ko.xz")), "virtio_net");
    let all = depends(Path::new("/m"), "kernel/a-b.ko.xz: kernel/c.ko.xz kernel/d-e.ko.xz\nkernel/c.ko.xz:\n");
    assert_eq!(all["a_b"].needs, ["c", "d_e"]);
    assert_eq!(all["a_b"].file, Path::new("/m/kernel/a-b.ko.xz"));
    assert!(all["c"].needs.is_empty());
    assert_eq!(needs(b"\x7fELF..\0license=GPL\0depends=thunderbolt,configfs\0name=x\0"), ["thunderbolt", "configfs"]);
    assert!(needs(b"\0license=GPL\0depends=\0name=x\0").is_empty());
    assert!(needs(b"\0depends=cut").is_empty());
}
