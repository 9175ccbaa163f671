//! `cargo xtask capi`: the installed library, used as its users use it, from C and C++.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use super::abi;
use super::install::{Installed, MAP, install};
use crate::run::{self, Outcome};

/// Asked of every test, in both languages.
const WARNINGS: [&str; 4] = ["-g", "-Wall", "-Wextra", "-Werror"];

/// Asked of C++ in addition: the header must not break code with more warnings on.
const MORE_WARNINGS: [&str; 3] = ["-Wpedantic", "-Wshadow", "-Wconversion"];

const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// The layout as C and Rust must both see it.
const LAYOUT: &str = "bindings/c/tests/abi.txt";

/// Where the stand-ins for drivers of GPUs lie, and how the tests are called that use them.
const DRIVERS: &str = "drivers";
const DEVICE_TESTS: &str = "device";

/// Tests that are compiled and run at a time.
const AT_ONCE: usize = 3;

/// How a test is compiled and linked.
struct Variant {
    /// The C compiler, with which its C++ compiler comes.
    cc: String,
    kind: &'static str,
    cpp: &'static str,
    with: &'static [&'static str],
    libs: Vec<String>,
}

/// A test program: its source, from which its compiler follows.
struct Test {
    name: String,
    source: PathBuf,
}

/// Everything, in the order in which a mistake is told best.
pub(crate) fn run(root: &Path) -> Outcome {
    for (program, package) in [("gcc", "gcc libc6-dev"), ("g++", "g++"), ("pkg-config", "pkg-config")] {
        if run::which(program).is_none() {
            return Outcome::Skipped(format!("no {program} (Debian: {package})"));
        }
    }
    match suite(root) {
        Ok(()) => Outcome::Done,
        Err(why) => Outcome::Failed(why),
    }
}

fn suite(root: &Path) -> Result<(), String> {
    let place = run::target_dir(root).join("capi");
    let installed = install(root, &place.join("prefix"))?;
    let bin = place.join("bin");
    fs::create_dir_all(&bin).map_err(|e| format!("{}: {e}", bin.display()))?;
    let suite = Suite { root, installed, bin };
    suite.symbols()?;
    suite.layout()?;
    suite.header()?;
    suite.drivers()?;
    let tests = suite.tests()?;
    let variants = suite.variants()?;
    let jobs = Mutex::new(tests.iter().flat_map(|test| variants.iter().map(move |variant| (test, variant))));
    let next = || jobs.lock().unwrap_or_else(|e| e.into_inner()).next();
    // They wait for peers and time-outs more than they compute.
    thread::scope(|scope| {
        let work = || std::iter::from_fn(next).try_for_each(|(test, variant)| suite.build_and_run(test, variant));
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        let ended =
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| Err("a test's thread".to_owned())));
        ended.collect::<Vec<_>>().into_iter().collect::<Result<(), _>>()
    })?;
    suite.cmake()
}

/// A clang that compiles both languages.
fn clang() -> Option<String> {
    let names = ["".to_owned()].into_iter().chain((14..=22).rev().map(|n| format!("-{n}")));
    names.map(|n| format!("clang{n}")).find(|n| run::which(n).is_some() && run::which(&plus(n)).is_some())
}

/// The C++ compiler beside a C compiler.
fn plus(cc: &str) -> String {
    if cc == "gcc" { "g++".to_owned() } else { cc.replacen("clang", "clang++", 1) }
}

struct Suite<'a> {
    root: &'a Path,
    installed: Installed,
    bin: PathBuf,
}

impl Suite<'_> {
    /// The exported names of the shared library, and what it needs to be loaded.
    fn symbols(&self) -> Result<(), String> {
        let problems = crate::dist::inspect_library(self.root, &self.installed);
        problems.iter().for_each(|problem| eprintln!("capi: {problem}"));
        if problems.is_empty() { Ok(()) } else { Err("the shared library is not what was promised".to_owned()) }
    }

    /// The layout, as a C program sees it that was written against the first release.
    fn layout(&self) -> Result<(), String> {
        let program = self.bin.join("abi");
        let mut compile = Command::new("gcc");
        compile.arg("-std=c11").args(WARNINGS).arg("-I").arg(self.installed.prefix.join("include"));
        compile.arg(self.root.join("bindings/c/tests/c/abi.c")).args(["-ldl", "-o"]).arg(&program);
        run::must(&mut compile)?;
        let seen = run::output(Command::new(&program).arg(&self.installed.shared))?;
        let promised = fs::read_to_string(self.root.join(LAYOUT)).map_err(|e| format!("{LAYOUT}: {e}"))?;
        let differ: Vec<String> = differences(&promised, &seen);
        differ.iter().for_each(|line| eprintln!("capi: {line}"));
        let map = fs::read_to_string(self.root.join(MAP)).map_err(|e| format!("{MAP}: {e}"))?;
        let pinned = seen.lines().filter(|l| l.starts_with("function ")).count();
        if pinned != abi::promised(&map).len() {
            return Err(format!("tests/c/abi.c pins {pinned} functions, {MAP} has {}", abi::promised(&map).len()));
        }
        if !differ.is_empty() {
            return Err(format!("the binary interface is not that of {LAYOUT}"));
        }
        println!("capi abi: {pinned} functions and {} lines of layout as promised", promised.lines().count() - pinned);
        Ok(())
    }

    /// Both headers alone, in every language version that they are for.
    fn header(&self) -> Result<(), String> {
        let include = self.installed.prefix.join("include");
        let mut compilers = vec!["gcc".to_owned()];
        compilers.extend(clang());
        for cc in &compilers {
            for (compiler, language, standard, header) in [
                (cc.clone(), "c", "c99", "linkspan.h"),
                (cc.clone(), "c", "c17", "linkspan.h"),
                (plus(cc), "c++", "c++11", "linkspan.h"),
                (plus(cc), "c++", "c++17", "linkspan.hpp"),
                (plus(cc), "c++", "c++20", "linkspan.hpp"),
                (plus(cc), "c++", "c++2b", "linkspan.hpp"),
            ] {
                let source = self.bin.join(if language == "c" { "header.c" } else { "header.cpp" });
                // Twice: the guard is a part of it.
                let text = format!("#include <{header}>\n#include <{header}>\nint main() {{ return 0; }}\n");
                let text = if language == "c" { text.replace("main()", "main(void)") } else { text };
                fs::write(&source, text).map_err(|e| format!("{}: {e}", source.display()))?;
                let mut check = Command::new(&compiler);
                check.arg(format!("-std={standard}")).args(WARNINGS).args(MORE_WARNINGS).arg("-fsyntax-only");
                run::must(check.arg("-I").arg(&include).arg(&source))?;
            }
        }
        println!(
            "capi headers: linkspan.h as C99 to C17 and C++11, linkspan.hpp as C++17 to C++23, by {}",
            compilers.join(", ")
        );
        Ok(())
    }

    /// Stand-ins for the drivers of GPUs, found by tests whose name begins so before any that the machine has.
    fn drivers(&self) -> Result<(), String> {
        let folder = self.bin.join(DRIVERS);
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for (source, library, define) in [
            ("sys/cuda/tests/fake.c", "libcuda.so.1", "-DDEVICES=1"),
            ("sys/hip/tests/fake.c", "libamdhip64.so.7", "-DVERSION=70051831"),
        ] {
            let mut compile = Command::new("gcc");
            compile.args(["-std=c11", "-O1", "-Wall", "-Werror", "-fPIC", "-shared", "-pthread", define]);
            run::must(compile.arg(self.root.join(source)).arg("-o").arg(folder.join(library)))?;
        }
        Ok(())
    }

    fn tests(&self) -> Result<Vec<Test>, String> {
        let mut found = Vec::new();
        for (dir, extension) in [("tests/c", "c"), ("tests/cpp", "cpp"), ("examples", "cpp")] {
            let dir = self.root.join("bindings/c").join(dir);
            let entries = fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
            let files = entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == extension));
            let before = found.len();
            for source in files {
                let stem = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                if stem != "abi" {
                    found.push(Test { name: format!("{extension}-{stem}"), source });
                }
            }
            if found.len() == before {
                return Err(format!("{} holds no test", dir.display()));
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Flags of a package, from pkg-config.
    fn flags(&self, package: &str, libs: &str) -> Result<Vec<String>, String> {
        let mut pkg = Command::new("pkg-config");
        pkg.env("PKG_CONFIG_PATH", self.installed.prefix.join("lib/pkgconfig")).env_remove("PKG_CONFIG_LIBDIR");
        let flags = run::output(pkg.args(["--cflags", libs, package]))?;
        Ok(flags.split_whitespace().map(str::to_owned).collect())
    }

    fn variants(&self) -> Result<Vec<Variant>, String> {
        // By hand, as little as possible between test and library: the archive, under the sanitizers.
        let archive = self.installed.archive.display().to_string();
        let include = format!("-I{}", self.installed.prefix.join("include").display());
        let libs = self.flags("linkspan-static", "--libs-only-l")?;
        let system = libs.into_iter().filter(|l| !l.starts_with("-l:"));
        let by_hand = [include, archive].into_iter().chain(system).collect();
        let (shared, archived) = (self.flags("linkspan", "--libs")?, self.flags("linkspan-static", "--libs")?);
        let gcc = |kind, cpp, with, libs| Variant { cc: "gcc".to_owned(), kind, cpp, with, libs };
        let mut variants = vec![
            gcc("sanitized", "c++17", &SANITIZERS[..], by_hand),
            gcc("shared", "c++20", &["-O2"], shared.clone()),
            gcc("static", "c++17", &["-O2"], archived),
        ];
        match clang() {
            Some(cc) => variants.push(Variant { cc, kind: "clang", cpp: "c++20", with: &["-O1"], libs: shared }),
            None => println!("skipped: capi: the same with clang: there is none (Debian: clang)"),
        }
        Ok(variants)
    }

    fn build_and_run(&self, test: &Test, Variant { cc, kind, cpp, with, libs }: &Variant) -> Result<(), String> {
        let program = self.bin.join(format!("{}-{kind}", test.name));
        let is_cpp = test.source.extension().is_some_and(|e| e == "cpp");
        let (compiler, standard) = if is_cpp { (plus(cc), *cpp) } else { (cc.clone(), "c11") };
        let mut compile = Command::new(&compiler);
        compile.arg(format!("-std={standard}")).args(WARNINGS).args(*with);
        if is_cpp {
            compile.args(MORE_WARNINGS);
        }
        compile.arg(&test.source).args(libs).args(["-lpthread", "-o"]).arg(&program);
        run::must(&mut compile)?;
        let mut lib = self.installed.prefix.join("lib").into_os_string();
        if test.source.file_stem().is_some_and(|stem| stem.to_string_lossy().starts_with(DEVICE_TESTS)) {
            lib.push(":");
            lib.push(self.bin.join(DRIVERS));
        }
        let mut limited = Command::new("timeout");
        limited.arg("150").arg(&program).env("LD_LIBRARY_PATH", lib);
        run::must(&mut limited).map_err(|why| {
            // As Rust's tests say it, for who looks for that.
            println!("test capi::{}::{kind} ... FAILED", test.name);
            format!("{} ({kind}, {compiler} {standard}): {why}", test.name)
        })?;
        println!("capi {} ({kind}, {compiler} {standard}): ok", test.name);
        Ok(())
    }

    /// A project that finds the package, builds with each of its targets and runs what it built.
    fn cmake(&self) -> Result<(), String> {
        if run::which("cmake").is_none() {
            println!("skipped: capi: find_package(linkspan): no cmake (Debian: cmake make)");
            return Ok(());
        }
        let build = self.bin.join("cmake");
        let _ = fs::remove_dir_all(&build);
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(self.root.join("bindings/c/tests/cmake")).arg("-B").arg(&build);
        configure.arg(format!("-DCMAKE_PREFIX_PATH={}", self.installed.prefix.display()));
        run::output(&mut configure)?;
        run::output(Command::new("cmake").arg("--build").arg(&build))?;
        run::must(Command::new("ctest").arg("--output-on-failure").current_dir(&build))?;
        println!("capi cmake: linkspan::shared, linkspan::static and linkspan::linkspan found, linked and run");
        Ok(())
    }
}

/// Lines of one text that the other does not have.
fn differences(promised: &str, seen: &str) -> Vec<String> {
    let gone = promised.lines().filter(|l| !seen.lines().any(|s| s == *l)).map(|l| format!("promised and not so: {l}"));
    let new = seen.lines().filter(|l| !promised.lines().any(|p| p == *l)).map(|l| format!("not in {LAYOUT}: {l}"));
    gone.chain(new).collect()
}
