//! `cargo xtask`: the project's own checks, generated files, packaging and test stages.
//!
//! Every stage of `.ci/run` beyond plain cargo is one subcommand here, so that whatever CI does can be done by hand
//! with the same words. Exit codes: 0 done, 1 failed, 2 usage, 77 cannot run on this machine (a line says why).
#![forbid(unsafe_code)]

mod bench;
mod capi;
mod check;
mod counts;
mod deny;
mod dist;
mod generate;
mod inventory;
mod lex;
mod machine;
mod package;
mod parts;
mod rename;
mod run;
mod stages;
mod surface;
mod tree;

use std::process::ExitCode;

use run::Outcome;
use stages::Half;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  check [--fix]          rules of the tree: unsafe list, links, lengths, layers, error codes, generated files
  rename [--dry-run] TABLE
                         renames files, identifiers and phrases of the whole tree by a table (xtask/src/rename.rs has its form)
  gen                    rewrites the generated files (docs/SAFETY.md, docs/ERRORS.md, docs/api, man pages, completions)
  counts [--list NAME]   counts that rise only with a reason (bench/counts.txt), or what one of them is made of
  deny [--snapshot DIR]  what the dependencies may be (deny.toml): advisories, licences, sources, bans, pinned versions; with
                         --snapshot the advisories anew, from a checkout of rustsec/advisory-db
  tests [DIR]            the tests of this tree, or of the one in DIR, as bench/tests-core-base.txt has them
  parts                  which optional parts can run here, and the Debian package a missing one needs
  dist [--dir DIR]       build of plugin, lspan and C library into DIR (default dist/), with their checks
  package tar [--for aarch64] | wheel [--sdist | --for aarch64] | deb [--on bookworm|trixie] [--again] | try DIR bookworm|trixie|noble | rpm | arch | image | crates | source DIR
                         what users install, into target/packages/, each tried as they do (docs/install.md)
  release [--without PART]...
                         all of these of one commit in one folder, with sums, a bill of materials (CycloneDX) and licences
  stage DIR [LIBDIR]     what a package holds, as it lies below a prefix (debian/rules); LIBDIR is lib where it is not said
  bench-pair BASE HEAD [--quick] [--pairs N] [--figure NAME]... [--instructions] [--record FILE]
                         is HEAD as fast as BASE (`core-base`: the commit in bench/core-base)? pairs of runs in turn
  bench-files [--small] [--rounds N] [--row NAME]... [--disk DIR] [--record FILE]
                         files over linkspan beside rsync, scp, cp, dd and sshfs, in turn (root; with tmpfs for three times 8 GiB)
  isend                  which of our functions one isend of the plugin visits until the kernel has its bytes, unoptimised and optimised (valgrind)
  plugin-host [ARGS]     plays NCCL's part against the built plugin (tests/plugin-host)
  foreign                a transport in a workspace of its own: the suite, the library and the plugin over it
  capi                   installs the C library below target/; its symbols and layout, tests in C and C++, CMake
  loom                   model checks of the lock-free parts
  planted                bugs planted in protocol, staging and device-memory TCP, each of which the tests must catch
  asan                   the one-sided library and what it stands on under AddressSanitizer
  miri                   its memory, views and books under Miri
  python [--torch]       builds the Python wheel in an environment of its own; its tests, mypy, pyright; with torch, if asked for
         --vllm          the connector between engines of vLLM on the processor: six gigabytes to fetch
  desktop [shots]        the window, in a root of Debian 13 (made once, 2 GB): builds it, and drives it through AT-SPI with the real
                         services; with shots its pages are drawn into target/desktop/shots instead
  netns NAME...|all [--once] | soak SECONDS [SEED]
                         tests that need network namespaces (root); what fails is run once more, with --once it is not
  fuzz [--seconds N] [TARGET]
                         every fuzz target (or one) for N seconds each, default 20
  lab WORDS              virtual machines with soft-RoCE and the virtual Thunderbolt cable: setup, list, run, shell, ...
  prometheus             a real Prometheus and node_exporter read `lspan metrics`; every query of dashboard and alerts is put to it
  unpack                 the GPU unpack kernel: on the host under sanitizers, and through every GPU compiler there is
  unpack --fetch         with NVIDIA's compiler fetched by pip for it
  unpack --ptx           makes its PTX anew (NVRTC 11.8, so that drivers since 520 take it)
  gpu [--no-build] [--record FILE]
                         everything that wants a GPU: drivers, device memory over each path, unpack, plugin, real NCCL; says
                         what is missing here
  gpu --build            builds it all into target/gpu, to be run with --no-build on a machine without Rust
  aarch64 [--fresh]      cross-builds and runs unit, layout and wire tests under qemu-user
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = tree::root();
    let outcome = match words.as_slice() {
        ["check"] => check::run(&root, false),
        ["check", "--fix"] => check::run(&root, true),
        ["rename", "--dry-run", table] => rename::run(&root, table, true),
        ["rename", table] => rename::run(&root, table, false),
        ["gen"] => generate::run(&root),
        ["counts"] => counts::run(&root, None),
        ["counts", "--list", name] => counts::run(&root, Some(name)),
        ["deny", rest @ ..] => deny::run(&root, rest),
        ["tests"] => inventory::run(&root),
        ["tests", dir] => inventory::run(std::path::Path::new(dir)),
        ["parts"] => parts::run(&root),
        ["dist"] => dist::run(&root, &dist::place(&root)),
        ["dist", "--dir", dir] => dist::run(&root, std::path::Path::new(dir)),
        ["package", rest @ ..] => package::run(&root, rest),
        ["release", rest @ ..] => package::release::run(&root, rest),
        ["stage", dir] => package::stage::run(&root, std::path::Path::new(dir), "lib"),
        ["stage", dir, libdir] => package::stage::run(&root, std::path::Path::new(dir), libdir),
        ["bench-pair", rest @ ..] => bench::run(&root, rest),
        ["bench-files", rest @ ..] => bench::files::run(&root, rest),
        ["isend"] => bench::visited::run(&root),
        ["plugin-host", rest @ ..] => stages::plugin_host(&root, rest),
        ["foreign"] => stages::foreign(&root),
        ["capi"] => capi::test(&root),
        ["loom"] => stages::loom(&root),
        ["planted"] => stages::planted(&root),
        ["asan"] => stages::asan(&root),
        ["miri"] => stages::miri(&root),
        ["python"] => stages::python(&root, false),
        ["python", "--torch"] => stages::python(&root, true),
        ["python", "--vllm"] => stages::vllm(&root),
        ["desktop"] => stages::desktop(&root, false),
        ["desktop", "shots"] => stages::desktop(&root, true),
        ["netns", rest @ ..] => stages::netns(&root, rest),
        ["fuzz", rest @ ..] => stages::fuzz(&root, rest),
        ["lab", rest @ ..] => stages::lab(&root, rest),
        ["prometheus"] => stages::prometheus(&root),
        ["unpack"] => stages::unpack::run(&root, false),
        ["unpack", "--fetch"] => stages::unpack::run(&root, true),
        ["unpack", "--ptx"] => stages::unpack::ptx(&root),
        ["gpu"] => stages::gpu(&root, None, Half::Both),
        ["gpu", "--build"] => stages::gpu(&root, None, Half::Build),
        ["gpu", "--no-build"] => stages::gpu(&root, None, Half::Run),
        ["gpu", "--record", file] => stages::gpu(&root, Some(file), Half::Both),
        ["gpu", "--no-build", "--record", file] => stages::gpu(&root, Some(file), Half::Run),
        ["aarch64"] => stages::aarch64(&root, false),
        ["aarch64", "--fresh"] => stages::aarch64(&root, true),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Outcome::Done
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Outcome::Done => ExitCode::SUCCESS,
        Outcome::Failed(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
        Outcome::Skipped(why) => {
            println!("skipped: {}: {why}", words[0]);
            ExitCode::from(run::SKIP)
        }
    }
}
