//! libibverbs, opened at run time.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::Error;
use crate::abi::{
    IbvAsyncEvent, IbvCompChannel, IbvContext, IbvCq, IbvDevice, IbvDeviceAttr, IbvGid, IbvGidEntry, IbvMr, IbvPd,
    IbvPortAttr, IbvQp, IbvQpAttr, IbvQpInitAttr,
};

const NAME: &CStr = c"libibverbs.so.1";
const LIBRARY: &str = "libibverbs.so.1";

type QueryGidEx = unsafe extern "C" fn(*mut IbvContext, u32, u32, *mut IbvGidEntry, u32, usize) -> c_int;

type QueryGidTable = unsafe extern "C" fn(*mut IbvContext, *mut IbvGidEntry, usize, u32, usize) -> isize;

/// ibv_reg_dmabuf_mr(3): offset, length, address, descriptor, rights.
pub(super) type RegDmabufMr = unsafe extern "C" fn(*mut IbvPd, u64, usize, u64, c_int, c_int) -> *mut IbvMr;

macro_rules! library {
    ($($field:ident = $name:literal : $type:ty),* $(,)?; optional $($opt:ident = $oname:literal : $otype:ty),* $(,)?) => {
        /// Its functions.
        pub(super) struct Library {
            $(pub(super) $field: $type,)*
            $(pub(super) $opt: Option<$otype>,)*
        }

        impl Library {
            fn load() -> Result<Library, Error> {
                // SAFETY: a zero-terminated name. The library's constructors run; it has none that matter to us.
                let handle = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
                if handle.is_null() {
                    return Err(Error::NoLibrary { library: LIBRARY, why: told() });
                }
                Ok(Library {
                    $($field: {
                        let at = symbol(handle, $name).ok_or(Error::NoFunction { library: LIBRARY, name: to_str($name) })?;
                        // SAFETY: the function of this name has this type (`infiniband/verbs.h`); the library is
                        // never unloaded.
                        unsafe { std::mem::transmute::<*mut c_void, $type>(at) }
                    },)*
                    $($opt: symbol(handle, $oname).map(|at| {
                        // SAFETY: as above.
                        unsafe { std::mem::transmute::<*mut c_void, $otype>(at) }
                    }),)*
                })
            }
        }
    };
}

library! {
    get_device_list = c"ibv_get_device_list": unsafe extern "C" fn(*mut c_int) -> *mut *mut IbvDevice,
    free_device_list = c"ibv_free_device_list": unsafe extern "C" fn(*mut *mut IbvDevice),
    open_device = c"ibv_open_device": unsafe extern "C" fn(*mut IbvDevice) -> *mut IbvContext,
    close_device = c"ibv_close_device": unsafe extern "C" fn(*mut IbvContext) -> c_int,
    query_device = c"ibv_query_device": unsafe extern "C" fn(*mut IbvContext, *mut IbvDeviceAttr) -> c_int,
    query_port = c"ibv_query_port": unsafe extern "C" fn(*mut IbvContext, u8, *mut IbvPortAttr) -> c_int,
    query_gid = c"ibv_query_gid": unsafe extern "C" fn(*mut IbvContext, u8, c_int, *mut IbvGid) -> c_int,
    query_pkey = c"ibv_query_pkey": unsafe extern "C" fn(*mut IbvContext, u8, c_int, *mut u16) -> c_int,
    alloc_pd = c"ibv_alloc_pd": unsafe extern "C" fn(*mut IbvContext) -> *mut IbvPd,
    dealloc_pd = c"ibv_dealloc_pd": unsafe extern "C" fn(*mut IbvPd) -> c_int,
    reg_mr = c"ibv_reg_mr": unsafe extern "C" fn(*mut IbvPd, *mut c_void, usize, c_int) -> *mut IbvMr,
    dereg_mr = c"ibv_dereg_mr": unsafe extern "C" fn(*mut IbvMr) -> c_int,
    create_comp_channel = c"ibv_create_comp_channel": unsafe extern "C" fn(*mut IbvContext) -> *mut IbvCompChannel,
    destroy_comp_channel = c"ibv_destroy_comp_channel": unsafe extern "C" fn(*mut IbvCompChannel) -> c_int,
    create_cq = c"ibv_create_cq":
        unsafe extern "C" fn(*mut IbvContext, c_int, *mut c_void, *mut IbvCompChannel, c_int) -> *mut IbvCq,
    destroy_cq = c"ibv_destroy_cq": unsafe extern "C" fn(*mut IbvCq) -> c_int,
    get_cq_event = c"ibv_get_cq_event":
        unsafe extern "C" fn(*mut IbvCompChannel, *mut *mut IbvCq, *mut *mut c_void) -> c_int,
    ack_cq_events = c"ibv_ack_cq_events": unsafe extern "C" fn(*mut IbvCq, u32),
    create_qp = c"ibv_create_qp": unsafe extern "C" fn(*mut IbvPd, *mut IbvQpInitAttr) -> *mut IbvQp,
    modify_qp = c"ibv_modify_qp": unsafe extern "C" fn(*mut IbvQp, *mut IbvQpAttr, c_int) -> c_int,
    query_qp = c"ibv_query_qp":
        unsafe extern "C" fn(*mut IbvQp, *mut IbvQpAttr, c_int, *mut IbvQpInitAttr) -> c_int,
    destroy_qp = c"ibv_destroy_qp": unsafe extern "C" fn(*mut IbvQp) -> c_int,
    get_async_event = c"ibv_get_async_event": unsafe extern "C" fn(*mut IbvContext, *mut IbvAsyncEvent) -> c_int,
    ack_async_event = c"ibv_ack_async_event": unsafe extern "C" fn(*mut IbvAsyncEvent);
    optional
    query_gid_ex = c"_ibv_query_gid_ex": QueryGidEx,
    query_gid_table = c"_ibv_query_gid_table": QueryGidTable,
    reg_mr_iova2 = c"ibv_reg_mr_iova2": unsafe extern "C" fn(*mut IbvPd, *mut c_void, usize, u64, u32) -> *mut IbvMr,
    reg_dmabuf_mr = c"ibv_reg_dmabuf_mr": RegDmabufMr,
}

fn symbol(handle: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a handle of dlopen that is never closed, and a zero-terminated name. The default version of a symbol is
    // the newest, IBVERBS_1.1 for those that have two.
    let at = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!at.is_null()).then_some(at)
}

fn to_str(name: &'static CStr) -> &'static str {
    name.to_str().unwrap_or("?")
}

fn told() -> String {
    // SAFETY: dlerror returns null or a text that lives until the next call on this thread.
    let text: *const c_char = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason given".to_owned();
    }
    // SAFETY: not null, zero-terminated, and no call in between.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The library, loaded once for the process when it is first asked for. A failure is tried again.
pub(super) fn library() -> Result<&'static Library, Error> {
    static LOADED: OnceLock<Library> = OnceLock::new();
    if let Some(library) = LOADED.get() {
        return Ok(library);
    }
    let library = Library::load()?;
    Ok(LOADED.get_or_init(|| library))
}
