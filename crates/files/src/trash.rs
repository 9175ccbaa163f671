//! The trash of a share: `.lspan/trash/RUN/PATH`, where RUN is the second in which a run began and a random number. What a run
//! deletes or replaces lies there under the path that it had.

use std::io;
use std::sync::{Arc, Mutex};

use crate::fs::{Fs, Links, Rename};
use crate::name::{Name, PRIVATE, RelPath, escape};
use crate::{lock, ops};

/// Age from which on a run goes, in seconds.
const AGE: i64 = 30 * 24 * 3600;

/// The largest part of the file system that the trash may take: one of so many.
const SHARE: u64 = 10;

/// Age up to which a run goes for its size only where no such part of the file system is free, in seconds.
const YOUNG: i64 = 24 * 3600;

/// Attempts at a place that somebody else takes or removes at the same time.
const TRIES: usize = 4;

pub(crate) fn fixed(bytes: &[u8]) -> io::Result<Name> {
    Name::any(bytes).map_err(|_| io::ErrorKind::InvalidFilename.into())
}

/// The directory of the trash below the root of a share.
pub(crate) fn open<F: Fs>(fs: &F, root: &F::Dir) -> io::Result<F::Dir> {
    fs.open_child(&fs.open_child(root, &fixed(PRIVATE)?)?, &fixed(b"trash")?)
}

/// A directory by one name, made where it is missing; `durable`: then it is on the disk as well.
pub(crate) fn open_or_make<F: Fs>(fs: &F, at: &F::Dir, name: &Name, durable: bool) -> io::Result<F::Dir> {
    match fs.open_child(at, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match fs.mkdir(at, name, 0o700) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            if durable {
                fs.sync_dir(at)?;
            }
            fs.open_child(at, name)
        }
        other => other,
    }
}

/// What one run moves to the trash.
pub(crate) struct Trash<F: Fs> {
    /// Every directory is on the disk before anything is moved into it.
    durable: bool,
    run: Mutex<Option<Run<F>>>,
}

struct Run<F: Fs> {
    name: Name,
    dir: Arc<F::Dir>,
    last: Option<(RelPath, Arc<F::Dir>)>,
}

impl<F: Fs> Trash<F> {
    pub(crate) fn new(durable: bool) -> Trash<F> {
        Trash { durable, run: Mutex::new(None) }
    }

    /// Has `act` move something to the place of this path in the trash; where that is taken, to another one.
    pub(crate) fn take(
        &self,
        fs: &F,
        root: &F::Dir,
        path: &RelPath,
        mut act: impl FnMut(&F::Dir, &Name) -> io::Result<()>,
    ) -> io::Result<(Arc<F::Dir>, Name)> {
        let mut tries = 0;
        loop {
            let done = self.place(fs, root, path).and_then(|(dir, name)| act(&dir, &name).map(|()| (dir, name)));
            match done {
                Err(error)
                    if tries < TRIES
                        && matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) =>
                {
                    tries += 1;
                    lock(&self.run).take();
                }
                other => return other,
            }
        }
    }

    fn place(&self, fs: &F, root: &F::Dir, path: &RelPath) -> io::Result<(Arc<F::Dir>, Name)> {
        let (parent, name) = path.split().ok_or(io::ErrorKind::InvalidInput)?;
        let mut run = lock(&self.run);
        let run = match &mut *run {
            Some(run) => run,
            none => none.insert(self.begin(fs, root)?),
        };
        if let Some((at, dir)) = &run.last
            && *at == parent
        {
            return Ok((dir.clone(), name));
        }
        let mut dir = run.dir.clone();
        for part in parent.bytes().split(|&b| b == b'/').filter(|part| !part.is_empty()) {
            dir = Arc::new(open_or_make(fs, &dir, &fixed(part)?, self.durable)?);
        }
        run.last = Some((parent, dir.clone()));
        Ok((dir, name))
    }

    fn begin(&self, fs: &F, root: &F::Dir) -> io::Result<Run<F>> {
        let mut four = [0; 4];
        getrandom::fill(&mut four).map_err(|error| io::Error::other(error.to_string()))?;
        let name = fixed(format!("{}-{:08x}", fs.now().sec, u32::from_le_bytes(four)).as_bytes())?;
        let ours = open_or_make(fs, root, &fixed(PRIVATE)?, false)?;
        let trash = open_or_make(fs, &ours, &fixed(b"trash")?, false)?;
        if self.durable {
            // Also where they were there: a run that was killed may have made them and not synced them.
            fs.sync_dir(root)?;
            fs.sync_dir(&ours)?;
        }
        let dir = Arc::new(open_or_make(fs, &trash, &name, self.durable)?);
        Ok(Run { name, dir, last: None })
    }

    /// Moves what has this path now. `reused`: something else gets its name next, and may be on the disk before the old content is in the trash: where
    /// the power is lost in between that would be lost, so that its place in the trash goes onto the disk.
    pub(crate) fn discard(&self, fs: &F, root: &F::Dir, path: &RelPath, reused: bool) -> io::Result<()> {
        let (parent, name) = path.split().ok_or(io::ErrorKind::InvalidInput)?;
        let dir = fs.open_dir(root, &parent, Links::Refuse)?;
        fs.stat(&dir, &name)?;
        let (trash, _) = self.take(fs, root, path, |to, free| move_new(fs, (&dir, &name), (to, free)))?;
        if reused && self.durable { fs.sync_dir(&trash) } else { Ok(()) }
    }

    /// Removes the directories of the run that were only made as a way, and in which nothing is.
    pub(crate) fn tidy(&self, fs: &F, root: &F::Dir) {
        let run = lock(&self.run).take();
        if let Some(Run { name, .. }) = run
            && let Ok(trash) = open(fs, root)
        {
            drop_empty(fs, (&trash, &name), root, 0);
            tidy(fs, root);
        }
    }
}

/// Removes the directory of the trash, and ours, where nothing is in them.
pub(crate) fn tidy<F: Fs>(fs: &F, root: &F::Dir) {
    if let (Ok(private), Ok(trash)) = (fixed(PRIVATE), fixed(b"trash"))
        && let Ok(ours) = fs.open_child(root, &private)
        && fs.rmdir(&ours, &trash).is_ok()
    {
        let _ = fs.rmdir(root, &private);
    }
}

/// Removes a directory of the trash, and those below it, where they are empty and there is one at the same place of the tree: the way to
/// something is there, or came back. An empty one that is nowhere else was taken, and stays.
fn drop_empty<F: Fs>(fs: &F, (at, name): (&F::Dir, &Name), same: &F::Dir, depth: usize) {
    if depth <= crate::name::DEPTH_MAX
        && let Ok(dir) = fs.open_child(at, name)
        && let Ok(list) = fs.list(&dir)
    {
        for below in list.flatten().filter_map(|below| Name::any(&below.name).ok()) {
            if let Ok(same) = fs.open_child(same, &below) {
                drop_empty(fs, (&dir, &below), &same, depth + 1);
            }
        }
        let _ = fs.rmdir(at, name);
    }
}

/// A new name where nothing has it, on any file system.
pub(crate) fn move_new<F: Fs>(fs: &F, from: (&F::Dir, &Name), to: (&F::Dir, &Name)) -> io::Result<()> {
    match fs.rename(from, to, Rename::NoReplace) {
        // No such flag here: look, then rename.
        Err(error) if cannot(&error) => match fs.stat(to.0, to.1) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => fs.rename(from, to, Rename::Replace),
            Err(error) => Err(error),
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        },
        other => other,
    }
}

/// renameat2(2): EINVAL where the file system does not know the flag.
pub(crate) fn cannot(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

/// When a run began, seconds since 1970; `None` for a name that is no run's.
pub fn began(name: &[u8]) -> Option<i64> {
    let (sec, random) = std::str::from_utf8(name).ok()?.split_once('-')?;
    (random.len() == 8 && random.bytes().all(|b| b.is_ascii_hexdigit())).then(|| sec.parse().ok()).flatten()
}

/// The runs in the trash, the oldest first.
pub(crate) fn runs<F: Fs>(fs: &F, trash: &F::Dir) -> io::Result<Vec<(i64, Name)>> {
    let mut runs = Vec::new();
    for entry in fs.list(trash)? {
        let name = entry?.name;
        if let (Some(began), Ok(name)) = (began(&name), Name::any(&name)) {
            runs.push((began, name));
        }
    }
    runs.sort();
    Ok(runs)
}

/// Has `remove` remove runs of those that are kept, the oldest first, each with when it began and what it takes, for what all take: the oldest
/// ones, while that is more than a tenth of the file system; one of the last day only while less than that is free. It answers with what
/// the disk has got back.
fn thin(kept: &[(i64, u64)], now: i64, (total, mut free): (u64, u64), mut remove: impl FnMut(usize) -> u64) {
    let (most, mut all) = (total / SHARE, kept.iter().map(|(_, disk)| disk).sum::<u64>());
    for (index, (began, _)) in kept.iter().enumerate() {
        if all <= most || (began.saturating_add(YOUNG) >= now && free >= most) {
            return;
        }
        let back = remove(index);
        all = all.saturating_sub(back);
        free = free.saturating_add(back);
    }
}

/// Removes runs that are older than 30 days, and those of [`thin`]. One that cannot be removed keeps no other one.
pub(crate) fn expire<F: Fs>(fs: &F, root: &F::Dir, say: &dyn Fn(&str)) -> io::Result<()> {
    let trash = match open(fs, root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let remove = |run: &Name, why: &str| {
        let name = escape(run.bytes());
        match ops::remove_dir(fs, &trash, run, ops::Below::Trash, 0) {
            Ok(()) => say(&format!("removed {name} from the trash: {why}")),
            Err(error) => say(&format!("{name} stays in the trash: {error}; remove .lspan/trash/{name} by hand")),
        }
    };
    let now = fs.now().sec;
    let mut kept = Vec::new();
    for (began, run) in runs(fs, &trash)? {
        if began.saturating_add(AGE) < now {
            remove(&run, "it was there for 30 days");
        } else {
            kept.push(((began, ops::usage_below(fs, &trash, &run).disk), run));
        }
    }
    let (sizes, names): (Vec<_>, Vec<_>) = kept.into_iter().unzip();
    thin(&sizes, now, fs.space(root)?, |index| {
        remove(&names[index], "it took more than a tenth of the disk");
        sizes[index].1.saturating_sub(ops::usage_below(fs, &trash, &names[index]).disk)
    });
    tidy(fs, root);
    Ok(())
}

/// Takes a path back from the newest run that has it, or from this one. Nothing is replaced: of a directory that is there again,
/// what is missing in it comes back.
pub(crate) fn restore<F: Fs>(fs: &F, root: &F::Dir, path: &RelPath, run: Option<&str>) -> io::Result<()> {
    let (parent, name) = path.split().ok_or(io::ErrorKind::InvalidInput)?;
    let trash = open(fs, root)?;
    for (_, found) in runs(fs, &trash)?.into_iter().rev() {
        if run.is_some_and(|run| run.as_bytes() != found.bytes()) {
            continue;
        }
        let from = match fs.open_child(&trash, &found).and_then(|run| fs.open_dir(&run, &parent, Links::Refuse)) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => continue,
            other => other?,
        };
        match fs.stat(&from, &name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        let opened = fs.open_sync(root)?;
        let to = make_dirs(fs, root, &parent)?;
        put_back(fs, (&from, &to), &name, 0)?;
        fs.sync_all(&opened)?;
        drop_empty(fs, (&trash, &found), root, 0);
        tidy(fs, root);
        return Ok(());
    }
    Err(io::ErrorKind::NotFound.into())
}

fn put_back<F: Fs>(fs: &F, (from, to): (&F::Dir, &F::Dir), name: &Name, depth: usize) -> io::Result<()> {
    match move_new(fs, (from, name), (to, name)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && depth < crate::name::DEPTH_MAX => {
            let both = fs.open_child(from, name).and_then(|from| Ok((from, fs.open_child(to, name)?)));
            let Ok((from_dir, to_dir)) = both else { return Err(error) };
            let mut first = Ok(());
            for entry in fs.list(&from_dir)? {
                let done = fixed(&entry?.name).and_then(|below| put_back(fs, (&from_dir, &to_dir), &below, depth + 1));
                first = first.and(done);
            }
            first
        }
        other => other,
    }
}

/// A directory below the root, and those above it, made where they are missing.
pub(crate) fn make_dirs<F: Fs>(fs: &F, root: &F::Dir, path: &RelPath) -> io::Result<F::Dir> {
    let mut dir = fs.open_dir(root, &RelPath::default(), Links::Refuse)?;
    for part in path.bytes().split(|&b| b == b'/').filter(|part| !part.is_empty()) {
        let name = fixed(part)?;
        dir = match fs.open_child(&dir, &name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match fs.mkdir(&dir, &name, 0o755) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                    _ => {}
                }
                fs.open_child(&dir, &name)?
            }
            other => other?,
        };
    }
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_the_last_day_stays_whatever_it_takes_while_a_tenth_of_the_disk_is_free() {
        let (now, day) = (10_000_000, 24 * 3600);
        let runs = [(now - 9 * day, 5), (now - 2 * day, 5), (now - 60, 30), (now - 1, 30)];
        let thinned = |runs: &[(i64, u64)], space| {
            let mut gone = 0;
            thin(runs, now, space, |index| {
                gone += 1;
                runs[index].1
            });
            gone
        };
        assert_eq!(thinned(&runs, (1000, 500)), 0, "they take less than a tenth");
        assert_eq!(thinned(&runs, (100, 20)), 2, "those of the last day stay");
        assert_eq!(thinned(&runs[2..], (100, 10)), 0);
        // With less free the older one goes, and after that enough is.
        assert_eq!(thinned(&runs[2..], (100, 9)), 1);
        assert_eq!(thinned(&runs[..2], (80, 79)), 1, "until what is left takes no more than a tenth");
    }

    #[test]
    fn where_a_run_cannot_be_removed_the_next_ones_go_until_all_take_a_tenth_of_the_disk() {
        let (now, day) = (10_000_000, 24 * 3600);
        let runs = [9, 8, 7, 6, 5].map(|days| (now - days * day, 4));
        let mut asked = Vec::new();
        thin(&runs, now, (100, 50), |index| {
            asked.push(index);
            [4, 1, 4, 4, 4][index]
        });
        assert_eq!(asked, [0, 1, 2, 3], "of 20 the first leave 16, 15, 11 and 7");
    }

    #[cfg(feature = "sim")]
    #[test]
    fn an_old_run_that_cannot_be_removed_is_told_and_keeps_no_other_one() {
        let fs = crate::sim::SimFs::new(1, None, false);
        let runs = ["1000000000-0000000a", "1000000001-0000000b"];
        let deep = format!(".lspan/trash/{}/{}", runs[0], "d/".repeat(crate::name::DEPTH_MAX + 1));
        fs.users(|users| {
            users.write(&format!("{deep}f"), b"x", false);
            ["a", "z"].iter().for_each(|name| users.write(&format!(".lspan/trash/{}/{name}", runs[0]), b"x", false));
            users.write(&format!(".lspan/trash/{}/f", runs[1]), b"x", false);
        });
        let said = Mutex::new(Vec::new());
        expire(&fs, &fs.root(), &|line| lock(&said).push(line.to_owned())).unwrap();
        fs.users(|users| assert_eq!(users.files().into_keys().collect::<Vec<_>>(), [format!("{deep}f")]));
        let said = lock(&said);
        assert!(said[0].starts_with(runs[0]) && said[0].contains("more than 128 deep"), "{said:?}");
        assert!(said[1].contains(runs[1]), "{said:?}");
    }

    #[cfg(feature = "sim")]
    #[test]
    fn what_goes_keeps_its_empty_directories_and_comes_back_with_them() {
        let fs = crate::sim::SimFs::new(1, None, false);
        let (root, path) = (fs.root(), |text: &str| RelPath::new(text.as_bytes()).unwrap());
        let is_dir = |path: &str| {
            let mut is = false;
            fs.users(|users| is = users.is_dir(path));
            is
        };
        fs.users(|users| {
            ["mail/cur/1", "kept/gone", "kept/stays"].iter().for_each(|path| users.write(path, b"x", false));
            for path in ["mail/new/x", "hollow/x", "kept/way/x"] {
                users.write(path, b"x", false);
                users.remove(path);
            }
        });
        let trash = Trash::new(false);
        for gone in ["mail", "hollow", "kept/gone"] {
            trash.discard(&fs, &root, &path(gone), false).unwrap();
        }
        // A way on which nothing came.
        trash.take(&fs, &root, &path("kept/way/none"), |_, _| Ok(())).unwrap();
        trash.tidy(&fs, &root);
        let run = runs(&fs, &open(&fs, &root).unwrap()).unwrap().pop().unwrap().1;
        let run = format!(".lspan/trash/{}", std::str::from_utf8(run.bytes()).unwrap());
        let there = ["mail/cur", "mail/new", "hollow", "kept", "kept/way"].map(|dir| is_dir(&format!("{run}/{dir}")));
        assert_eq!(there, [true, true, true, true, false]);
        // The one is there again, with something else in it.
        fs.users(|users| users.write("mail/cur/2", b"x", false));
        for back in ["mail", "hollow", "kept/gone"] {
            assert!(is_dir(&run), "{back}");
            restore(&fs, &root, &path(back), None).unwrap();
        }
        assert!(is_dir("mail/new") && is_dir("hollow") && !is_dir(".lspan"));
        fs.users(|users| assert_eq!(users.files().len(), 4));
    }
}
