//! `org.linkspan.User1.Tests`.

use std::time::Duration;

use linkspan_user::Error;
use linkspan_user::suite::{Suite, TESTS};
use linkspan_user::task::Kind;
use linkspan_user::work;
use serde::Deserialize;
use zbus::message::Header;
use zbus::object_server::ObjectServer;
use zbus::zvariant::OwnedObjectPath;
use zbus::{Connection, interface};

use super::UserError;
use super::call::{Calls, options, texts};
use crate::Dict;

/// Sizes of messages: `lspan perf` takes the same.
const SIZES: std::ops::RangeInclusive<u64> = 1..=1 << 30;

/// How many of them.
const SIZES_MOST: usize = 64;

/// Longest measurement, ms.
const DURATION_MS: std::ops::RangeInclusive<u64> = 1..=3_600_000;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    sizes: Vec<u64>,
    duration_ms: Option<u64>,
}

/// The interface.
pub(crate) struct Tests(pub(crate) Calls);

fn suites(test: &str, options: &Options) -> Result<Vec<Suite>, UserError> {
    let bad = |text: String| UserError::from(Error::Usage(text));
    if options.sizes.len() > SIZES_MOST || options.sizes.iter().any(|size| !SIZES.contains(size)) {
        return Err(bad(format!("sizes: {SIZES_MOST} of {} to {} bytes are the most", SIZES.start(), SIZES.end())));
    }
    let time = options.duration_ms;
    if let Some(ms) = time.filter(|ms| !DURATION_MS.contains(ms)) {
        let (least, most) = (DURATION_MS.start(), DURATION_MS.end());
        return Err(bad(format!("duration_ms is {ms}, and must be {least} to {most}")));
    }
    let of = |test: &str| {
        let none = || bad(format!("test {test:.32?} is none; write all or one of {}", TESTS.join(", ")));
        Suite::of(test, &options.sizes, time.map(Duration::from_millis)).ok_or_else(none)
    };
    if test == "all" { TESTS.iter().map(|test| of(test)).collect() } else { Ok(vec![of(test)?]) }
}

/// Measurements against peers that run `lspan perf serve`.
#[interface(name = "org.linkspan.User1.Tests")]
impl Tests {
    /// Starts a test: `bw`, `lat`, `jitter`, `load`, `multi`, or `all` of them. One at a time. Options: sizes (at, bytes), duration_ms (t,
    /// of each measurement).
    #[zbus(out_args("task"))]
    async fn start(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        #[zbus(object_server)] objects: &ObjectServer,
        test: String,
        peer: String,
        options: Dict,
    ) -> Result<OwnedObjectPath, UserError> {
        self.0.own(connection, &header).await?;
        texts("peer", [&peer])?;
        let suites = suites(&test, &self::options(&options)?)?;
        let asked = (Kind::Test, &*peer, vec![test]);
        self.0.begin(objects, asked, move |task| work::test(task, &suites)).await
    }
}
