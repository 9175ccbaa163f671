//! The run-time compiler (hiprtc): source text to a code object.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use linkspan_dl::Library;

/// Where it is: a library of its own since ROCm 6, inside of the runtime before.
const NAMES: [&str; 5] =
    ["libhiprtc.so.7", "libhiprtc.so.6", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"];

type Program = *mut c_void;

linkspan_dl::api! {
    /// The table (hiprtc.h).
    struct Rtc;
    fn hiprtcCreateProgram(
        *mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char,
    ) -> c_int;
    fn hiprtcCompileProgram(Program, c_int, *const *const c_char) -> c_int;
    fn hiprtcGetProgramLogSize(Program, *mut usize) -> c_int;
    fn hiprtcGetProgramLog(Program, *mut c_char) -> c_int;
    fn hiprtcGetCodeSize(Program, *mut usize) -> c_int;
    fn hiprtcGetCode(Program, *mut c_char) -> c_int;
    fn hiprtcDestroyProgram(*mut Program) -> c_int;
    optional;
}

/// A program, destroyed when it goes.
struct Made<'a>(&'a Rtc, Program);

impl Drop for Made<'_> {
    fn drop(&mut self) {
        // SAFETY: the compiler's own handle, destroyed once.
        unsafe { (self.0.hiprtcDestroyProgram)(&raw mut self.1) };
    }
}

/// Compiles a kernel's source with these options (`--offload-arch=gfx90a`; without one, for the current device).
///
/// # Errors
/// A text: this machine has no HIP compiler, or the log of the compilation that failed.
pub fn compile(source: &str, options: &[&str]) -> Result<Vec<u8>, String> {
    let library = Library::open_first(&NAMES).map_err(|why| format!("no HIP compiler on this machine: {why}"))?;
    let rtc = Rtc::load(&library).map_err(|symbol| format!("{} has no {symbol}", library.name()))?;
    compile_by(&rtc, source, options)
}

/// As [`compile`], by the compiler inside of the runtime that is in use, or of the same version beside it, where there is one.
pub(crate) fn compile_with(runtime: &Library, source: &str, options: &[&str]) -> Result<Vec<u8>, String> {
    let beside = |_| {
        let name = runtime.name().replace("libamdhip64", "libhiprtc");
        Library::open(&name).ok().and_then(|library| Rtc::load(&library).ok())
    };
    match Rtc::load(runtime).map_or_else(beside, Some) {
        Some(rtc) => compile_by(&rtc, source, options),
        None => compile(source, options),
    }
}

fn compile_by(rtc: &Rtc, source: &str, options: &[&str]) -> Result<Vec<u8>, String> {
    let text = |t: &str| CString::new(t).map_err(|e| e.to_string());
    let (source, options) = (text(source)?, options.iter().map(|o| text(o)).collect::<Result<Vec<_>, _>>()?);
    let options: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
    let mut made = Made(rtc, null_mut());
    // SAFETY: zero-terminated texts, no headers; writes one handle.
    let code =
        unsafe { (rtc.hiprtcCreateProgram)(&raw mut made.1, source.as_ptr(), c"unpack.c".as_ptr(), 0, null(), null()) };
    if code != 0 {
        return Err(format!("hiprtcCreateProgram answers {code}"));
    }
    // SAFETY: the program just made and as many options as are said.
    let code = unsafe { (rtc.hiprtcCompileProgram)(made.1, options.len() as c_int, options.as_ptr()) };
    if code != 0 {
        let log = bytes(made.1, rtc.hiprtcGetProgramLogSize, rtc.hiprtcGetProgramLog).unwrap_or_default();
        return Err(format!("the HIP compiler refuses the kernel ({code}): {}", String::from_utf8_lossy(&log).trim()));
    }
    bytes(made.1, rtc.hiprtcGetCodeSize, rtc.hiprtcGetCode)
}

type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Get = unsafe extern "C" fn(Program, *mut c_char) -> c_int;

/// What a pair of calls gives: first how long, then the bytes.
fn bytes(program: Program, size: Size, get: Get) -> Result<Vec<u8>, String> {
    let mut len = 0;
    // SAFETY: a live program; writes one size.
    let code = unsafe { size(program, &raw mut len) };
    let mut out = vec![0u8; len];
    // SAFETY: as many bytes as the compiler said it writes.
    let code = if code == 0 { unsafe { get(program, out.as_mut_ptr().cast()) } } else { code };
    if code == 0 { Ok(out) } else { Err(format!("the HIP compiler answers {code}")) }
}

#[cfg(test)]
mod tests {
    /// Needs a compiler, but no GPU.
    #[test]
    fn the_kernel_compiles_where_there_is_a_compiler() {
        match super::compile(linkspan_gpu::unpack::KERNEL, &["--offload-arch=gfx90a"]) {
            // ELF: a code object.
            Ok(code) => assert!(code.len() > 500 && code.windows(4).any(|w| w == b"\x7fELF")),
            Err(why) if why.starts_with("no HIP compiler") => {
                eprintln!("cannot be tested here: {why} (Debian: libamdhip64-5)");
                return;
            }
            Err(why) => panic!("{why}"),
        }
        let why = super::compile("nonsense", &["--offload-arch=gfx90a"]).unwrap_err();
        assert!(why.contains("error"), "{why}");
    }
}
