//! Seeded histories of requests: connections are lost before a request has come or before its answer has, it is repeated, and
//! others change the same names in between. After each of them it is asked whether it had effect once.

use std::collections::BTreeMap;

use super::{Random, SimFs};
use crate::lock;
use crate::name::RelPath;
use crate::ops;
use crate::serve::answers::Answers;
use crate::wire::{PeerPath, Request};

/// Names that come up.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "d/e", "f/g"];

fn path(random: &mut Random) -> (&'static str, RelPath) {
    let name = NAMES[random.below(NAMES.len())];
    (name, RelPath::new(name.as_bytes()).unwrap_or_default())
}

fn request(random: &mut Random) -> Request {
    let at = PeerPath { share: "data".into(), path: path(random).1 };
    match random.below(4) {
        0 | 1 => Request::Remove(at, true),
        2 => Request::Rename(at, path(random).1),
        _ => Request::Mkdir(at),
    }
}

/// Runs one history. With the planted bug the answers are forgotten with the connection.
///
/// # Errors
/// A text: which promise was broken, in which step.
pub fn run(seed: u64, forgets: bool) -> Result<(), String> {
    let mut random = Random(seed ^ 0x0072_6571_7565_7374);
    let fs = SimFs::new(random.number(), None, false);
    let root = fs.root();
    let mut answers = Answers::default();
    let mut numbers = [0u64; 3];
    for n in 0..10 + random.below(20) {
        let client = random.below(numbers.len());
        numbers[client] += 1;
        let (what, number) = (request(&mut random), numbers[client]);
        let ask = |answers: &mut Answers| {
            if forgets {
                *answers = Answers::default();
            }
            lock(&answers.of([client as u8; 16])).once(number, || ops::perform(&fs, &root, &what))
        };
        // The connection ends after the answer, before the request, or between the two.
        let lost = random.below(3);
        let first = if lost > 0 { Some(ask(&mut answers)) } else { None };
        if lost == 1 {
            continue;
        }
        let (name, bytes) = (path(&mut random).0, format!("{n} {}", random.number()).into_bytes());
        fs.users(|users| {
            if !users.is_dir(name) {
                users.write(name, &bytes, false);
            }
        });
        let mut before = BTreeMap::new();
        fs.users(|users| before = users.files());
        let again = ask(&mut answers);
        let Some(first) = first else { continue };
        let mut after = BTreeMap::new();
        fs.users(|users| after = users.files());
        if first != again {
            return Err(format!("{what:?} is answered with {first:?}, and when repeated with {again:?}"));
        }
        if before != after {
            return Err(format!("{what:?}, repeated, has effect twice: {:?}", before.keys()));
        }
    }
    Ok(())
}
