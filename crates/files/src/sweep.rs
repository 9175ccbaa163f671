//! Partial files that nobody has taken up for a month go, each with a word.

use std::io;

use crate::fs::{Fs, Links};
use crate::journal::Whereabouts;
use crate::name::{Name, escape, partial};

/// Age from which on a partial file goes, in seconds.
const AGE: i64 = 30 * 24 * 3600;

/// Removes old partial files below these roots, and says which.
pub(crate) fn sweep<F: Fs>(fs: &F, state: &F::Dir, roots: &[&F::Dir], say: &dyn Fn(&str)) -> io::Result<()> {
    let now = fs.now().sec;
    for entry in fs.list(state)? {
        let Ok(name) = Name::any(&entry?.name) else { continue };
        let Ok(stat) = fs.stat(state, &name) else { continue };
        if !name.bytes().ends_with(b".journal") || stat.mtime.sec.saturating_add(AGE) > now {
            continue;
        }
        let Some(place) = Whereabouts::of(fs, state, &name) else { continue };
        let is_root = |root: &&&F::Dir| fs.stat_dir(root).is_ok_and(|stat| (stat.dev, stat.ino) == place.root);
        let Some(root) = roots.iter().find(is_root) else { continue };
        if let Ok(dir) = fs.open_dir(root, &place.dir, Links::Refuse) {
            let part = partial(place.id);
            // It may have the permissions of the file that it was to be. What NFS locks has to be open for writing.
            let opened = fs.open_write(&dir, &part).or_else(|_| fs.open_read(&dir, &part, Links::Refuse));
            if let Ok((file, stat)) = opened
                && (stat.dev, stat.ino) == place.part
            {
                if !fs.try_lock(&file).unwrap_or(false) {
                    continue;
                }
                fs.unlink(&dir, &part)?;
                let dir = escape(place.dir.bytes());
                say(&format!("removed {dir}/{part:?}: a transfer that nobody has taken up for 30 days"));
            }
        }
        fs.unlink(state, &name)?;
    }
    Ok(())
}
