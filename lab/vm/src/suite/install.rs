//! The driver as its users install it: built by DKMS with the commands of `kernel/README.md`, its device opened to a group by udev.

use std::fs;
use std::path::{Path, PathBuf};

use super::ring::{DEVICE, end, up};
use super::tb;
use crate::cpio::Archive;
use crate::error::{At, Result, check};
use crate::guest::Guest;
use crate::lab::Lab;
use crate::proc;
use crate::root;
use crate::setup::{RELEASE, apt};

/// Our sources, from the folder of the tree.
const SOURCES: &str = "kernel";

/// The rule of udev among them.
const RULE: &str = "70-linkspan.rules";

/// A user in the group of devices and one who is not.
const PASSWD: &str = "root:x:0:0:root:/:/bin/sh\nfriend:x:1000:1000::/:/bin/sh\nstranger:x:1001:1001::/:/bin/sh\n";
const GROUP: &str = "root:x:0:\nlinkspan:x:990:friend\nfriend:x:1000:\nstranger:x:1001:\n";

/// From sources to a device that some may open.
pub(crate) fn installed(lab: &mut Lab) -> Result<()> {
    let root = lab.root().to_owned();
    apt::install(&root, "dkms and udev", &["dkms", "udev"], RELEASE)?;
    let module = dkms(lab, &root)?;
    lab.say("dkms install: built and put beside the kernel's modules");

    let more = lab.run().join("installed");
    fs::write(&more, archive(&root, &module)?).at(more.display())?;
    let (cable, _, [a, b]) = tb::pair(lab, &[], |spec| spec.more = Some(more.clone()))?;
    for guest in [&a, &b] {
        guest.sh("/usr/lib/systemd/systemd-udevd --daemon && insmod /installed/linkspan.ko allow=any")?;
    }
    up(&[&a, &b])?;
    lab.say("the module that dkms built comes up on both");
    for guest in [&a, &b] {
        opens(guest)?;
    }
    lab.say(
        "the device: 0660 and of group linkspan; one of the group opens it, another user cannot; for users who are logged in",
    );
    for guest in [&a, &b] {
        guest.sh("kill $(pidof systemd-udevd)")?;
    }
    end(lab, cable, [a, b])
}

/// Builds and installs as `kernel/README.md` says, but for the kernel, which is not the one that runs here, and lets it go again.
fn dkms(lab: &Lab, root: &Path) -> Result<PathBuf> {
    let release = &lab.kernel.release;
    let place = root.join("usr/src/linkspan-1");
    let _ = fs::remove_dir_all(&place);
    proc::output(proc::guarded("cp").arg("-r").arg(SOURCES).arg(&place))?;
    let text = format!(
        "rm -rf /var/lib/dkms/linkspan /lib/modules/{release}/updates\nmkdir -p /lib/modules/{release}\n\
         groupadd --system --force linkspan\n\
         dkms install linkspan/1 -k {release} --kernelsourcedir /usr/src/linux-headers-{release} 2>&1 ||\n\
         {{ cat /var/lib/dkms/linkspan/1/build/make.log; exit 1; }}\n\
         udevadm verify /usr/src/linkspan-1/{RULE}\n\
         cp /lib/modules/{release}/updates/dkms/linkspan.ko /usr/src/linkspan-1/\n\
         dkms remove linkspan/1 --all"
    );
    proc::output(&mut root::script(root, &text))?;
    Ok(place.join("linkspan.ko"))
}

/// What guests have beside the usual: the module, udev, the rule, users.
fn archive(root: &Path, module: &Path) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    let udev = root.join("usr/bin/udevadm");
    let read = |path: &Path| fs::read(path).at(path.display());
    archive.file("/installed/linkspan.ko", 0o644, &read(module)?);
    archive.file("/usr/lib/systemd/systemd-udevd", 0o755, &read(&udev)?);
    archive.file("/usr/bin/udevadm", 0o755, &read(&udev)?);
    for (name, path) in root::libraries(root, &udev)? {
        archive.file(&format!("/usr/lib/x86_64-linux-gnu/{name}"), 0o755, &read(&path)?);
    }
    archive.file(&format!("/etc/udev/rules.d/{RULE}"), 0o644, &read(&Path::new(SOURCES).join(RULE))?);
    archive.file("/etc/passwd", 0o644, PASSWD.as_bytes());
    archive.file("/etc/group", 0o644, GROUP.as_bytes());
    Ok(archive.finish())
}

/// Who may open the device.
fn opens(guest: &Guest) -> Result<()> {
    guest.sh("udevadm settle")?;
    let is = guest.sh(&format!("stat -c '%a %G' {DEVICE}"))?;
    check(is.trim() == "660 linkspan", || format!("{}: {DEVICE} is {}", guest.name(), is.trim()))?;
    let tags = guest.sh(&format!("udevadm info --query=property --name={DEVICE}"))?;
    check(tags.contains(":uaccess:"), || format!("{}: not for users who are logged in: {tags}", guest.name()))?;
    let open = |user: &str| guest.run(tb::SOON, &format!("su {user} -c 'exec 3<>{DEVICE}'"));
    let (friend, stranger) = (open("friend")?, open("stranger")?);
    check(friend.code == 0, || format!("{}: one of the group: {}", guest.name(), friend.err))?;
    check(stranger.code != 0 && stranger.err.contains("ermission denied"), || {
        format!("{}: another user: {} {}", guest.name(), stranger.code, stranger.err)
    })
}
