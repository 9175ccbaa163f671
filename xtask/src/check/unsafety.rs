//! Where `unsafe` may live, and the count of it. `docs/SAFETY.md` is generated from this.

use std::collections::BTreeMap;

use crate::lex::{Kind, Token, tokens};
use crate::tree::Source;

/// A part of the tree that may hold `unsafe`.
pub(crate) struct UnsafePlace {
    /// A file, or a folder when it ends in `/`.
    pub(crate) path: &'static str,
    /// Why it must.
    pub(crate) why: &'static str,
}

/// The allow-list. A new line here is a decision to be argued for in review.
pub(crate) const PLACES: [UnsafePlace; 30] = [
    UnsafePlace { path: "sys/net/", why: "socket calls, control messages and options that no safe crate covers" },
    UnsafePlace { path: "sys/netdev/", why: "netlink sockets and the calls of device-memory TCP" },
    UnsafePlace {
        path: "sys/shmring/",
        why: "memory shared with another process: mapping, atomics in it, cross-memory attach",
    },
    UnsafePlace { path: "sys/verbs/src/abi.rs", why: "the C structures of libibverbs" },
    UnsafePlace {
        path: "sys/verbs/src/hw/",
        why: "libibverbs, opened at run time, and calls through its devices' tables",
    },
    UnsafePlace { path: "sys/verbs/src/", why: "the promises of devices, those in software included" },
    UnsafePlace { path: "sys/tbring/", why: "calls of the device of linkspan.ko, and queues in memory that it maps" },
    UnsafePlace { path: "sys/mem/", why: "copies of memory that others change meanwhile, and pages of the system" },
    UnsafePlace { path: "sys/uffd/", why: "userfaultfd, and tests that unmap" },
    UnsafePlace {
        path: "sys/dl/",
        why: "the dynamic linker, and tables of functions from libraries opened at run time",
    },
    UnsafePlace {
        path: "sys/thread/",
        why: "the signal mask of a thread, which no safe crate covers, and what is dropped in another thread than its owner's",
    },
    UnsafePlace { path: "sys/cuda/", why: "calls into the CUDA driver" },
    UnsafePlace { path: "sys/hip/", why: "calls into the HIP runtime" },
    UnsafePlace {
        path: "crates/gpu/src/sim/handle.rs",
        why: "handles on the simulated device's memory, whose addresses that device checks itself",
    },
    UnsafePlace {
        path: "crates/transport/src/gpu/foreign.rs",
        why: "streams that other code has made, kept as the driver's handle",
    },
    UnsafePlace { path: "crates/gpu/", why: "owners of pinned and of device memory, and the promise of staged rails" },
    UnsafePlace {
        path: "crates/transport/src/",
        why: "handles on memory, kept as address and length, buffers, and the traits that are given handles",
    },
    UnsafePlace { path: "transports/", why: "the promises of rails, see `Rail`, and handles on memory of their own" },
    UnsafePlace { path: "crates/fabric/", why: "rails that pass calls on, and GPU memory bound to network cards" },
    UnsafePlace { path: "crates/linkspan/src/", why: "memory that is kept as long as an operation uses it" },
    UnsafePlace { path: "crates/perf/", why: "memory of operations" },
    UnsafePlace { path: "crates/user/src/link.rs", why: "the connection that tests use" },
    UnsafePlace { path: "bin/linkspan-tray/src/main.rs", why: "the locale, which is set before there are threads" },
    UnsafePlace { path: "fuzz/", why: "rails and links that misbehave" },
    UnsafePlace {
        path: "bindings/python/src/lend/",
        why: "memory that objects of Python lend by the buffer protocol, DLPack and __cuda_array_interface__: pointers from their structures",
    },
    UnsafePlace {
        path: "bindings/nccl/",
        why: "the C tables of NCCL and RCCL, calls through their pointers, memory that NCCL hands in, and the symbols that `export!` makes",
    },
    UnsafePlace { path: "bindings/libnccl-net/", why: "the exported symbols" },
    UnsafePlace { path: "tests/foreign/", why: "the promise of its rail, and the exported symbols of its plugin" },
    UnsafePlace { path: "tests/sim-plugin/", why: "the exported symbols of the plugin with cards in software" },
    UnsafePlace {
        path: "bindings/c/",
        why: "the exported symbols, and the pointers that C hands in (followed in `raw.rs` alone)",
    },
];

/// What `unsafe` is used for in one file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// `unsafe { ... }`.
    pub(crate) blocks: usize,
    /// `unsafe fn`, and `unsafe extern` function types.
    pub(crate) fns: usize,
    /// `unsafe impl` and `unsafe trait`.
    pub(crate) impls: usize,
    /// `#[unsafe(...)]`: exported names.
    pub(crate) attributes: usize,
    /// Comments that begin with SAFETY.
    pub(crate) arguments: usize,
}

impl Count {
    /// Whether the file is free of it.
    pub(crate) fn is_zero(&self) -> bool {
        self.blocks + self.fns + self.impls + self.attributes == 0
    }
}

/// The place that allows `unsafe` in this file.
pub(crate) fn place(path: &str) -> Option<&'static UnsafePlace> {
    PLACES.iter().find(|p| if p.path.ends_with('/') { path.starts_with(p.path) } else { path == p.path })
}

/// Every file with `unsafe` in it.
pub(crate) fn counts(sources: &[Source]) -> BTreeMap<&str, Count> {
    let counted = sources.iter().filter(|s| s.is_rust()).map(|s| (s.path.as_str(), count(&tokens(&s.text))));
    counted.filter(|(_, c)| !c.is_zero()).collect()
}

pub(crate) fn count(tokens: &[Token]) -> Count {
    let mut count = Count::default();
    for (at, token) in tokens.iter().enumerate() {
        match &token.kind {
            Kind::Word(w) if w == "unsafe" => match tokens.get(at + 1).map(|t| &t.kind) {
                Some(Kind::Mark('{')) => count.blocks += 1,
                Some(Kind::Mark('(')) => count.attributes += 1,
                Some(Kind::Word(next)) if next == "impl" || next == "trait" => count.impls += 1,
                _ => count.fns += 1,
            },
            Kind::Note(note) if note.starts_with("SAFETY:") => count.arguments += 1,
            _ => {}
        }
    }
    count
}

/// Unsafe outside the list; crate roots that do not forbid it; places that no longer need to be listed.
pub(crate) fn problems(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    let counts = counts(sources);
    for (path, count) in &counts {
        if place(path).is_none() {
            problems.push(format!("{path}: unsafe outside the allow-list of xtask/src/check/unsafety.rs ({count:?})"));
        }
    }
    for source in sources.iter().filter(|s| s.is_rust() && s.is_crate_root() && !s.is_test()) {
        let folder = source.path.split("src/").next().unwrap_or_default();
        if place(&source.path).is_some() {
            continue;
        }
        let part = PLACES.iter().any(|p| p.path.starts_with(folder));
        let wanted = if part { "#![deny(unsafe_code)]" } else { "#![forbid(unsafe_code)]" };
        if !source.text.lines().any(|line| line.trim() == wanted) {
            problems.push(format!("{}: the crate root lacks {wanted}", source.path));
        }
    }
    let unused = PLACES.iter().filter(|p| !sources.iter().any(|s| place(&s.path).is_some_and(|q| q.path == p.path)));
    problems.extend(unused.map(|p| format!("{}: on the unsafe allow-list, but not in the tree", p.path)));
    problems
}
