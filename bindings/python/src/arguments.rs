//! What calls are given, as the library takes it, how they wait, and what they give.

use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan::{Context, Error, Gpu, Notify};
use pyo3::Borrowed;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};

use crate::error::{BindingError, from_linkspan};
use crate::op::{Gives, Op, Under};
use crate::pages::Pages;
use crate::process::{Held, begin};
use crate::remote::{RemoteBuffer, Url};

/// How long `connect`, `find_host` and `unexpose` take at most when nothing else is said, in seconds. It stands in their text signatures too.
pub(crate) const PATIENCE: f64 = 10.0;

/// Where a host is asked for what it serves when no other port is named. It stands in the text signatures of `serve_at` too.
pub(crate) const PORT: u16 = 24_682;

/// How long a host is asked between two looks at signals, at most: as long as one address is given to answer.
const LOOK: Duration = Duration::from_secs(1);

/// Asks a paired host for the URL that a program there serves (`serve_at`). A host that serves none yet is asked again until it does.
/// What connects to the URL is made with `paired=True`.
///
/// Args:
///     host: The name that it was paired under (`lspan key list`), with `:PORT` behind it where the port is not 24682: then only the
///         one who has that key can be connected to at this `Url`, of which the text does not say so. It may also be an address or
///         another name of a host; then the key of any paired peer will do.
///     timeout: Seconds from 0; None waits a year.
///
/// Returns:
///     The URL.
///
/// Raises:
///     NotPaired: This user has no key.
///     ConnectFailed: No peer and no host has this name; nobody served there in time.
///     BadValue: Text that names no host; a timeout below 0 or no number.
///     SystemFailed, BadSetting, Forked: As for `Transport`.
#[pyfunction]
#[pyo3(signature = (host, timeout = Some(PATIENCE)), text_signature = "(host, timeout=10.0)")]
pub(crate) fn find_host(py: Python<'_>, host: &str, timeout: Option<f64>) -> PyResult<Url> {
    let until = Instant::now() + limit(timeout)?;
    begin()?;
    let context = Held::from(Arc::new(blocking(py, Context::paired)?));
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match py.detach(|| context.find_host(host, left.min(LOOK))) {
            // Nobody answers yet.
            Err(error) if error.code() == "LS0732" && left > LOOK => py.check_signals()?,
            found => return found.map(Url).map_err(|error| from_linkspan(py, &error)),
        }
    }
}

/// The GPU that is meant by "cuda:0" or "hip:1", or by something whose text that is, such as `torch.device("cuda")`; `None` for
/// "cpu".
fn gpu_of(device: Option<&Bound<'_, PyAny>>) -> PyResult<Option<String>> {
    let Some(device) = device else { return Ok(None) };
    let name = device.py().import("linkspan._tensors")?.getattr("device_name")?.call1((device,))?.to_string();
    match name.as_str() {
        "cpu" | "cpu:0" => Ok(None),
        _ if ["cuda", "hip"].contains(&name.split(':').next().unwrap_or_default()) => Ok(Some(name)),
        _ => Err(BindingError::Device(name.chars().take(64).collect()).into()),
    }
}

/// A transport, listener or endpoint for this device; `paired`: for peers that prove their keys.
pub(crate) fn made<T: Send>(
    py: Python<'_>,
    device: Option<&Bound<'_, PyAny>>,
    paired: bool,
    make: impl FnOnce(&Context) -> Result<T, Error> + Send,
    attach: impl FnOnce(&T, &Arc<dyn Gpu>) -> Result<(), Error> + Send,
) -> PyResult<T> {
    let gpu = gpu_of(device)?;
    begin()?;
    blocking(py, || {
        let gpu = gpu.as_deref().map(linkspan::gpu).transpose()?;
        let context = match (gpu.is_some(), paired) {
            (false, false) => Context::shared(),
            (true, false) => Context::shared_for_gpus(),
            (false, true) => Context::paired(),
            (true, true) => Context::paired_for_gpus(),
        };
        let made = make(&context?)?;
        gpu.map_or(Ok(()), |gpu| attach(&made, &gpu)).map(|()| made)
    })
}

/// Seconds as a duration; `None` and infinity are no limit.
pub(crate) fn seconds(timeout: Option<f64>) -> Result<Option<Duration>, BindingError> {
    match timeout {
        None => Ok(None),
        Some(s) if s >= 0.0 => Ok(Duration::try_from_secs_f64(s).ok()),
        Some(s) => Err(BindingError::Seconds(s)),
    }
}

/// When a time that begins now is over.
pub(crate) fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|t| Instant::now().checked_add(t))
}

/// As `seconds`, where there must be a limit: a year stands for none.
pub(crate) fn limit(timeout: Option<f64>) -> Result<Duration, BindingError> {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    Ok(seconds(timeout)?.unwrap_or(YEAR).min(YEAR))
}

/// True counts, a number is brought along.
pub(crate) fn notification(notify: Option<&Bound<'_, PyAny>>, fence: bool) -> PyResult<Option<Notify>> {
    let Some(object) = notify else { return Ok(None) };
    let made = if let Ok(flag) = object.cast::<PyBool>() {
        flag.is_true().then_some(Notify::COUNT)
    } else if object.is_none() {
        None
    } else {
        let value: Option<u64> = object.extract().ok();
        let value =
            value.ok_or_else(|| BindingError::Notify(object.repr().map_or_else(|_| "?".into(), |r| r.to_string())))?;
        Some(Notify::value(value))
    };
    Ok(made.map(|notify| if fence { notify.fenced() } else { notify }))
}

/// The type of an object, for messages.
pub(crate) fn kind(object: &Bound<'_, PyAny>) -> String {
    object.get_type().fully_qualified_name().map_or_else(|_| "this object".to_owned(), |n| n.to_string())
}

/// A number that is not below 0 and not too large.
pub(crate) fn number<T: TryFrom<u64>>(object: &Bound<'_, PyAny>) -> PyResult<T> {
    let number = match object.extract::<u64>() {
        Err(error) if !error.is_instance_of::<PyOverflowError>(object.py()) => return Err(error),
        found => found.ok().and_then(|number| T::try_from(number).ok()),
    };
    let given =
        || object.str().map_or_else(|_| "?".to_owned(), |text| text.to_string_lossy().chars().take(64).collect());
    number.ok_or_else(|| BindingError::Number { bits: 8 * size_of::<T>(), given: given() }.into())
}

/// The tag of a message.
pub(crate) struct Tag(pub(crate) u32);

impl<'py> FromPyObject<'_, 'py> for Tag {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Tag> {
        number(&object).map(Tag)
    }
}

/// As `number`, where it may be left out.
pub(crate) fn number_or_none<T: TryFrom<u64>>(object: &Bound<'_, PyAny>) -> PyResult<Option<T>> {
    if object.is_none() { Ok(None) } else { number(object).map(Some) }
}

pub(crate) fn url_of(url: &Bound<'_, PyAny>) -> PyResult<linkspan::Url> {
    if let Ok(url) = url.cast::<Url>() {
        return Ok(url.get().0.clone());
    }
    let text = url.cast::<PyString>().map_err(|_| BindingError::NoUrl(kind(url)))?;
    text.to_cow()?.parse().map_err(|e: linkspan::UrlError| from_linkspan(url.py(), &e.into()))
}

/// Counts by the names that Python has for them.
pub(crate) fn stats_by_name(stats: &linkspan::TransportStats) -> [(&'static str, u64); 12] {
    [
        ("writes", stats.writes),
        ("written_bytes", stats.written_bytes),
        ("reads", stats.reads),
        ("read_bytes", stats.read_bytes),
        ("sends", stats.sends),
        ("sent_bytes", stats.sent_bytes),
        ("receives", stats.receives),
        ("received_bytes", stats.received_bytes),
        ("notifications", stats.notifications),
        ("failures", stats.failures),
        ("paths", stats.paths),
        ("pending", stats.pending),
    ]
}

/// What a batch consists of: pairs of memory here and a place there.
pub(crate) fn pairs<'py, V>(
    parts: &Bound<'py, PyAny>,
    here: impl Fn(&Bound<'py, PyAny>) -> PyResult<V>,
) -> PyResult<Vec<(V, linkspan::RemoteBuffer)>> {
    let each = parts.try_iter()?.enumerate().map(|(at, part)| {
        let wrong = |error: PyErr| BindingError::Part { at, why: error.value(parts.py()).to_string() };
        let (memory, remote): (Bound<'py, PyAny>, RemoteBuffer) = part?.extract().map_err(wrong)?;
        Ok((here(&memory)?, remote.0))
    });
    each.collect()
}

/// Pages to read into.
pub(crate) fn writable<'a>(py: Python<'_>, pages: &'a Pages) -> PyResult<&'a linkspan::MutablePages<'static>> {
    pages.mutable.as_ref().ok_or_else(|| from_linkspan(py, &Error::ReadOnly))
}

/// Waits without Python's lock.
pub(crate) fn blocking<T: Send>(py: Python<'_>, call: impl FnOnce() -> Result<T, Error> + Send) -> PyResult<T> {
    py.detach(call).map_err(|e| from_linkspan(py, &e))
}

/// An operation that begins now.
pub(crate) fn begun(op: linkspan::Op<'static>, gives: Gives) -> Op {
    Op::new(Under::Op(op, gives))
}
