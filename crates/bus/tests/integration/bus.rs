//! A bus of our own: dbus-daemon(1) with the rules of a system bus, and a name of a session bus: every user gets in.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use linkspan_bus::zbus::Connection;
use linkspan_bus::zbus::connection::Builder;

pub(crate) struct Bus {
    folder: PathBuf,
    daemon: Child,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Bus {
    /// `None`, with a line: there is no dbus-daemon here.
    pub(crate) fn start() -> Option<Bus> {
        let unique = format!("linkspan-bus-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&folder).unwrap();
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bin/linkspand/data/org.linkspan.Link1.conf");
        let user = std::env::var("USER").unwrap_or_else(|_| "root".into());
        let config = format!(
            r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>system</type><listen>unix:path={}</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><deny own="*"/><deny send_type="method_call"/><allow send_type="signal"/>
<allow send_requested_reply="true" send_type="method_return"/><allow send_requested_reply="true" send_type="error"/>
<allow receive_type="method_call"/><allow receive_type="method_return"/><allow receive_type="error"/><allow receive_type="signal"/>
<allow send_destination="org.freedesktop.DBus"/></policy>
<include>{}</include><include ignore_missing="yes">/usr/share/dbus-1/system.d/org.freedesktop.PolicyKit1.conf</include><policy user="{user}"><allow own="org.linkspan.Link1"/></policy><policy context="default"><allow own="org.linkspan.User1"/><allow send_destination="org.linkspan.User1"/></policy></busconfig>"#,
            folder.join("socket").display(),
            rules.canonicalize().unwrap().display(),
        );
        let file = folder.join("bus.conf");
        std::fs::write(&file, config).unwrap();
        match daemon(&file) {
            Ok(daemon) => Some(Bus { folder, daemon }),
            Err(error) => {
                eprintln!("skipped: dbus-daemon: {error}");
                let _ = std::fs::remove_dir_all(&folder);
                None
            }
        }
    }

    /// Another bus in its place: no connection outlives it.
    #[allow(dead_code, reason = "not every program of tests does it")]
    pub(crate) fn restart(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        let _ = std::fs::remove_file(self.folder.join("socket"));
        self.daemon = daemon(&self.folder.join("bus.conf")).unwrap();
    }

    /// A bus in its place that accepts and answers nothing.
    #[allow(dead_code, reason = "not every program of tests does it")]
    pub(crate) fn mute(&mut self) -> std::os::unix::net::UnixListener {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        let _ = std::fs::remove_file(self.folder.join("socket"));
        std::os::unix::net::UnixListener::bind(self.folder.join("socket")).unwrap()
    }

    pub(crate) fn address(&self) -> String {
        format!("unix:path={}", self.folder.join("socket").display())
    }

    #[allow(dead_code, reason = "not every program of tests is a client so")]
    pub(crate) fn builder(&self) -> Builder<'static> {
        Builder::address(&*self.address()).unwrap()
    }

    #[allow(dead_code, reason = "not every program of tests is a client so")]
    pub(crate) async fn client(&self) -> Connection {
        self.builder().build().await.unwrap()
    }
}

/// Started, and listening.
fn daemon(config: &Path) -> std::io::Result<Child> {
    let mut command = Command::new("dbus-daemon");
    command.arg(format!("--config-file={}", config.display())).args(["--nofork", "--nopidfile", "--print-address"]);
    let mut daemon = command.stdout(Stdio::piped()).spawn()?;
    // The address is printed when it listens.
    let mut line = String::new();
    let out = daemon.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line)?;
    assert!(line.starts_with("unix:"), "dbus-daemon said {line:?}");
    Ok(daemon)
}

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
