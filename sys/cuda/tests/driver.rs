//! Against a stand-in for libcuda that the test builds, and against this machine's driver if it has one.
#![allow(clippy::unwrap_used)]

use std::ffi::{CStr, c_void};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use linkspan_cuda::Driver;
use linkspan_gpu::conformance::{StaticGpuBuf, StaticPinned};
use linkspan_gpu::unpack::{Batch, CopyMode, Unpacker};
use linkspan_gpu::{Ability, ForeignStream, Gpu, GpuError, Pinned, Pointer};
use linkspan_transport::{Buf, MemSlice, StaticBuf};

/// Builds the stand-in with these defines; `None`, and a line that says so, where there is no C compiler.
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
    let driver = Driver::open_file(fake(name, defines)?.to_str().unwrap()).unwrap();
    assert_eq!(driver.devices(), 1);
    Some(driver.device(0).unwrap())
}

#[test]
fn this_machine() {
    match Driver::open() {
        Err(error @ GpuError::NoLibrary { .. }) => {
            let text = error.to_string();
            assert!(text.starts_with("LS1301") && text.contains("libcuda.so.1"), "{text}");
            eprintln!("cannot be tested here: {text}");
        }
        Err(error) => panic!("the driver is there and fails: {error}"),
        Ok(driver) => {
            for ordinal in 0..driver.devices() {
                let gpu = driver.device(ordinal).unwrap();
                copies(&gpu);
                unpacks(&gpu);
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
    // Small ones at once, at any offset.
    assert!(one.slice().fill(13, b"hello"));
    assert_eq!(one.slice().sub(13, 5).unwrap().to_vec(), b"hello");
    assert!(!one.slice().fill(LEN as u64 - 1, b"hello"), "beyond the end");
    // And the lengths that go by two rows, with none beside them.
    for len in [0, 1, 2, 3, 4097, 24 << 10, (24 << 10) + 1] {
        let (to, from) = (one.slice().sub(5, len).unwrap(), up.slice().sub(9, len).unwrap());
        assert!(one.slice().fill(0, &vec![0xAA; LEN]));
        gpu.copy(stream, to, from).unwrap();
        gpu.record(event, stream).unwrap();
        gpu.wait(event).unwrap();
        let (all, len) = (one.slice().to_vec(), len as usize);
        assert!(all[5..5 + len] == bytes[9..9 + len], "{len}");
        assert!(all[..5].iter().chain(&all[5 + len..]).all(|b| *b == 0xAA), "{len}");
    }
    // And many, which the driver is never handed as they lie: the stand-in refuses that.
    assert!(two.slice().fill(0, &vec![0; LEN]) && two.slice().fill(1, &bytes[1..]) && two.slice().fill(0, &bytes[..1]));
    assert!(two.slice().to_vec() == bytes);
}

#[test]
fn the_stand_in_is_described() {
    let Some(gpu) = gpu("plain", &[]) else { return };
    let info = gpu.info();
    assert_eq!((info.id().as_str(), info.name.as_str(), info.arch.as_str()), ("cuda:0", "Fake H100", "sm_90"));
    assert_eq!((info.pci.as_deref(), info.numa), (Some("0000:fe:00.0"), None));
    assert_eq!((info.memory, info.driver.as_str()), (80 << 30, "12.9"));
    assert!(!info.unified.integrated && !info.unified.host_reads && info.direct.yes() && info.dma_buf.yes());
}

#[test]
fn bytes_arrive() {
    if let Some(gpu) = gpu("copies", &[]) {
        copies(&gpu);
    }
}

#[test]
fn work_is_late_and_events_say_when() {
    let Some(gpu) = gpu("late", &[]) else { return };
    let (up, mem) = (StaticPinned::new(&gpu, 64).unwrap(), StaticGpuBuf::new(&gpu, 64).unwrap());
    let (stream, event) = (gpu.stream().unwrap(), gpu.event().unwrap());
    gpu.copy(stream, mem.slice(), up.slice()).unwrap();
    gpu.record(event, stream).unwrap();
    assert!(!gpu.done(event).unwrap());
    gpu.wait(event).unwrap();
    assert!(gpu.done(event).unwrap());
    // A stream that was never given out, and one that came back.
    assert!(gpu.copy(linkspan_gpu::Stream(9999), mem.slice(), up.slice()).is_err());
    assert!(gpu.done(linkspan_gpu::Event(u32::MAX)).is_err());
    gpu.retire_stream(stream);
    assert_eq!(gpu.stream().unwrap(), stream);
}

/// A stream of another program is waited for, and ours has a handle by which others wait for it.
#[test]
fn streams_are_shared_with_others() {
    if let Some(gpu) = gpu("shared", &[]) {
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
    }
}

#[test]
fn pointers_are_told_apart() {
    let Some(gpu) = gpu("pointers", &[]) else { return };
    let (pinned, mem, host) =
        (Pinned::new(&gpu, 64).unwrap(), StaticGpuBuf::new(&gpu, 1000).unwrap(), StaticBuf::new(64));
    let base = mem.slice().as_ptr() as u64;
    // Allocations are rounded to 64 KiB.
    assert_eq!(gpu.pointer(base + 999).unwrap(), Pointer::Device { ordinal: 0, base, len: 64 << 10 });
    assert_eq!(gpu.pointer(pinned.as_ptr() as u64).unwrap(), Pointer::Pinned);
    assert_eq!(gpu.pointer(host.slice().as_ptr() as u64).unwrap(), Pointer::Host);
    let at = pinned.as_ptr() as u64;
    drop(pinned);
    assert_eq!(gpu.pointer(at).unwrap(), Pointer::Host, "unpinned");
}

#[test]
fn exports_are_whole_pages_and_ours_to_close() {
    let Some(gpu) = gpu("export", &[]) else { return };
    let mem = StaticGpuBuf::new(&gpu, 20_000).unwrap();
    assert!(mem.slice().fill(5000, b"inside"));
    let part = mem.slice().sub(5000, 6000).unwrap();
    let out = gpu.export(part).unwrap();
    assert_eq!((out.offset, out.len), (5000 % 4096, 8192));
    let mut bytes = vec![0; out.len];
    let path = format!("/proc/self/fd/{}", out.fd.as_raw_fd());
    File::open(&path).unwrap().read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes[out.offset as usize..][..6], b"inside");
    // Another test may have the number by then, of another file.
    let file = || std::fs::metadata(&path).map(|file| (file.dev(), file.ino())).ok();
    let exported = file();
    drop(out);
    assert_ne!(file(), exported, "the descriptor is closed");
    assert!(gpu.export(StaticBuf::new(64).slice()).unwrap_err().to_string().starts_with("LS1306"));
}

#[test]
fn what_a_device_cannot_do_is_said() {
    if let Some(gpu) = gpu("gb10", &["-DDMA_BUF=0"]) {
        let Ability::No(why) = &gpu.info().dma_buf else { panic!("no dma-buf here") };
        assert!(why.contains("DMA_BUF_SUPPORTED is 0"), "{why}");
        let mem = StaticGpuBuf::new(&gpu, 64).unwrap();
        assert!(gpu.export(mem.slice()).unwrap_err().to_string().starts_with("LS1305"));
    }
    if let Some(gpu) = gpu("old", &["-DOLD_DRIVER"]) {
        assert_eq!(gpu.info().dma_buf, Ability::No("the driver is older than 11.7".into()));
        gpu.flush_writes().unwrap();
    }
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
    let Some(file) = fake("errors", &[]) else { return };
    let driver = Driver::open_file(file.to_str().unwrap()).unwrap();
    let gpu = driver.device(0).unwrap();
    let text = gpu.alloc(2 << 30).unwrap_err().to_string();
    assert!(text.starts_with("LS1303 cuMemAlloc on cuda:0 failed: out of memory (code 2)"), "{text}");
    let text = driver.device(1).unwrap_err().to_string();
    assert!(text.starts_with("LS1304 there is no device cuda:1: the driver shows 1"), "{text}");
    let pinned = StaticPinned::new(&gpu, 64).unwrap();
    assert!(gpu.pin(pinned.slice()).unwrap_err().to_string().contains("code 712"), "pinned twice");
}

#[test]
fn no_device_is_no_error_and_a_foreign_library_is() {
    if let Some(file) = fake("none", &["-DDEVICES=0"]) {
        assert_eq!(Driver::open_file(file.to_str().unwrap()).unwrap().devices(), 0);
    }
    let text = Driver::open_file("libc.so.6").unwrap_err().to_string();
    assert!(text.starts_with("LS1302 libc.so.6 has no cuInit"), "{text}");
}

/// The production launch, the production kernel (compiled for the host) and the production descriptors.
#[test]
fn pieces_are_put_in_place_in_every_way() {
    let Some(gpu) = gpu("unpack", &[]) else { return };
    unpacks(&gpu);
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

/// The thread's context is as it was, whatever was called.
#[test]
fn the_context_stack_is_left_as_it_was() {
    let Some(file) = fake("stack", &[]) else { return };
    let gpu = Driver::open_file(file.to_str().unwrap()).unwrap().device(0).unwrap();
    copies(&gpu);
    let _ = gpu.alloc(2 << 30);
    assert_eq!(asked(&file, c"fake_depth"), 0);
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
    let Some(file) = fake("capture", &[]) else { return };
    let driver = Driver::open_file(file.to_str().unwrap()).unwrap();
    capture(&file, true);
    let gpu = driver.device(0).unwrap();
    copies(&gpu);
    unpacks(&gpu);
    gpu.finish(ForeignStream::LEGACY).unwrap();
    gpu.flush_writes().unwrap();
    drop(Pinned::new(&gpu, 64).unwrap());
    gpu.device_address(StaticPinned::new(&gpu, 64).unwrap().slice()).unwrap();
    let mem = gpu.alloc(1 << 20).unwrap();
    gpu.export(mem).unwrap();
    assert!(matches!(gpu.pointer(mem.as_ptr() as u64).unwrap(), Pointer::Device { .. }));
    // SAFETY: it came from `alloc`, and nothing uses it.
    unsafe { gpu.free(mem) };
    gpu.give_back();
    assert_eq!(asked(&file, c"fake_invalidated"), 0, "the program's graph");
    assert_eq!(asked(&file, c"fake_mode"), 0, "the thread's mode is as it was");
    capture(&file, false);
}

/// As with a limit on locked memory, which may be raised later.
#[test]
fn a_device_that_cannot_be_opened_can_be_tried_for_ever() {
    let Some(file) = fake("locked", &["-DLITTLE_LOCKED"]) else { return };
    let driver = Driver::open_file(file.to_str().unwrap()).unwrap();
    for _ in 0..5000 {
        let error = driver.device(0).unwrap_err();
        assert!(error.to_string().starts_with("LS1303"), "{error}");
    }
    assert_eq!(asked(&file, c"fake_streams"), 0, "no stream is made for nothing");
}
