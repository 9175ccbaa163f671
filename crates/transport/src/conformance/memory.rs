//! Where the suite's buffers are: on the host, or wherever a test says.

use std::cell::RefCell;

use crate::{MemSlice, StaticBuf};

/// Owner of a range of memory of any kind.
pub trait Buffer {
    /// A handle on the whole range, zeroed when it was made.
    fn slice(&self) -> MemSlice;
}

impl Buffer for StaticBuf {
    fn slice(&self) -> MemSlice {
        StaticBuf::slice(self)
    }
}

/// Makes a buffer of so many zero bytes.
type Maker = Box<dyn Fn(usize) -> Box<dyn Buffer>>;

thread_local! {
    static MAKER: RefCell<Option<Maker>> = const { RefCell::new(None) };
}

/// From here on, behaviours that run in this thread take their buffers from `make`: how a transport is tested with device
/// memory. Threads that a behaviour starts go on using host memory.
pub fn take_memory_from(make: impl Fn(usize) -> Box<dyn Buffer> + 'static) {
    MAKER.with(|m| *m.borrow_mut() = Some(Box::new(make)));
}

/// A buffer of the suite.
pub struct SuiteMemory(Box<dyn Buffer>);

impl std::fmt::Debug for SuiteMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({:?})", self.slice())
    }
}

impl SuiteMemory {
    /// `len` zero bytes.
    pub fn new(len: usize) -> SuiteMemory {
        MAKER.with(|m| {
            SuiteMemory(m.borrow().as_ref().map_or_else(|| Box::new(StaticBuf::new(len)) as _, |make| make(len)))
        })
    }

    /// A handle on the whole buffer.
    pub fn slice(&self) -> MemSlice {
        self.0.slice()
    }

    /// Bytes in it.
    pub fn len(&self) -> usize {
        crate::Buf::len(&self.slice())
    }

    /// Whether it holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
