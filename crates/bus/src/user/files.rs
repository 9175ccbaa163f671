//! `org.linkspan.User1.Files`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use linkspan_files::client::Client;
use linkspan_files::fs::Kind as EntryKind;
use linkspan_files::wire::{Answer, Entry, Request};
use linkspan_user::mirror::Ends;
use linkspan_user::mirrors::Kept;
use linkspan_user::mount::{self, DATA};
use linkspan_user::place::Place;
use linkspan_user::task::Kind;
use linkspan_user::transfer::How;
use linkspan_user::work::{self, Begins};
use linkspan_user::{Dialer, Error};
use serde::Deserialize;
use serde_json::json;
use zbus::message::Header;
use zbus::object_server::ObjectServer;
use zbus::zvariant::OwnedObjectPath;
use zbus::{Connection, interface};

use super::UserError;
use super::call::{Calls, options, texts};
use super::server::User;
use crate::{Dict, to_dict};

/// Entries that List answers.
const ENTRIES: usize = 10_000;

/// The interface.
pub(crate) struct Files(pub(crate) Calls);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    no_fsync: bool,
    xattrs: bool,
    dry_run: bool,
    delete: bool,
    max_delete: Option<u64>,
    exclude: Vec<String>,
    init: bool,
    watch: bool,
    again: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MountOptions {
    timeout_ms: Option<u64>,
    writable: bool,
}

impl Options {
    fn how(self) -> Result<How, UserError> {
        texts("exclude", &self.exclude)?;
        let Options { no_fsync, xattrs, dry_run, delete, max_delete, exclude, .. } = self;
        let how = How { no_fsync, xattrs, dry_run, delete, max_delete, exclude, keep_replaced: true };
        how.rules()?;
        Ok(how)
    }

    /// Those of a transfer.
    fn of_transfer(dict: &Dict) -> Result<How, UserError> {
        let options: Options = options(dict)?;
        match options.init || options.watch || options.again {
            true => Err(Error::Usage("init, watch and again are options of a mirror".into()).into()),
            false => options.how(),
        }
    }
}

/// Begins a mirror.
async fn mirror(
    calls: &Calls,
    objects: &ObjectServer,
    [source, destination]: [String; 2],
    options: Options,
) -> Result<OwnedObjectPath, UserError> {
    texts("places", [&source, &destination])?;
    let Options { init, watch, again, .. } = options;
    if again && (init || !watch) {
        return Err(
            Error::Usage("again is of a mirror that has followed changes: with watch, without init".into()).into()
        );
    }
    let ends = Ends::parse(&source, &destination)?;
    local(&ends.own.to_string_lossy())?;
    let begins = Begins { init, watch, again };
    let how = How { delete: true, ..options.how()? };
    let (peer, user) = (ends.peer.peer.clone(), calls.user.clone());
    let run = move |task: &_| work::mirror(task, &ends, how, begins, &user.mirrors);
    calls.begin(objects, (Kind::Mirror, &peer, vec![source, destination]), run).await
}

/// Has the mirrors that are kept go on, once.
pub(crate) async fn resume(calls: &Calls, objects: &ObjectServer) {
    for Kept { ends, options, .. } in calls.user.mirrors.begin() {
        let begun = match serde_json::from_value::<Options>(options) {
            Ok(options) => {
                let options = Options { again: true, ..options };
                mirror(calls, objects, ends.clone(), options).await.map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        if let Err(why) = begun {
            let ([source, destination], file) = (ends, calls.user.mirrors.path().display());
            (calls.user.say)(&format!(
                "the mirror of {source:?} at {destination:?} does not go on: {why}; the next start tries again: begin it anew, or take it out \
                 of {file} while the service does not run"
            ));
        }
    }
}

/// A path of this host: the service has no directory of its own to begin from.
fn local(text: &str) -> Result<PathBuf, Error> {
    let path = Path::new(text);
    match path.is_absolute() && !text.contains('\0') {
        true => Ok(path.to_owned()),
        false => Err(Error::Usage(format!("{text:?} is not an absolute path"))),
    }
}

fn shown(entry: &Entry) -> Dict {
    let kind = match entry.kind {
        EntryKind::File => "file",
        EntryKind::Dir => "directory",
        EntryKind::Symlink => "symlink",
        EntryKind::Special => "special",
    };
    let mut line = json!({ "kind": kind, "size_bytes": entry.size, "mode": entry.mode, "mtime_s": entry.mtime.sec });
    match std::str::from_utf8(&entry.name) {
        Ok(text) => line["name"] = json!(text),
        Err(_) => line["name_hex"] = json!(linkspan_files::hash::hex(&entry.name)),
    }
    to_dict(&line)
}

/// How long a peer may take for a list, and to remove a tree.
const LISTS: Duration = Duration::from_secs(20);
const REMOVES: Duration = Duration::from_secs(300);

fn list(client: &mut Client, place: &Place) -> Result<(Vec<Dict>, bool), linkspan_files::Error> {
    if place.share.is_empty() {
        let Answer::Shares(shares) = client.request(Request::Shares)? else { return Ok((Vec::new(), true)) };
        let dict = |(name, writable): &(String, bool)| {
            to_dict(&json!({ "name": name, "kind": "share", "writable": writable }))
        };
        return Ok((shares.iter().map(dict).collect(), true));
    }
    let (mut entries, mut all) = (Vec::new(), true);
    client.list(&place.at(), |entry| match entries.len() < ENTRIES {
        true => entries.push(entry),
        false => all = false,
    })?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok((entries.iter().map(shown).collect(), all))
}

/// Files here and at peers that serve shares. A place is written `PEER:SHARE/PATH`, or `linkspan://PEER/SHARE/PATH` with `%` and two
/// hexadecimal digits for any byte. Paths of this host are absolute.
#[interface(name = "org.linkspan.User1.Files")]
impl Files {
    /// Sends files and directories to a place. What is replaced goes to the trash there. Options: no_fsync, xattrs, dry_run, delete (b),
    /// max_delete (t), exclude (as), as those of `lspan send`.
    #[zbus(out_args("task"))]
    async fn send(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        #[zbus(object_server)] objects: &ObjectServer,
        from: Vec<String>,
        to: String,
        options: Dict,
    ) -> Result<OwnedObjectPath, UserError> {
        self.0.own(connection, &header).await?;
        texts("places", from.iter().chain([&to]))?;
        let (how, place) = (Options::of_transfer(&options)?, Place::whole(&to)?);
        let sources = from.iter().map(|text| local(text)).collect::<Result<Vec<_>, _>>()?;
        if sources.is_empty() {
            return Err(Error::Usage("nothing is named that could be sent".into()).into());
        }
        let (peer, arguments) = (place.peer.clone(), from.into_iter().chain([to]).collect());
        let user = self.0.user.clone();
        let run = move |task: &_| work::send(task, &sources, &place, how, &user.tasks);
        self.0.begin(objects, (Kind::Send, &peer, arguments), run).await
    }

    /// Gets places of one peer into a directory, or one of them under a new name. What is replaced goes to the trash of the directory. Options
    /// as of Send.
    #[zbus(out_args("task"))]
    async fn get(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        #[zbus(object_server)] objects: &ObjectServer,
        from: Vec<String>,
        to: String,
        options: Dict,
    ) -> Result<OwnedObjectPath, UserError> {
        self.0.own(connection, &header).await?;
        texts("places", from.iter().chain([&to]))?;
        if from.is_empty() {
            return Err(Error::Usage("nothing is named that could be fetched".into()).into());
        }
        let (how, dir, places) = (Options::of_transfer(&options)?, local(&to)?, Place::of_one_peer(&from)?);
        let (peer, arguments) = (places[0].peer.clone(), from.into_iter().chain([to]).collect());
        let user = self.0.user.clone();
        let run = move |task: &_| work::get(task, &places, &dir, how, &user.tasks);
        self.0.begin(objects, (Kind::Get, &peer, arguments), run).await
    }

    /// Makes a directory like another, one of which is at a peer; with `watch` until it is cancelled: once both are marked it goes on with each
    /// start of the service, and waits where a peer or a disk is away. Options: init (b; the first run of two directories), watch (b), again (b; it has
    /// followed changes before, and is kept and waits from its beginning on), and those of Send; delete is meant. Where more would be deleted than
    /// max_delete allows, nothing is, and it ends.
    #[zbus(out_args("task"))]
    async fn mirror(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        #[zbus(object_server)] objects: &ObjectServer,
        source: String,
        destination: String,
        options: Dict,
    ) -> Result<OwnedObjectPath, UserError> {
        self.0.own(connection, &header).await?;
        mirror(&self.0, objects, [source, destination], self::options(&options)?).await
    }

    /// Mounts a place at a directory until the task is cancelled or it is unmounted, at the latest until the service ends.
    /// Options: timeout_ms (t; until data is answered, 60000), writable (b; false: read-only).
    #[zbus(out_args("task"))]
    async fn mount(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        #[zbus(object_server)] objects: &ObjectServer,
        place: String,
        directory: String,
        options: Dict,
    ) -> Result<OwnedObjectPath, UserError> {
        self.0.own(connection, &header).await?;
        texts("places", [&place, &directory])?;
        let MountOptions { timeout_ms, writable } = self::options(&options)?;
        let data = timeout_ms.map_or(DATA, Duration::from_millis);
        if !(Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&data) {
            return Err(Error::Usage("timeout_ms must be 100 to 3600000".into()).into());
        }
        let (peer, dir) = (Place::whole(&place)?.peer, local(&directory)?);
        let source = place.clone();
        let run = move |task: &_| work::mounted(task, &source, &dir, mount::How { data, writable });
        self.0.begin(objects, (Kind::Mount, &peer, vec![place, directory]), run).await
    }

    /// The entries of a directory at a peer, sorted, 10000 at most (`all`: these are all); of a place without a share the peer's shares.
    /// Keys: kind (s: share, directory, file, symlink, special), name (s; name_hex where it is no UTF-8), and writable (b) of a share,
    /// size_bytes, mode (t), mtime_s (t, or x before 1970) of others.
    #[zbus(out_args("entries", "all"))]
    async fn list(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        place: String,
    ) -> Result<(Vec<Dict>, bool), UserError> {
        texts("place", [&place])?;
        let place = Place::parse(&place)?;
        let list =
            move |user: &User| Dialer::to(&place.peer, work::log(&user.say))?.ask(LISTS, |client| list(client, &place));
        self.0.blocking(connection, &header, list).await
    }

    /// Removes a file at a peer, or with `recursive` a directory.
    async fn remove(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        place: String,
        recursive: bool,
    ) -> Result<(), UserError> {
        texts("place", [&place])?;
        let place = Place::whole(&place)?;
        let remove = move |user: &User| {
            let what = Request::Remove(place.at(), recursive);
            Dialer::to(&place.peer, work::log(&user.say))?.ask(REMOVES, |client| client.request(what)).map(drop)
        };
        self.0.blocking(connection, &header, remove).await
    }
}
