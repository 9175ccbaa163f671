//! What a test has in its hands: a kernel, its modules, guests to boot, a cable to join them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::cache::{Cache, Kernel, SYSTEMS};
use crate::error::{At, Error, Result};
use crate::files;
use crate::guest::spec::{SharedFolders, SystemDisk};
use crate::guest::{Guest, Job, Spec};
use crate::initrd::{self, Put};
use crate::modules::Modules;
use crate::tries::Nth;

/// Everything for tests on one kernel.
#[derive(Debug)]
pub(crate) struct Lab {
    /// The kernel that guests run.
    pub(crate) kernel: Kernel,
    /// What a test chooses by chance comes from it.
    pub(crate) seed: u64,
    place: SharedFolders,
    modules: Modules,
    logs: PathBuf,
    checks: usize,
    since: Instant,
    cpus: u32,
}

/// Tests of drivers that have races to lose: their guests have two processors.
const PARALLEL: [&str; 3] = ["ring-", "cable-", "rxe-"];

impl Lab {
    /// Prepares the initramfs of a kernel with modules and files given by the user.
    pub(crate) fn new(cache: &Cache, kernel: &str, more: &[PathBuf], puts: &[Put]) -> Result<Lab> {
        let kernel = cache.kernel(kernel)?;
        let modules = Modules::of(&kernel, more)?;
        let run = short_folder()?;
        let logs = cache.path("logs").join(&kernel.name);
        let initrd = run.join("initrd");
        initrd::make(cache, &kernel, &modules, more, puts, &initrd)?;
        let checked = kernel.checked();
        let (image, system) = (kernel.image(), None);
        let place = SharedFolders { root: cache.root(), image, initrd, run, logs: logs.clone(), checked, system };
        Ok(Lab { kernel, seed: 1, place, modules, logs, checks: 0, since: Instant::now(), cpus: 1 })
    }

    /// Prepares a whole system, into which `puts` come beside the sources of our driver.
    pub(crate) fn system(cache: &Cache, name: &str, puts: &[Put]) -> Result<Lab> {
        let kernel = cache.system(name)?;
        let (run, logs) = (short_folder()?, cache.path("logs").join(&kernel.name));
        let files = run.join("files");
        fs::write(&files, files::archive(puts)?).at(files.display())?;
        let system = Some(SystemDisk { base: kernel.dir.join("disk"), files });
        let (image, initrd) = (kernel.image(), kernel.dir.join("initrd"));
        let place =
            SharedFolders { root: cache.root(), image, initrd, run, logs: logs.clone(), checked: false, system };
        let modules = Modules::default();
        Ok(Lab { kernel, seed: 1, place, modules, logs, checks: 0, since: Instant::now(), cpus: 1 })
    }

    /// An archive for whole systems with our packages in it, those that were made on the system's release.
    pub(crate) fn packages(&self) -> Result<PathBuf> {
        let known = SYSTEMS.iter().find(|known| self.kernel.name == format!("debian{}", known.name));
        let suite = known.map_or("", |known| known.suite);
        let debs = std::env::var_os("DEBS").map(|dir| Path::new(&dir).join(suite)).unwrap_or_default();
        if !fs::read_dir(&debs).is_ok_and(|mut list| list.next().is_some()) {
            return Err(Error::NotPacked { path: debs, suite: suite.to_owned() });
        }
        let commit = fs::read_to_string(debs.with_file_name(format!("deb-{suite}.commit")));
        println!("       packages of {}", commit.unwrap_or_else(|_| "no known commit".to_owned()));
        let files = self.place.run.join("packages");
        fs::write(&files, files::packages(&debs)?).at(files.display())?;
        Ok(files)
    }

    /// Begins a test: its logs go to a folder of its name; those of a second try lie beside it.
    pub(crate) fn begin(&mut self, test: &str, nth: Nth) -> Result<()> {
        let (first, second) = (self.logs.join(test), self.logs.join(format!("{test}.second")));
        let _ = fs::remove_dir_all(&second);
        self.place.logs = match nth {
            Nth::First => first,
            Nth::Second => second,
        };
        let _ = fs::remove_dir_all(&self.place.logs);
        fs::create_dir_all(&self.place.logs).at(self.place.logs.display())?;
        // Disks of whole systems begin anew with each test.
        for entry in fs::read_dir(&self.place.run).at(self.place.run.display())?.flatten() {
            if entry.path().extension().is_some_and(|end| end == "qcow2") {
                fs::remove_file(entry.path()).at(entry.path().display())?;
            }
        }
        (self.checks, self.since) = (0, Instant::now());
        self.cpus = if PARALLEL.iter().any(|prefix| test.starts_with(prefix)) { 2 } else { 1 };
        Ok(())
    }

    /// A guest to be.
    pub(crate) fn guest(&self, name: &str) -> Spec {
        let mut spec = Spec::new(name, &self.place);
        spec.cpus = self.cpus;
        spec
    }

    /// Starts guests at once and waits until all are there.
    pub(crate) fn boot<const N: usize>(&mut self, specs: [&Spec; N]) -> Result<[Guest; N]> {
        let guests = self.boot_all(&specs)?;
        guests.try_into().map_err(|_| Error::Check("a guest was lost while booting".to_owned()))
    }

    /// The same for a number of guests that is known only now.
    pub(crate) fn boot_all(&mut self, specs: &[&Spec]) -> Result<Vec<Guest>> {
        let begun = Instant::now();
        let mut guests = specs.iter().map(|spec| Guest::start(spec)).collect::<Result<Vec<Guest>>>()?;
        for guest in &mut guests {
            guest.ready()?;
        }
        let names: Vec<&str> = guests.iter().map(Guest::name).collect();
        self.say(&format!("{} up after {:.1} s", names.join(", "), begun.elapsed().as_secs_f64()));
        Ok(guests)
    }

    /// Ends guests in order; each must be calm and go.
    pub(crate) fn finish(&mut self, guests: impl IntoIterator<Item = Guest>) -> Result<()> {
        let guests: Vec<Guest> = guests.into_iter().collect();
        // With an interface of theirs up, the shutdown of host interfaces since 7.2 warns of rings that are still active. All
        // at once, as long as there is a peer to take leave of: the driver waits 10 s for one that does not answer.
        let down = "for net in /sys/class/net/thunderbolt*; do ip link set ${net##*/} down 2>/dev/null; done";
        let jobs: Result<Vec<Job>> = guests.iter().map(|guest| guest.spawn(down)).collect();
        for job in jobs? {
            job.wait(Duration::from_secs(60))?;
        }
        for guest in guests {
            guest.finish()?;
        }
        self.say("kernels calm, guests gone");
        Ok(())
    }

    /// Notes a check that held.
    pub(crate) fn say(&mut self, what: &str) {
        println!("       {what} ({:.1} s)", self.since.elapsed().as_secs_f64());
        self.since = Instant::now();
        self.checks += 1;
    }

    /// Notes a check that this kernel or this build cannot make, and why.
    pub(crate) fn skip(&mut self, what: &str, why: &str) {
        // At the beginning of a line, where .ci/stage.sh looks for it.
        println!("skipped: {what}: {why}");
        self.since = Instant::now();
    }

    /// Checks that held so far in this test.
    pub(crate) fn checks(&self) -> usize {
        self.checks
    }

    /// Whether the kernel has a module of this name.
    pub(crate) fn has(&self, module: &str) -> bool {
        self.modules.has(module)
    }

    /// The Debian root.
    pub(crate) fn root(&self) -> &Path {
        &self.place.root
    }

    /// Where sockets lie.
    pub(crate) fn run(&self) -> &Path {
        &self.place.run
    }

    /// Where the logs of this test lie.
    pub(crate) fn logs(&self) -> &Path {
        &self.place.logs
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.place.run);
    }
}

/// A new folder with a short path: sockets live in it.
fn short_folder() -> Result<PathBuf> {
    let base = std::env::temp_dir();
    for n in 0..1000 {
        let folder = base.join(format!("lab{}.{n}", std::process::id()));
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).at(folder.display()),
        }
    }
    Err(Error::Check(format!("{}: no free name for a folder", base.display())))
}
