//! Errors, contexts, statistics.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use linkspan::{Config, Context, Log};
use linkspan_fabric::params;
use linkspan_fabric::stats::{self, Counter};

use super::objects::{CONTEXTS, context, handle, id};
use crate::raw::{self, Out, OutList};
use crate::status::{Refusal, border, last_status, last_text, text_of};
use crate::text::fixed;
use crate::types::*;

/// Version of this release, as 0.1.0.
#[unsafe(no_mangle)]
pub extern "C" fn linkspan_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Text of the last error of this thread, valid until its next one. Successful calls leave it as it is.
#[unsafe(no_mangle)]
pub extern "C" fn linkspan_last_error() -> *const c_char {
    last_text()
}

/// Status of the last error of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn linkspan_last_status() -> i32 {
    last_status()
}

/// What a status means, with words in braces for the values at hand. Never null, valid as long as the library is loaded.
#[unsafe(no_mangle)]
pub extern "C" fn linkspan_status_text(status: i32) -> *const c_char {
    text_of(status).as_ptr()
}

/// A context of its own. `settings` go before the environment. `log` may be null: lines go to standard error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_context_open(
    settings: *const linkspan_setting,
    count: usize,
    log: linkspan_log,
    log_arg: *mut c_void,
    out: *mut *mut linkspan_context,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let (out, list) = unsafe { (Out::new(out, "out")?, raw::list(settings, count, "settings")?) };
        let mut pairs = Vec::new();
        for setting in list {
            // SAFETY: the caller's promise; the longest value is a path (PATH_MAX, linux/limits.h).
            let (name, value) = unsafe {
                let value = (!setting.value.is_null()).then(|| raw::text(setting.value, 4096, "value"));
                (raw::text(setting.name, 64, "name")?, value.transpose()?.unwrap_or_default())
            };
            if !params::ALL.iter().any(|p| p.name == name) {
                return Err(Refusal::Setting(name));
            }
            pairs.push((name, value));
        }
        let get = |name: &str| match pairs.iter().rev().find(|p| p.0 == name) {
            Some((_, value)) => Some(value.clone()),
            None => std::env::var(name).ok(),
        };
        let config = Config::read(&get).map_err(linkspan::Error::from)?;
        let log = match log {
            // SAFETY: the caller's promise.
            Some(call) => unsafe { raw::log(call, log_arg) },
            None => Log::stderr(),
        };
        out.set(handle(CONTEXTS.insert(Arc::new(Context::new(config, log)?))?));
        Ok(())
    })
}

/// The context of the process for transports that carry memory of GPUs: where a path reaches host memory only, it is staged,
/// unless LINKSPAN_GPU=off. Another one than that of a null context. Every call gives a handle of its own, to be closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_context_for_gpus(out: *mut *mut linkspan_context) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        out.set(handle(CONTEXTS.insert(Arc::new(Context::shared_for_gpus()?))?));
        Ok(())
    })
}

/// The context of the process for peers that are paired (`lspan pair`): both sides of every connection prove their keys, only peers that
/// this user trusts are let in, and hosts are found by name. `for_gpus` 1: for memory of GPUs too, as linkspan_context_for_gpus; 0: not.
/// Every call gives a handle of its own, to be closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_context_paired(for_gpus: u32, out: *mut *mut linkspan_context) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        let made = match for_gpus {
            0 => Context::paired(),
            1 => Context::paired_for_gpus(),
            other => return Err(Refusal::Value { name: "for_gpus", value: other.into(), takes: "0 or 1" }),
        };
        out.set(handle(CONTEXTS.insert(Arc::new(made?))?));
        Ok(())
    })
}

/// Gives a context back. Objects that were made from it stay valid, and so does its log.
#[unsafe(no_mangle)]
pub extern "C" fn linkspan_context_close(context: *mut linkspan_context) -> i32 {
    border(|| CONTEXTS.remove(id(context)).map(drop))
}

/// Which paths there are, and why not the others. `count`: capacity of `list`, then how many there are; `list` may be null to ask.
/// `context` null: that of the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_supported(
    from: *mut linkspan_context,
    list: *mut linkspan_support,
    count: *mut usize,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { OutList::new(list, count, "list")? };
        let entry = |s: linkspan::Support| linkspan_support {
            path: fixed(s.path),
            why: fixed(&s.why),
            usable: s.usable.into(),
            reserved: 0,
        };
        out.set(&context(from)?.supported().into_iter().map(entry).collect::<Vec<_>>())
    })
}

/// Statistics of all processes whose pages this user may read, by the settings of the environment (LINKSPAN_STATS_DIR). `count` as for
/// linkspan_supported.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_stats_read(list: *mut linkspan_stats, count: *mut usize) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { OutList::new(list, count, "list")? };
        let dir = Config::from_env().map_err(linkspan::Error::from)?.stats_dir;
        let call = "reading the statistics directory";
        let read = dir.map_or(Ok(Vec::new()), |dir| stats::read(&dir));
        let read = read.map_err(|source| linkspan::Error::System { call, source })?;
        let records = read.iter().flat_map(|process| process.records.iter().map(move |record| (process, record)));
        let entries = records.map(|(process, record)| linkspan_stats {
            pid: process.pid,
            used: record.counters.len().min(LINKSPAN_COUNTERS) as u32,
            uptime_ns: u64::try_from(process.uptime.as_nanos()).unwrap_or(u64::MAX),
            device: fixed(&record.device),
            transport: fixed(&record.transport),
            counters: std::array::from_fn(|n| record.counters.get(n).copied().unwrap_or(0)),
            latency: std::array::from_fn(|n| record.latency.get(n).copied().unwrap_or(0)),
        });
        out.set(&entries.collect::<Vec<_>>())
    })
}

/// Name of a counter with its unit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_counter_name(number: u32, name: *mut c_char, capacity: usize) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { raw::OutText::new(name, capacity, "name")? };
        let takes = "a number below the `used` of linkspan_stats";
        let found = Counter::ALL.get(number as usize);
        out.set(found.ok_or(Refusal::Value { name: "number", value: number.into(), takes })?.name())
    })
}
