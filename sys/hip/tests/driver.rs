//! Against stand-ins for libamdhip64 of several versions that the test builds, and against the library of this machine
//! (Debian: libamdhip64-5), with or without a GPU.
#![allow(clippy::unwrap_used)]

use std::ffi::{CStr, c_void};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use linkspan_gpu::conformance::{StaticGpuBuf, StaticPinned};
use linkspan_gpu::unpack::{Batch, CopyMode, Unpacker};
use linkspan_gpu::{Ability, ForeignStream, Gpu, GpuError, Pinned, Pointer};
use linkspan_hip::Driver;
use linkspan_transport::{Buf, MemSlice, StaticBuf};

/// Versions of the runtime as they report themselves: ROCm 5.2, 6.2 and 7.0.
const VERSIONS: [&str; 3] = ["-DVERSION=50221153", "-DVERSION=60241133", "-DVERSION=70051831"];

/// Builds a stand-in; `None`, and a line that says so, where there is no C compiler.
fn fake(name: &str, defines: &[&str]) -> Option<PathBuf> {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("lib{name}-{}.so", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake.c");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-O1", "-Wall", "-Werror", "-fPIC", "-shared"]).args(defines).arg("-o").arg(&out).arg(source);
    match cc.status() {
        Ok(status) => {
            assert!(status.success(), "the stand-in does not compile");
            Some(out)
        }
        Err(error) => {
            eprintln!("cannot be tested here: no C compiler ({error}); Debian: gcc libc6-dev");
            None
        }
    }
}

fn gpu(name: &str, defines: &[&str]) -> Option<Arc<dyn Gpu>> {
    let file = fake(name, defines)?;
    let driver = Driver::open_files(&["libnone.so.9", file.to_str().unwrap()]).unwrap();
    assert_eq!(driver.devices(), 2);
    Some(driver.device(1).unwrap())
}

fn each_version(name: &str, test: impl Fn(usize, Arc<dyn Gpu>)) {
    for (i, version) in VERSIONS.iter().enumerate() {
        if let Some(gpu) = gpu(&format!("{name}{i}"), &[version]) {
            test(5 + i, gpu);
        }
    }
}

#[test]
fn this_machine() {
    match Driver::open() {
        Err(error @ GpuError::NoLibrary { .. }) => {
            let text = error.to_string();
            assert!(text.starts_with("LS1301") && text.contains("libamdhip64.so.7"), "{text}");
            eprintln!("cannot be tested here: {text} (Debian: libamdhip64-5)");
        }
        Err(error) => panic!("the library is there and fails: {error}"),
        Ok(driver) => {
            println!("{} with {} devices", driver.version(), driver.devices());
            assert!(driver.version().starts_with("libamdhip64.so."), "{}", driver.version());
            let beyond = driver.device(driver.devices()).unwrap_err();
            assert!(matches!(beyond, GpuError::NoDevice { found, .. } if found == driver.devices()), "{beyond}");
            for ordinal in 0..driver.devices() {
                copies(&driver.device(ordinal).unwrap());
                unpacks(&driver.device(ordinal).unwrap());
            }
        }
    }
}

/// Copies both ways and on the device, with the bytes checked.
fn copies(gpu: &Arc<dyn Gpu>) {
    const LEN: usize = 300_000;
    let (up, down) = (StaticPinned::new(gpu, LEN).unwrap(), StaticPinned::new(gpu, LEN).unwrap());
    let (one, two) = (StaticGpuBuf::new(gpu, LEN).unwrap(), StaticGpuBuf::new(gpu, LEN).unwrap());
    let (stream, other, event) = (gpu.stream().unwrap(), gpu.stream().unwrap(), gpu.event().unwrap());
    assert!(gpu.done(event).unwrap(), "an event that was never recorded is done");
    let bytes: Vec<u8> = (0..LEN).map(|i| (i * 7 + i / 251) as u8).collect();
    assert!(up.slice().fill(0, &bytes));
    gpu.copy(stream, one.slice(), up.slice()).unwrap();
    gpu.copy(stream, two.slice(), one.slice()).unwrap();
    gpu.record(event, stream).unwrap();
    gpu.after(other, event).unwrap();
    gpu.copy(other, down.slice(), two.slice()).unwrap();
    gpu.record(event, other).unwrap();
    gpu.wait(event).unwrap();
    assert!(down.slice().to_vec() == bytes);
    assert!(one.slice().fill(13, b"hello"));
    assert_eq!(one.slice().sub(13, 5).unwrap().to_vec(), b"hello");
    assert!(!one.slice().fill(LEN as u64 - 1, b"hello"), "beyond the end");
    // And many, which the driver is never handed as they lie: the stand-in refuses that.
    assert!(two.slice().fill(0, &vec![0; LEN]) && two.slice().fill(1, &bytes[1..]) && two.slice().fill(0, &bytes[..1]));
    assert!(two.slice().to_vec() == bytes);
}

#[test]
fn the_stand_in_is_described() {
    each_version("plain", |major, gpu| {
        let info = gpu.info();
        assert_eq!((info.id().as_str(), info.name.as_str(), info.arch.as_str()), ("hip:1", "Fake Strix", "gfx 11.5"));
        assert_eq!(info.pci.as_deref(), Some("0000:fd:00.0"));
        assert!(info.driver.starts_with(&format!("{major}.")), "{}", info.driver);
        assert!(info.unified.integrated && !info.unified.host_reads);
    });
    if let Some(gpu) = gpu("apu", &["-DHOST_READS"]) {
        assert!(gpu.info().unified.host_reads);
    }
}

#[test]
fn bytes_arrive() {
    each_version("copies", |_, gpu| copies(&gpu));
}

/// The production launch, the production kernel (compiled for the host) and the production descriptors.
#[test]
fn pieces_are_put_in_place_in_every_way() {
    each_version("unpack", |_, gpu| unpacks(&gpu));
}

/// Pieces of a message that lie backwards in the pool, each at an alignment of its own.
fn unpacks(gpu: &Arc<dyn Gpu>) {
    const N: usize = 40;
    const STEP: usize = 5000;
    let pool = StaticGpuBuf::new(gpu, N * 8192).unwrap();
    let bytes: Vec<u8> = (0..N * 8192).map(|i| (i * 13 + i / 257) as u8).collect();
    assert!(pool.slice().fill(0, &bytes));
    for way in [CopyMode::Kernel, CopyMode::D2d, CopyMode::Host] {
        let dst = StaticGpuBuf::new(gpu, N * STEP).unwrap();
        let mut unpacker = Unpacker::new(gpu, Some(way)).unwrap();
        let mut batch = Batch::new(bytes.len() as u64, (N * STEP) as u64);
        let mut want = vec![0; N * STEP];
        for i in 0..N {
            let (src, len, to) = ((N - 1 - i) * 8192 + i, STEP - i % 17, i * STEP);
            batch.push(src as u64, len as u32, to as u64).unwrap();
            want[to..to + len].copy_from_slice(&bytes[src..src + len]);
        }
        assert!(dst.slice().fill(0, &vec![0; N * STEP]));
        assert!(unpacker.start(pool.slice(), dst.slice(), &batch).unwrap());
        while !unpacker.done().unwrap() {}
        assert!(dst.slice().to_vec() == want, "{way:?}");
    }
}

/// The numbers of `hipMemoryType` changed with 6.0: the same pointer must be read the same way by both.
/// A stream of another program is waited for, and ours has a handle by which others wait for it.
#[test]
fn streams_are_shared_with_others() {
    each_version("shared", |_, gpu| {
        let (up, mem) = (StaticPinned::new(&gpu, 64).unwrap(), StaticGpuBuf::new(&gpu, 64).unwrap());
        assert!(up.slice().fill(0, &[7; 64]) && mem.slice().fill(0, &[0; 64]));
        let stream = gpu.stream().unwrap();
        gpu.copy(stream, mem.slice(), up.slice()).unwrap();
        assert_eq!(mem.slice().to_vec(), [0; 64], "it runs late");
        for default in [ForeignStream::LEGACY, ForeignStream::PER_THREAD] {
            gpu.finish(default).unwrap();
        }
        assert_eq!(mem.slice().to_vec(), [0; 64], "the others are other streams");
        // SAFETY: a stream of this driver, which destroys none.
        let theirs = unsafe { ForeignStream::new(gpu.native(stream).unwrap()) };
        gpu.finish(theirs).unwrap();
        assert_eq!(mem.slice().to_vec(), [7; 64]);
        assert!(gpu.native(linkspan_gpu::Stream(9999)).is_err());
    });
}

#[test]
fn pointers_are_told_apart_in_every_version() {
    each_version("pointers", |major, gpu| {
        let (pinned, mem, host) =
            (Pinned::new(&gpu, 64).unwrap(), StaticGpuBuf::new(&gpu, 1000).unwrap(), StaticBuf::new(64));
        let base = mem.slice().as_ptr() as u64;
        let device = Pointer::Device { ordinal: 1, base, len: 64 << 10 };
        assert_eq!(gpu.pointer(base + 999).unwrap(), device, "ROCm {major}");
        assert_eq!(gpu.pointer(pinned.as_ptr() as u64).unwrap(), Pointer::Pinned, "ROCm {major}");
        assert_eq!(gpu.pointer(host.slice().as_ptr() as u64).unwrap(), Pointer::Host, "ROCm {major}");
    });
}

#[test]
fn exports_are_whole_pages_and_ours_to_close() {
    let Some(gpu) = gpu("export", &[VERSIONS[2]]) else { return };
    assert_eq!(gpu.info().dma_buf, Ability::Yes);
    let mem = StaticGpuBuf::new(&gpu, 20_000).unwrap();
    assert!(mem.slice().fill(5000, b"inside"));
    let out = gpu.export(mem.slice().sub(5000, 6000).unwrap()).unwrap();
    assert_eq!((out.offset, out.len), (5000 % 4096, 8192));
    let mut bytes = vec![0; out.len];
    File::open(format!("/proc/self/fd/{}", out.fd.as_raw_fd())).unwrap().read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes[out.offset as usize..][..6], b"inside");
    assert!(gpu.export(StaticBuf::new(64).slice()).unwrap_err().to_string().starts_with("LS1306"));
    assert!(gpu.flush_writes().unwrap_err().to_string().starts_with("LS1305"));
}

#[test]
fn memory_that_came_back_serves_again_until_the_driver_has_it_back() {
    let Some(gpu) = gpu("back", &[]) else { return };
    let known = |mem: MemSlice| matches!(gpu.pointer(mem.as_ptr() as u64), Ok(Pointer::Device { .. }));
    let sizes = (1..50).map(|n| gpu.alloc(n << 16).unwrap()).collect::<Vec<_>>();
    let kept = gpu.alloc(1).unwrap();
    for &mem in &sizes {
        // SAFETY: it came from `alloc`, and nothing uses it.
        unsafe { gpu.free(mem) };
    }
    let again = gpu.alloc(7 << 16).unwrap();
    assert_eq!(again.as_ptr(), sizes[6].as_ptr());
    gpu.give_back();
    assert!(known(again) && known(kept));
    let left = sizes.iter().filter(|mem| mem.as_ptr() != again.as_ptr() && known(**mem)).count();
    assert_eq!(left, 0, "of 48");
}

#[test]
fn errors_name_call_device_and_reason() {
    let Some(gpu) = gpu("errors", &[]) else { return };
    let text = gpu.alloc(2 << 30).unwrap_err().to_string();
    assert!(text.starts_with("LS1303 hipMalloc on hip:1 failed: out of memory (code 2)"), "{text}");
    let text = Driver::open_files(&["libc.so.6"]).unwrap_err().to_string();
    assert!(text.starts_with("LS1302 libc.so.6 has no hipRuntimeGetVersion"), "{text}");
}

/// The calling thread's device is as it was, whatever was called.
#[test]
fn the_current_device_is_left_as_it_was() {
    let Some(file) = fake("current", &[]) else { return };
    let gpu = Driver::open_files(&[file.to_str().unwrap()]).unwrap().device(1).unwrap();
    copies(&gpu);
    let _ = gpu.alloc(2 << 30);
    let library = linkspan_dl::Library::open(file.to_str().unwrap()).unwrap();
    let at = library.symbol(c"hipGetDevice").unwrap();
    let mut device = -1;
    // SAFETY: the stand-in's own function, which writes one integer.
    unsafe {
        std::mem::transmute::<*mut c_void, extern "C" fn(*mut i32) -> i32>(at.as_ptr())(&raw mut device);
    }
    assert_eq!(device, 0);
}

/// What a function of the stand-in answers.
fn asked(file: &Path, name: &CStr) -> i32 {
    let library = linkspan_dl::Library::open(file.to_str().unwrap()).unwrap();
    let at = library.symbol(name).unwrap();
    // SAFETY: the stand-in's own function.
    unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> i32>(at.as_ptr())() }
}

/// Begins the capture of a graph, or ends it.
fn capture(file: &Path, on: bool) {
    let library = linkspan_dl::Library::open(file.to_str().unwrap()).unwrap();
    let at = library.symbol(c"fake_capture").unwrap();
    // SAFETY: as above.
    unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(i32)>(at.as_ptr())(on.into()) }
}

#[test]
fn a_graph_that_is_captured_meanwhile_stays_valid_and_fails_no_call() {
    for (i, version) in VERSIONS.iter().enumerate() {
        let Some(file) = fake(&format!("capture{i}"), &[version]) else { return };
        let driver = Driver::open_files(&[file.to_str().unwrap()]).unwrap();
        capture(&file, true);
        let gpu = driver.device(1).unwrap();
        copies(&gpu);
        unpacks(&gpu);
        gpu.finish(ForeignStream::LEGACY).unwrap();
        drop(Pinned::new(&gpu, 64).unwrap());
        let mem = gpu.alloc(1 << 20).unwrap();
        assert!(matches!(gpu.pointer(mem.as_ptr() as u64).unwrap(), Pointer::Device { .. }));
        assert!(gpu.export(mem).is_ok() || i < 2);
        // SAFETY: it came from `alloc`, and nothing uses it.
        unsafe { gpu.free(mem) };
        gpu.give_back();
        assert_eq!(asked(&file, c"fake_invalidated"), 0, "the program's graph");
        assert_eq!(asked(&file, c"fake_mode"), 0, "the thread's mode is as it was");
        capture(&file, false);
    }
}

#[test]
fn where_a_capture_bars_every_query_work_is_not_done_before_it_ends() {
    let Some(file) = fake("bars", &["-DCAPTURE_BARS_QUERIES"]) else { return };
    let gpu = Driver::open_files(&[file.to_str().unwrap()]).unwrap().device(1).unwrap();
    let (up, mem) = (StaticPinned::new(&gpu, 64).unwrap(), StaticGpuBuf::new(&gpu, 64).unwrap());
    let (stream, event) = (gpu.stream().unwrap(), gpu.event().unwrap());
    gpu.copy(stream, mem.slice(), up.slice()).unwrap();
    gpu.record(event, stream).unwrap();
    capture(&file, true);
    for _ in 0..3 {
        assert!(!gpu.done(event).unwrap());
    }
    capture(&file, false);
    gpu.wait(event).unwrap();
}

#[test]
fn what_failed_for_us_is_not_the_programs_last_error() {
    for (i, version) in VERSIONS.iter().enumerate() {
        let Some(file) = fake(&format!("last{i}"), &[version, "-DNO_ATTRIBUTES"]) else { return };
        let nothing_left = |what: &str| assert_eq!(asked(&file, c"hipGetLastError"), 0, "{what}, version {version}");
        let driver = Driver::open_files(&[file.to_str().unwrap()]).unwrap();
        let gpu = driver.device(1).unwrap();
        nothing_left("attributes that the runtime does not know");
        let host = StaticBuf::new(64).slice();
        assert_eq!(driver.owner(host.as_ptr() as u64).unwrap(), None);
        nothing_left("the owner of host memory");
        assert_eq!(gpu.pointer(host.as_ptr() as u64).unwrap(), Pointer::Host);
        nothing_left("host memory that is asked about");
        assert!(gpu.alloc(2 << 30).is_err());
        nothing_left("memory that is not there");
        gpu.unpin(host);
        nothing_left("memory that is not pinned");
        // SAFETY: it is of the host, and `export` looks only at the address.
        let unknown = unsafe { MemSlice::on_device(gpu.place(), host.as_ptr() as u64, 64) };
        assert!(gpu.export(unknown).is_err());
        nothing_left("an export that is refused");
        // SAFETY: no allocation of the runtime, which refuses it.
        unsafe { gpu.free(unknown) };
        gpu.give_back();
        nothing_left("memory that the runtime does not take back");
    }
    let Some(file) = fake("last-none", &[VERSIONS[2], "-DDEVICES=0"]) else { return };
    assert_eq!(Driver::open_files(&[file.to_str().unwrap()]).unwrap().devices(), 0);
    assert_eq!(asked(&file, c"hipGetLastError"), 0, "no device");
}

/// As with a limit on locked memory, which may be raised later.
#[test]
fn a_device_that_cannot_be_opened_can_be_tried_for_ever() {
    let Some(file) = fake("locked", &["-DLITTLE_LOCKED"]) else { return };
    let driver = Driver::open_files(&[file.to_str().unwrap()]).unwrap();
    for _ in 0..5000 {
        let error = driver.device(0).unwrap_err();
        assert!(error.to_string().starts_with("LS1303"), "{error}");
    }
    assert_eq!(asked(&file, c"fake_streams"), 0, "no stream is made for nothing");
}

#[test]
fn the_runtime_that_the_process_has_is_taken_before_a_newer_one() {
    let (Some(new), Some(old)) = (fake("newer", &[VERSIONS[2]]), fake("older", &[VERSIONS[1]])) else { return };
    let names = [new.to_str().unwrap(), old.to_str().unwrap()];
    linkspan_dl::Library::open(names[1]).unwrap();
    let version = Driver::open_files(&names).unwrap().version();
    assert!(version.ends_with(" 6.2"), "{version}");
    // Of those that it has, and of those that it has not, the newest.
    linkspan_dl::Library::open(names[0]).unwrap();
    let version = Driver::open_files(&names).unwrap().version();
    assert!(version.ends_with(" 7.0"), "{version}");
}

#[test]
fn the_kernel_is_compiled_by_the_compiler_of_the_runtime_in_use() {
    let (Some(runtime), Some(_)) = (fake("amdhip64", &["-DNO_RTC"]), fake("hiprtc", &[])) else { return };
    let gpu = Driver::open_files(&[runtime.to_str().unwrap()]).unwrap().device(0).unwrap();
    assert_eq!(gpu.kernel(), Ability::Yes);
}
