//! Partial files that nobody has taken up for a month go, each with a word.

use std::io;

use crate::fs::{Fs, Kind, Links, Stat};
use crate::journal::{UNDERWAY, Whereabouts};
use crate::name::{Name, RelPath, escape, is_partial, is_reserved};

/// Age from which on a partial file goes, in seconds.
const AGE: i64 = 30 * 24 * 3600;

/// Removes old partial files below these roots, and says which.
pub(crate) fn sweep<F: Fs>(fs: &F, state: &F::Dir, roots: &[&F::Dir], say: &dyn Fn(&str)) -> io::Result<()> {
    let (now, uid) = (fs.now().sec, fs.stat_dir(state)?.uid);
    for entry in fs.list(state)? {
        let Ok(name) = Name::any(&entry?.name) else { continue };
        let Ok(stat) = fs.stat(state, &name) else { continue };
        if !name.bytes().ends_with(b".journal") || stat.mtime.sec.saturating_add(AGE) > now {
            continue;
        }
        let Some(place) = Whereabouts::of(fs, state, &name) else {
            // A kill came before its first byte, and before any of its partial file.
            if stat.size == 0 {
                fs.unlink(state, &name)?;
            }
            continue;
        };
        let is_root = |root: &&&F::Dir| fs.stat_dir(root).is_ok_and(|stat| (stat.dev, stat.ino) == place.root);
        let Some(root) = roots.iter().find(is_root) else { continue };
        if let Ok(dir) = fs.open_dir(root, &place.dir, Links::Refuse) {
            let is_done = match place.part {
                // What cannot be listed has been looked at.
                UNDERWAY => below(fs, &dir, &place.dir, (uid, now), say).unwrap_or(true),
                part => {
                    let of = crate::name::partial(place.id);
                    remove(fs, &dir, &place.dir, &of, |stat| (stat.dev, stat.ino) == part, say)?
                }
            };
            if !is_done {
                continue;
            }
        }
        fs.unlink(state, &name)?;
    }
    Ok(())
}

/// Removes this partial file if it is the one; `false`: a transfer has it.
fn remove<F: Fs>(
    fs: &F,
    dir: &F::Dir,
    path: &RelPath,
    part: &Name,
    is_it: impl Fn(&Stat) -> bool,
    say: &dyn Fn(&str),
) -> io::Result<bool> {
    // It may have the permissions of the file that it was to be. What NFS locks has to be open for writing.
    let opened = fs.open_write(dir, part).or_else(|_| fs.open_read(dir, part, Links::Refuse));
    if let Ok((file, stat)) = opened
        && is_it(&stat)
    {
        if !fs.try_lock(&file).unwrap_or(false) {
            return Ok(false);
        }
        fs.unlink(dir, part)?;
        tell(path, part, say);
    }
    Ok(true)
}

fn tell(path: &RelPath, part: &Name, say: &dyn Fn(&str)) {
    let dir = escape(path.bytes());
    say(&format!("removed {dir}/{part:?}: a transfer that nobody has taken up for 30 days"));
}

/// Removes the old partial files of this user below a directory; `false`: there are others that are not old yet, or in use.
fn below<F: Fs>(fs: &F, dir: &F::Dir, path: &RelPath, of: (u32, i64), say: &dyn Fn(&str)) -> io::Result<bool> {
    let mut is_done = true;
    for entry in fs.list(dir)? {
        let Ok(name) = Name::any(&entry?.name) else { continue };
        if is_partial(name.bytes()) {
            // Its modification time may be that of its source.
            let is_old = |stat: &Stat| stat.ctime.sec.saturating_add(AGE) <= of.1;
            match fs.stat(dir, &name) {
                Ok(stat) if stat.uid != of.0 => {}
                Ok(stat) if !is_old(&stat) => is_done = false,
                // A link cannot be locked, and has this name for a moment only.
                Ok(stat) if stat.kind == Kind::Symlink => {
                    fs.unlink(dir, &name)?;
                    tell(path, &name, say);
                }
                Ok(_) => is_done &= remove(fs, dir, path, &name, is_old, say)?,
                Err(_) => {}
            }
        } else if !is_reserved(name.bytes())
            && let Ok(path) = path.join(&name)
            && let Ok(dir) = fs.open_child(dir, &name)
        {
            is_done &= below(fs, &dir, &path, of, say).unwrap_or(true);
        }
    }
    Ok(is_done)
}
