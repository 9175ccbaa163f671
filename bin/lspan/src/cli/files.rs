//! Arguments of the commands about files.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use linkspan_service::rendezvous::FILES;

/// Behind the help of `send` and `get`.
pub(crate) const TRANSFER: &str = "Every byte is checked by BLAKE3 on arrival, and a file has its name only when all of it is on the \
    disk. A file of equal size and modification time is taken for the same (lspan verify compares the bytes); of one that differs only \
    the chunks of 1 MiB that differ are sent. Owner, setuid bits, ACLs, security attributes, devices, sockets and fifos do not travel, hard links \
    arrive as separate files. Exit code 3: something was left out that the other side cannot recreate.";

#[derive(Debug, Subcommand)]
pub(crate) enum Files {
    /// Serve directories and services until Ctrl-C, to paired peers or to holders of the cluster key
    Serve(FilesServeArgs),
}

#[derive(Args, Debug)]
pub(crate) struct FilesServeArgs {
    /// A directory and the name under which peers see it; read-only, or writable with :rw at the end, as in data=/srv/data:rw
    #[arg(value_name = "NAME=DIR[:rw]", required_unless_present = "allow")]
    pub(crate) shares: Vec<String>,
    /// A service that peers may connect to (lspan pipe, lspan forward): ssh, rsync, sftp, sftp:ro, tcp:PORT; ssh=PORT or rsync=FILE
    /// for another port or another rsyncd.conf; repeat it for more
    #[arg(long, value_name = "SERVICE")]
    pub(crate) allow: Vec<String>,
    /// Address where peers find it; repeat it for more [default: loopback and every usable interface]
    ///
    /// What they transfer comes, after a login, by every interface that linkspan uses (LINKSPAN_IFNAME).
    #[arg(long, value_name = "ADDR")]
    pub(crate) bind: Vec<IpAddr>,
    /// TCP port to listen on
    #[arg(long, value_name = "N", default_value_t = FILES.port)]
    pub(crate) port: u16,
    /// Serve as root: peers can then read, and with :rw write, everything below the directories
    #[arg(long)]
    pub(crate) as_root: bool,
    /// Device number, as `lspan status` lists them
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) device: usize,
}

/// What every command with a peer takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct PeerArgs {
    /// Port of the peer's `lspan files serve`
    #[arg(long, value_name = "N", default_value_t = FILES.port)]
    pub(crate) port: u16,
}

#[derive(Args, Debug)]
pub(crate) struct LsArgs {
    /// PEER: lists its shares, PEER:SHARE or PEER:SHARE/PATH the content of a directory
    #[arg(value_name = "PEER:[SHARE[/PATH]]")]
    pub(crate) at: String,
    /// With permissions, size and time
    #[arg(short)]
    pub(crate) long: bool,
    /// Print JSON, one object in a line for each entry (schema linkspan.ls/1)
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) peer: PeerArgs,
}

#[derive(Args, Debug)]
pub(crate) struct SendArgs {
    /// Files and directories
    #[arg(value_name = "SRC", required = true)]
    pub(crate) from: Vec<PathBuf>,
    /// Directory of the peer, or the new name of a single SRC
    #[arg(value_name = "PEER:SHARE[/PATH]")]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) delete: DeleteArgs,
    #[command(flatten)]
    pub(crate) how: HowArgs,
    #[command(flatten)]
    pub(crate) peer: PeerArgs,
}

#[derive(Args, Debug)]
pub(crate) struct GetArgs {
    /// Files and directories of one peer
    #[arg(value_name = "PEER:SHARE[/PATH]", required = true)]
    pub(crate) from: Vec<String>,
    /// Directory, or the new name of a single PEER:SHARE/PATH
    #[arg(value_name = "DST")]
    pub(crate) to: PathBuf,
    #[command(flatten)]
    pub(crate) delete: DeleteArgs,
    #[command(flatten)]
    pub(crate) how: HowArgs,
    #[command(flatten)]
    pub(crate) peer: PeerArgs,
}

/// What a transfer deletes.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct DeleteArgs {
    /// In directories that are sent, move files that the source does not have, and files that are replaced, to the trash of the receiver
    #[arg(long)]
    pub(crate) delete: bool,
    /// Maximum number of entries to delete [default: 1000 or a quarter of all, whichever is less, but at least 10]
    #[arg(long, value_name = "N", requires = "delete")]
    pub(crate) max_delete: Option<u64>,
}

/// How a transfer is made.
#[derive(Args, Clone, Debug)]
pub(crate) struct HowArgs {
    /// Say what would be sent, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not wait until everything is on the disk: a power failure may lose files that were reported as done
    #[arg(long)]
    pub(crate) no_fsync: bool,
    /// Also transfer extended attributes of users (user.*)
    #[arg(long)]
    pub(crate) xattrs: bool,
    /// Skip names that match this rule of gitignore(5), relative to the top of the transfer; repeat it for more
    #[arg(long, value_name = "RULE")]
    pub(crate) exclude: Vec<String>,
    /// Read such rules from a file
    #[arg(long, value_name = "FILE")]
    pub(crate) exclude_from: Vec<PathBuf>,
    /// Print JSON, one object in a line for each file and a last one for all (schema linkspan.files/1)
    #[arg(long)]
    pub(crate) json: bool,
}

/// Behind the help of `mirror`.
pub(crate) const MIRROR: &str = "One of SRC and DST is PEER:SHARE[/PATH], the other a directory of this host. Files in DST that are not in SRC, and files that are replaced, go to .lspan/trash at the root of the share, or of DST where that is on this host (lspan trash). The first run with --init writes a marker into both (.lspan/mirror); without the marker nothing is deleted, as when a disk is not mounted. More than 1000 names, or more than a quarter of all and more than 10, are deleted only with --max-delete. Files that were renamed in SRC (same size, time and hash) are renamed in DST. Exit code 1: something failed, or more entries than allowed would be deleted.";

#[derive(Args, Debug)]
pub(crate) struct MirrorArgs {
    /// The directory to mirror, with everything in it
    #[arg(value_name = "SRC")]
    pub(crate) from: String,
    /// The directory that is made equal to SRC
    #[arg(value_name = "DST")]
    pub(crate) to: String,
    /// First run: write a marker into both directories, so that later runs know that they belong together
    #[arg(long)]
    pub(crate) init: bool,
    /// Keep running until Ctrl-C, and mirror each change after one second without further changes
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) watch: bool,
    /// Maximum number of entries to delete in one run [default: 1000 or a quarter of all, whichever is less, but at least 10]
    #[arg(long, value_name = "N")]
    pub(crate) max_delete: Option<u64>,
    #[command(flatten)]
    pub(crate) how: HowArgs,
    #[command(flatten)]
    pub(crate) peer: PeerArgs,
}

/// Behind the help of `trash`.
pub(crate) const TRASH: &str = "Files that send --delete, get --delete and mirror delete or replace are kept in .lspan/trash at the root of the share (where DST is on this host: in DST), for 30 days, or until the trash takes more than a tenth of the disk; then the oldest are removed first.";

#[derive(Debug, Subcommand)]
pub(crate) enum Trash {
    /// List the content of the trash: RUN/PATH, one line each
    List(TrashListArgs),
    /// Restore files and directories to where they were; nothing is replaced
    Restore(TrashRestoreArgs),
    /// Remove the content of the trash permanently
    Empty(TrashEmptyArgs),
}

#[derive(Args, Debug)]
pub(crate) struct TrashListArgs {
    /// A share, or a directory of this host
    #[arg(value_name = "PEER:SHARE|DIR")]
    pub(crate) at: String,
    /// Print JSON, one object in a line for each (schema linkspan.trash/1)
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) peer: PeerArgs,
}

#[derive(Args, Debug)]
pub(crate) struct TrashRestoreArgs {
    /// A share, or a directory of this host
    #[arg(value_name = "PEER:SHARE|DIR")]
    pub(crate) at: String,
    /// What to restore: PATH (its newest version), or RUN/PATH
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) peer: PeerArgs,
}

#[derive(Args, Debug)]
pub(crate) struct TrashEmptyArgs {
    /// A share, or a directory of this host
    #[arg(value_name = "PEER:SHARE|DIR")]
    pub(crate) at: String,
    /// Only what has been there for at least this many days
    #[arg(long, value_name = "DAYS")]
    pub(crate) older: Option<u32>,
    #[command(flatten)]
    pub(crate) peer: PeerArgs,
}

#[derive(Args, Debug)]
pub(crate) struct RmArgs {
    /// What to remove
    #[arg(value_name = "PEER:SHARE/PATH", required = true)]
    pub(crate) at: Vec<String>,
    /// Also directories, with everything in them
    #[arg(short)]
    pub(crate) recursive: bool,
    #[command(flatten)]
    pub(crate) peer: PeerArgs,
}

#[derive(Args, Debug)]
pub(crate) struct MvArgs {
    /// What to rename
    #[arg(value_name = "PEER:SHARE/PATH")]
    pub(crate) from: String,
    /// Its new path in the same share
    #[arg(value_name = "PEER:SHARE/PATH")]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) peer: PeerArgs,
}

#[derive(Args, Debug)]
pub(crate) struct DuArgs {
    /// What to count
    #[arg(value_name = "PEER:SHARE[/PATH]")]
    pub(crate) at: String,
    /// Print JSON (schema linkspan.du/1)
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) peer: PeerArgs,
}

#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    /// A local file or directory
    #[arg(value_name = "SRC")]
    pub(crate) own: PathBuf,
    /// The file or directory of the peer to compare with
    #[arg(value_name = "PEER:SHARE/PATH")]
    pub(crate) at: String,
    #[command(flatten)]
    pub(crate) peer: PeerArgs,
}

/// Behind the help of `pipe`.
pub(crate) const PIPE: &str = "SERVICE is what the peer's owner allowed with `lspan files serve --allow SERVICE`: ssh, rsync, sftp or tcp:PORT. Programs that \
    run a command to reach a host are given this one: ssh -o ProxyCommand='lspan pipe %h ssh' spark; rsync -e 'lspan pipe' spark::module/ .; \
    sftp -D 'lspan pipe spark sftp'. Exit code 0: both directions have ended and all has arrived, or the service's program has ended with code 0; 1: the \
    service has failed, or cut the connection; 4: no peer, or the connection was lost; 5: not allowed.";

#[derive(Args, Debug)]
pub(crate) struct PipeArgs {
    /// The peer: NAME of a paired peer, HOST, ADDRESS
    #[arg(value_name = "PEER")]
    pub(crate) to: String,
    /// ssh, rsync, sftp or tcp:PORT
    #[arg(value_name = "SERVICE")]
    pub(crate) service: String,
    /// Accepted for `rsync -e`, which adds `--server --daemon .`; these words change nothing, others are refused
    #[arg(value_name = "WORD", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) peer: PeerArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ForwardArgs {
    /// Where to listen: PORT on loopback, or ADDRESS:PORT; port 0 chooses a free one
    #[arg(value_name = "LOCAL")]
    pub(crate) local: String,
    /// The peer and its service
    #[arg(value_name = "PEER:SERVICE")]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) peer: PeerArgs,
}

/// Behind the help of `mount`.
pub(crate) const MOUNT: &str = "Until Ctrl-C, `umount DIR` or the end of its terminal (unless started by nohup); read-only without --rw. Files show the user who mounts as their owner. A program that reads or writes \
    while the peer is gone gets EIO after --timeout, and the mount goes on by itself when the peer is back. Exit code 0: unmounted; 1: it could not be \
    mounted; 4: no peer; 5: the share is read-only.";

#[derive(Args, Debug)]
pub(crate) struct MountArgs {
    /// A share, or a directory in it
    #[arg(value_name = "PEER:SHARE[/PATH]")]
    pub(crate) from: String,
    /// A directory of this host; what is in it is hidden while this is mounted
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Mount it writable, if the share is: a write returns when the peer has the data, an fsync when the data is on the peer's disk
    #[arg(long)]
    pub(crate) rw: bool,
    /// After this many seconds without an answer a read or write fails with EIO; for names and attributes the limit is 5 s, or this if less
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) peer: PeerArgs,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let bad = || "a number of seconds from 1 to 3600 is wanted".to_owned();
    let seconds = text.parse().ok().filter(|seconds| (1..=3600).contains(seconds)).ok_or_else(bad)?;
    Ok(Duration::from_secs(seconds))
}
