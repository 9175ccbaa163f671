//! Loads a plugin file and plays the first calls of NCCL's part: which tables it has, what it says of itself.
//!
//! The file's code runs in this process, and what a broken one does is not ours to bound: call [`inspect`] in a
//! process of its own, which ends soon after. What can be checked before a call is: every pointer of a table must lead
//! into mapped memory of the right kind.

mod maps;

use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr;

use crate::abi::{
    Config, Devices, GetProperties, InitV6, InitV10, InitV11, NetV6, NetV7, NetV8, NetV9, NetV10, NetV11, NetV12,
    PropsV6, PropsV7, PropsV8, PropsV9, PropsV11, PropsV12, SUCCESS, TRAFFIC_CLASS_UNDEF,
};
use linkspan_dl::Library;
use maps::Maps;

/// Table versions that are looked for.
pub const VERSIONS: std::ops::RangeInclusive<u32> = 6..=12;

/// Most devices that are asked for; a plugin that reports more has lost its mind.
const DEVICES_MAX: c_int = 256;

/// Why a file is not a plugin that works.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The dynamic linker refuses it.
    #[error("LS0830 {file} cannot be loaded: {why}")]
    Load {
        /// The file.
        file: String,
        /// The error text of the dynamic linker.
        why: String,
    },
    /// It has none of the tables.
    #[error("LS0831 {file} exports none of ncclNetPlugin_v6 to v12: it is a library, but no net plugin")]
    NoTable {
        /// The file.
        file: String,
    },
    /// A table cannot be one.
    #[error("LS0832 {symbol} is no table: {field} is {value:#x}, which is not {wanted}")]
    BadTable {
        /// The table.
        symbol: String,
        /// Its field.
        field: &'static str,
        /// What the field holds.
        value: usize,
        /// What it should lead to.
        wanted: &'static str,
    },
    /// A call failed.
    #[error("LS0833 {symbol}: {call} returned {code}{}", meaning(*.code))]
    Call {
        /// The table.
        symbol: String,
        /// The function.
        call: &'static str,
        /// What it returned.
        code: c_int,
    },
    /// A call succeeded and its result makes no sense.
    #[error("LS0834 {symbol}: {call} reports {what}")]
    Nonsense {
        /// The table.
        symbol: String,
        /// The function.
        call: &'static str,
        /// What it reported.
        what: String,
    },
    /// The process cannot look at its own memory.
    #[error("LS0835 /proc/self/maps cannot be read")]
    Maps(#[source] std::io::Error),
}

fn meaning(code: c_int) -> &'static str {
    match code {
        1 => " (unhandled CUDA or HIP error)",
        2 => " (system error; LINKSPAN_LOG=info says more)",
        3 => " (internal error)",
        4 => " (invalid argument)",
        5 => " (invalid usage)",
        6 => " (remote error)",
        _ => "",
    }
}

/// A device as a table describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Mb/s.
    pub speed: i32,
    /// `PTR_*` bits of [`crate::abi`].
    pub ptr_support: i32,
}

/// What one table says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Version, of [`VERSIONS`].
    pub version: u32,
    /// Name of the plugin.
    pub name: String,
    /// Its devices.
    pub devices: Vec<Device>,
}

/// Loads `file` and asks every table it has, newest last: init, devices, getProperties of each, finalize where there is
/// one. The library stays loaded: code that its init started may still run.
///
/// # Errors
/// [`LoadError::Load`], [`LoadError::NoTable`], [`LoadError::BadTable`], [`LoadError::Call`], [`LoadError::Nonsense`],
/// [`LoadError::Maps`]: the first that is found.
pub fn inspect(file: &Path) -> Result<Vec<Table>, LoadError> {
    let refused = |why| LoadError::Load { file: file.display().to_string(), why };
    let path = file.to_str().ok_or_else(|| refused("its name is not UTF-8".to_owned()))?;
    let library = Library::open(path).map_err(refused)?;
    let mut found = Vec::new();
    for version in VERSIONS {
        let symbol = format!("ncclNetPlugin_v{version}");
        let name = CString::new(symbol.as_str()).unwrap_or_default();
        let Some(at) = library.symbol(&name) else { continue };
        found.push(Asked { symbol, version, at: at.as_ptr().cast_const() }.table()?);
    }
    if found.is_empty() {
        return Err(LoadError::NoTable { file: file.display().to_string() });
    }
    Ok(found)
}

/// A table that is being asked.
struct Asked {
    symbol: String,
    version: u32,
    at: *const c_void,
}

/// Functions of a table that are called here, whatever its version.
struct Calls {
    init: usize,
    finalize: Option<usize>,
    name: String,
    devices: Devices,
    properties: usize,
}

/// A properties structure of any version.
trait Props {
    fn device(&self) -> (*const c_char, c_int, c_int);
}

macro_rules! props {
    ($($ty:ty),*) => { $(impl Props for $ty {
        fn device(&self) -> (*const c_char, c_int, c_int) { (self.name, self.speed, self.ptr_support) }
    })* };
}
props!(PropsV6, PropsV7, PropsV8, PropsV9, PropsV11, PropsV12);

impl Asked {
    fn table(&self) -> Result<Table, LoadError> {
        let maps = Maps::read().map_err(LoadError::Maps)?;
        // The functions up to closeListen stand in the same places in every version; v11 brought finalize.
        let words = match self.version {
            6 => size_of::<NetV6>(),
            7 => size_of::<NetV7>(),
            8 => size_of::<NetV8>(),
            9 => size_of::<NetV9>(),
            10 => size_of::<NetV10>(),
            11 => size_of::<NetV11>(),
            _ => size_of::<NetV12>(),
        } / 8;
        let calls = self.calls(&maps, words)?;
        let mut ctx: *mut c_void = ptr::null_mut();
        self.init(&calls, &mut ctx)?;
        let mut count: c_int = -1;
        // SAFETY: a function of the table, which lies in executable memory; its type is that of the interface.
        self.worked("devices", unsafe { (calls.devices)(&raw mut count) })?;
        if !(0..=DEVICES_MAX).contains(&count) {
            return Err(self.nonsense("devices", format!("{count} devices")));
        }
        let devices = (0..count).map(|dev| self.device(&calls, dev)).collect::<Result<_, _>>()?;
        if let Some(finalize) = calls.finalize {
            // SAFETY: as above; the type is that of v11 and later.
            let finalize: crate::abi::Close = unsafe { std::mem::transmute(finalize) };
            // SAFETY: as above, with the context of its own init.
            self.worked("finalize", unsafe { finalize(ctx) })?;
        }
        Ok(Table { version: self.version, name: calls.name, devices })
    }

    fn worked(&self, call: &'static str, code: c_int) -> Result<(), LoadError> {
        if code == SUCCESS { Ok(()) } else { Err(LoadError::Call { symbol: self.symbol.clone(), call, code }) }
    }

    fn nonsense(&self, call: &'static str, what: String) -> LoadError {
        LoadError::Nonsense { symbol: self.symbol.clone(), call, what }
    }

    /// Checks every pointer of the table, whose words are those of the interface.
    fn calls(&self, maps: &Maps, words: usize) -> Result<Calls, LoadError> {
        const FIELDS: [&str; 22] = [
            "name",
            "init",
            "devices",
            "getProperties",
            "listen",
            "connect",
            "accept",
            "regMr",
            "regMrDmaBuf",
            "deregMr",
            "isend",
            "irecv",
            "iflush",
            "test",
            "closeSend",
            "closeRecv",
            "closeListen",
            "getDeviceMr",
            "irecvConsumed",
            "makeVDevice",
            "finalize",
            "setNetAttr",
        ];
        // Those that NCCL asks for before it calls them.
        const OPTIONAL: [usize; 5] = [8, 17, 18, 19, 21];
        let bad = |field, value, wanted| LoadError::BadTable { symbol: self.symbol.clone(), field, value, wanted };
        let at = self.at as usize;
        if !at.is_multiple_of(8) || !maps.readable(at, words * 8) {
            return Err(bad("its address", at, "readable memory for a whole table"));
        }
        // SAFETY: readable and aligned, as just checked; the words of a loaded table do not change.
        let table = unsafe { std::slice::from_raw_parts(self.at.cast::<usize>(), words) };
        let name = maps.text(table[0]).ok_or_else(|| bad(FIELDS[0], table[0], "a text"))?;
        for (index, &word) in table.iter().enumerate().skip(1) {
            let left_out = word == 0 && OPTIONAL.contains(&index);
            if !left_out && !maps.executable(word) {
                return Err(bad(FIELDS[index.min(FIELDS.len() - 1)], word, "a function"));
            }
        }
        // SAFETY: a pointer into executable memory; the type is that of the interface at this place.
        let devices = unsafe { std::mem::transmute::<usize, Devices>(table[2]) };
        let finalize = (self.version >= 11).then(|| table[20]);
        Ok(Calls { init: table[1], finalize, name, devices, properties: table[3] })
    }

    fn init(&self, calls: &Calls, ctx: &mut *mut c_void) -> Result<(), LoadError> {
        let config = Config { traffic_class: TRAFFIC_CLASS_UNDEF };
        // SAFETY: a function of the table, in executable memory, with the type that the interface gives it in this
        // version; without a logger, which the interface allows.
        let code = unsafe {
            match self.version {
                ..=9 => std::mem::transmute::<usize, InitV6>(calls.init)(None),
                10 => std::mem::transmute::<usize, InitV10>(calls.init)(None, None),
                _ => std::mem::transmute::<usize, InitV11>(calls.init)(&raw mut *ctx, 0, &raw const config, None, None),
            }
        };
        self.worked("init", code)
    }

    fn device(&self, calls: &Calls, dev: c_int) -> Result<Device, LoadError> {
        match self.version {
            6 => self.properties::<PropsV6>(calls, dev),
            7 => self.properties::<PropsV7>(calls, dev),
            8 => self.properties::<PropsV8>(calls, dev),
            9 | 10 => self.properties::<PropsV9>(calls, dev),
            11 => self.properties::<PropsV11>(calls, dev),
            _ => self.properties::<PropsV12>(calls, dev),
        }
    }

    fn properties<T: Props>(&self, calls: &Calls, dev: c_int) -> Result<Device, LoadError> {
        const CALL: &str = "getProperties";
        let mut props = MaybeUninit::<T>::zeroed();
        // SAFETY: a function of the table, in executable memory; `T` is the structure of this version.
        let code = unsafe { std::mem::transmute::<usize, GetProperties<T>>(calls.properties)(dev, props.as_mut_ptr()) };
        self.worked(CALL, code)?;
        // SAFETY: integers and pointers, for all of which zero is a value.
        let props = unsafe { props.assume_init() };
        let (name, speed, ptr_support) = props.device();
        let maps = Maps::read().map_err(LoadError::Maps)?;
        let name = maps
            .text(name as usize)
            .ok_or_else(|| self.nonsense(CALL, format!("device {dev} with a name at {:#x}", name as usize)))?;
        if speed <= 0 {
            return Err(self.nonsense(CALL, format!("device {dev} ({name}) with a speed of {speed} Mb/s")));
        }
        Ok(Device { name, speed, ptr_support })
    }
}
